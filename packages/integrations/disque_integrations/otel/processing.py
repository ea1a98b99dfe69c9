"""The span of a job that is being processed."""

import time
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from disque_integrations.otel import names
from disque_integrations.otel.instruments import Instruments
from disque_trio.respclient.values import Name, as_text

_CURRENT: Final = contexts.create_key("disque-processing")


class SpanOfJob:
    """A job that is being processed, and its span; see ``Processing``.

    Args:
        span: the span, which has begun.
        context: the context in which the span was made.
        attributes: the attributes of the metrics.
    """

    def __init__(
        self, span: Span, context: Context, instruments: Instruments, attributes: names.Attributes
    ) -> None:
        self.ended = False
        self.before: Context = context
        self._span = span
        self._context = trace.set_span_in_context(span, contexts.set_value(_CURRENT, self, context))
        self._instruments = instruments
        self._attributes = attributes
        self._began = time.perf_counter()
        self._error: str | None = None

    def activate(self) -> None:
        """Make whatever this task or thread does from now on part of the job's trace."""
        self.before = unwound()
        # ``leave`` undoes this if it can. A token could only be given back in this task.
        contexts.attach(self._context)

    def leave(self) -> None:
        """Undo ``activate``, if this is still the same task or thread."""
        if contexts.get_current() is self._context:
            contexts.attach(self.before)

    def describe(self, name: str, value: str | int) -> None:
        """Set an attribute of the job."""
        self._span.set_attribute(f"messaging.disque.{name}", value)

    def failed(self, error: BaseException) -> None:
        """Note that the job's handler raised an exception."""
        self._span.record_exception(error)
        self._fail(names.error_type(error), str(error))

    def _fail(self, kind: str, text: str) -> None:
        self._error = kind
        names.mark_failed(self._span, kind, text)

    def end(self, outcome: str, reason: Name | None = None) -> None:
        """Note what became of the job, and leave it."""
        if self.ended:
            return
        self.ended = True
        self._span.set_attribute(names.OUTCOME, outcome)
        if self._error is None and outcome in FAILURES:
            self._fail(outcome, "" if reason is None else as_text(reason))
        self._span.end()
        attributes = self._attributes
        if self._error is not None:
            attributes = {**attributes, names.ERROR_TYPE: self._error}
        self._instruments.processed(time.perf_counter() - self._began, attributes)
        self.leave()


FAILURES: Final = ("nack", "dead", "lost")
"""Outcomes that make the span an error even without an exception."""


def current() -> SpanOfJob | None:
    """Return the job that this task or thread is processing."""
    found = contexts.get_value(_CURRENT)
    return found if isinstance(found, SpanOfJob) and not found.ended else None


def unwound() -> Context:
    """Return the context of this task or thread, without jobs that were settled elsewhere."""
    context = contexts.get_current()
    while isinstance(job := contexts.get_value(_CURRENT, context), SpanOfJob) and job.ended:
        context = job.before
    return context
