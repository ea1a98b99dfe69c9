"""What the event log hears of jobs."""

import pytest
from mesh import Mesh

Shown = tuple[str, str, str, int]


@pytest.fixture
def mesh() -> Mesh:
    mesh = Mesh(3)
    for bench in mesh.nodes:
        bench.node.eventing = True
        bench.me.name = b"worker"
    return mesh


def noted(mesh: Mesh, index: int) -> list[Shown]:
    """Event, reason, client and the number of the peer's node (-1: none), oldest first."""
    events, mesh[index].node.events = mesh[index].node.events, []
    found: list[Shown] = []
    for event in events:
        peer = event[6]
        assert isinstance(peer, bytes)
        number = mesh.ids.index(peer) if peer else -1
        found.append((str(event[1]), str(event[4]), str(event[5]), number))
    return found


def test_nothing_is_noted_unless_it_is_wanted(mesh: Mesh) -> None:
    for bench in mesh.nodes:
        bench.node.eventing = False
    mesh[0]("ACKJOB", mesh.add(0))
    mesh.settle()
    assert [bench.node.events for bench in mesh.nodes] == [[], [], []]


def test_the_life_of_a_job_with_copies(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 60)
    assert noted(mesh, 0) == [
        ("replicated", "", "worker", -1),
        ("added", "add", "worker", -1),
    ]
    assert noted(mesh, 1) == [("copied", "", "", 0)]
    mesh[0].get()
    mesh[0]("WORKING", id)
    mesh[0]("NACK", id)
    mesh[0].get()
    mesh[0]("ACKJOB", id)
    mesh[0]("ACKJOB", id)
    mesh.settle()
    events = noted(mesh, 0)
    assert events.pop()[:2] == ("deleted", "collected")
    assert events == [
        ("delivered", "", "worker", -1),
        ("working", "", "worker", -1),
        ("nacked", "", "worker", -1),
        ("queued", "nack", "worker", -1),
        ("delivered", "", "worker", -1),
        ("acked", "client", "worker", -1),
    ]
    assert noted(mesh, 1) == [("acked", "peer", "", 0), ("deleted", "collected", "", 0)]


def test_numbers_are_given_where_a_job_is_new(mesh: Mesh) -> None:
    mesh.add(0, "REPLICATE", 2, "RETRY", 60, "TTL", 100, "DELAY", 5)
    event = next(event for event in mesh[0].node.events if event[1] == "added")
    assert event[7:15] == (0, 0, 4, 2, 2, 60, 100, 5)
    assert event[15] == next(iter(mesh[0].node.jobs.values())).ctime


def test_a_job_that_moves_is_noted_on_both_sides(mesh: Mesh) -> None:
    mesh.add(0, "REPLICATE", 1)
    noted(mesh, 0)
    client = mesh[1].block("q")
    client.name = b"other"
    mesh.settle()
    assert noted(mesh, 0) == [("exported", "", "", 1)]
    assert noted(mesh, 1) == [
        ("imported", "", "", 0),
        ("queued", "import", "", 0),
        ("delivered", "", "other", -1),
    ]


def test_why_a_job_is_queued_and_how_it_ends(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1, "DELAY", 1, "RETRY", 2, "TTL", 9)
    mesh.advance(1.1)
    mesh[0]("DEQUEUE", id)
    mesh[0]("ENQUEUE", id)
    mesh[0].get()
    mesh.advance(3)
    mesh.advance(10)
    gone = mesh.add(0, "REPLICATE", 1)
    mesh[0]("DELJOB", gone)
    fast = mesh.add(0, "REPLICATE", 1)
    mesh[0]("FASTACK", fast)
    events = [event[:2] for event in noted(mesh, 0)]
    assert events == [
        ("added", ""),
        ("queued", "delay"),
        ("dequeued", "command"),
        ("queued", "enqueue"),
        ("delivered", ""),
        ("queued", "retry"),
        ("expired", ""),
        ("added", "add"),
        ("deleted", "command"),
        ("added", "add"),
        ("deleted", "fastack"),
    ]


def test_a_client_without_a_name_is_called_by_its_address(mesh: Mesh) -> None:
    mesh[0].me.name = b""
    mesh.add(0, "REPLICATE", 1)
    assert noted(mesh, 0)[0][2] == "10.0.0.1:7000"


def test_a_job_that_was_given_up_is_noted(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: True
    mesh[0].send(mesh[0].me, "ADDJOB", "q", "b", 100)
    mesh.advance(1)
    assert [event[:2] for event in noted(mesh, 0)] == [("deleted", "given-up")]
