"""Jobs on a node of which the other holders do not know that it has them."""

import pytest

from disque_trio.protocol.successor import successor_id
from disque_trio.protocol.trailer import DEAD
from tests.support.mesh import Mesh
from tests.support.policies import set_policy


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def taken_by_a_stranger(mesh: Mesh, *options: str | int) -> tuple[bytes, int]:
    """Have the node without a copy take a job of two others, which then forget that it did, as if
    they had been killed. Return the job's id and the stranger."""
    id = mesh.add(0, "REPLICATE", 2, *options)
    (stranger,) = {0, 1, 2} - set(mesh.holders(id))
    taker = mesh[stranger]
    taker.send(taker.me, "GETJOB", "TIMEOUT", 10, "FROM", "q")
    mesh.advance(0.1)
    assert taker.replies(taker.me) == [[[b"q", id, b"body"]]]
    for index in {0, 1, 2} - {stranger}:
        job = mesh[index].node.store.jobs.get(id)
        assert job is not None
        others = [node for node in (0, 1, 2) if node != stranger]
        job.delivered = mesh[index].node.replicas.sets.of(tuple([mesh.ids[at] for at in others]))
    return id, stranger


def test_who_asks_about_a_job_whose_end_it_was_not_told_is_told_then(mesh: Mesh) -> None:
    id, stranger = taken_by_a_stranger(mesh, "RETRY", 10)
    mesh[0]("ACKJOB", id)
    mesh.settle()
    assert mesh.holders(id) == [stranger]
    mesh.advance(11)
    assert mesh.holders(id) == []
    assert mesh[stranger].number_queued() == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_letter_of_a_job_that_expires_late_is_where_the_others_know_of_it(seed: int) -> None:
    mesh = Mesh(3, seed)
    set_policy(*mesh.nodes, dead=b"dead")
    id, stranger = taken_by_a_stranger(mesh, "RETRY", 60, "TTL", 5)
    dead = successor_id(id, DEAD)
    late = mesh[stranger].node.store.jobs.get(id)
    assert late is not None
    late.etime += 2
    mesh[stranger].node.store.schedule(late)
    mesh.advance(7.5)
    assert len(mesh.holders(dead)) == 2
    mesh.advance(1.5)  # another holder may have had to be asked twice
    (index,) = [at for at, bench in enumerate(mesh.nodes) if bench.number_queued("dead")]
    assert mesh[index].get("dead") == dead
    mesh[index]("ACKJOB", dead)
    mesh.settle()
    assert mesh.holders(dead) == []
    mesh.advance(3)
    assert mesh.holders(dead) == []


@pytest.mark.parametrize("away", [False, True])
def test_a_letter_that_a_stranger_makes_ends_with_the_others(away: bool) -> None:
    mesh = Mesh(3)
    set_policy(*mesh.nodes, dead=b"dead")
    id, stranger = taken_by_a_stranger(mesh, "RETRY", 60, "TTL", 5)
    if away:
        mesh.isolate(stranger)
    mesh.advance(7)
    if away:
        mesh.rejoin(stranger)
        mesh.advance(0.1)
    dead = successor_id(id, DEAD)
    assert mesh.holders(dead) == [0, 1, 2]
    (index, *_) = [at for at, bench in enumerate(mesh.nodes) if bench.number_queued("dead")]
    assert mesh[index].get("dead") == dead
    mesh[index]("ACKJOB", dead)
    mesh.settle()
    assert mesh.holders(dead) == []
