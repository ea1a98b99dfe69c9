"""The jobs that ended last are remembered, as many as there is room for."""

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.jobs.outcomes import MAX_TOMBSTONES
from disque_trio.node.core.jobs.tombstones import Tombstones
from disque_trio.protocol.bus import PacketWriter
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench


def test_the_latest_are_remembered_and_the_oldest_forgotten() -> None:
    tombstones = Tombstones(Peers(), PacketWriter(b"0" * 40, 7711), Bench().node.store.outcomes)
    ids = [b"D-%037d1" % number for number in range(4 * MAX_TOMBSTONES)]
    for id in ids:
        tombstones.ended.add(id)
    assert all(tombstones.refuse(b"1" * 40, id) for id in ids[-MAX_TOMBSTONES:])
    assert not any(tombstones.refuse(b"1" * 40, id) for id in ids[: -2 * MAX_TOMBSTONES])


def test_an_acknowledged_job_that_was_evicted_does_not_come_back() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 10)
    client = mesh[1].block()
    mesh.settle()
    assert mesh[1].got(client) == id
    mesh.cut(0, 1)
    mesh[1]("ACKJOB", id)
    mesh[1].node.store.evict(0)
    assert not mesh[1].held(id)
    mesh.advance(30)
    assert mesh[0].number_queued() == 1
    again = mesh[1].block()
    mesh.join(0, 1)
    mesh.advance(0.1)
    assert again.blocked
    mesh.advance(30)
    assert again.blocked
    assert mesh.holders(id) == []
