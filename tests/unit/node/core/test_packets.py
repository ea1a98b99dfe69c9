"""What a node tells the other holders of its jobs, and when."""

import pytest

from disque_trio.node.core.jobs.job import DEFAULT_REPLICATE
from tests.support.mesh import Mesh


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def test_only_repeated_queueing_is_announced(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 5)
    mesh[0].get()
    (other,) = [i for i in mesh.holders(id) if i]
    mesh.told()
    mesh[0]("NACK", id)
    assert mesh.told() == [(0, "queued", other)]
    mesh[0]("DEQUEUE", id)
    mesh[0]("ENQUEUE", id)
    assert mesh.told() == [(0, "queued", other)]
    mesh.settle()
    assert mesh[other].number(id, b"nacks") == 1
    assert mesh[other].number(id, b"additional-deliveries") == 1


def test_working_is_announced_unless_there_is_nothing_to_postpone(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3)
    once = mesh.add(0, "REPLICATE", 1, "RETRY", 0)
    mesh.told()
    mesh[0]("WORKING", id)
    assert mesh.told() == [(0, "working", 1), (0, "working", 2)]
    mesh[0]("WORKING", once)
    assert mesh.told() == []


@pytest.mark.parametrize(
    ("command", "known", "unknown"),
    [
        (["FASTACK"], True, True),
        (["DELJOB"], False, False),
        (["DELJOB", "BCAST"], True, False),
        (["DELJOB", "FORCE"], False, True),
        (["DELJOB", "BCAST", "FORCE"], True, True),
    ],
)
def test_deletion_is_announced_as_requested(
    mesh: Mesh, command: list[str], known: bool, unknown: bool
) -> None:
    here, gone = mesh.add(0, "REPLICATE", 3), mesh.add(0, "REPLICATE", 3)
    mesh[0]("DELJOB", gone)
    mesh.told()
    assert mesh[0](*command, here, gone) == 1
    assert mesh.told() == sorted([(0, "deljob", 1), (0, "deljob", 2)] * (known + unknown))
    mesh.settle()
    assert mesh.holders(here) == ([] if known else [1, 2])
    assert mesh.holders(gone) == ([] if unknown else [1, 2])


def test_the_end_of_the_only_copy_is_not_announced(mesh: Mesh) -> None:
    mesh.add(0, "REPLICATE", 1, "TTL", 5)
    mesh[0]("ACKJOB", mesh.add(0, "REPLICATE", 1))
    mesh.advance(10)
    assert mesh.told() == []
    assert mesh[0].node.store.jobs.count == 0


def test_pause_is_announced_only_with_bcast(mesh: Mesh) -> None:
    mesh[0]("PAUSE", "q", "in")
    assert mesh.told() == []
    for words, state in (("all bcast", b"all"), ("none bcast", b"none"), ("in bcast", b"in")):
        mesh[0]("PAUSE", "q", *words.split())
        mesh.settle()
        assert [mesh[i].queue()[b"pause"] for i in (1, 2)] == [state, state]


def test_the_default_of_replicate_follows_the_size_of_the_cluster() -> None:
    for size, replicate in ((1, 1), (2, 2), (3, 2), (7, 2)):
        mesh = Mesh(size)
        for bench in mesh.nodes:
            bench.node.replicas.default_copies = DEFAULT_REPLICATE
        id = mesh.add(0)
        assert len(mesh.holders(id)) == replicate
        assert mesh[0].number(id, b"repl") == replicate
        if size > 1:
            mesh.peers[0].reachable = mesh.peers[0].reachable[: replicate - 2]  # one short
            assert mesh[0].error("ADDJOB", "q", "b", 0).startswith("NOREPL ")
            assert (
                mesh[0]
                .error("ADDJOB", "q", "b", 0, "RETRY", 0)
                .startswith("ERR With RETRY set to 0 please explicitly set  REPLICATE to 1")
            )
            mesh.add(0, "RETRY", 0, "REPLICATE", 1)
