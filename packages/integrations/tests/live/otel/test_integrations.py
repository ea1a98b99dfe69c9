"""Traces through other frameworks."""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import dramatiq
import pytest
import trio
from celery.contrib.testing.worker import start_worker
from celery.signals import before_task_publish
from django.test import override_settings
from dramatiq import Worker
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from disque_integrations.django import worker as django_worker
from disque_integrations.django.framework import TaskResultStatus, task_backends
from disque_integrations.dramatiq import DisqueBroker
from packages.integrations.tests.support.celery_app import program
from packages.integrations.tests.support.django_world import disconnect, tasks, tasks_on
from packages.integrations.tests.support.spans import Traces, attributes_of, id_of, parent_of
from tests.support.harness import HANG_SECONDS, LiveNode, wait_until


@pytest.fixture
def broker(shared_node: LiveNode) -> Iterator[DisqueBroker]:
    broker = DisqueBroker(url=f"disque://127.0.0.1:{shared_node.port}", namespace=uuid4().hex)
    yield broker
    broker.close()


def test_a_dramatiq_actor_runs_in_the_trace_of_its_message(
    broker: DisqueBroker, traces: Traces
) -> None:
    ran: list[int] = []

    @dramatiq.actor(broker=broker, max_retries=1, min_backoff=1, max_backoff=2)
    def flaky() -> None:
        ran.append(trace.get_current_span().get_span_context().trace_id)
        if len(ran) == 1:
            raise ValueError("busy")

    with traces.tracer.start_as_current_span("request") as request:
        flaky.send()
    worker = Worker(broker, worker_threads=1, worker_timeout=50)
    worker.start()
    queue = broker.name("default")
    first, second = traces.named(f"process {queue}", 2)
    worker.stop()
    assert ran == [request.get_span_context().trace_id] * 2
    send, again = traces.named(f"send {queue}", 2)
    assert parent_of(first) == id_of(send)
    assert parent_of(again) == id_of(first)  # the retry is another message
    assert parent_of(second) == id_of(again)
    assert attributes_of(first)["messaging.disque.task"] == "flaky"
    assert attributes_of(first)["error.type"] == "ValueError"
    assert [span.status.status_code for span in (first, second)] == [
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]


def test_a_django_task_runs_in_the_trace_of_its_sender(
    shared_node: LiveNode, traces: Traces
) -> None:
    url = f"disque://127.0.0.1:{shared_node.port}"
    with override_settings(TASKS=tasks_on(url, prefix=uuid4().hex)):
        backend: Any = task_backends["default"]
        with traces.tracer.start_as_current_span("request") as request:
            result = tasks.add.enqueue(1, 2)
        worker = django_worker.Worker(backend, ["default"], 1)
        thread = threading.Thread(target=partial(trio.run, worker.run))
        thread.start()
        queue = backend.settings.queue("default")
        process = traces.one(f"process {queue}")
        wait_until(lambda: result.refresh() or result.status == TaskResultStatus.SUCCESSFUL)
        worker.stop()
        thread.join(HANG_SECONDS)
    disconnect()
    send = traces.one(f"send {queue}")
    assert parent_of(send) == id_of(traces.one("request"))
    assert parent_of(process) == id_of(send)
    assert process.context is not None
    assert process.context.trace_id == request.get_span_context().trace_id
    assert str(attributes_of(process)["messaging.disque.task"]).endswith("add")
    names = {span.name.split()[0] for span in traces.all()}
    assert names == {"request", "send", "receive", "process"}
    assert len(traces.named(f"send {queue}")) == 1  # and none for its result


def test_headers_of_celery_travel(shared_node: LiveNode) -> None:
    app = program(f"disque://127.0.0.1:{shared_node.port}")

    def parent(self: Any) -> str | None:
        return getattr(self.request, "traceparent", None)

    task = app.task(parent, name="parent", bind=True)

    # Like opentelemetry-instrumentation-celery.
    def publish(headers: dict[str, Any], **_: Any) -> None:
        headers["traceparent"] = "00-aa-bb-01"

    before_task_publish.connect(publish)
    try:
        with start_worker(app, perform_ping_check=False, pool="threads"):
            assert task.delay().get(timeout=HANG_SECONDS) == "00-aa-bb-01"
    finally:
        before_task_publish.disconnect(publish)
        app.close()
