"""Prometheus metrics of a watch. Needs the extra ``metrics``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from disque_spark.audit.result import Result
from disque_spark.audit.rules import KINDS
from disque_spark.watch.loop import Observer

_BUCKETS = (0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)  # s
_RECEIVER = ("receiver",)


class WatchMetrics(Observer):
    """The metrics of a watch.

    Args:
        registry: where the metrics are registered.
        now: returns seconds since the epoch.
    """

    def __init__(self, registry: CollectorRegistry, now: Callable[[], float] = time) -> None:
        self._now = now

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"disque_watch_{name}", text, labels, registry=registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"disque_watch_{name}", text, labels, registry=registry)

        self._looks = Histogram(
            "disque_watch_look_seconds",
            "Duration of looks.",
            buckets=_BUCKETS,
            registry=registry,
        )
        self._failures = counter("failures", "Looks that failed.")
        self._events = counter("events", "Events read.")
        self._until = gauge(
            "read_until_timestamp_seconds",
            "Unix time at which the last look began; everything before it has been read.",
        )
        self._until.set(now())
        self._last = gauge("last_event_timestamp_seconds", "Unix time of the last event.")
        self._findings = gauge("findings", "Current findings, by kind.", ("kind",))
        self._serious = gauge(
            "serious_findings", "Current findings about jobs that were lost or not done."
        )
        self._missing = gauge("missing_logs", "Nodes and segments whose logs are missing.")
        self._notices = counter("notices", "Notices delivered to the receiver.", _RECEIVER)
        self._refused = counter(
            "notices_failed", "Notices that could not be delivered to the receiver.", _RECEIVER
        )
        self._untold = gauge(
            "untold_rows", "Findings and figures not yet delivered to the receiver.", _RECEIVER
        )

    def looked(self, result: Result, began: float) -> None:
        """See ``Observer``."""
        self._looks.observe(max(self._now() - began, 0))
        self._events.inc(result.events)
        self._until.set(began)
        self._last.set(result.last / 1000)
        for kind in KINDS:
            self._findings.labels(kind).set(result.findings[kind])
        self._serious.set(result.serious)
        self._missing.set(len(result.missing_nodes) + len(result.missing_segments))

    def failed(self, error: str, seconds: float) -> None:
        """See ``Observer``."""
        self._failures.inc()

    def told(self, receiver: str, problem: str | None, left: int) -> None:
        """See ``Observer``."""
        self._notices.labels(receiver).inc(problem is None)
        self._refused.labels(receiver).inc(problem is not None)
        self._untold.labels(receiver).set(left)


@contextmanager
def serving(host: str, port: int) -> Iterator[WatchMetrics]:
    """Serve the metrics of a watch at ``/metrics`` during the block, as Prometheus text or
    OpenMetrics.

    Raises:
        OSError: it cannot listen at this address.
    """
    registry = CollectorRegistry()
    metrics = WatchMetrics(registry)
    server, _ = start_http_server(port, host, registry)
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
