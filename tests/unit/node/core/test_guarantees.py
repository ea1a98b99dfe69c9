"""docs/guarantees.md: what commands promise in a cluster and in a partition, as far as no other
test covers it."""

import pytest

from tests.support.mesh import Mesh
from tests.support.policies import set_policy

RETRY = 10


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def add(mesh: Mesh, *options: str | int) -> bytes:
    """Add a job that all three nodes hold, queued on the first."""
    return mesh.add(0, "REPLICATE", 3, "RETRY", RETRY, *options)


def queued_on(mesh: Mesh, name: str = "q") -> list[int]:
    return [i for i, bench in enumerate(mesh.nodes) if bench.number_queued(name)]


@pytest.mark.parametrize(
    "words",
    [["SHOW"], ["WORKING"], ["NACK", "DELAY", 300], ["DEQUEUE"]],
    ids=lambda words: words[0],
)
def test_a_side_that_does_not_hear_queues_the_job_when_its_retry_time_is_over(
    mesh: Mesh, words: list[str | int]
) -> None:
    id = add(mesh)
    if words[0] != "DEQUEUE":
        assert mesh[0].get() == id
    mesh.isolate(0)
    mesh[0](words[0], id, *words[1:])
    mesh.advance(RETRY + 2)
    assert [i for i in queued_on(mesh) if i] in ([1], [2])


def test_a_delayed_job_comes_a_retry_time_later_where_its_node_is_not_reached(mesh: Mesh) -> None:
    add(mesh, "DELAY", 30)
    mesh.isolate(0)
    mesh.advance(30 + RETRY - 1)
    assert queued_on(mesh) == [0]
    mesh.advance(3)
    assert len(queued_on(mesh)) == 2


@pytest.mark.parametrize("command", ["FASTACK", "DELJOB"])
def test_sides_that_did_not_hear_that_a_job_was_deleted_are_not_told_later(
    mesh: Mesh, command: str
) -> None:
    id = add(mesh)
    mesh.isolate(0)
    assert mesh[0](command, *(["BCAST"] if command == "DELJOB" else []), id) == 1
    mesh.rejoin(0)
    mesh.advance(RETRY + 2)
    assert len(queued_on(mesh)) == 1


@pytest.mark.parametrize("words", [["ACKJOB"], ["CANCEL"], ["ACKJOB", "RESULT", "r"]])
def test_sides_that_did_not_hear_of_an_ending_are_told_when_they_are_back(
    mesh: Mesh, words: list[str]
) -> None:
    id = add(mesh)
    mesh.isolate(0)
    assert mesh[0](words[0], id, *words[1:]) == 1
    mesh.advance(RETRY + 2)
    assert mesh[(other := queued_on(mesh)[0])].get() == id
    assert other != 0
    mesh.rejoin(0)
    mesh.advance(60)
    assert mesh.holders(id) == []


def test_deleting_without_bcast_leaves_the_other_copies(mesh: Mesh) -> None:
    id = add(mesh)
    assert mesh[0]("DELJOB", id) == 1
    mesh.advance(RETRY + 2)
    assert len(queued_on(mesh)) == 1


def test_who_is_not_reached_is_told_that_a_queue_is_paused_when_it_is(mesh: Mesh) -> None:
    mesh.cut(0, 2)
    assert mesh[0]("PAUSE", "q", "in", "bcast") == b"in"
    mesh.settle()
    states = [bench("PAUSE", "q", "state") for bench in mesh.nodes]
    assert states == [b"in", b"in", b"none"]
    mesh.join(0, 2)
    mesh.advance(0)
    assert [bench("PAUSE", "q", "state") for bench in mesh.nodes] == [b"in"] * 3


def test_both_sides_deliver_as_often_as_the_policy_allows(mesh: Mesh) -> None:
    set_policy(*mesh.nodes, attempts=3, dead=b"dead")
    id = add(mesh)
    mesh.isolate(0)
    mesh[1]("ENQUEUE", id)
    for bench in mesh.nodes[:2]:
        for _ in range(3):
            assert bench.get() == id
            bench("NACK", id)
    assert queued_on(mesh) == []
    assert queued_on(mesh, "dead") == [0, 1]


def test_letters_that_two_sides_send_back_are_one_job_afterwards(mesh: Mesh) -> None:
    set_policy(*mesh.nodes, attempts=1, dead=b"dead")
    add(mesh)
    mesh[0]("NACK", mesh[0].get() or b"")
    mesh.settle()
    mesh.isolate(0)
    mesh.advance(310)  # the retry time of letters: the other side delivers it, too
    assert len(queued_on(mesh, "dead")) == 2
    other = queued_on(mesh, "dead")[1]
    jobs = []
    for index in (0, other):
        mesh[index].send(mesh[index].me, "REDRIVE", "dead")
        mesh.advance(6)
        assert mesh[index].replies(mesh[index].me) == [1]
        jobs += mesh[index].ids(mesh[index]("QPEEK", "q", 9))
    assert len(jobs) == 2
    assert len(set(jobs)) == 1
    mesh.rejoin(0)
    mesh.advance(400)
    assert len(queued_on(mesh)) == 1
    assert queued_on(mesh, "dead") == []
