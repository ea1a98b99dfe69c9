"""The trace context in the headers of a job, using the program's propagators."""

from collections.abc import Sequence
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import SpanContext

from disque_trio.client.tracing import Pairs
from disque_trio.respclient.values import Name, as_text

MOST: Final = 1000
"""The most headers that a job may have."""

MOST_BYTES: Final = 64 * 1024
"""The most bytes in all their names and values together."""


class _FromPairs(Getter[Pairs]):
    """Reads headers, ignoring the case of names and values that are not UTF-8."""

    def get(self, carrier: Pairs, key: str) -> list[str] | None:
        values: list[str] = []
        for name, value in carrier:
            if _lower(name) == key.lower():
                try:
                    values.append(value if isinstance(value, str) else value.decode())
                except UnicodeDecodeError:
                    continue
        return values or None

    def keys(self, carrier: Pairs) -> list[str]:
        return [_lower(name) for name, _ in carrier]


class _IntoDict(Setter[dict[str, str]]):
    def set(self, carrier: dict[str, str], key: str, value: str) -> None:
        carrier[key] = value


_from_pairs: Final = _FromPairs()
_into_dict: Final = _IntoDict()


def _lower(name: Name) -> str:
    return as_text(name).lower()


def extracted(headers: Pairs, context: Context | None = None) -> Context:
    """Return ``context``, or an empty one, with what the headers contain. Invalid headers are
    ignored, since anybody may have added the job."""
    context = Context() if context is None else context
    if not headers:
        return context
    try:
        return propagate.extract(headers, context, _from_pairs)
    except Exception:  # from a propagator
        return context


def span_of(headers: Pairs) -> SpanContext:
    """Return the span named by the headers; an invalid one if there is none."""
    return trace.get_current_span(extracted(headers)).get_span_context()


def injected(context: Context, headers: Pairs) -> Pairs:
    """Return headers to add to a job, so that they name the span of ``context``. Leaves out headers
    that the program has set itself, and those beyond what a job may have."""
    carrier: dict[str, str] = {}
    try:
        propagate.inject(carrier, context, _into_dict)
    except Exception:  # from a propagator
        return ()
    taken = {_lower(name) for name, _ in headers}
    room = MOST_BYTES - sum(_size(name) + _size(value) for name, value in headers)
    more: list[tuple[Name, Name]] = []
    for name, value in carrier.items():
        if name.lower() in taken:
            continue
        size = _size(name) + _size(value)
        if size > room or len(headers) + len(more) >= MOST:
            break  # traceparent comes first: without it the others mean nothing
        room -= size
        more.append((name, value))
    return more


def _size(text: Name) -> int:
    return len(text.encode(errors="surrogateescape") if isinstance(text, str) else text)


def own_spans(headers: Sequence[Pairs]) -> list[SpanContext | None]:
    """Return for each job the span that the program itself put into its headers, or None."""
    spans = [span_of(pairs) if pairs else trace.INVALID_SPAN_CONTEXT for pairs in headers]
    return [span if span.is_valid else None for span in spans]
