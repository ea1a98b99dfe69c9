"""The trace context in job headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from disque_integrations.otel.headers import MOST, MOST_BYTES, extracted, injected, span_of
from disque_trio.client.requests import addjob
from disque_trio.client.tracing import Pairs, headers_of, with_headers
from disque_trio.job_options import JobOptions

SPAN = SpanContext(0xA0, 0xB0, True, TraceFlags(1), TraceState([("vendor", "x")]))
PARENT = f"00-{0xA0:032x}-{0xB0:016x}-01"


@pytest.fixture(name="context")
def in_span() -> Context:
    return trace.set_span_in_context(NonRecordingSpan(SPAN), Context())


def test_what_is_injected_is_extracted(context: Context) -> None:
    more = injected(baggage.set_baggage("tenant", "acme", context), [("task", b"send")])
    assert more == [("traceparent", PARENT), ("tracestate", "vendor=x"), ("baggage", "tenant=acme")]
    found = extracted([(str(name), str(value).encode()) for name, value in more])
    assert trace.get_current_span(found).get_span_context() == SPAN
    assert baggage.get_baggage("tenant", found) == "acme"


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", b"TRACEPARENT"])
def test_names_are_case_insensitive(name: str | bytes) -> None:
    assert span_of([(name, PARENT)]).is_valid


def test_headers_of_the_program_are_not_overwritten(context: Context) -> None:
    assert injected(context, [("TraceState", b"own=1")]) == [("traceparent", PARENT)]


def test_a_job_gets_no_more_headers_than_allowed(context: Context) -> None:
    assert injected(context, [("a", b"b")] * MOST) == []
    assert injected(context, [("a", b"b")] * (MOST - 1)) == [("traceparent", PARENT)]
    size = len("traceparent") + len(PARENT)
    full: Pairs = [("a", b"x" * (MOST_BYTES - 1 - size))]
    assert injected(context, full) == [("traceparent", PARENT)]
    fuller: Pairs = [("a", b"x" * (MOST_BYTES - size))]
    assert injected(context, fuller) == []


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"00",
        b"\xff\xfe",
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + b"0" * 16 + b"-01",
        b"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        b"x" * 60_000,
    ],
)
def test_an_invalid_traceparent_is_ignored(value: bytes) -> None:
    assert not span_of([("traceparent", value)]).is_valid


@given(st.lists(st.tuples(st.sampled_from(["traceparent", "tracestate", "baggage"]), st.binary())))
def test_no_headers_break_it(pairs: list[tuple[str, bytes]]) -> None:
    extracted(pairs)


@pytest.mark.parametrize("own", [None, {"task": "HEADERS"}, [("a", "1"), ("a", "2")]])
def test_headers_are_added_to_a_command(own: dict[str, str] | list[tuple[str, str]] | None) -> None:
    options = JobOptions(retry=7, ttl=60, group="HEADERS")
    command = addjob("ASYNC", "HEADERS", 5.0, async_=True, headers=own, **options)
    pairs = list(own.items()) if isinstance(own, dict) else own or []
    assert headers_of(command) == pairs
    more = [("traceparent", PARENT)]
    assert headers_of(with_headers(command, len(pairs), more)) == [*pairs, *more]
    assert with_headers(command, len(pairs), []) == command
