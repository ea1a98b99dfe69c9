"""A message that kills its process dies alone, in Dramatiq's workers and Django's."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.test import override_settings
from dramatiq import Message

from disque_integrations.alone import ProcessDied
from disque_integrations.django.framework import TaskResultStatus, task_backends
from disque_integrations.dramatiq import DisqueBroker
from packages.integrations.tests.support.django_world import disconnect, tasks, tasks_on
from packages.integrations.tests.support.task_story import Runs, Workers
from tests.support import PYTHONPATH
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, wait_until

INNOCENT = [f"task-{number}" for number in range(7)]


@pytest.fixture
def node(disque_server: NodeFactory) -> LiveNode:
    return disque_server("--appendonly", "yes", "--appendfsync", "no")


def url(node: LiveNode) -> str:
    return f"disque://127.0.0.1:{node.port}"


@contextmanager
def supervised(workers: Workers) -> Iterator[None]:
    """Start a worker again whenever it dies, as systemd does."""
    stopped = threading.Event()

    def supervise() -> None:
        while not stopped.is_set():
            process = workers.start()
            while process.poll() is None and not stopped.wait(0.05):
                pass

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    try:
        yield
    finally:
        stopped.set()
        supervisor.join(HANG_SECONDS)
        for process in workers.processes:
            if process.poll() is None:
                process.terminate()
                process.wait(HANG_SECONDS)
        workers.close()


def environment(node: LiveNode, runs: Path) -> dict[str, str]:
    return {"DISQUE_URL": url(node), "RUNS": str(runs), "PYTHONPATH": PYTHONPATH}


def letters(node: LiveNode, queue: str) -> list[dict[object, object]]:
    """Return the fields of the dead letters in a queue."""
    reply = node.ask("JSCAN", "0", "BUSYLOOP", "QUEUE", queue, "REPLY", "all")
    assert isinstance(reply, list)
    return [dict(zip(fields[::2], fields[1::2], strict=True)) for fields in reply[1]]


def check(runs: Runs, found: list[dict[object, object]]) -> None:
    """Check that the innocent ran, and that the poison ran four times: once beside others, and
    three times alone."""
    assert runs.ended() == set(INNOCENT)
    begun = Counter(name for what, name, _ in runs.lines() if what == "begin")
    assert begun["poison"] == 4
    assert all(begun[name] <= 2 for name in INNOCENT)
    alone = {pid for what, name, pid in runs.lines() if name == "poison"}
    assert len(alone) == 4
    [letter] = found
    assert letter[b"dead-why"] == b"refused"
    reason = letter[b"dead-reason"]
    assert isinstance(reason, bytes)
    assert b"killed by SIGKILL, memory" in reason


def test_seven_messages_of_dramatiq_survive_one_that_kills_its_process(
    node: LiveNode, tmp_path: Path
) -> None:
    broker = DisqueBroker(url=url(node))
    try:
        for actor, *args in (["poison"], *[["innocent", name] for name in INNOCENT]):
            broker.enqueue(
                Message(
                    queue_name="default",
                    actor_name=actor,
                    args=tuple(args),
                    kwargs={},
                    options={},
                )
            )
    finally:
        broker.close()
    runs = Runs(tmp_path / "runs")
    actors = "packages.integrations.tests.support.poison_actors"
    command = ["dramatiq", actors, "--processes", "1", "--threads", "8"]
    with supervised(Workers(command, environment(node, runs.file), tmp_path)):
        wait_until(lambda: runs.ended() == set(INNOCENT))
        wait_until(lambda: letters(node, "dramatiq.default.XQ"))
    check(runs, letters(node, "dramatiq.default.XQ"))


def test_seven_tasks_of_django_survive_one_that_kills_its_process(
    node: LiveNode, tmp_path: Path
) -> None:
    runs = Runs(tmp_path / "runs")
    command = ["packages.integrations.tests.support.django_project", "disque_worker"]
    env = environment(node, runs.file) | {"SECONDS": "1"}
    with override_settings(TASKS=tasks_on(url(node), replicate=1)):
        try:
            dead = tasks.poison.enqueue()
            done = [tasks.work.enqueue(name) for name in INNOCENT]
            with supervised(Workers(command, env, tmp_path)):
                wait_until(lambda: runs.ended() == set(INNOCENT))
                wait_until(lambda: letters(node, "django.default.dead"))
            backend = task_backends["default"]
            for result in done:
                result.refresh()
                assert result.status == TaskResultStatus.SUCCESSFUL
            found = backend.get_result(dead.id)
            assert found.status == TaskResultStatus.FAILED
            [error] = found.errors
            assert error.exception_class is ProcessDied
            assert "killed by SIGKILL" in error.traceback
        finally:
            disconnect()
    check(runs, letters(node, "django.default.dead"))
