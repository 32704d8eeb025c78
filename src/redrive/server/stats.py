"""Numbers: how many letters are where, how they came and went over time, and the books checked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response

from redrive.domain.access import Role
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.callers import desk_of, redaction_for, route
from redrive.server.closed_buckets import ClosedBuckets
from redrive.server.inputs import Fingerprint
from redrive.server.long_reads import read_long
from redrive.work.show import audit_document
from redrive.work.stats import read_stats, stats_document
from redrive.work.times import rfc3339

router = APIRouter(tags=["stats"])

Span = Literal["1h", "6h", "24h", "7d", "30d"]
_SPANS: Final[dict[Span, tuple[timedelta, int]]] = {
    "1h": (timedelta(minutes=1), 60),
    "6h": (timedelta(minutes=5), 72),
    "24h": (timedelta(minutes=20), 72),
    "7d": (timedelta(hours=2), 84),
    "30d": (timedelta(hours=8), 90),
}
"""How long a bucket is, and how many there are."""
_TRENDS: Final[dict[Span, tuple[timedelta, int]]] = {
    "1h": (timedelta(minutes=2), 30),
    "6h": (timedelta(minutes=15), 24),
    "24h": (timedelta(hours=1), 24),
    "7d": (timedelta(hours=6), 28),
    "30d": (timedelta(days=1), 30),
}
"""The same, coarser: for lines that are as wide as a thumb."""
MOST_TRENDS: Final = 100


@router.get("/stats", **route(Role.VIEWER, documents.Stats))
async def get_stats(request: Request) -> Response:
    """Letters by state, by error type and by queue, the largest groups, and how long they wait."""
    store = desk_of(request).store
    found = await read_stats(store, redaction_for(request), ledger=False)
    spread = await store.series.distribution()
    ages = await store.series.ages()
    return answer(
        {
            **stats_document(found),
            "errorTypes": [
                {"name": one.name, "letters": one.letters} for one in spread.error_types
            ],
            "queues": [{"name": one.name, "letters": one.letters} for one in spread.queues],
            "oldest": {state.value: rfc3339(at) for state, at in ages.oldest.items()},
            "timeToResolve": _waited(ages.waited),
        }
    )


def _waited(waited: list[timedelta]) -> dict[str, Any]:
    def at(part: float) -> float | None:
        if not waited:
            return None
        return round(waited[int((len(waited) - 1) * part)].total_seconds(), 3)

    return {"letters": len(waited), "median": at(0.5), "p95": at(0.95)}


@router.get("/stats/ledger", **route(Role.VIEWER, documents.LedgerCheck))
async def check_ledger(request: Request) -> Response:
    """The books against the letters themselves, in one snapshot. Counts every letter."""
    return answer(audit_document(await read_long(request, desk_of(request).store.books.audit)))


@router.get("/stats/series", **route(Role.VIEWER, documents.Series))
async def get_series(
    request: Request,
    span: Annotated[Span, Query(description="How far back.")] = "24h",
    group: Annotated[Fingerprint | None, Query(description="Of one group only.")] = None,
) -> Response:
    """Arrivals and resolutions of letters that are still kept, bucket by bucket, oldest first."""
    series = desk_of(request).store.series
    closed: ClosedBuckets = request.app.state.closed_buckets
    now = await series.now()
    edges = _edges(_SPANS[span], now)

    async def arrivals(some: Sequence[datetime]) -> list[int]:
        return await series.arrivals(some, group)

    resolutions = None
    if group is None:
        resolutions = await closed.counted(("resolutions", span), edges, now, series.resolutions)
    return answer(
        {
            "start": rfc3339(edges[0]),
            "seconds": int(_SPANS[span][0].total_seconds()),
            "arrivals": await closed.counted(("arrivals", span, group), edges, now, arrivals),
            "resolutions": resolutions,
        }
    )


@router.get("/stats/trends", **route(Role.VIEWER, documents.Trends))
async def get_trends(
    request: Request,
    group: Annotated[
        list[Fingerprint], Query(description="May repeat.", min_length=1, max_length=MOST_TRENDS)
    ],
    span: Annotated[Span, Query(description="How far back.")] = "24h",
) -> Response:
    """Arrivals of some groups, in fewer buckets than the time series has."""
    series = desk_of(request).store.series
    closed: ClosedBuckets = request.app.state.closed_buckets
    now = await series.now()
    edges = _edges(_TRENDS[span], now)
    items = []
    for one in dict.fromkeys(group):
        counts = await closed.counted(
            ("trends", span, one), edges, now, partial(series.arrivals, group=one)
        )
        items.append({"group": one, "arrivals": counts})
    seconds = int(_TRENDS[span][0].total_seconds())
    return answer({"start": rfc3339(edges[0]), "seconds": seconds, "items": items})


def _edges(buckets: tuple[timedelta, int], now: datetime) -> list[datetime]:
    """Where buckets begin and end: at whole multiples of their length, the last one under way."""
    width, number = buckets
    seconds = int(width.total_seconds())
    end = datetime.fromtimestamp((int(now.timestamp()) // seconds + 1) * seconds, now.tzinfo)
    return [end - width * (number - each) for each in range(number + 1)]
