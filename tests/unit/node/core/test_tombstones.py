"""The jobs that ended last are remembered, as many as there is room for."""

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.jobs.tombstones import MAX_TOMBSTONES, Tombstones
from disque_trio.protocol.bus import PacketWriter
from tests.support.node_bench import Bench


def test_the_latest_are_remembered_and_the_oldest_forgotten() -> None:
    tombstones = Tombstones(Peers(), PacketWriter(b"0" * 40, 7711), Bench().node.store.outcomes)
    ids = [b"D-%037d1" % number for number in range(4 * MAX_TOMBSTONES)]
    for id in ids:
        tombstones.ended.add(id)
    assert all(tombstones.refuse(b"1" * 40, id) for id in ids[-MAX_TOMBSTONES:])
    assert not any(tombstones.refuse(b"1" * 40, id) for id in ids[: -2 * MAX_TOMBSTONES])
