"""In-memory traces of the clients in the test process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import Tracer

from disque_integrations import otel
from tests.support.harness import wait_until


class Traces:
    """The recorded traces.

    Attributes:
        tracer: for spans of the test's own.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])
        self.tracer: Tracer = self.provider.get_tracer("tests")

    def all(self) -> list[ReadableSpan]:
        """All ended spans, in the order in which they ended."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """Wait for ``count`` spans with that name, and return them in the order of their start: one
        may end after another thread has started the next."""

        def found() -> list[ReadableSpan]:
            return [span for span in self.all() if span.name == name]

        wait_until(lambda: len(found()) >= count)
        assert len(found()) == count
        return sorted(found(), key=lambda span: span.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        """Wait for the only span with that name."""
        return self.named(name)[0]

    def metric(self, name: str) -> list[Any]:
        """The points of a metric."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@contextmanager
def traced(parents: otel.Parents = "alone", sampler: Sampler | None = None) -> Iterator[Traces]:
    """Trace within the block."""
    traces = Traces(sampler or ParentBased(ALWAYS_ON))
    otel.instrument(tracer_provider=traces.provider, meter_provider=traces.meters, parents=parents)
    try:
        yield traces
    finally:
        otel.uninstrument()
        traces.provider.shutdown()
        traces.meters.shutdown()


def id_of(span: ReadableSpan) -> str:
    """Trace and span ids, as in a traceparent."""
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}-{context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str | None:
    """The same for its parent."""
    if span.parent is None:
        return None
    return f"{span.parent.trace_id:032x}-{span.parent.span_id:016x}"


def links_of(span: ReadableSpan) -> list[str]:
    """The same for its links."""
    return [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in span.links]


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    """Its attributes."""
    return dict(span.attributes or {})
