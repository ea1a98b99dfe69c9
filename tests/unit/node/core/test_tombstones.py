"""The jobs that ended last are remembered, as many as there is room for."""

import pytest

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.jobs.outcomes import MAX_TOMBSTONES
from disque_trio.node.core.jobs.tombstones import Tombstones
from disque_trio.protocol.bus import REPLJOB, PacketWriter
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench
from tests.support.policies import set_policy


def test_the_latest_are_remembered_and_the_oldest_forgotten() -> None:
    store = Bench().node.store
    packets = PacketWriter(b"0" * 40, 7711)
    tombstones = Tombstones(Peers(), packets, store.outcomes, store.trailers)
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


@pytest.mark.parametrize("how", ["given", "copied"])
def test_a_job_that_another_one_has_followed_does_not_come_back(how: str) -> None:
    mesh = Mesh(3)
    set_policy(*mesh.nodes, attempts=1, dead=b"dead")
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 10)
    client = mesh[1].block()
    mesh.settle()
    assert mesh[1].got(client) == id
    mesh.isolate(0)
    reader = mesh[2].block("dead")
    mesh.advance(12)
    letter = mesh[2].got(reader)
    assert mesh.holders(id) == [0, 1]
    mesh.isolate(1)
    mesh.join(0, 2)
    mesh.advance(0.1)
    if how == "given":
        mesh[0]("ENQUEUE", id)
        again = mesh[2].block()
        mesh.advance(1)
        assert again.blocked
    else:
        job = mesh[0].node.store.jobs.get(id)
        assert job is not None
        data = mesh[0].node.bus_codec.encode(job)
        packet = mesh[0].node.packets.jobs(REPLJOB, [data])
        mesh[2].node.receive(mesh.ids[0], packet, mesh[2].now)
        mesh.advance(0.1)
        assert not mesh[2].held(id)
    assert mesh.holders(letter) == [0, 1, 2]
