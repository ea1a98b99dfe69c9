"""The trace that a job belongs to, as in W3C's ``traceparent``."""

import sys
from contextvars import ContextVar

from disque_trio.client import tracing

traceparent: ContextVar[str | None] = ContextVar("disque_traceparent", default=None)
"""The trace of what this task or thread is doing, passed on to jobs that it adds. A program may
set it."""


def current() -> str | None:
    """Return the traceparent of OpenTelemetry's current span, or else the one set by the program.

    None if clients are traced: the tracer then adds the headers itself.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            if tracing.tracer is not None:
                return None
            return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    return traceparent.get()
