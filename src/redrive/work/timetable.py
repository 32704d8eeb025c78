"""The schedule of the strategy `scheduled`: a cron expression in a time zone.

Guarantees, over changes of the clock too: an expression that names hours fires once for each wall
time it means. A wall time that a day does not have fires when the clock has jumped over it; one
that a day has twice fires the first time. An expression for every hour (`*`) fires whenever its
wall time really comes, so in a repeated hour twice. What is returned is UTC, and later than the
moment that was asked for.

Hours are an expression too: `[2, 3, 4]` is `0 2,3,4 * * *`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from redrive.domain.strategy import Timetable

if TYPE_CHECKING:
    from redrive.settings.sections import WorkerSettings

# No zone turns its clock back by more.
_LARGEST_STEP: Final = timedelta(hours=3)
_EVERY: Final = "*"
_FIELDS: Final = 5
_ANY_DAY: Final = datetime(2026, 1, 1)  # noqa: DTZ001  (wall times have no zone)


class Cron:
    """The moments that a cron expression of five fields means."""

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        """ValueError if it is no such expression."""
        fields = expression.split()
        if len(fields) != _FIELDS:
            raise ValueError(f"not a cron expression of five fields: {expression!r}")
        try:
            CronSim(expression, _ANY_DAY)
        except CronSimError as error:
            raise ValueError(f"not a cron expression: {expression!r}: {error}") from None
        self.expression = expression
        self.zone = ZoneInfo(zone)
        self._every_hour = fields[1] == _EVERY

    def after(self, moment: datetime) -> datetime:
        """The first moment that is later; ValueError if there is none in 50 years."""
        return min(self._candidates(moment))

    def _candidates(self, moment: datetime) -> Iterator[datetime]:
        """Later moments, among them the first: a wall time's first passing never comes before that
        of an earlier one, so all that could be earlier have been looked at when one is later."""
        wall = moment.astimezone(self.zone).replace(tzinfo=None, fold=0)
        # Of a repeated hour, wall times before this one may still come.
        start = wall - _LARGEST_STEP if self._every_hour else wall
        for each in CronSim(self.expression, start):
            first, second = (
                each.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)
            )
            # The clock jumps over it: with the offset after the jump it is before the one without.
            if second < first:
                if self._every_hour:
                    continue
                first = second = self._jump_between(second, first)
            if self._every_hour and second > moment:
                yield second
            if first > moment:
                yield first
                return

    def _jump_between(self, earlier: datetime, later: datetime) -> datetime:
        """The first second after a jump of the clock, that lies between two moments."""
        before = earlier.astimezone(self.zone).utcoffset()
        second = timedelta(seconds=1)
        low, high = 0, (later - earlier) // second
        while low < high:
            middle = (low + high) // 2
            if (earlier + middle * second).astimezone(self.zone).utcoffset() == before:
                low = middle + 1
            else:
                high = middle
        return earlier + low * second


def timetable_by(settings: WorkerSettings) -> Timetable:
    """The timetable that the settings have."""
    return Timetable(Cron(settings.schedule, settings.zone), settings.delays)
