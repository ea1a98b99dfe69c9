"""The backend for Django tasks on a real node."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trio
from django.core.management import CommandError, call_command
from django.test import override_settings

from disque_integrations.django.apps import nodes_are_there
from disque_integrations.django.backend import DisqueBackend
from disque_integrations.django.framework import (
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from disque_integrations.django.worker import UNKNOWN, Worker
from disque_trio.client.errors import DisqueError
from packages.integrations.tests.support.django_world import disconnect, tasks, tasks_on
from packages.integrations.tests.support.task_story import Workers
from tests.support import PYTHONPATH
from tests.support.harness import (
    HANG_SECONDS,
    ClusterFactory,
    LiveNode,
    NodeFactory,
    free_port,
    wait_until,
)


def url(node: LiveNode) -> str:
    return f"disque://127.0.0.1:{node.port}"


@pytest.fixture
def backend(shared_node: LiveNode) -> Iterator[DisqueBackend]:
    """The backend for the tests' tasks, with its own queues."""
    with override_settings(TASKS=tasks_on(url(shared_node), prefix=uuid4().hex)):
        yield task_backends["default"]
    disconnect()


@contextmanager
def working(backend: DisqueBackend, concurrency: int = 2) -> Iterator[Worker]:
    """Run a worker in a thread of this process."""
    worker = Worker(backend, ["default", "mail"], concurrency)
    thread = threading.Thread(target=partial(trio.run, worker.run))
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()


def finished(result: TaskResult) -> TaskResult:
    """Wait until the task has ended, and return its result."""

    def over() -> bool:
        result.refresh()
        return bool(result.is_finished)

    wait_until(over)
    return result


def test_a_task_runs_and_its_result_is_available(backend: DisqueBackend) -> None:
    result = tasks.add.enqueue(1, b=2)
    assert result.status == TaskResultStatus.READY
    assert tasks.add.get_result(result.id).status == TaskResultStatus.READY
    with working(backend) as worker:
        finished(result)
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == 3
    assert result.worker_ids == [worker.id]
    assert result.attempts == 1
    again = tasks.add.get_result(result.id)
    assert (again.args, again.kwargs, again.return_value) == ([1], {"b": 2}, 3)
    times = [again.enqueued_at, again.started_at, again.last_attempted_at, again.finished_at]
    assert times == sorted(times)


def test_a_task_may_be_asynchronous(backend: DisqueBackend) -> None:
    with working(backend):
        assert finished(tasks.shout.enqueue("hello")).return_value == "HELLO"


def test_tasks_are_enqueued_and_read_asynchronously(backend: DisqueBackend) -> None:
    async def enqueue() -> TaskResult:
        result = await tasks.add.aenqueue(1, 2)
        assert (await tasks.add.aget_result(result.id)).status == TaskResultStatus.READY
        return result

    result = asyncio.run(enqueue())
    with working(backend):
        assert finished(result).return_value == 3


def test_a_task_that_raises_has_failed(backend: DisqueBackend) -> None:
    with working(backend):
        result = finished(tasks.fail.enqueue("no such thing"))
    assert result.status == TaskResultStatus.FAILED
    [error] = result.errors
    assert error.exception_class is LookupError
    assert "no such thing" in error.traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_a_result_that_is_not_json_fails_the_task(backend: DisqueBackend) -> None:
    with working(backend):
        result = finished(tasks.strange.enqueue())
    assert result.errors[0].exception_class is TypeError


def test_a_task_has_its_context(backend: DisqueBackend) -> None:
    with working(backend):
        result = finished(tasks.attempt.enqueue(41))
    assert result.return_value == [42, result.id]


def test_arguments_must_be_json(backend: DisqueBackend) -> None:
    with pytest.raises(TypeError):
        tasks.add.enqueue(object(), 1)


def test_a_task_with_run_after_runs_later(backend: DisqueBackend) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=0.5)
    later = tasks.add.using(run_after=moment).enqueue(1, 2)
    far = tasks.add.using(run_after=moment + timedelta(days=60)).enqueue(1, 2)
    assert tasks.add.get_result(far.id).status == TaskResultStatus.READY
    with working(backend):
        assert finished(later).return_value == 3
    assert later.started_at >= moment
    assert tasks.add.get_result(later.id).task.run_after == moment
    assert tasks.add.get_result(far.id).status == TaskResultStatus.READY


def test_urgent_tasks_run_first(
    backend: DisqueBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    monkeypatch.setenv("RUNS", str(runs))
    results = [
        tasks.note.using(priority=priority).enqueue(f"p{priority}") for priority in (-100, 0, 100)
    ]
    with working(backend, concurrency=1):
        for result in results:
            finished(result)
    names = [line.split()[1] for line in runs.read_text().splitlines()]
    assert names == ["p100", "p0", "p-100"]


def test_a_running_task_has_the_status_running(
    backend: DisqueBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, over = tmp_path / "runs", tmp_path / "over"
    monkeypatch.setenv("RUNS", str(runs))
    monkeypatch.setenv("UNTIL", str(over))
    result = tasks.work.enqueue("one")
    with working(backend):
        wait_until(runs.exists)
        assert tasks.work.get_result(result.id).status == TaskResultStatus.RUNNING
        over.touch()
        finished(result)


def test_tasks_use_the_database(backend: DisqueBackend) -> None:
    with working(backend):
        results = [tasks.query.enqueue() for _ in range(5)]
        assert [finished(result).return_value for result in results] == [42] * 5


def test_signals_are_sent(backend: DisqueBackend) -> None:
    seen: list[tuple[str, str]] = []

    def receiver(name: str) -> Callable[..., None]:
        def receive(task_result: TaskResult, **_: Any) -> None:
            seen.append((name, task_result.status.value))

        return receive

    receivers = {
        kind: receiver(name)
        for kind, name in (
            (task_enqueued, "enqueued"),
            (task_started, "started"),
            (task_finished, "finished"),
        )
    }
    for kind, receive in receivers.items():
        kind.connect(receive)
    try:
        result = tasks.add.enqueue(1, 2)  # before a worker could begin with it
        with working(backend):
            finished(result)
    finally:
        for kind, receive in receivers.items():
            kind.disconnect(receive)
    assert seen == [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")]


def test_a_task_that_does_not_exist_fails(backend: DisqueBackend) -> None:
    settings = backend.settings
    body = (
        '{"task": "nowhere.gone", "args": [], "kwargs": {}, "queue": "default", "priority": 0,'
        ' "run_after": null, "enqueued_at": "2026-01-01T00:00:00+00:00"}'
    )
    id = backend.client.add(settings.queue("default"), body)
    backend.client.add(settings.queue("default"), "nonsense")
    with working(backend):
        assert finished(tasks.add.enqueue(1, 2)).return_value == 3
        wait_until(lambda: backend.client.qlen(settings.results(id)) == 1)
        wait_until(lambda: not list(backend.client.jscan(queue=settings.queue("default"))))
    [kept] = backend.client.qpeek(settings.results(id), 1)
    assert b'"FAILED"' in kept.body
    assert b"no tasks are known in 'nowhere'" in kept.body


@pytest.mark.parametrize("id", ["nonsense", "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"])
def test_an_unknown_result_does_not_exist(backend: DisqueBackend, id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(id)


def test_a_result_is_found_at_another_node(cluster: ClusterFactory) -> None:
    here, there = cluster(2)
    with override_settings(TASKS=tasks_on(url(here))):
        backend = task_backends["default"]
        with working(backend):
            result = finished(tasks.add.enqueue(1, 2))
        with override_settings(TASKS=tasks_on(url(there))):
            wait_until(lambda: tasks.add.get_result(result.id).return_value == 3)
    disconnect()


def test_a_node_without_a_copy_asks_the_others(
    cluster: ClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = cluster(2)
    runs, over = tmp_path / "runs", tmp_path / "over"
    monkeypatch.setenv("RUNS", str(runs))
    monkeypatch.setenv("UNTIL", str(over))
    with override_settings(TASKS=tasks_on(url(here), replicate=1)):
        backend = task_backends["default"]
        result = tasks.work.enqueue("one")

        def status_there() -> TaskResultStatus:
            with override_settings(TASKS=tasks_on(url(there))):
                return tasks.work.get_result(result.id).status

        assert status_there() == TaskResultStatus.READY
        with working(backend):
            wait_until(runs.exists)
            assert status_there() == TaskResultStatus.RUNNING
            over.touch()
            finished(result)
    disconnect()


def test_a_task_that_waits_in_the_queue_of_another_node_is_not_running(
    cluster: ClusterFactory,
) -> None:
    here, there = cluster(2)
    with override_settings(TASKS=tasks_on(url(here), replicate=2)):
        result = tasks.add.enqueue(1, 2)
    with override_settings(TASKS=tasks_on(url(there))):
        assert tasks.add.get_result(result.id).status == TaskResultStatus.READY
    disconnect()


def test_a_worker_that_stops_finishes_its_running_tasks(
    backend: DisqueBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, over = tmp_path / "runs", tmp_path / "over"
    monkeypatch.setenv("RUNS", str(runs))
    monkeypatch.setenv("UNTIL", str(over))
    results = [tasks.work.enqueue(f"task-{number}") for number in range(4)]
    with working(backend, concurrency=1) as worker:
        wait_until(runs.exists)
        worker.stop()
        over.touch()
    done = [result for result in results if tasks.work.get_result(result.id).is_finished]
    assert len(done) == 1
    assert backend.client.qlen(backend.settings.queue("default")) == 3


def test_a_worker_that_has_ended_can_be_told_to_stop(backend: DisqueBackend) -> None:
    with working(backend) as worker:
        pass
    worker.stop()


def test_the_system_check_finds_wrong_options() -> None:
    for options in (
        {"url": "redis://a"},
        {"uri": "disque://a"},
        {"url": 5},
        {"url": ["disque://a", 5]},
        {"retry": 1.5},
        {"retry_for": float("nan")},
        {"retry": "soon"},
        {"result_ttl": 0},
        {"retry_for": -1},
        {"replicate": True},
    ):
        with override_settings(TASKS=tasks_on(**{"url": "disque://a", **options})):
            [problem] = task_backends["default"].check()
            assert problem.id == "disque.E001"
            assert nodes_are_there() == []
            with pytest.raises(CommandError, match="OPTIONS"):
                call_command("disque_worker")


def test_the_deployment_check_looks_for_nodes(shared_node: LiveNode) -> None:
    with override_settings(TASKS=tasks_on(url(shared_node))):
        assert nodes_are_there() == []
    with override_settings(TASKS=tasks_on(f"disque://127.0.0.1:{free_port()}")):
        [problem] = nodes_are_there()
        assert problem.id == "disque.E002"


def test_without_a_node_enqueuing_fails() -> None:
    nowhere = tasks_on(f"disque://127.0.0.1:{free_port()}", retry_for=0)
    with override_settings(TASKS=nowhere), pytest.raises(DisqueError):
        tasks.add.enqueue(1, 2)


def test_a_wrong_password_and_a_full_node_are_reported(disque_server: NodeFactory) -> None:
    node = disque_server("--requirepass", "right")
    wire = node.wire()
    assert wire("AUTH", "right") == b"OK"
    assert wire("CONFIG", "SET", "maxmemory", "1") == b"OK"
    wait_until(lambda: "OOM" in str(wire("ADDJOB", "filling", "job", 0)))
    for password, word in (("wrong", "password"), ("right", "OOM")):
        where = f"disque://:{password}@127.0.0.1:{node.port}"
        with (
            override_settings(TASKS=tasks_on(where)),
            pytest.raises(DisqueError, match=word),
        ):
            tasks.add.enqueue(1, 2)
    disconnect()


@pytest.mark.parametrize(
    "options",
    [["--queues", "default,nowhere"], ["--concurrency", "0"], ["--backend", "nowhere"]],
)
def test_the_worker_refuses_invalid_options(backend: DisqueBackend, options: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("disque_worker", *options)


def test_a_worker_of_another_backend_is_refused() -> None:
    path = f"{type(task_backends).__module__}.backends.dummy.DummyBackend"
    with (
        override_settings(TASKS={"default": {"BACKEND": path}}),
        pytest.raises(CommandError, match="does not belong to Disque"),
    ):
        call_command("disque_worker")


def test_a_second_signal_ends_a_worker_and_another_one_gets_its_task(
    backend: DisqueBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    monkeypatch.setenv("RUNS", str(runs))
    monkeypatch.setenv("SECONDS", "0")
    settings = backend.settings
    env = {"DISQUE_URL": str(settings.url), "PREFIX": settings.prefix, "PYTHONPATH": PYTHONPATH}
    command = ["packages.integrations.tests.support.django_project", "disque_worker"]
    workers = Workers(command, {**env, "RUNS": str(runs), "SECONDS": "600"}, tmp_path)
    try:
        result = tasks.work.enqueue("task")
        process = workers.start()
        wait_until(runs.exists)
        process.send_signal(signal.SIGTERM)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)

        def ended() -> bool:
            # The first signal may not be handled yet, and signals do not queue up.
            process.send_signal(signal.SIGTERM)
            return process.poll() is not None

        wait_until(ended)
        with working(backend):
            finished(result)
    finally:
        workers.close()
    assert result.attempts == 2
    assert result.worker_ids[0] == UNKNOWN
