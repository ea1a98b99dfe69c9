"""Jobs that other nodes hold, too, lie on disk where they are queued: the others go on hearing of
them, and all that is told about them is right."""

import pytest

from disque_trio.node.core.pages.pages import TELL
from disque_trio.node.core.queues.given_codec import GivenWriter
from disque_trio.protocol import bus
from disque_trio.protocol.given import given_packet
from disque_trio.protocol.settled import NONE
from tests.support.paged_mesh import PagedMesh


def filled(size: int = 3, count: int = 60, *options: str | int) -> tuple[PagedMesh, list[bytes]]:
    """Nodes of which the first has queued jobs, most of them on disk."""
    mesh = PagedMesh(size)
    for index in range(size):
        mesh.stop_paging(index)
    ids = [mesh.add(0, "REPLICATE", min(size, 3), *options) for _ in range(count)]
    mesh.send_to_disk(0)
    assert mesh[0].pages.jobs > count // 2
    return mesh, ids


def on_disk(mesh: PagedMesh, ids: list[bytes]) -> bytes:
    """A job of the first node that lies on disk."""
    return next(id for id in ids if mesh[0].node.paging.knows(id))


def holders_of(mesh: PagedMesh, id: bytes) -> tuple[bytes, ...]:
    """The nodes that the first node knows to hold a job."""
    job = mesh[0].node.store.jobs.get(id)
    return mesh[0].node.store.replicas.of(job)


def take_all(mesh: PagedMesh) -> list[bytes]:
    mesh.stop_paging(0)
    found: list[bytes] = []
    for _ in range(1_000):
        id = mesh[0].get()
        if id is not None:
            found.append(id)
        elif not mesh[0].number_queued():
            break
        mesh.settle()
    return found


@pytest.mark.parametrize("c_node", [False, True])
def test_other_holders_hear_that_jobs_are_queued_for_as_long_as_they_lie_on_disk(
    c_node: bool,
) -> None:
    mesh, ids = filled(3, 60, "RETRY", 20)
    if c_node:
        mesh.peers[0].as_c.add(mesh.ids[2])
    mesh.told()
    before = mesh[0].pages.jobs
    mesh.advance(200)
    assert mesh[0].pages.jobs >= before
    assert not [entry for entry in mesh.told("willqueue") if entry[0] != 0]
    for bench in mesh.nodes[1:]:
        assert bench.number_queued() == 0
    assert take_all(mesh) == ids
    assert mesh[0]("SHOW", ids[0])[13] == 0  # it was not delivered again


def test_a_whole_segment_is_told_of_in_few_packets() -> None:
    mesh, _ = filled(3, 60, "RETRY", 20)
    mesh.told()
    mesh.advance(19.5)
    assert mesh[0].pages.jobs > 30
    assert 0 < len([entry for entry in mesh.told("queued") if entry[2] == 1]) < 30


def test_a_holder_that_asks_is_answered_without_a_read() -> None:
    mesh, ids = filled(3, 60, "RETRY", 20)
    id = on_disk(mesh, ids)
    reads = mesh[0].pages.reads
    mesh.told()
    packet = mesh[1].node.packets.about_job(bus.WILLQUEUE, id)
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    mesh.settle()
    assert mesh.told("queued") == [(0, "queued", 1)]
    assert mesh[0].pages.reads == reads
    assert mesh[0].node.paging.knows(id)


def test_a_holder_that_was_not_known_becomes_known() -> None:
    mesh, ids = filled(4, 60, "RETRY", 20)
    id = on_disk(mesh, ids)
    new = next(index for index in range(4) if index not in [0, *mesh.holders(id)])
    packet = mesh[new].node.packets.about_job(bus.WILLQUEUE, id)
    mesh[0].node.receive(mesh.ids[new], packet, mesh[0].now)
    mesh.stop_paging(0)
    mesh.settle()
    mesh.advance(0.1)
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    assert mesh.ids[new] in (job.delivered or ())


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("size", [2, 3])
def test_an_acknowledgement_ends_a_job_everywhere_without_a_read(size: int, index: int) -> None:
    mesh, ids = filled(size, 60)
    chosen = [id for id in ids if mesh[0].node.paging.knows(id)][:10]
    reads = mesh[0].pages.reads
    assert mesh[index]("ACKJOB", *chosen) == 10
    mesh.settle()
    mesh.advance(1)
    assert mesh[0].pages.reads == reads
    for id in chosen:
        assert mesh.holders(id) == []
        assert not mesh[0].node.paging.knows(id)
    assert mesh[0].number_queued() == 50
    assert take_all(mesh) == [id for id in ids if id not in chosen]
    stats = [mesh[at].info("stats")["total_jobs_acked"] for at in range(size)]
    assert stats[index] == "10"


def test_fastack_deletes_the_copies_too() -> None:
    mesh, ids = filled(3, 60)
    id = on_disk(mesh, ids)
    assert mesh[0]("FASTACK", id) == 1
    mesh.settle()
    assert mesh.holders(id) == []
    assert mesh[0]("SHOW", id) is None
    assert mesh[0].number_queued() == 59


def test_a_job_that_another_node_has_queued_too_is_in_one_queue_in_the_end() -> None:
    mesh, ids = filled(3, 60, "RETRY", 30)
    chosen = [id for id in ids if mesh[0].node.paging.knows(id)][:10]
    for id in chosen:
        mesh[1].node.requeue.enqueue(mesh[1].node.store.jobs.get(id), False, "")
    mesh.settle()
    mesh.stop_paging(0)
    mesh.advance(5)
    for id in chosen:
        states = mesh.states(id)
        assert states.count("queued") == 1, states


def test_copies_of_jobs_on_disk_that_come_again_change_nothing() -> None:
    mesh, ids = filled(3, 60)
    id = on_disk(mesh, ids)
    copy = mesh[1].node.bus_codec.encode(mesh[1].node.store.jobs.get(id))
    for kind in (bus.REPLJOB, bus.YOURJOBS):
        packet = mesh[1].node.packets.jobs(kind, [copy])
        mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
        mesh.settle()
    writer = GivenWriter(mesh[1].node.store, mesh[1].node.bus_codec)
    assert writer.add(mesh[1].node.store.jobs.get(id)) == b""
    packet = given_packet(mesh[1].node.packets, NONE, writer.parts)
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    mesh.settle()
    assert mesh[0].node.bad_packets == 0
    assert mesh[0].number_queued() == 60
    assert take_all(mesh) == ids


def test_a_copy_on_disk_that_comes_again_is_confirmed_and_not_read() -> None:
    mesh = PagedMesh(4)
    for index in range(4):
        mesh.stop_paging(index)
    ids = [mesh.add(0, "REPLICATE", 3, "RETRY", 20) for _ in range(60)]
    mesh.advance(2)
    holder = next(index for index in (1, 2, 3) if mesh[index].node.store.jobs.get(ids[0]))
    mesh.send_to_disk(holder)
    held = [id for id in ids if mesh[holder].node.paging.knows(id)]
    assert len(held) > 8
    reads = mesh[holder].pages.reads
    used = mesh[holder].pages.taken
    mesh.told()
    other = next(index for index in (1, 2, 3) if mesh.ids[index] not in holders_of(mesh, held[0]))
    for id in held:
        job = mesh[0].node.store.jobs.get(id)
        mesh[0].node.store.replicas.add(job, mesh.ids[other])
        packet = mesh[0].node.packets.jobs(bus.REPLJOB, [mesh[0].node.bus_codec.encode(job)])
        mesh[holder].node.receive(mesh.ids[0], packet, mesh[holder].now)
    mesh.settle()
    assert mesh[holder].pages.reads == reads
    assert all(mesh[holder].node.paging.knows(id) for id in held)
    assert mesh[holder].pages.taken - used < 1_000
    mesh.stop_paging(holder)
    assert mesh.ids[other] in mesh[holder].show(held[0])[b"nodes-delivered"]


def test_a_cancelled_job_ends_everywhere() -> None:
    mesh, ids = filled(3, 60)
    id = on_disk(mesh, ids)
    assert mesh[1]("CANCEL", id) == 1
    mesh.settle()
    mesh.advance(1)
    assert mesh.holders(id) == []
    assert not mesh[0].node.paging.knows(id)


def test_a_node_that_dies_leaves_its_jobs_on_disk_to_the_others() -> None:
    mesh, ids = filled(3, 60, "RETRY", 20)
    mesh.isolate(0)
    mesh.advance(45)
    queued = [sum(mesh[index].show(id)[b"state"] == b"queued" for index in (1, 2)) for id in ids]
    assert queued == [1] * 60


def test_a_damaged_file_is_made_again_and_the_others_are_told() -> None:
    mesh = PagedMesh(3)
    mesh[0].node.journaling = True
    for index in range(3):
        mesh.stop_paging(index)
    ids = [mesh.add(0, "REPLICATE", 3, "RETRY", 20) for _ in range(60)]
    mesh.send_to_disk(0)
    mesh[0].files.clear()
    mesh.stop_paging(0)
    mesh.advance(60)
    assert mesh[0].damaged
    assert mesh[0].pages.lost == 0
    assert [bench.number_queued() for bench in mesh.nodes] == [60, 0, 0]
    assert take_all(mesh) == ids


def holding(count: int = 60, *options: str | int) -> tuple[PagedMesh, list[bytes]]:
    """Three nodes; the jobs that the first has queued lie on disk on the second, as copies."""
    mesh = PagedMesh(3)
    for index in range(3):
        mesh.stop_paging(index)
    ids = [mesh.add(0, "REPLICATE", 3, *(options or ("RETRY", 40))) for _ in range(count)]
    mesh.advance(1.5)
    mesh.send_to_disk(1)
    assert mesh[1].pages.jobs == count
    return mesh, ids


def test_copies_stay_on_disk_for_as_long_as_they_are_heard_of() -> None:
    mesh, ids = holding()
    mesh.advance(300)
    assert mesh[1].pages.jobs > 50
    assert mesh[1].number_queued() == 0
    assert mesh[0].number_queued() == 60
    assert [entry for entry in mesh.told("willqueue") if entry[0] == 1] == []
    assert mesh[1].show(ids[30])[b"state"] == b"active"
    assert mesh[1].node.memory.used == mesh[1].counted_memory() + mesh[1].pages.taken


@pytest.mark.parametrize("index", [0, 1, 2])
def test_copies_on_disk_end_without_having_been_read(index: int) -> None:
    mesh, ids = holding()
    assert mesh[index]("ACKJOB", *ids[:30]) == 30
    mesh.settle()
    mesh.advance(1)
    assert mesh[1].pages.reads == 0
    for id in ids[:30]:
        assert mesh.holders(id) == []
        assert not mesh[1].node.paging.knows(id)
    assert mesh[0]("ACKJOB", *ids[30:]) == 30
    mesh.settle()
    mesh.advance(1)
    assert (mesh[1].pages.jobs, mesh[1].pages.taken, mesh[1].files) == (0, 0, {})


def test_copies_on_disk_are_queued_once_their_node_is_silent() -> None:
    mesh, ids = holding()
    mesh.isolate(0)
    mesh.advance(120)
    queued = [sum(mesh[at].show(id)[b"state"] == b"queued" for at in (1, 2)) for id in ids]
    assert queued == [1] * 60


def test_copies_on_disk_are_queued_soon_once_their_node_is_dead() -> None:
    mesh, ids = holding(60, "RETRY", 1000)
    taken = [mesh[0].get() for _ in range(5)]
    assert taken == ids[:5]
    mesh.advance(1)  # the others hear that clients have these
    assert mesh[1].pages.reads == 0
    mesh.isolate(0)
    for peers in mesh.peers[1:]:
        peers.died(mesh.ids[0])
    mesh.advance(10)
    queued = [sum(mesh[at].show(id)[b"state"] == b"queued" for at in (1, 2)) for id in ids]
    assert queued == [0] * 5 + [1] * 55


def test_a_copy_that_comes_back_from_disk_asks_for_no_job_that_is_still_delayed() -> None:
    mesh, ids = holding(60, "DELAY", 30, "RETRY", 5)
    mesh.advance(3)
    for id in ids:
        kept = mesh[0].node.packets.about_job(bus.QUEUED, id)
        mesh[1].node.receive(mesh.ids[0], kept, mesh[1].now)
    for id in ids:
        mesh[1].node.paging.bring(id)
    mesh.stop_paging(1)
    mesh.settle()
    assert mesh[1].pages.jobs == 0
    mesh.told()
    mesh.advance(20)
    assert mesh.told("willqueue") == []
    mesh.advance(8)
    assert mesh[0].number_queued() == 60


def test_a_copy_whose_file_is_lost_asks_for_no_job_that_is_still_delayed() -> None:
    mesh = PagedMesh(3)
    mesh[1].node.journaling = True
    for index in range(3):
        mesh.stop_paging(index)
    ids = [mesh.add(0, "REPLICATE", 3, "DELAY", 30, "RETRY", 5) for _ in range(60)]
    mesh.advance(1.5)
    mesh.send_to_disk(1)
    mesh.stop_paging(1)
    mesh[1].files.clear()
    mesh[1].node.paging.bring(ids[30])
    mesh.settle()
    assert mesh[1].damaged
    assert mesh[1].pages.lost == 0
    mesh.told()
    mesh.advance(20)
    assert mesh.told("willqueue") == []


def test_a_copy_on_disk_of_a_job_that_was_queued_again_counts_the_delivery() -> None:
    mesh, ids = holding()
    assert mesh[0].get() == ids[0]
    assert mesh[0]("NACK", ids[0]) == 1
    mesh.settle()
    mesh.stop_paging(1)
    mesh.advance(0.1)
    assert mesh[1].show(ids[0])[b"nacks"] == 1


def test_a_job_that_is_given_while_its_copy_leaves_for_the_disk_again_is_there_once() -> None:
    mesh, _ = holding()
    holder = mesh[1]
    waiting = holder.client()
    holder.send(waiting, "GETJOB", "FROM", "q")
    holder.node.commit()
    while not (holder.orders or holder.node.paging.ready):
        source, target, packet = mesh.moving.popleft()
        bench = mesh[target]
        bench.node.receive(mesh.ids[source], packet, bench.now)
        bench.node.commit()
        holder.node.replied()
    while holder.orders:
        holder.carry_out()
    assert holder.node.paging.ready
    while holder.node.paging.aside.page_out_one():
        pass
    mesh.settle()
    ((_, id, _),) = holder.replies(waiting)[0]  # type: ignore[misc]
    assert holder.node.store.jobs.get(id) is not None
    assert not holder.node.paging.knows(id)


def test_a_job_of_which_a_copy_is_on_disk_can_be_given_to_its_holder() -> None:
    mesh, ids = holding()
    mesh.stop_paging(1)
    found: list[bytes] = []
    for _ in range(200):
        id = mesh[1].get()
        mesh.advance(0.1)
        if id is not None:
            found.append(id)
    assert sorted(found) == sorted(ids)
    assert mesh[0].number_queued() == 0


def test_a_restarted_holder_sends_copies_to_disk_and_hears_of_them() -> None:
    mesh, ids = holding()
    mesh.stop_paging(1)
    for id in ids:
        mesh[1].show(id)
        job = mesh[1].node.store.jobs.get(id)
        assert job is not None
        job.place = None  # as after a start
    mesh.send_to_disk(1)
    assert mesh[1].pages.jobs == 60
    before = mesh[1].pages.reads
    mesh.advance(200)
    assert mesh[1].number_queued() == 0
    assert mesh[1].pages.jobs > 50
    assert mesh[1].pages.reads - before < 30
    assert mesh[0].number_queued() == 60
    mesh.stop_paging(1)
    assert mesh[1].show(ids[30])
    job = mesh[1].node.store.jobs.get(ids[30])
    assert job is not None
    assert job.place is not None
    assert (job.place.node, job.place.in_hand) == (mesh.ids[0], False)


def test_a_dump_has_the_copies_on_disk() -> None:
    mesh, ids = holding()
    jobs = mesh[1].dumped()
    assert sorted(job.id for job in jobs) == sorted(ids)
    assert {job.state for job in jobs} == {1}


def test_few_segments_are_read_at_once_to_tell_of_their_jobs() -> None:
    mesh = PagedMesh(2)
    for index in range(2):
        mesh.stop_paging(index)
    for _ in range(200):
        mesh.add(0, "REPLICATE", 2, "RETRY", 20)
    mesh.send_to_disk(0)
    bench = mesh[0]
    assert len(bench.pages.segments) > 15
    most = 0
    for _ in range(1_000):
        bench.now += 20
        bench.node.tick(bench.now)
        bench.node.commit()
        bench.node.replied()
        most = max(most, len([order for order in bench.orders if order.place == TELL]))
        if bench.orders:
            bench.carry_out()
    assert 0 < most <= 4
    assert all(segment.told for segment in bench.pages.segments.values())
