"""Revoked tasks of Celery: their jobs are cancelled, whether or not there are workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chord
from celery.contrib.testing.worker import start_worker
from celery.exceptions import ChordError, TaskRevokedError
from celery.result import AsyncResult

from packages.integrations.tests.support.celery_app import program, ran
from tests.support.harness import HANG_SECONDS, ClusterFactory, LiveNode, wait_until

LIMIT = {"timeout": HANG_SECONDS}
UNFINISHED = ("STATE", "wait-repl", "STATE", "active", "STATE", "queued")


@contextmanager
def opened(*nodes: LiveNode, **settings: Any) -> Iterator[Celery]:
    app = program(";".join(f"disque://{node.host}:{node.port}" for node in nodes), **settings)
    try:
        yield app
    finally:
        app.close()


@pytest.fixture
def app(shared_node: LiveNode) -> Iterator[Celery]:
    with opened(shared_node) as app:
        yield app


@contextmanager
def working(app: Celery) -> Iterator[None]:
    with start_worker(app, perform_ping_check=False, pool="threads"):
        yield


def waiting(node: LiveNode, queue: str = "celery") -> int:
    """Return how many jobs of the queue have not ended."""
    reply = node.ask("JSCAN", "0", "BUSYLOOP", "QUEUE", queue, *UNFINISHED)
    assert isinstance(reply, list)
    return len(reply[1])


@pytest.mark.parametrize("options", [{}, {"countdown": 3600}])
def test_a_task_that_is_revoked_while_all_workers_are_away_never_runs(
    app: Celery, shared_node: LiveNode, tmp_path: Path, options: dict[str, Any]
) -> None:
    told, file = app.tasks["told"], tmp_path / "ran"
    results = [told.apply_async((f"{n}", 0, str(file)), **options) for n in range(3)]
    other = told.apply_async(("other", 0, str(file)))
    results[0].revoke()
    app.control.revoke([result.id for result in results[1:]])
    assert [AsyncResult(result.id, app=app).state for result in results] == ["REVOKED"] * 3
    assert waiting(shared_node) == 1
    with working(app):
        other.get(**LIMIT)
        with pytest.raises(TaskRevokedError):
            results[0].get(**LIMIT)
    assert [name for name, _ in ran(file)] == ["other"]


def test_many_tasks_are_revoked_at_once(app: Celery, shared_node: LiveNode) -> None:
    add = app.tasks["add"]
    results = [add.delay(n, 1) for n in range(30)]
    app.control.revoke([result.id for result in results[5:]])
    assert waiting(shared_node) == 5
    with working(app):
        assert [result.get(**LIMIT) for result in results[:5]] == [1, 2, 3, 4, 5]
    assert {result.state for result in results[5:]} == {"REVOKED"}


def test_jobs_on_all_nodes_are_cancelled(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    results = []
    for node in nodes:
        options = {"replicate": 1, "hints": False}
        with opened(node, broker_transport_options=options) as app:
            results.append(app.tasks["add"].apply_async((1, 2), countdown=3600))
    assert [waiting(node) for node in nodes] == [1, 1, 1]
    with opened(nodes[0]) as app:
        app.control.revoke([result.id for result in results])
        wait_until(lambda: [waiting(node) for node in nodes] == [0, 0, 0])
        assert {AsyncResult(result.id, app=app).state for result in results} == {"REVOKED"}


def test_a_chord_with_a_revoked_part_fails(app: Celery) -> None:
    add, total = app.tasks["add"], app.tasks["total"]
    result = chord([add.s(1, 1), add.s(2, 2)])(total.s())
    assert result.parent is not None
    result.parent.results[0].revoke()
    with working(app), pytest.raises((ChordError, TaskRevokedError)):
        result.get(**LIMIT)


def test_a_running_task_goes_on_unless_it_is_to_be_terminated(app: Celery, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    with working(app):
        result = app.tasks["told"].delay("runs", 1.0, str(file))
        wait_until(lambda: ran(file))
        result.revoke()
        assert result.get(**LIMIT) is None
        assert result.state == "SUCCESS"


def test_a_task_that_is_revoked_for_some_workers_stays(app: Celery, shared_node: LiveNode) -> None:
    result = app.tasks["add"].delay(1, 2)
    app.control.revoke(result.id, destination=["somebody@else"])
    app.control.revoke("unknown")
    app.control.revoke([])
    assert (result.state, waiting(shared_node)) == ("PENDING", 1)
    with working(app):
        assert result.get(**LIMIT) == 3


def test_a_task_may_be_sent_again_after_it_was_revoked(app: Celery) -> None:
    add = app.tasks["add"]
    add.apply_async((1, 2), task_id="mine").revoke()
    assert AsyncResult("mine", app=app).state == "REVOKED"
    add.apply_async((1, 2), task_id="mine")
    with working(app):
        wait_until(lambda: AsyncResult("mine", app=app).state == "SUCCESS")
