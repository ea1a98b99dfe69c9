"""What a lost node had in its queues is soon in another holder's; what its clients have is not."""

import pytest

from disque_trio.node.core.jobs.places import SMALL
from disque_trio.node.core.lifecycle.dead_nodes import A_TURN, ELSEWHERE, IN_HAND
from disque_trio.node.core.rpc.calls import LEFT, untracked
from disque_trio.node.core.rpc.notices import MOST
from disque_trio.protocol.bus import (
    INCR_NACKS,
    QUESTION,
    REQUEUED,
    WILLQUEUE,
    PacketWriter,
    packet_type,
)
from disque_trio.protocol.requeued import Requeued
from tests.support.mesh import Mesh
from tests.support.recovered import Files, restart_in

RETRY = ("RETRY", 300)
SOON = 2.0  # s after a node is known to be dead, with three holders
TOLD = 0.25  # s after a delivery


@pytest.fixture
def mesh() -> Mesh:
    return three(3)


def three(copies: int, seed: int = 1) -> Mesh:
    mesh = Mesh(3, seed=seed)
    mesh.advance(0)
    for bench in mesh.nodes:
        bench.node.replicas.default_copies = copies
    return mesh


def lose(mesh: Mesh, dead: int, *knowing: int) -> None:
    """The node ``dead`` is no longer there, which the nodes ``knowing`` (none: all) are sure of."""
    mesh.isolate(dead)
    for index in knowing or [one for one in range(len(mesh.nodes)) if one != dead]:
        mesh.peers[index].died(mesh.ids[dead])


def queued_on(mesh: Mesh, id: bytes, *without: int) -> list[int]:
    states = enumerate(mesh.states(id))
    return [index for index, state in states if state == "queued" and index not in without]


@pytest.mark.parametrize("copies", [2, 3])
def test_one_holder_queues_what_a_dead_node_had_queued(copies: int) -> None:
    mesh = three(copies)
    ids = [mesh.add(0, *RETRY) for _ in range(30)]
    lose(mesh, 0)
    mesh.advance(SOON)
    where = [queued_on(mesh, id, 0) for id in ids]
    assert all(len(one) == 1 for one in where)
    if copies == 3:
        assert {1, 2} == {one[0] for one in where}  # they share the work


def test_it_does_not_count_as_a_further_delivery(mesh: Mesh) -> None:
    id = mesh.add(0, *RETRY)
    lose(mesh, 0)
    mesh.advance(SOON)
    (index,) = queued_on(mesh, id, 0)
    shown = mesh[index].show(id)
    assert (shown[b"nacks"], shown[b"additional-deliveries"]) == (0, 0)


def test_nor_does_it_if_its_retry_time_is_over_just_before(mesh: Mesh) -> None:
    for bench in mesh.nodes:
        bench("QSET", "q", "BACKOFF", 3000, 3000)
    ids = [mesh.add(0, "RETRY", 2) for _ in range(10)]
    mesh.advance(0.9)
    mesh.isolate(0)
    mesh.advance(0.9)
    lose(mesh, 0)
    mesh.advance(SOON)
    for id in ids:
        (index,) = queued_on(mesh, id, 0)
        shown = mesh[index].show(id)
        assert (shown[b"nacks"], shown[b"additional-deliveries"]) == (0, 0)


def test_jobs_keep_their_order(mesh: Mesh) -> None:
    ids = [mesh.add(0, *RETRY, "PRIORITY", priority) for priority in (0, 7, 0, 7)]
    lose(mesh, 0)
    mesh.advance(SOON)
    wanted = [ids[1], ids[3], ids[0], ids[2]]
    for index in (1, 2):
        got = mesh[index].get_all("q")
        assert got == [id for id in wanted if id in got]


@pytest.mark.parametrize("taken", ["in hand", "just now"])
def test_what_a_client_has_comes_after_its_retry_time(mesh: Mesh, taken: str) -> None:
    id = mesh.add(0, *RETRY)
    assert mesh[0].get() == id
    mesh.advance(TOLD if taken == "in hand" else 0.05)
    lose(mesh, 0)
    mesh.advance(SOON)
    assert len(queued_on(mesh, id, 0)) == (taken == "just now")
    mesh.advance(301)
    assert len(queued_on(mesh, id, 0)) == 1


def test_what_a_client_has_of_a_node_that_is_back_just_then_is_not_queued(mesh: Mesh) -> None:
    id = mesh.add(0, *RETRY)
    assert mesh[0].get() == id
    mesh.advance(TOLD)
    mesh.isolate(0)
    mesh.advance(100)
    assert mesh[0]("WORKING", id) == 300
    mesh.advance(199.6 - TOLD)
    mesh.rejoin(0)  # the others have asked each other whether they need to queue it
    mesh.advance(3)
    assert queued_on(mesh, id) == []
    mesh.advance(101)
    assert len(queued_on(mesh, id)) == 1


def test_what_came_back_from_a_client_is_queued(mesh: Mesh) -> None:
    id = mesh.add(0, *RETRY)
    mesh[0].get()
    mesh.advance(TOLD)
    mesh[0]("NACK", id)
    mesh.settle()
    lose(mesh, 0)
    mesh.advance(SOON)
    assert len(queued_on(mesh, id, 0)) == 1


def test_a_job_that_is_queued_at_a_third_node_stays_there(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, *RETRY)
    other = next(index for index in (1, 2) if mesh[index].held(id))
    third = 3 - other
    waiting = mesh[third].block("q")
    mesh.settle()
    mesh.advance(0.01)
    assert mesh[third].replies(waiting)  # it has travelled
    lose(mesh, 0)
    mesh.advance(5)
    assert queued_on(mesh, id, 0) == []


@pytest.mark.parametrize("told", [True, False])
def test_what_was_given_to_a_third_node_is_not_queued_again(mesh: Mesh, told: bool) -> None:
    id = mesh.add(0, "REPLICATE", 2, *RETRY)
    other = next(index for index in (1, 2) if mesh[index].held(id))
    third = 3 - other
    want = mesh[third].node.packets.about_queue(12, b"q", 1, 1)
    mesh[0].node.receive(mesh.ids[third], want, mesh[0].now)
    mesh.settle()
    assert queued_on(mesh, id) == [third]
    mesh.advance(TOLD if told else 0)
    lose(mesh, 0)
    mesh.advance(SOON)
    assert queued_on(mesh, id, 0) == [third]


def test_who_gave_a_job_to_a_dead_node_queues_it(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, *RETRY)
    other = next(index for index in (1, 2) if mesh[index].held(id))
    third = 3 - other
    want = mesh[third].node.packets.about_queue(12, b"q", 1, 1)
    mesh[0].node.receive(mesh.ids[third], want, mesh[0].now)
    mesh.advance(TOLD)
    lose(mesh, third)
    mesh.advance(SOON)
    assert queued_on(mesh, id, third) == [0]


def test_a_delay_goes_on(mesh: Mesh) -> None:
    id = mesh.add(0, *RETRY, "DELAY", 60)
    lose(mesh, 0)
    mesh.advance(59)
    assert queued_on(mesh, id, 0) == []
    mesh.advance(1 + SOON)
    assert len(queued_on(mesh, id, 0)) == 1


def test_a_pause_goes_on(mesh: Mesh) -> None:
    id = mesh.add(0, *RETRY)
    mesh[0].get()
    mesh[0]("NACK", id, "DELAY", 30)
    mesh.settle()
    lose(mesh, 0)
    mesh.advance(20)
    assert queued_on(mesh, id, 0) == []
    mesh.advance(12)
    assert len(queued_on(mesh, id, 0)) == 1


def test_at_most_once_jobs_are_left_alone(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 0)
    mesh.add(0, "REPLICATE", 3, *RETRY)
    lose(mesh, 0)
    mesh.advance(SOON)
    assert mesh.holders(id) == [0]


def test_a_node_that_was_not_dead_keeps_its_jobs(mesh: Mesh) -> None:
    ids = [mesh.add(0, *RETRY) for _ in range(10)]
    for index in (1, 2):
        mesh.peers[index].died(mesh.ids[0])
    mesh.advance(SOON)
    assert [queued_on(mesh, id) for id in ids] == [[0]] * 10


def test_a_node_that_is_cut_off_and_taken_for_dead_resolves_it_later(mesh: Mesh) -> None:
    ids = [mesh.add(0, *RETRY) for _ in range(10)]
    lose(mesh, 0)
    mesh.advance(SOON)
    mesh.rejoin(0)
    mesh.advance(303)
    assert all(len(queued_on(mesh, id)) == 1 for id in ids)


def test_one_that_knows_of_the_death_later_does_not_queue_what_the_other_has(mesh: Mesh) -> None:
    ids = [mesh.add(0, *RETRY) for _ in range(10)]
    lose(mesh, 0, 1)
    mesh.advance(0.7)
    mesh.peers[2].died(mesh.ids[0])
    mesh.advance(SOON)
    assert all(len(queued_on(mesh, id, 0)) == 1 for id in ids)


def test_who_missed_what_clients_have_hears_it_with_the_next_connection(mesh: Mesh) -> None:
    id = mesh.add(0, *RETRY)
    mesh.isolate(0)
    assert mesh[0].get() == id
    mesh.advance(TOLD)
    mesh.rejoin(0)
    mesh.advance(0.01)
    lose(mesh, 0)
    mesh.advance(SOON)
    assert queued_on(mesh, id, 0) == []


def test_who_is_about_to_queue_what_a_client_has_hears_it_with_the_next_connection(
    mesh: Mesh,
) -> None:
    id = mesh.add(0, *RETRY)
    assert mesh[0].get() == id
    lose(mesh, 0)
    mesh.advance(0.1)
    mesh.lose = lambda source, target, packet: packet_type(packet) == WILLQUEUE
    mesh.rejoin(0)
    mesh.advance(SOON)
    assert queued_on(mesh, id) == []
    mesh.advance(301)
    assert len(queued_on(mesh, id)) == 1
    assert {bench.number(id, b"additional-deliveries") for bench in mesh.nodes} == {1}


def test_a_node_that_comes_back_does_not_deliver_what_another_queued(mesh: Mesh) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, *RETRY)
    files.kill()
    lose(mesh, 0)
    mesh.advance(SOON)
    (index,) = queued_on(mesh, id, 0)
    restart_in(mesh, 0, files)
    mesh.rejoin(0)
    mesh[0].node.cron(mesh[0].now)
    mesh.advance(3)
    assert queued_on(mesh, id) == [index]


@pytest.mark.parametrize("then", ["queued", "in hand", "just delivered"])
def test_nor_what_has_gone_on_to_a_node_that_it_does_not_know_of(mesh: Mesh, then: str) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 2, *RETRY)
    other = next(index for index in (1, 2) if mesh[index].held(id))
    third = 3 - other
    files.kill()
    lose(mesh, 0)
    mesh.advance(SOON)
    assert queued_on(mesh, id, 0) == [other]
    want = mesh[third].node.packets.about_queue(12, b"q", 1, 1)
    mesh[other].node.receive(mesh.ids[third], want, mesh[other].now)
    mesh.settle()
    if then != "queued":
        assert mesh[third].get() == id
        mesh.advance(TOLD if then == "in hand" else 0)
    restart_in(mesh, 0, files)
    mesh.rejoin(0)
    mesh[0].node.cron(mesh[0].now)
    mesh.advance(3)
    assert queued_on(mesh, id) == ([third] if then == "queued" else [])


def test_a_node_that_hears_of_a_pause_before_it_could_ask_keeps_it(mesh: Mesh) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, *RETRY)
    files.kill()
    lose(mesh, 0)
    restart_in(mesh, 0, files)
    message = Requeued(id, INCR_NACKS, 20_000, b"", {})
    packet = mesh[1].node.packets.fields(REQUEUED, message.pack())
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    before = job.qtime
    mesh.rejoin(0)
    mesh[0].node.cron(mesh[0].now)
    mesh.advance(10)
    assert job.qtime == before
    assert queued_on(mesh, id, 1, 2) == []
    files.kill()
    restart_in(mesh, 0, files)
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    assert job.qtime == before


def test_a_node_that_is_back_soon_keeps_its_jobs(mesh: Mesh) -> None:
    files = Files(mesh[0])
    ids = [mesh.add(0, *RETRY) for _ in range(10)]
    files.kill()
    lose(mesh, 0)
    mesh.advance(0.1)
    restart_in(mesh, 0, files)
    mesh.rejoin(0)
    mesh[0].node.cron(mesh[0].now)
    mesh.advance(3)
    assert all(len(queued_on(mesh, id)) == 1 for id in ids)


def test_many_jobs_are_looked_at_in_several_turns() -> None:
    mesh = three(2)
    count = 2 * A_TURN + 10
    for _ in range(count):
        mesh[0].send(mesh[0].me, "ADDJOB", "q", "body", 0, *RETRY)
    mesh.settle()
    lose(mesh, 0)
    mesh.advance(SOON)
    assert mesh[1].number_queued() + mesh[2].number_queued() == count


def test_jobs_that_end_soon_are_not_told(mesh: Mesh) -> None:
    for _ in range(10):
        id = mesh.add(0, *RETRY)
        assert mesh[0].get() == id
        mesh[0]("ACKJOB", id)
        mesh.advance(0.05)
    mesh.told()
    mesh.advance(1)
    assert mesh.told("question") == []
    assert mesh[0].node.replicas.places.due == 0


def test_a_node_that_stops_tells_at_once_what_its_clients_have(mesh: Mesh) -> None:
    ids = [mesh.add(0, *RETRY) for _ in range(2)]
    mesh[0].get()
    mesh[0].node.farewell.begin(mesh[0].now)
    mesh[0].get()  # while it waits for the answers
    mesh.advance(0)
    lose(mesh, 0)
    mesh.advance(SOON)
    assert [queued_on(mesh, id, 0) for id in ids] == [[], []]
    assert mesh[0].node.replicas.places.due == 0


def test_there_is_one_packet_for_each_holder_and_thousand_jobs(mesh: Mesh) -> None:
    for _ in range(MOST + 1):
        mesh.add(0, *RETRY)
    mesh.told()
    mesh[0].get_all("q")
    mesh.advance(TOLD)
    assert mesh.told("question") == [(0, "question", 1)] * 2 + [(0, "question", 2)] * 2


def test_c_nodes_are_told_nothing(mesh: Mesh) -> None:
    mesh.c_nodes.add(1)
    mesh.add(0, *RETRY)
    mesh[0].get()
    mesh.told()
    mesh.advance(TOLD)
    assert mesh.told() == [(0, "question", 2)]


def test_one_node_alone_notes_nothing() -> None:
    mesh = Mesh(1)
    mesh[0].add("q", "body", *RETRY)
    mesh[0].get()
    assert mesh[0].node.replicas.places.due == 0


@pytest.mark.parametrize("size", [SMALL, SMALL + 1])
@pytest.mark.parametrize("ends", [True, False])
def test_it_does_not_matter_how_large_a_job_is(mesh: Mesh, size: int, ends: bool) -> None:
    bench = mesh[0]
    bench.send(bench.me, "ADDJOB", "q", b"x" * size, 0, *RETRY)
    mesh.settle()
    bench.replies(bench.me)
    id = bench.get()
    assert id is not None
    if ends:
        bench("ACKJOB", id)
    mesh.settle()
    mesh.told()
    mesh.advance(TOLD)
    assert len(mesh.told("question")) == (0 if ends else 2)


def test_a_flush_forgets_what_was_to_be_told(mesh: Mesh) -> None:
    mesh.add(0, *RETRY)
    mesh[0].get()
    lose(mesh, 1)
    mesh[0]("DEBUG", "FLUSHALL")
    mesh.told()
    mesh.advance(1)
    assert mesh.told("question") == []


def test_the_news_have_these_numbers(mesh: Mesh) -> None:
    assert (LEFT, IN_HAND, ELSEWHERE) == (14, 2, 3)


@pytest.mark.parametrize("field", [(IN_HAND, b"x" * 41), (ELSEWHERE, b"x")])
def test_news_that_are_malformed_are_counted(mesh: Mesh, field: tuple[int, bytes]) -> None:
    packet = PacketWriter(mesh.ids[1], 0).fields(QUESTION, untracked(LEFT, [field]))
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    assert mesh[0].node.bad_packets == 1


def test_news_of_later_releases_are_ignored(mesh: Mesh) -> None:
    packet = PacketWriter(mesh.ids[1], 0).fields(QUESTION, untracked(LEFT, [(9, b"x")]))
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    assert mesh[0].node.bad_packets == 0


def test_a_question_is_not_passed_on_to_a_holder_that_is_asked_anyway(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 5)
    assert mesh[0].get() == id
    mesh.advance(TOLD)
    mesh.told()
    job = mesh[1].node.store.jobs.get(id)
    assert job is not None
    mesh[1].node.replicas.announce(job, WILLQUEUE)
    mesh.settle()
    assert mesh.told("willqueue") == [(1, "willqueue", 0), (1, "willqueue", 2)]


def test_a_question_in_the_name_of_a_stranger_is_not_answered(mesh: Mesh) -> None:
    id = mesh.add(0, *RETRY)
    packet = mesh[1].node.packets.about_jobs(WILLQUEUE, [id], 1, 0)
    mesh.told()
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    mesh.settle()
    assert mesh.told() == []


def test_who_tells_what_its_clients_have_is_a_holder(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, *RETRY)
    other = next(index for index in (1, 2) if mesh[index].held(id))
    third = 3 - other
    want = mesh[third].node.packets.about_queue(12, b"q", 1, 1)
    mesh[0].node.receive(mesh.ids[third], want, mesh[0].now)
    mesh.settle()
    assert mesh[third].get() == id
    mesh.advance(TOLD)
    job = mesh[other].node.store.jobs.get(id)
    assert job is not None
    assert mesh.ids[third] in (job.delivered or ())


def test_a_job_that_the_file_has_lost_comes_from_another_holder(mesh: Mesh) -> None:
    files = Files(mesh[0])
    ids = [mesh.add(0, *RETRY) for _ in range(10)]
    files.kill()
    files.damaged = ids[:5]
    mesh.isolate(0)
    restart_in(mesh, 0, files)
    assert [mesh[0].held(id) for id in ids] == [False] * 5 + [True] * 5
    mesh.rejoin(0)
    mesh[0].node.cron(mesh[0].now)
    mesh.advance(SOON + 1)
    for id in ids:
        assert mesh[0].held(id)  # it has a copy again
        assert len(queued_on(mesh, id)) == 1


def test_nobody_sends_a_lost_job_that_has_ended_or_that_was_never_here(mesh: Mesh) -> None:
    files = Files(mesh[0])
    ended, other = mesh.add(0, *RETRY), mesh.add(1, "REPLICATE", 1, *RETRY)
    files.kill()
    files.damaged = [ended]
    mesh.isolate(0)
    assert mesh[1]("ACKJOB", ended) == 1
    restart_in(mesh, 0, files).node.recovery.lose(other)
    mesh.rejoin(0)
    mesh.advance(SOON + 1)
    assert not mesh[0].held(other)
    assert queued_on(mesh, ended) == []
    assert queued_on(mesh, other) == [1]


def test_a_copy_that_is_elsewhere_is_in_no_queue_of_the_node_that_says_so(mesh: Mesh) -> None:
    id = mesh.add(0, *RETRY)
    job = mesh[1].node.store.jobs.get(id)
    queued = job.place
    assert queued.node == mesh.ids[0]
    for sender, place in ((2, queued), (0, None)):
        packet = PacketWriter(mesh.ids[sender], 0).fields(
            QUESTION, untracked(LEFT, [(ELSEWHERE, id)])
        )
        mesh[1].node.receive(mesh.ids[sender], packet, mesh[1].now)
        assert job.place is place
