"""Prometheus metrics of streaming queries: a listener of a Spark session keeps them, and an HTTP
server serves them. Needs the extra ``metrics``.

    from disque_spark.metrics import serve_metrics
    serve_metrics(spark, "127.0.0.1", 9103)
"""

import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Self
from wsgiref.simple_server import WSGIServer

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from disque_spark.progress import Backlog, QueueBacklog, parsed
from disque_trio.extras import how_to_install

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
    from prometheus_client.metrics import MetricWrapperBase
except ModuleNotFoundError as missing:
    raise ImportError(f"metrics need prometheus-client: {how_to_install('metrics')}") from missing

MOST = 100
"""The most queries with metrics: of those that have ended, the oldest are forgotten."""
MOST_NAME = 200  # the most characters of a queue's name in a label

_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)  # s
_QUERY = ("query",)
_QUEUE = ("query", "source", "queue")
_SOURCE = ("query", "source")  # the source's index: its description differs from start to start


class State(StrEnum):
    """The state of a query."""

    RUNNING = "running"
    IDLE = "idle"
    STOPPED = "stopped"
    FAILED = "failed"


_OVER = (State.STOPPED, State.FAILED)


class MicroBatch(NamedTuple):
    """What Spark reports about a batch.

    Attributes:
        number: the batch's number.
        seconds: the time it took.
        steps: seconds that its steps took, by name.
        rows: rows that it read.
        arriving, processed: rows per second.
        sources: its sources, in order.
        state_rows, state_bytes: size of the state of stateful operators.
    """

    number: int
    seconds: float
    steps: Mapping[str, float]
    rows: int
    arriving: float
    processed: float
    sources: "Sequence[Source]"
    state_rows: int
    state_bytes: int

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> Self:
        """Read it from a ``StreamingQueryProgress``, or its parsed JSON."""
        steps = {name: ms / 1000 for name, ms in (progress.get("durationMs") or {}).items()}
        sources = [Source.of(source) for source in progress.get("sources") or ()]
        operators = progress.get("stateOperators") or ()
        rows = progress.get("numInputRows")
        return cls(
            number=progress["batchId"],
            seconds=(progress.get("batchDuration") or 0) / 1000,
            steps=steps,
            rows=sum(source.rows for source in sources) if rows is None else rows,
            arriving=progress.get("inputRowsPerSecond") or 0.0,
            processed=progress.get("processedRowsPerSecond") or 0.0,
            sources=sources,
            state_rows=sum(operator["numRowsTotal"] for operator in operators),
            state_bytes=sum(operator["memoryUsedBytes"] for operator in operators),
        )


class Source(NamedTuple):
    """What Spark reports about a source in a batch.

    Attributes:
        rows: rows that were read.
        offset: where the batch ended, if offsets are numbers; for ``disque`` sources, they count
            batches.
        latest: where the source ends, likewise.
        backlog: the backlog, for ``disque`` sources only.
    """

    rows: int
    offset: float | None
    latest: float | None
    backlog: Backlog | None = None

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> Self:
        """Read it from a ``SourceProgress``, or its parsed JSON."""
        offset, latest = (_number(progress.get(name)) for name in ("endOffset", "latestOffset"))
        backlog = Backlog.of(progress.get("latestOffset"))
        return cls(max(progress.get("numInputRows") or 0, 0), offset, latest, backlog)

    @property
    def behind(self) -> float | None:
        """How far the batch is behind the source: in jobs for ``disque`` sources, or else in
        offsets; None if unknown."""
        if self.backlog is not None:
            return sum(queue.behind for queue in self.backlog.queues.values())
        if self.offset is None or self.latest is None:
            return None
        return max(self.latest - self.offset, 0)


def _number(offset: object) -> float | None:
    offset = parsed(offset)
    if isinstance(offset, dict):
        offset = offset.get("seq")
    is_number = isinstance(offset, int | float) and not isinstance(offset, bool)
    return float(offset) if is_number else None  # type: ignore[arg-type]


class StreamMetrics:
    """The metrics of streaming queries, labelled with the query's name, or its id if it has none.

    Args:
        registry: where the metrics are registered; a registry can hold only one such object.
        now: returns seconds since the epoch.
    """

    def __init__(self, registry: CollectorRegistry, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._names: dict[str, str] = {}  # by id; the most recently started one last
        self._states: dict[str, State] = {}  # by name; the most recently reported one last
        self._known: dict[str, dict[str, list[str]]] = {}  # queues, by name and source
        self._all: list[MetricWrapperBase] = []

        def gauge(name: str, text: str, labels: Sequence[str] = _QUERY) -> Gauge:
            made = Gauge(f"disque_spark_{name}", text, labels, registry=registry)
            self._all.append(made)
            return made

        def counter(name: str, text: str, labels: Sequence[str] = _QUERY) -> Counter:
            made = Counter(f"disque_spark_{name}", text, labels, registry=registry)
            self._all.append(made)
            return made

        self._state = gauge(
            "query_state", "Whether the query is in this state (1 for yes).", ("query", "state")
        )
        self._heard = gauge(
            "last_event_timestamp_seconds",
            "Unix time of the last event: a batch, or a report that the query is idle.",
        )
        self._starts = counter("starts_total", "Starts of the query.")
        self._failures = counter("failures_total", "Failures of the query.")
        self._batches = counter("batches_total", "Batches completed.")
        self._last_batch = gauge("last_batch", "Number of the last batch.")
        self._rows = counter("input_rows_total", "Rows read.")
        self._arriving = gauge(
            "input_rows_per_second", "Rate at which rows arrived during the last batch."
        )
        self._processed = gauge(
            "processed_rows_per_second", "Rate at which the last batch processed rows."
        )
        self._seconds = Histogram(
            "disque_spark_batch_seconds",
            "Duration of batches.",
            _QUERY,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._all.append(self._seconds)
        self._steps = counter(
            "batch_step_seconds_total", "Total duration of the steps of batches.", ("query", "step")
        )
        self._state_rows = gauge("state_rows", "Rows held by stateful operators.")
        self._state_bytes = gauge("state_memory_bytes", "Memory used by stateful operators.")
        self._source_rows = counter(
            "source_input_rows_total", "Rows read from the source.", _SOURCE
        )
        self._offset = gauge(
            "source_offset",
            "Offset at which the last batch ended, if offsets are numbers.",
            _SOURCE,
        )
        self._behind = gauge(
            "source_behind",
            "How far the last batch was behind the source, in offsets, or in jobs for disque.",
            _SOURCE,
        )
        self._behind_by = gauge(
            "source_queue_behind",
            "Jobs left in a queue by the last batch: minimum, maximum or mean.",
            (*_SOURCE, "of"),
        )
        self._queued = gauge("queue_jobs", "Jobs queued when the last batch was planned.", _QUEUE)
        self._left = gauge("queue_behind", "Queued jobs left out of the last batch.", _QUEUE)
        self._oldest = gauge(
            "queue_oldest_job_age_seconds", "Age of the oldest queued job.", _QUEUE
        )

    def started(self, query: str, name: str | None) -> None:
        """A query starts, or starts again. ``query`` is its id."""
        self._names.pop(query, None)
        self._names[query] = name or query
        name = self._names[query]
        self._starts.labels(name).inc()
        self._failures.labels(name)  # so that its first failure is an increase
        self._to(name, State.RUNNING)
        self._forget()

    def batch(self, query: str, name: str | None, batch: MicroBatch) -> None:
        """A query has finished a batch."""
        name = self._names.setdefault(query, name or query)
        self._to(name, State.RUNNING)
        self._batches.labels(name).inc()
        self._last_batch.labels(name).set(batch.number)
        self._rows.labels(name).inc(batch.rows)
        self._arriving.labels(name).set(batch.arriving)
        self._processed.labels(name).set(batch.processed)
        self._seconds.labels(name).observe(batch.seconds)
        for step, seconds in batch.steps.items():
            self._steps.labels(name, step).inc(max(seconds, 0))
        self._state_rows.labels(name).set(batch.state_rows)
        self._state_bytes.labels(name).set(batch.state_bytes)
        for number, source in enumerate(batch.sources):
            place = str(number)
            self._source_rows.labels(name, place).inc(source.rows)
            if source.offset is not None:
                self._offset.labels(name, place).set(source.offset)
            if source.behind is not None:
                self._behind.labels(name, place).set(source.behind)
            if source.backlog is not None:
                self._waiting(name, place, source.backlog.queues)

    def idle(self, query: str) -> None:
        """A query has nothing to do."""
        name = self._names.setdefault(query, query)
        self._to(name, State.IDLE)
        # Spark reports nothing except that there is nothing to read.
        for place, queues in self._known.get(name, {}).items():
            self._behind.labels(name, place).set(0)
            self._waiting(name, place, dict.fromkeys(queues, QueueBacklog(0, 0, 0.0)))
        self._arriving.labels(name).set(0)
        self._processed.labels(name).set(0)

    def ended(self, query: str, error: str | None) -> None:
        """A query has ended. ``error`` says why, if it failed."""
        name = self._names.setdefault(query, query)
        self._arriving.labels(name).set(0)
        self._processed.labels(name).set(0)
        if error is not None:
            self._failures.labels(name).inc()
        self._to(name, State.STOPPED if error is None else State.FAILED)

    def _waiting(self, name: str, place: str, queues: Mapping[str, QueueBacklog]) -> None:
        """Set the metrics of a source's queues, and drop those of queues that are gone."""
        self._known.setdefault(name, {})[place] = list(queues)
        for metric in (self._queued, self._left, self._oldest):
            metric.remove_by_labels({"query": name, "source": place})
        for queue, (jobs, behind, oldest) in queues.items():
            label = queue if len(queue) <= MOST_NAME else queue[:MOST_NAME]
            self._queued.labels(name, place, label).set(jobs)
            self._left.labels(name, place, label).set(behind)
            self._oldest.labels(name, place, label).set(oldest)
        left = [queue.behind for queue in queues.values()] or [0]
        for of, value in (("min", min(left)), ("max", max(left)), ("avg", sum(left) / len(left))):
            self._behind_by.labels(name, place, of).set(value)

    def _to(self, name: str, state: State) -> None:
        self._states.pop(name, None)
        self._states[name] = state
        for each in State:
            self._state.labels(name, each.value).set(each is state)
        self._heard.labels(name).set(self._now())

    def _forget(self) -> None:
        """Forget the queries that ended longest ago while there are more than ``MOST``."""
        over = [name for name, state in self._states.items() if state in _OVER]
        for name in over[: max(len(self._states) - MOST, 0)]:
            del self._states[name]
            self._known.pop(name, None)
            self._names = {id: known for id, known in self._names.items() if known != name}
            for metric in self._all:
                metric.remove_by_labels({"query": name})


class MetricsListener(StreamingQueryListener):
    """Updates ``metrics`` from all queries of the session that it is added to."""

    def __init__(self, metrics: StreamMetrics) -> None:
        super().__init__()
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._metrics.started(str(event.id), event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        self._metrics.batch(str(progress.id), progress.name, MicroBatch.of(progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._metrics.idle(str(event.id))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._metrics.ended(str(event.id), event.exception)


class Served:
    """A running HTTP server for the metrics of a session.

    Attributes:
        port: the port it listens on.
    """

    def __init__(
        self, spark: SparkSession, listener: StreamingQueryListener, server: WSGIServer
    ) -> None:
        self.port = server.server_port
        self._spark = spark
        self._listener = listener
        self._server = server

    def close(self) -> None:
        """Stop the server and the listener. The session goes on."""
        self._server.shutdown()
        self._server.server_close()
        self._spark.streams.removeListener(self._listener)


def serve_metrics(
    spark: SparkSession,
    host: str = "127.0.0.1",
    port: int = 9103,
    registry: CollectorRegistry | None = None,
) -> Served:
    """Keep metrics of all streaming queries of a session from now on, and serve them at
    ``/metrics``, as Prometheus text or OpenMetrics, in a thread.

    Args:
        port: 0: any free port.
        registry: None: a new one. Other metrics in it are served as well.

    Raises:
        OSError: it cannot listen at this address.
    """
    registry = registry or CollectorRegistry()
    listener = MetricsListener(StreamMetrics(registry))
    server, _ = start_http_server(port, host, registry)
    spark.streams.addListener(listener)
    return Served(spark, listener, server)
