"""Turning traces on and off."""

import json
import sys
from importlib import import_module
from importlib.metadata import entry_points

import pytest

from disque_integrations import otel
from disque_integrations.otel.sdk import configure
from disque_integrations.outbox.rows import columns
from disque_trio.client import tracing
from disque_trio.client.tracing import CannotTrace
from packages.integrations.tests.support.spans import traced


def test_it_is_on_until_it_is_turned_off() -> None:
    assert tracing.tracer is None
    assert tracing.current() is None
    otel.instrument()
    try:
        assert tracing.seeing() is not None
        with tracing.unseen():
            assert tracing.seeing() is None
    finally:
        otel.uninstrument()
    assert tracing.tracer is None


def test_there_are_three_kinds_of_parents() -> None:
    with pytest.raises(ValueError, match="alone, always, never"):
        otel.instrument(parents="sometimes")  # type: ignore[arg-type]


def test_opentelemetry_instrument_finds_it() -> None:
    [point] = [
        point
        for point in entry_points(group="opentelemetry_instrumentor")
        if point.value == "disque_integrations.otel:Instrumentor"
    ]
    instrumentor = point.load()()
    with traced() as traces:
        instrumentor.instrument(tracer_provider=traces.provider, skip_dep_check=True)
        assert tracing.tracer is not None
        tracing.tracer.creating("mail", [])
        assert [span.name for span in traces.all()] == ["create mail"]
        instrumentor.uninstrument()
        assert tracing.tracer is None


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("disque_integrations.otel")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("opentelemetry", "opentelemetry.trace", "opentelemetry.metrics"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="OpenTelemetry is not installed"):
        import_module("disque_integrations.otel")


def test_without_an_exporter_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nonsense")
    with pytest.raises(CannotTrace, match="nonsense"):
        configure()
    assert tracing.tracer is None


def test_a_row_of_the_outbox_has_the_trace_of_its_author() -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with traced() as traces:
        options = json.loads(columns("mail", "hello", headers={"tenant": "acme"})["options"])
        assert [name for name, _ in options["headers"]] == ["tenant", "traceparent"]
        options = json.loads(columns("mail", "hello", headers={"traceparent": own})["options"])
        assert options["headers"] == [["traceparent", own]]
        assert [span.name for span in traces.all()] == ["create mail"]
    assert "headers" not in json.loads(columns("mail", "hello")["options"])
