"""So many messages a second, evenly."""

from __future__ import annotations

import asyncio


class Rate:
    """Waits after what was published, so that no more than `per_second` go out."""

    def __init__(self, per_second: float) -> None:
        self._each = 1 / per_second
        self._due = asyncio.get_running_loop().time()

    async def __call__(self, published: int) -> None:
        if (wait := self.owed(published)) > 0:
            await asyncio.sleep(wait)

    def owed(self, published: int) -> float:
        """Seconds to wait after so many."""
        if not published:
            return 0.0
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now - self._each) + published * self._each
        return max(0.0, self._due - now)
