"""What the event log records about jobs that a node does not know."""

import json

import pytest

from disque_trio.eventlog.lines import LineWriter
from tests.support.mesh import Mesh

STRANGER = 2


@pytest.fixture
def mesh() -> Mesh:
    mesh = Mesh(3)
    mesh[STRANGER].node.notes.eventing = True
    mesh[STRANGER].me.name = b"worker"
    return mesh


def told(mesh: Mesh) -> list[tuple[str, str, str, str]]:
    """Return event, id, reason and client in the log of the node that does not know the job."""
    node = mesh[STRANGER].node
    lines = LineWriter(node.id.decode()).lines(node.notes.events).splitlines()
    events = [json.loads(line) for line in lines]
    assert all("queue" not in event for event in events)
    return [
        (event["event"], event["id"], event.get("reason", ""), event.get("client", ""))
        for event in events
    ]


def test_an_acknowledge_of_a_job_that_others_hold_is_noted(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 60)
    mesh[STRANGER]("ACKJOB", id)
    assert told(mesh)[0] == ("acked", id.decode(), "client", "worker")


def test_an_acknowledge_that_nobody_keeps_is_not_noted(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 0)
    mesh[STRANGER]("ACKJOB", id)
    assert told(mesh) == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [(["FASTACK"], "fastack"), (["DELJOB", "BCAST", "FORCE"], "command")],
)
def test_a_deletion_on_all_nodes_is_noted(mesh: Mesh, command: list[str], reason: str) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 60)
    mesh[STRANGER](*command, id)
    assert told(mesh) == [("deleted", id.decode(), reason, "worker")]


def test_a_deletion_that_tells_nobody_is_not_noted(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 60)
    mesh[STRANGER]("DELJOB", id)
    assert told(mesh) == []
