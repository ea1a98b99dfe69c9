"""The formats of a page of metrics: what prometheus-client writes, and which one to choose."""

import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, choose_encoder, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from disque_trio.metrics.sheet import Family, Sheet

_MOST = 16  # formats, each of which makes a page of its own
_END = b"# EOF\n"
_FAMILIES = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Format:
    """A format of the page.

    Args:
        encode: the encoder of prometheus-client.

    Attributes:
        content_type: the content type.
        end: the end of a page.
    """

    def __init__(self, content_type: str, encode: Callable[[Collector], bytes]) -> None:
        self.content_type = content_type
        self._encode = encode
        self._heads: dict[str, bytes] = {}
        self.end = encode(_Collected([]))

    def head(self, family: Family) -> bytes:
        """Return the lines before the samples of ``family``."""
        head = self._heads.get(family.name)
        if head is None:
            empty: Metric = _FAMILIES[family.kind](family.name, family.text)
            head = self._encode(_Collected([empty])).removesuffix(self.end)
            self._heads[family.name] = head
        return head


class Formats:
    """The formats that were requested so far."""

    def __init__(self) -> None:
        self._plain = Format(CONTENT_TYPE_LATEST, generate_latest)
        self._known = {CONTENT_TYPE_LATEST: self._plain}

    def named(self, content_type: str) -> Format:
        """Return the format with this content type, which ``of`` has returned before."""
        return self._known[content_type]

    def of(self, accept: str) -> Format:
        """Return the format that suits an Accept header best."""
        try:
            encode, content_type = choose_encoder(accept)
        except (ValueError, IndexError, TypeError):  # malformed header
            return self._plain
        known = self._known.get(content_type)
        if known is None:
            if len(self._known) == _MOST:  # the header says the version: no client needs so many
                return self._plain
            known = self._known[content_type] = Format(content_type, encode)
        return known


class _ProcessCollector(ProcessCollector):
    """Works without /proc/stat, which a service with ProcSubset=pid cannot see."""

    def _boot_time(self) -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemMetrics:
    """The metrics of this process from the operating system: ``process_*``.

    Args:
        proc: where the system's proc file system is.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._collector = _ProcessCollector(proc=proc, registry=None)

    def read(self) -> list[Metric]:
        """Read the metrics. Call it in a thread, since many open files make it slow."""
        return list(self._collector.collect())


def add_metrics(sheet: Sheet, metrics: Iterable[Metric]) -> None:
    """Write metrics collected by prometheus-client into ``sheet``."""
    for metric in metrics:
        if metric.type == "counter":
            family = sheet.counter(f"{metric.name}_total", metric.documentation)
        else:
            family = sheet.gauge(metric.name, metric.documentation)
        for sample in metric.samples:
            family.add(sample.value)


class _Collected(Collector):
    """A collector of given metrics, for prometheus-client."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)
