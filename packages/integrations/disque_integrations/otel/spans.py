"""Makes OpenTelemetry spans of what clients do: send, receive, process."""

import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias, TypeVar

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Tracer

from disque_integrations.otel import names, processing
from disque_integrations.otel.headers import extracted, injected, own_spans, span_of
from disque_integrations.otel.instruments import Instruments
from disque_integrations.otel.processing import SpanOfJob
from disque_trio.client.tracing import Pairs, Received
from disque_trio.notation.addresses import Address
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.values import Name, as_text

R = TypeVar("R")

Parents: TypeAlias = Literal["alone", "always", "never"]
"""When the span that added a job is the parent of the spans that receive and process it.

- ``alone``: if there is no other current span, as in a worker.
- ``always``: even if there is one, which is then linked.
- ``never``: it is only linked.
"""


class Spans:
    """Makes spans and measures; see ``disque_trio.client.tracing.Tracer``.

    Args:
        tracer: makes the spans.
        instruments: the metrics.
        parents: see ``Parents``.
    """

    def __init__(self, tracer: Tracer, instruments: Instruments, parents: Parents) -> None:
        self._tracer = tracer
        self._instruments = instruments
        self._parents = parents

    @contextmanager
    def sending(
        self, queues: Sequence[Name], headers: Sequence[Pairs], address: Address | None, batch: bool
    ) -> Iterator["_Sending"]:
        attributes = names.attributes_of("send", _one(queues), address)
        own = own_spans(headers)
        # A program that put a span of its own into a job created the job; this only sends it.
        kind = SpanKind.CLIENT if own and all(own) else SpanKind.PRODUCER
        context = processing.unwound()
        span = self._tracer.start_span(
            _name("send", queues),
            context,
            kind,
            attributes | ({names.COUNT: len(queues)} if batch else {}),
            [Link(one) for one in own if one is not None],
        )
        sent = trace.set_span_in_context(span, context)
        more = [
            injected(sent, pairs) if one is None else ()
            for pairs, one in zip(headers, own, strict=True)
        ]
        sending = _Sending(span, more, batch)
        began = time.perf_counter()
        try:
            yield sending
        except BaseException as error:
            sending.failed(error)
            raise
        finally:
            if sending.error is not None:
                attributes[names.ERROR_TYPE] = sending.error
            span.end()
            self._instruments.operation(time.perf_counter() - began, attributes)
            self._count_sent(queues, address, sending.failures)

    def _count_sent(
        self, queues: Sequence[Name], address: Address | None, failures: Sequence[str | None]
    ) -> None:
        counts: dict[tuple[Name, str | None], int] = {}
        for key in zip(queues, failures, strict=True):
            counts[key] = counts.get(key, 0) + 1
        for (queue, failure), count in counts.items():
            attributes = names.attributes_of("send", as_text(queue), address)
            if failure is not None:
                attributes[names.ERROR_TYPE] = failure
            self._instruments.sent(count, attributes)

    def creating(self, queue: Name, headers: Pairs) -> Pairs:
        if span_of(headers).is_valid:
            return ()
        context = processing.unwound()
        attributes = names.attributes_of("create", as_text(queue), None)
        span = self._tracer.start_span(
            _name("create", [queue]), context, SpanKind.PRODUCER, attributes
        )
        span.end()
        return injected(trace.set_span_in_context(span, context), headers)

    def received(
        self,
        queues: Sequence[Name],
        jobs: Sequence[Received],
        address: Address | None,
        began: int,
        error: BaseException | None = None,
    ) -> None:
        seconds = (time.time_ns() - began) / 1e9
        asked = [as_text(queue) for queue in queues]
        found = list(dict.fromkeys(job.queue for job in jobs)) or asked
        attributes = names.attributes_of("receive", _one(found), address)
        self._instruments.consumed(len(jobs), attributes)
        context, links = self._place(jobs)
        if jobs or error is not None or _is_valid(context):
            single: names.Attributes = {names.MESSAGE_ID: jobs[0].id} if len(jobs) == 1 else {}
            span = self._tracer.start_span(
                _name("receive", found),
                context,
                SpanKind.CLIENT,
                {**attributes, **single, names.COUNT: len(jobs)},
                links,
                began,
            )
            if error is not None:
                span.record_exception(error)
                names.mark_failed(span, names.error_type(error), str(error))
            span.end()
        if error is not None:
            attributes[names.ERROR_TYPE] = names.error_type(error)
        self._instruments.operation(seconds, attributes)

    def processing(self, job: Received, address: Address) -> SpanOfJob:
        context, links = self._place([job])
        attributes = names.attributes_of("receive", job.queue, address)
        self._instruments.consumed(1, attributes)
        delivery = 1 + job.nacks + job.additional_deliveries
        about: names.Attributes = {names.MESSAGE_ID: job.id, names.DELIVERY: delivery}
        # The job has already arrived: this records when, and who received it.
        self._tracer.start_span(
            _name("receive", [job.queue]), context, SpanKind.CLIENT, attributes | about, links
        ).end()
        attributes = names.attributes_of("process", job.queue, address)
        span = self._tracer.start_span(
            _name("process", [job.queue]), context, SpanKind.CONSUMER, attributes | about, links
        )
        made = SpanOfJob(span, context, self._instruments, attributes)
        made.activate()
        return made

    def _place(self, jobs: Sequence[Received]) -> tuple[Context, list[Link]]:
        """Return the context of a span about delivered jobs, and its links to the spans that added
        them."""
        context = processing.unwound()
        added = [span_of(job.header_pairs) for job in jobs]
        links = [Link(span) for span in added if span.is_valid]
        if len(jobs) != 1 or not links or self._parents == "never":
            return context, links
        if _is_valid(context):
            if self._parents == "alone":
                return context, links
            links.append(Link(_span_context(context)))
        return extracted(jobs[0].header_pairs, context), links

    def current(self) -> SpanOfJob | None:
        return processing.current()

    def carried(self, function: Callable[[], Awaitable[R]]) -> Callable[[], Awaitable[R]]:
        context = processing.unwound()

        async def call() -> R:
            token = contexts.attach(context)
            try:
                return await function()
            finally:
                contexts.detach(token)

        return call

    def flush(self, seconds: float) -> None:
        """Send what was traced and measured, before the process exits immediately, for at most
        ``seconds``."""

        def send() -> None:
            for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
                force_flush = getattr(provider, "force_flush", None)
                if force_flush is not None:
                    force_flush()

        # It may hang if nobody receives the data, whatever timeout it gets.
        sending = threading.Thread(target=send, name="disque-flush", daemon=True)
        sending.start()
        sending.join(seconds)


class _Sending:
    """Jobs that are being added; see ``Sending``."""

    def __init__(self, span: Span, more: Sequence[Pairs], batch: bool) -> None:
        self.more = more
        self.error: str | None = None
        self.failures: list[str | None] = [None] * len(more)
        self._span = span
        self._batch = batch

    def answered(self, replies: Sequence[Reply]) -> None:
        errors: list[DisqueError] = []
        for n, reply in enumerate(replies):
            failure = _failure(reply)
            if failure is not None:
                errors.append(failure)
                self.failures[n] = names.error_type(failure)
        if errors:
            self.error = names.error_type(errors[0])
            text = f"{len(errors)} of {len(replies)}: {errors[0]}" if self._batch else errors[0]
            names.mark_failed(self._span, self.error, str(text))
        elif not self._batch and isinstance(replies[0], bytes):
            self._span.set_attribute(names.MESSAGE_ID, as_text(replies[0]))

    def failed(self, error: BaseException) -> None:
        self.error = names.error_type(error)
        self.failures = [self.error] * len(self.failures)
        self._span.record_exception(error)
        names.mark_failed(self._span, self.error, str(error))


def _failure(reply: Reply) -> DisqueError | None:
    """Return the error in a reply; in the reply for a topic, the first one."""
    if isinstance(reply, list):
        return next(filter(None, map(_failure, reply)), None)
    return reply if isinstance(reply, DisqueError) else None


def _one(queues: Sequence[Name]) -> str | None:
    """Return the queue if all are the same; None if there are several."""
    different = {as_text(queue) for queue in queues}
    return different.pop() if len(different) == 1 else None


def _name(operation: str, queues: Sequence[Name]) -> str:
    queue = _one(queues)
    return operation if queue is None else f"{operation} {queue}"


def _span_context(context: Context) -> SpanContext:
    return trace.get_current_span(context).get_span_context()


def _is_valid(context: Context) -> bool:
    return _span_context(context).is_valid
