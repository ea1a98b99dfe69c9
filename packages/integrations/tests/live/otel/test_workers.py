"""Traces of workers: of ``disque-worker``, of the outbox, and of tasks in the test's own
process."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode
from sqlalchemy import MetaData, create_engine

from disque_integrations.outbox import Outbox
from disque_integrations.outbox.forwarder import Forwarder
from disque_integrations.outbox.sender import DisqueSender
from disque_integrations.outbox.sql import SqlStore
from disque_integrations.outbox.stop import stopped_by_signals
from disque_trio.client import sync
from disque_trio.client.urls import Cluster
from disque_trio.process.logs import Logging
from disque_trio.tasks import Disque, Reject
from packages.integrations.tests.support.spans import (
    Traces,
    attributes_of,
    id_of,
    links_of,
    parent_of,
    traced,
)
from tests.support.harness import HANG_SECONDS, LiveNode, wait_until
from tests.support.task_worker import working_thread
from tests.support.worker_rig import Rig, worker_rig


@pytest.fixture
def app(node: LiveNode) -> Iterator[Disque]:
    with Disque(f"disque://127.0.0.1:{node.port}") as app:
        yield app


def test_a_task_runs_in_the_trace_of_its_sender(app: Disque, traces: Traces) -> None:
    @app.task(name="second", queue="second")
    async def second(of: int) -> int:
        return trace.get_current_span().get_span_context().trace_id

    @app.task(name="first", queue="first")
    def first() -> int:
        assert threading.current_thread() is not threading.main_thread()
        return second.add(1).get(timeout=HANG_SECONDS)

    with working_thread(app):
        with traces.tracer.start_as_current_span("request") as request:
            added = first.add()
        assert added.get(timeout=HANG_SECONDS) == request.get_span_context().trace_id
        spans = [
            traces.one(f"{what} {queue}")
            for queue in ("first", "second")
            for what in ("send", "process")
        ]
    send, process, sends_on, processes_on = spans
    above = [traces.one("request"), send, process, sends_on]
    assert [parent_of(span) for span in spans] == [id_of(span) for span in above]
    assert attributes_of(process)["messaging.disque.task"] == "first"
    assert attributes_of(processes_on)["messaging.disque.task"] == "second"


def test_a_chain_and_a_group_are_one_trace(app: Disque, traces: Traces) -> None:
    @app.task(name="one", queue="one")
    def one(n: int) -> int:
        return n + 1

    @app.task(name="all", queue="all")
    def all_of(ns: list[int]) -> int:
        return sum(ns)

    with working_thread(app):
        with traces.tracer.start_as_current_span("request") as request:
            group = app.group([one.bind(1).then(one.bind()), one.bind(2)], then=all_of.bind())
        assert group.get(timeout=HANG_SECONDS) == 6
    for span in traces.all():
        assert span.context is not None
        assert span.context.trace_id == request.get_span_context().trace_id
        assert "group." not in span.name  # the internal queue of its parts
        assert span.status.status_code is StatusCode.UNSET
    assert len(traces.named("process one", 3)) == 3


def test_each_attempt_has_a_span_that_links_to_the_sender(app: Disque, traces: Traces) -> None:
    runs: list[int] = []

    @app.task(name="fails", queue="fails", retries=1, backoff=(0.01, 0.01))
    def fails() -> None:
        runs.append(1)
        raise KeyError("nothing")

    @app.task(name="refused", queue="refused")
    async def refused() -> None:
        raise Reject("no such number")

    with working_thread(app):
        fails.add()
        refused.add()
        first, second = traces.named("process fails", 2)
        [final] = traces.named("process refused")
    send = id_of(traces.one("send fails"))
    assert links_of(first) == links_of(second) == [send]
    for span, outcome in ((first, "nack"), (second, "dead")):
        assert span.status.status_code is StatusCode.ERROR
        assert attributes_of(span)["error.type"] == "KeyError"
        assert attributes_of(span)["messaging.disque.outcome"] == outcome
    assert attributes_of(second)["messaging.disque.delivery"] == 2
    assert final.status.description == "Reject: no such number"


def test_a_traceparent_of_a_foreign_producer_breaks_nothing(app: Disque, node: LiveNode) -> None:
    @app.task(name="echo", queue="echo")
    def echo(word: str) -> str:
        return word

    bad = [b"", b"\xff\xfe", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01", b"x" * 60_000]
    with traced() as traces, working_thread(app), sync.connect(f"127.0.0.1:{node.port}") as client:
        for value in bad:
            headers: list[tuple[str, str | bytes]] = [
                ("task", "echo"),
                ("content-type", "application/json"),
                ("traceparent", value),
            ]
            id = client.add("echo", '{"args": ["a"]}', headers=headers)
            assert app.handle(id).get(timeout=HANG_SECONDS) == "a"
        assert {span.status.status_code for span in traces.named("process echo", len(bad))} == {
            StatusCode.UNSET
        }


def test_a_trace_survives_the_outbox(app: Disque, node: LiveNode, tmp_path: Path) -> None:
    @app.task(name="echo", queue="echo")
    def echo(word: str) -> str:
        return word

    metadata = MetaData()
    outbox = Outbox(metadata)
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    metadata.create_all(engine)
    with traced() as traces:
        with traces.tracer.start_as_current_span("request"), engine.begin() as transaction:
            outbox.add(transaction, "mail", "hello")
            outbox.add_task(transaction, echo.bind("hello"))
        sender = DisqueSender(Cluster.of(f"127.0.0.1:{node.port}"), 86400)
        log = Logging("warning", "json").log
        with stopped_by_signals() as stop:
            assert Forwarder(SqlStore(engine), sender, log).once(stop)
        sender.close()
        with working_thread(app):
            process = traces.one("process echo")
        create, request, send = map(traces.one, ("create echo", "request", "send"))
        assert parent_of(create) == id_of(request)
        assert parent_of(process) == id_of(create)
        assert links_of(send) == [id_of(traces.one("create mail")), id_of(create)]
    engine.dispose()


@pytest.fixture
def rig(shared_node: LiveNode, tmp_path: Path) -> Iterator[Rig]:
    with worker_rig(tmp_path, shared_node.port) as rig:
        yield rig


def printed(path: Path) -> list[dict[str, Any]]:
    """Return the spans in the output of a worker."""
    text, decoder, found = path.read_text(), json.JSONDecoder(), []
    at = 0
    while (at := text.find("{", at)) >= 0:
        value, at = decoder.raw_decode(text, at)
        if "context" in value:
            found.append(value)
    return found


def test_the_environment_configures_the_traces_of_a_worker(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mailer")
    worker = rig.start("--otel", "--log-format", "json")
    worker.serves()
    rig.add("quick", 1)
    rig.noted("quick")
    rig.add("spin")  # ends its process at once
    rig.noted("spin")
    wait_until(lambda: "process mail" in str(printed(worker.output)))
    assert worker.stop() == 0
    spans = [span for span in printed(worker.output) if span["name"] == "process mail"]
    tasks = {span["attributes"]["messaging.disque.task"] for span in spans}
    assert tasks == {"quick", "spin"}
    assert {span["resource"]["attributes"]["service.name"] for span in spans} == {"mailer"}


def test_a_worker_that_cannot_trace_says_so(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nonsense")
    worker = rig.start("--otel")
    assert worker.ends() == 1
    assert "nonsense" in worker.last_line()


def test_a_worker_runs_the_app_code_at_its_start(rig: Rig) -> None:
    rig.change(
        "def note(*words):",
        "@app.hooks.on_process_start\ndef begin():\n    note('start')\n\ndef note(*words):",
    )
    worker = rig.start("--processes", "2")
    worker.serves(2)
    assert len(rig.noted("start", count=2)) == 2
    worker.signal(signal.SIGTERM)
    assert worker.ends() == 0
    rig.change("    note('start')", "    raise ValueError('no traces')")
    worker = rig.start()
    assert worker.ends() == 1
    assert "no traces" in worker.last_line()
