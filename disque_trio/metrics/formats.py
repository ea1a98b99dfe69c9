"""The formats of a page of figures: what prometheus-client writes, and when it is asked for."""

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

_END = b"# EOF\n"
_FAMILIES = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Format:
    """A format.

    Args:
        encode: of prometheus-client.

    Attributes:
        content_type: its name.
        end: what a page ends with.
    """

    def __init__(self, content_type: str, encode: Callable[[Collector], bytes]) -> None:
        self.content_type = content_type
        self._encode = encode
        self._heads: dict[str, bytes] = {}
        self.end = encode(_Collected([]))

    def head(self, family: Family) -> bytes:
        """What stands before the samples of ``family``."""
        head = self._heads.get(family.name)
        if head is None:
            empty: Metric = _FAMILIES[family.kind](family.name, family.text)
            head = self._encode(_Collected([empty])).removesuffix(self.end)
            self._heads[family.name] = head
        return head


class Formats:
    """The formats that have been asked for."""

    def __init__(self) -> None:
        self._plain = Format(CONTENT_TYPE_LATEST, generate_latest)
        self._known = {CONTENT_TYPE_LATEST: self._plain}

    def of(self, accept: str) -> Format:
        """The one that suits a header "Accept" best."""
        try:
            encode, content_type = choose_encoder(accept)
        except (ValueError, IndexError):  # it is no such header
            return self._plain
        known = self._known.get(content_type)
        if known is None:
            known = Format(content_type, encode)
            if len(self._known) < 16:
                self._known[content_type] = known
        return known


class _ProcessCollector(ProcessCollector):
    """Needs no /proc/stat, which a service with ProcSubset=pid does not see."""

    def _boot_time(self) -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class Process:
    """The figures of this process, which the system has: ``process_*``.

    Args:
        proc: where the system shows processes.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._collector = _ProcessCollector(proc=proc, registry=None)

    def read(self) -> list[Metric]:
        """Ask the system; a thread may do that, as it takes a while with many open files."""
        return list(self._collector.collect())


def add_metrics(sheet: Sheet, metrics: Iterable[Metric]) -> None:
    """Write what prometheus-client has collected into ``sheet``."""
    for metric in metrics:
        if metric.type == "counter":
            family = sheet.counter(f"{metric.name}_total", metric.documentation)
        else:
            family = sheet.gauge(metric.name, metric.documentation)
        for sample in metric.samples:
            family.add(sample.value)


class _Collected(Collector):
    """What prometheus-client takes for a collector."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)
