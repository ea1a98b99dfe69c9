"""How acknowledged jobs end everywhere."""

import pytest

from disque_trio.node.core.jobs.job import ACKED
from disque_trio.node.core.lifecycle.ack_gc import LOOKED_AT
from disque_trio.protocol import bus
from tests.support.mesh import Mesh


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def held(mesh: Mesh) -> int:
    return sum(bench.node.store.jobs.count for bench in mesh.nodes)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_an_acknowledge_at_any_holder_frees_the_job_everywhere(mesh: Mesh, index: int) -> None:
    id = mesh.add(0)
    assert mesh[0].get() == id
    assert mesh[index]("ACKJOB", id) == 1
    mesh.settle()
    assert held(mesh) == 0
    assert mesh.told("setack", "gotack", "deljob") == sorted(
        [(index, "setack", i) for i in range(3) if i != index]
        + [(i, "gotack", index) for i in range(3) if i != index]
        + [(index, "deljob", i) for i in range(3) if i != index]
    )
    for bench in mesh.nodes:
        assert bench.node.memory.used == bench.counted_memory()


def test_a_holder_that_is_away_hears_of_it_when_it_is_back(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 500)
    mesh.isolate(1)
    mesh[0]("ACKJOB", id)
    mesh.settle()
    assert mesh.states(id) == ["acked", "active", "acked"]
    mesh.advance(100)
    mesh.rejoin(1)
    mesh.advance(200)
    assert held(mesh) == 0


@pytest.mark.parametrize("command", ["ACKJOB", "CANCEL"])
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.slow
def test_a_holder_that_is_back_hears_at_once_what_has_ended(
    mesh: Mesh, command: str, lost: bool
) -> None:
    ids = [mesh.add(0, "RETRY", 5000) for _ in range(LOOKED_AT // 2 * 3)]
    mesh.isolate(1)
    for id in ids:
        mesh[0](command, id)
    mesh.advance(500)
    mesh.lose = lambda source, target, packet: lost and target == 1
    mesh.rejoin(1)
    mesh.advance(0.1)
    assert (held(mesh) == 0) is not lost
    mesh.lose = lambda source, target, packet: False
    mesh.advance(3)
    assert held(mesh) == 0


def test_who_is_back_is_told_of_many_ended_jobs_in_few_packets(mesh: Mesh) -> None:
    ids = [mesh.add(0, "RETRY", 5000) for _ in range(LOOKED_AT // 2)]
    mesh.isolate(1)
    for id in ids:
        mesh[0]("ACKJOB", id)
    mesh.advance(500)
    mesh.told()
    mesh.rejoin(1)
    mesh.advance(0.1)
    assert held(mesh) == 0
    assert len(mesh.told("setack")) <= 4


def test_the_others_are_told_again_ever_more_slowly(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 80_000)
    (other,) = [i for i in mesh.holders(id) if i]
    mesh.lose = lambda source, target, packet: target == other
    mesh[0]("ACKJOB", id)
    mesh.told()
    gaps = []
    last = mesh[0].now
    for _ in range(18_000):
        mesh.advance(0.05)
        if mesh.told("setack"):
            gaps.append((mesh[0].now - last) / 1000)
            last = mesh[0].now
    assert [round(gap) for gap in gaps[:7]] == [1, 2, 4, 8, 16, 32, 64]
    assert [round(gap) for gap in gaps[8:]] == [180, 180, 180]


def test_repeated_acknowledges_do_not_delay_the_next_attempt(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3)
    mesh.isolate(2)
    mesh[0]("ACKJOB", id)
    mesh.advance(4)
    for _ in range(10):
        mesh[0]("ACKJOB", id)
    mesh.rejoin(2)
    mesh.advance(6)
    assert mesh.holders(id) == []


def test_an_unknown_acknowledge_is_kept_until_one_that_knows_the_job_is_told() -> None:
    mesh = Mesh(4)
    id = mesh.add(0, "REPLICATE", 2)
    stranger = next(i for i in range(4) if i not in mesh.holders(id))
    mesh.isolate(stranger)
    assert mesh[stranger]("ACKJOB", id) == 0
    mesh.settle()
    assert mesh.states(id)[stranger] == "acked"
    assert mesh[stranger]("JSCAN", "BUSYLOOP") == [b"0", []]
    mesh.rejoin(stranger)
    mesh.advance(5)
    assert held(mesh) == 0


def test_an_acknowledge_that_nobody_knows_is_dropped_when_all_said_so(mesh: Mesh) -> None:
    gone = mesh.add(0)
    mesh[0]("FASTACK", gone)
    mesh.settle()
    mesh.cut(0, 2)
    mesh[0]("ACKJOB", gone)
    mesh.settle()
    assert held(mesh) == 1
    mesh.join(0, 2)
    mesh.advance(4)
    assert held(mesh) == 0


def test_dummies_on_two_nodes_do_not_make_each_other_forget(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1)
    mesh.isolate(0)
    mesh[1]("ACKJOB", id)
    mesh[2]("ACKJOB", id)
    mesh.advance(30)
    assert mesh.states(id) == ["queued", "acked", "acked"]
    mesh.rejoin(0)
    mesh.advance(60)
    assert held(mesh) == 0


def test_a_dummy_is_kept_no_longer_than_the_job_could_live(mesh: Mesh) -> None:
    id = mesh.add(1, "TTL", 119, "REPLICATE", 1)
    mesh.isolate(0)
    mesh[0]("ACKJOB", id)
    mesh.advance(118)
    assert mesh[0].held(id)
    mesh.advance(8)
    assert mesh[0].node.store.jobs.count == 0


@pytest.mark.parametrize("why", ["alone", "leaving", "at most once", "no number"])
def test_no_dummy_is_made_in_vain(why: str) -> None:
    mesh = Mesh(1 if why == "alone" else 2)
    id = b"D-aaaaaaaa-" + b"x" * 24 + b"-05a1"
    if why == "leaving":
        mesh[0].node.set_leaving(True)
    elif why == "at most once":
        id = id[:-1] + b"0"
    elif why == "no number":
        id = id[:-4] + b"zzzz"
    assert mesh[0]("ACKJOB", id) == 0
    mesh.settle()
    assert held(mesh) == 0


def test_the_node_that_knows_more_holders_collects() -> None:
    mesh = Mesh(4)
    id = mesh.add(0, "REPLICATE", 2)
    other = next(i for i in mesh.holders(id) if i)
    third = next(i for i in (1, 2, 3) if i != other)
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    mesh[0].node.replication.send_copy(job, [mesh.ids[third]], bus.NOREPLY)
    job.delivered = (*(job.delivered or ()), mesh.ids[third])
    mesh.settle()
    assert len(mesh.holders(id)) == 3
    mesh[other]("ACKJOB", id)  # knows of two
    mesh.settle()
    assert held(mesh) == 0


def test_confirmations_of_nodes_that_do_not_hold_it_do_not_count(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    other = next(i for i in mesh.holders(id) if i)
    stranger = 3 - other
    mesh.cut(0, other)
    mesh[0]("ACKJOB", id)
    packet = mesh[stranger].node.packets.about_job(bus.GOTACK, id, 0)
    for _ in range(3):
        mesh[0].node.receive(mesh.ids[stranger], packet, mesh[0].now)
    mesh.settle()
    assert mesh.states(id)[0] == "acked"


def test_a_node_that_is_out_of_the_cluster_is_not_waited_for(mesh: Mesh) -> None:
    id = mesh.add(0)
    mesh.cut(0, 2)
    mesh[0]("ACKJOB", id)
    mesh.settle()
    assert mesh.states(id)[0] == "acked"
    everyone = mesh.peers[0].everyone
    mesh.peers[0].everyone = lambda: [i for i in everyone() if i != mesh.ids[2]]  # type: ignore[method-assign]
    mesh.advance(3)
    assert mesh.holders(id) == [2]


def test_an_acknowledge_overtakes_an_addjob_that_waits(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: bus.packet_type(packet) == bus.GOTJOB
    mesh[0].send(mesh[0].me, "ADDJOB", "q", "b", 0)
    mesh.settle()
    (job,) = mesh[0].node.store.jobs.values()
    other = mesh[0].client()
    assert mesh[0].ask(other, "ACKJOB", job.id) == 1
    mesh.settle()
    assert mesh[0].raw(mesh[0].me) == b"+" + job.id + b"\r\n"
    assert held(mesh) == 0


def test_whoever_wants_to_queue_an_acknowledged_job_is_told(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 5)
    mesh.lose = lambda source, target, packet: bus.packet_type(packet) in (bus.SETACK, bus.DELJOB)
    mesh[0]("ACKJOB", id)
    mesh.advance(4)
    assert mesh.states(id) == ["acked", "active", "active"]
    mesh.lose = lambda source, target, packet: False
    mesh.advance(2)
    assert all(state in ("acked", "") for state in mesh.states(id))


def test_who_is_told_by_a_node_that_never_had_the_job_does_not_count_it_as_a_holder(
    mesh: Mesh,
) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    (_, other) = mesh.holders(id)
    outsider = 3 - other
    mesh.isolate(outsider)
    mesh[outsider]("ACKJOB", id)
    mesh.settle()
    mesh.cut(0, other)
    mesh.join(0, outsider)
    asks = mesh[0].node.packets.about_job(bus.WILLQUEUE, id)
    mesh.moving.clear()
    mesh[outsider].node.receive(mesh.ids[0], asks, mesh[0].now)
    mesh.settle()
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    assert job.state == ACKED
    assert mesh.ids[outsider] not in (job.delivered or ())


def test_an_acknowledged_job_counts_as_evictable(mesh: Mesh) -> None:
    id = mesh.add(0)
    mesh.cut(0, 1)
    mesh[0]("ACKJOB", id)
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    assert job.state == ACKED
    mesh[0].node.store.evict(0)
    assert not mesh[0].held(id)


@pytest.mark.parametrize("c_node", [False, True])
def test_nodes_that_know_of_different_holders_reach_all_of_them(c_node: bool) -> None:
    mesh = Mesh(4)
    id = mesh.add(0, "REPLICATE", 2)
    a = next(i for i in mesh.holders(id) if i)
    b, c = (i for i in (1, 2, 3) if i != a)
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    first = job.delivered or ()
    for other in (b, c):
        job.delivered = (*first, mesh.ids[other])
        mesh[0].node.replication.send_copy(job, [mesh.ids[other]], bus.NOREPLY)
        mesh.settle()
    assert len(mesh.holders(id)) == 4  # 0 knows of a and c, b of 0 and a
    if c_node:
        mesh.c_nodes.add(b)
    mesh[b]("ACKJOB", id)
    mesh.settle()
    assert held(mesh) == 0


@pytest.mark.parametrize("known", [True, False])
def test_an_acknowledge_that_not_all_know_survives_a_restart_in_good_order(known: bool) -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 3 if known else 1, "RETRY", 500)
    index = 0 if known else 1
    for other in range(3):
        if other != index:
            mesh.cut(index, other)
    mesh[index]("ACKJOB", id)
    node = mesh[index].node
    node.start_dump()
    records = [r for shard in range(1024) for r in node.aof_codec.dump_shard(shard, 1 << 20)[0]]
    node.flush()
    for record in records:
        node.aof_codec.load_job(record.split(b"\r\n", 4)[4][:-2], True)
    assert node.store.jobs.count == 1
    assert node.memory.used == mesh[index].counted_memory()
    for other in range(3):
        if other != index:
            mesh.join(index, other)
    mesh.advance(10)
    assert held(mesh) == 0


def test_a_node_that_cannot_write_does_not_confirm_an_acknowledge(mesh: Mesh) -> None:
    id = mesh.add(0)
    mesh[2].node.set_trouble(False, "disk full")
    mesh[0]("ACKJOB", id)
    mesh.advance(5)
    assert mesh.states(id)[0] == "acked"
    assert mesh.states(id)[2] == "acked"
    mesh[2].node.set_trouble(False, "")
    mesh.advance(10)
    assert held(mesh) == 0
