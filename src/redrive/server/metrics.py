"""`/metrics`: all metrics in the text format of Prometheus.

It tells names of queues and error types, so whoever asks needs the role viewer, as for the API: a
token (`authorization` in Prometheus), or nothing where nobody has to log in. Every server shows the
same figures, those of the store, whatever process counted them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from redrive._version import __version__
from redrive.domain import metrics
from redrive.domain.access import Role
from redrive.domain.metrics import METRICS, Kind, Readings
from redrive.server.authentication import METRICS as METRICS_PATH
from redrive.server.callers import desk_of, route

router = APIRouter(tags=["metrics"])


@router.get(METRICS_PATH, **route(Role.VIEWER, None), response_class=PlainTextResponse)
async def get_metrics(request: Request) -> Response:
    """Every metric, for Prometheus."""
    readings = await desk_of(request).store.figures.read()
    readings.values[metrics.INFO.name] = {(__version__,): 1}
    return Response(expose(readings), media_type=CONTENT_TYPE_LATEST)


def expose(readings: Readings) -> bytes:
    """Metrics as Prometheus reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Readings(readings))
    return generate_latest(registry)


class _Readings(Collector):
    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        for metric in METRICS:
            if metric.kind is Kind.HISTOGRAM:
                yield self._histogram(metric)
            elif metric.name in self._readings.values:
                family = _FAMILIES[metric.kind](
                    metric.name, metric.help, labels=tuple(metric.labels)
                )
                for labels, value in self._readings.values[metric.name].items():
                    family.add_metric(labels, value)
                yield family

    def _histogram(self, metric: metrics.Metric) -> Metric:
        found = self._readings.histograms[metric.name]
        family = HistogramMetricFamily(metric.name, metric.help)
        buckets, so_far = [], 0
        for upper, number in found.buckets.items():
            so_far += number
            buckets.append((upper, so_far))
        family.add_metric((), buckets, found.total)
        return family


_FAMILIES: Final[dict[Kind, type[CounterMetricFamily | GaugeMetricFamily]]] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
}
