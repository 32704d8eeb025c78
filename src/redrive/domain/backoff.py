"""How long to wait before trying again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubling waits up to a cap, spread so that many processes do not come back at once."""

    first: timedelta = timedelta(milliseconds=200)
    cap: timedelta = timedelta(seconds=30)

    def delay(self, failures: int, chance: float) -> timedelta:
        """The wait after so many failures in a row; `chance` is random in [0, 1).

        Between half and all of the doubled time: never at once, never in step.
        """
        # 2 ** 40 times any first wait is beyond any cap, and larger powers overflow.
        doubled: timedelta = self.first * (1 << min(failures - 1, 40))
        whole = min(doubled, self.cap)
        return whole * (0.5 + chance / 2)
