"""The trace that a job belongs to, as in W3C's ``traceparent``."""

import sys
from contextvars import ContextVar

from disque_trio.client import tracing

traceparent: ContextVar[str | None] = ContextVar("disque_traceparent", default=None)
"""Of what this task or thread is doing; jobs that are added carry it on. A program may set it."""


def current() -> str | None:
    """The traceparent of OpenTelemetry's current span, if the program has loaded that library and
    is in one; else ours. None too where clients are traced: then they see to it themselves."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            if tracing.tracer is not None:
                return None
            return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    return traceparent.get()
