"""Jobs that stay queued cost next to nothing, and their holders still know whatever happens."""

from collections.abc import Callable

import pytest

from disque_trio.node.core.jobs.timers import IN_LOT
from disque_trio.node.core.lifecycle.lots import LEAST_RETRY, MOST
from disque_trio.node.core.rpc.calls import STAYS, UNSURE, untracked
from disque_trio.protocol.bus import QUESTION, QUEUED, PacketWriter, packet_type
from disque_trio.protocol.fields import Field
from tests.support.bus_fuzz import ask, kind_of, slices
from tests.support.mesh import Mesh

RETRY = 20
IDLE = ("RETRY", RETRY, "TTL", 100_000)


class Idle:
    """A mesh in which the first node has had jobs queued for so long that they are in lots.

    Attributes:
        ids: of the jobs.
        kinds: of the packets since the last ``clear``: types, and kinds of questions.
    """

    def __init__(
        self, count: int = 10, copies: int = 3, *options: str | int, size: int = 3
    ) -> None:
        mesh = self.mesh = Mesh(size)
        mesh.advance(0)
        self.kinds: list[tuple[int, int, int]] = []
        self.drop: Callable[[int, int, int], bool] = lambda source, target, kind: False
        mesh.lose = self._lose
        options = options or IDLE
        self.ids = [mesh.add(0, "REPLICATE", copies, *options) for _ in range(count)]
        mesh.advance(RETRY * 1.5)
        self.kinds.clear()

    def _lose(self, source: int, target: int, packet: bytes) -> bool:
        type = packet_type(packet)
        kind = kind_of(packet)[0] + 100 if type == QUESTION else type
        self.kinds.append((source, target, kind))
        return self.drop(source, target, kind)

    def lotted(self, index: int) -> list[bytes]:
        """The jobs that are in lots on a node."""
        jobs = self.mesh[index].node.store.jobs.values()
        return [job.id for job in jobs if job.awake >= IN_LOT]

    def sent(self, kind: int) -> list[tuple[int, int]]:
        return [(source, target) for source, target, its in self.kinds if its == kind]

    def queued_on(self, id: bytes) -> list[int]:
        return [i for i, state in enumerate(self.mesh.states(id)) if state == "queued"]

    def all_are_queued_once(self) -> bool:
        return all(len(self.queued_on(id)) == 1 for id in self.ids)


def test_holders_are_told_of_all_idle_jobs_at_once() -> None:
    idle = Idle(50)
    mesh = idle.mesh
    mesh.advance(10 * RETRY)
    assert 9 <= len(idle.sent(100 + STAYS)) / 2 <= 22  # some two packets a retry time
    assert {(source, target) for source, target, _ in idle.kinds} == {(0, 1), (0, 2)}
    assert not idle.sent(QUEUED)
    assert all(mesh.states(id) == ["queued", "active", "active"] for id in idle.ids)
    assert all(len(idle.lotted(index)) == 50 for index in range(3))


def test_a_lot_has_so_many_jobs() -> None:
    idle = Idle(2 * MOST + 1)
    for bench in idle.mesh.nodes:
        lots = {job.awake for job in bench.node.store.jobs.values()}
        assert len(lots) == 3
        assert min(lots) >= IN_LOT


def test_a_job_that_is_taken_from_a_lot_comes_again_after_its_retry_time() -> None:
    idle = Idle()
    mesh = idle.mesh
    mesh.advance(3 * RETRY)
    taken = mesh[0].get()
    assert taken is not None
    mesh.advance(RETRY - 1)
    assert mesh.states(taken) == ["active", "active", "active"]
    mesh.advance(2)
    assert len(idle.queued_on(taken)) == 1
    mesh.advance(5 * RETRY)
    assert idle.all_are_queued_once()


def test_jobs_that_end_leave_their_lots_and_the_others_stay() -> None:
    idle = Idle(30)
    mesh = idle.mesh
    taken = mesh[0].get_all(count=10)
    mesh[0]("ACKJOB", *taken)
    mesh.advance(2 * RETRY)
    idle.kinds.clear()
    mesh.advance(5 * RETRY)
    assert not idle.sent(QUEUED)
    assert not idle.sent(100 + UNSURE)
    assert [len(idle.lotted(index)) for index in range(3)] == [20, 20, 20]
    assert sorted(mesh[0].get_all()) == sorted(set(idle.ids) - set(taken))


def test_a_job_that_is_lost_where_it_was_queued_is_queued_by_another_holder() -> None:
    idle = Idle()
    mesh = idle.mesh
    lost = idle.ids[3]
    mesh[0].node.store.delete(mesh[0].node.store.jobs.shard_of(lost)[lost])
    mesh.advance(2 * RETRY + 2)
    assert len(idle.sent(100 + UNSURE)) == 2  # both have it; then they agree
    assert idle.all_are_queued_once()
    assert idle.queued_on(lost) != [0]
    mesh.advance(2 * RETRY)
    idle.kinds.clear()
    mesh.advance(3 * RETRY)
    assert not [entry for entry in idle.sent(100 + UNSURE) if entry[1] == 0]


def test_a_lost_job_is_missed_even_if_another_one_is_too_many() -> None:
    idle = Idle()
    mesh = idle.mesh
    lost, more = idle.ids[3], idle.ids[4]
    mesh[0].node.store.delete(mesh[0].node.store.jobs.shard_of(lost)[lost])
    mesh[1].node.store.delete(mesh[1].node.store.jobs.shard_of(more)[more])
    mesh.advance(2 * RETRY + 2)
    assert (1, 0) in idle.sent(100 + UNSURE)
    assert idle.queued_on(lost) in ([1], [2])
    assert idle.queued_on(more) == [0]


def test_holders_that_hear_nothing_ask_and_hear_of_each_job() -> None:
    idle = Idle()
    mesh = idle.mesh
    idle.drop = lambda source, target, kind: kind == 100 + STAYS
    mesh.advance(3 * RETRY)
    assert idle.sent(QUEUED)
    assert all(mesh.states(id) == ["queued", "active", "active"] for id in idle.ids)


def test_a_holder_that_is_cut_off_queues_them_and_in_the_end_one_does() -> None:
    idle = Idle()
    mesh = idle.mesh
    mesh.isolate(1)
    mesh.advance(RETRY + 1)
    assert all(1 in idle.queued_on(id) for id in idle.ids)
    mesh.rejoin(1)
    mesh.advance(2 * RETRY)
    assert idle.all_are_queued_once()


def test_what_a_dead_node_had_in_lots_is_back_at_once() -> None:
    idle = Idle(30)
    mesh = idle.mesh
    mesh.advance(2 * RETRY)
    mesh.isolate(0)
    for index in (1, 2):
        mesh.peers[index].died(mesh.ids[0])
    mesh.advance(2)
    assert all(len([one for one in idle.queued_on(id) if one]) == 1 for id in idle.ids)


def test_a_holder_that_starts_again_gets_to_know_the_lots() -> None:
    idle = Idle(20)
    mesh = idle.mesh
    mesh[2]("DEBUG", "FLUSHALL")
    mesh.advance(RETRY)
    assert idle.sent(100 + UNSURE)
    assert all(mesh.states(id)[:2] == ["queued", "active"] for id in idle.ids)
    assert not mesh[2].node.store.jobs.count


def test_nothing_is_left_of_lots_after_a_flush() -> None:
    idle = Idle(20)
    mesh = idle.mesh
    mesh[0]("DEBUG", "FLUSHALL")
    mesh.advance(RETRY)
    assert not idle.sent(100 + STAYS)
    assert all(len(idle.queued_on(id)) == 1 for id in idle.ids)  # the others have them still
    for bench in mesh.nodes:
        bench("DEBUG", "FLUSHALL")
        assert not bench.node.lots.due
        assert not bench.node.replicas.lots
    mesh.advance(3 * RETRY)
    assert not any(bench.node.store.jobs.count for bench in mesh.nodes)


def test_nodes_that_know_no_lots_are_told_of_each_job() -> None:
    idle = Idle(20)
    mesh = idle.mesh
    idle.mesh.older.add(2)
    mesh.advance(RETRY)
    idle.kinds.clear()
    mesh.advance(3 * RETRY)
    assert not idle.sent(100 + STAYS)
    assert (0, 2) in idle.sent(QUEUED)
    assert all(mesh.states(id) == ["queued", "active", "active"] for id in idle.ids)
    assert not idle.lotted(0)


def test_jobs_that_an_old_node_has_queued_are_in_no_lots() -> None:
    idle = Idle(20)
    mesh = idle.mesh
    idle.mesh.older.add(0)
    mesh.advance(2 * RETRY)
    idle.kinds.clear()
    mesh.advance(3 * RETRY)
    assert not idle.sent(100 + STAYS)
    assert not idle.lotted(1)
    assert all(mesh.states(id) == ["queued", "active", "active"] for id in idle.ids)


def test_c_nodes_are_told_of_each_job() -> None:
    mesh = Mesh(3)
    mesh.c_nodes.add(2)
    seen: list[bytes] = []

    def look(source: int, target: int, packet: bytes) -> bool:
        if target == 2:
            seen.append(packet)
        return False

    mesh.lose = look
    ids = [mesh.add(0, *IDLE) for _ in range(10)]
    mesh.advance(RETRY)
    seen.clear()
    mesh.advance(RETRY)
    assert [packet_type(packet) for packet in seen] == [QUEUED] * len(ids)
    assert all(packet[-4:] == bytes(4) for packet in seen)
    assert all(mesh.states(id) == ["queued", "active", "active"] for id in ids)


def test_jobs_that_are_about_to_expire_leave_their_lots_on_all_nodes() -> None:
    idle = Idle(10, 3, "RETRY", RETRY, "TTL", 8 * RETRY)
    mesh = idle.mesh
    more = [mesh.add(0, "REPLICATE", 3, *IDLE) for _ in range(10)]
    mesh.advance(8 * RETRY - 1 - RETRY * 1.5)
    assert all(bench.held(id) for bench in mesh.nodes for id in idle.ids)
    mesh.advance(4)
    assert not any(bench.held(id) for bench in mesh.nodes for id in idle.ids)
    assert not idle.sent(100 + UNSURE)
    assert all(mesh.states(id) == ["queued", "active", "active"] for id in more)


def test_jobs_of_one_lot_that_expire_one_after_the_other_need_no_look_at_the_rest() -> None:
    idle = Idle(1, 3, "RETRY", RETRY, "TTL", 8 * RETRY)
    mesh = Mesh(3)
    mesh.lose = idle._lose
    ids = [mesh.add(0, "RETRY", RETRY, "TTL", 4 * RETRY + 13 * n) for n in range(20)]
    mesh.advance(2 * RETRY)
    idle.kinds.clear()
    for _ in range(4 * RETRY + 13 * 20):
        mesh.advance(1)
        assert all(state in ("queued", "active", "") for id in ids for state in mesh.states(id))
    assert not any(bench.held(id) for bench in mesh.nodes for id in ids)
    assert not idle.sent(100 + UNSURE)


@pytest.mark.parametrize(
    "words",
    [
        ("UPDATEJOB", "$", "RETRY", 3),
        ("UPDATEJOB", "$", "DELAY", 5),
        ("UPDATEJOB", "$", "TTL", 30),
        ("DEQUEUE", "$"),
        ("PROMOTE", "$"),
        ("QMOVE", "q", "other"),
        ("WORKING", "$"),
        ("CANCEL", "$"),
        ("ACKJOB", "$"),
        ("NACK", "$"),
    ],
)
def test_commands_about_a_job_in_a_lot_do_what_they_always_do(words: tuple[str | int, ...]) -> None:
    ways = [Idle(5), Idle(5)]
    for index in range(3):
        ways[1].mesh.older.add(index)
    for idle in ways:
        idle.mesh.advance(2 * RETRY)
    assert [len(idle.lotted(0)) for idle in ways] == [5, 0]
    for idle in ways:
        ask(idle.mesh, 0, *[idle.ids[2] if word == "$" else word for word in words])
        slices(idle.mesh)
    for _ in range(3 * RETRY):
        for idle in ways:
            idle.mesh.advance(1)
        queues, states = [], []
        for idle in ways:
            mesh = idle.mesh
            states.append([mesh.states(id) for id in idle.ids])
            there = [[bench for bench in mesh.nodes if bench.held(id)] for id in idle.ids]
            shown = zip(idle.ids, there, strict=True)
            queues.append([[bench.show(id)[b"queue"] for bench in its] for id, its in shown])
        assert states[0] == states[1]
        assert queues[0] == queues[1]


def test_a_holder_that_asks_for_one_job_leaves_the_lots_of_others_whole() -> None:
    idle = Idle()
    mesh = idle.mesh
    mesh[2].node.store.queue_soon_unless_held(
        mesh[2].node.store.jobs.shard_of(idle.ids[0])[idle.ids[0]]
    )
    mesh.advance(2)
    mesh.advance(2 * RETRY)
    assert not idle.sent(100 + UNSURE)
    assert [len(idle.lotted(index)) for index in range(3)] == [10, 10, 10]
    assert idle.all_are_queued_once()


def test_a_job_that_is_given_to_another_node_leaves_its_lots() -> None:
    idle = Idle(10, 3, size=4)
    mesh = idle.mesh
    away = next(index for index in (1, 2, 3) if not mesh[index].held(idle.ids[0]))
    waiting = mesh[away].block("q")
    mesh.advance(1)
    taken = mesh[away].got(waiting)
    mesh.advance(RETRY - 2)
    assert idle.queued_on(taken) == []
    mesh.advance(4)
    assert len(idle.queued_on(taken)) == 1
    mesh.advance(3 * RETRY)
    assert idle.all_are_queued_once()


def test_copies_leave_their_lots_when_memory_is_short() -> None:
    idle = Idle(10)
    bench = idle.mesh[1]
    bench.node.paging.pages.above = 0
    bench.node.paging.aside.page_out_one()
    assert not idle.lotted(1)
    idle.mesh.advance(2 * RETRY)
    assert not idle.lotted(1)
    assert idle.all_are_queued_once()


def test_show_tells_when_a_job_in_a_lot_is_looked_at() -> None:
    idle = Idle(3)
    for bench in idle.mesh.nodes:
        fields = bench.show(idle.ids[0])
        wakes, due = fields[b"next-awake-within"], fields[b"next-requeue-within"]
        assert isinstance(wakes, int)
        assert isinstance(due, int)
        assert 0 < wakes < due <= RETRY * 1000


def test_a_short_retry_time_is_told_of_job_by_job() -> None:
    idle = Idle(5, 3, "RETRY", LEAST_RETRY - 1, "TTL", 1000)
    assert not idle.lotted(0)
    assert idle.all_are_queued_once()


def test_malformed_news_of_lots_are_bad_packets() -> None:
    idle = Idle(3)
    node = idle.mesh[1].node
    packets = PacketWriter(idle.mesh.ids[0], 0)
    for kind, size in ((STAYS, 19), (STAYS, 41), (UNSURE, 3)):
        fields: list[Field] = [(2, bytes(size))]
        node.receive(idle.mesh.ids[0], packets.fields(QUESTION, untracked(kind, fields)), node.now)
    assert node.bad_packets == 3
    assert len(idle.lotted(1)) == 3


def test_lots_of_different_processes_have_different_numbers() -> None:
    numbers: list[int] = []
    for seed in range(5):
        mesh = Mesh(2, seed, jitter=None)
        mesh.add(0, "REPLICATE", 2, *IDLE)
        mesh.advance(RETRY + 1)
        numbers += mesh[0].node.replicas.lots.values()
    assert len(set(numbers)) == 5


def test_many_lots_are_told_in_few_packets() -> None:
    idle = Idle(3_000)
    idle.mesh.advance(3 * RETRY)
    assert len(idle.sent(100 + STAYS)) <= 2 * 4 * 3
    assert not idle.sent(100 + UNSURE)
    assert [len(idle.lotted(index)) for index in range(3)] == [3_000] * 3


def test_a_group_does_not_wait_for_ever_for_a_job_in_a_lot_of_another_node() -> None:
    mesh = Mesh(2)
    for bench in mesh.nodes:
        bench("QSET", "q", "GROUPS", "fifo")
    first = mesh.add(0, "REPLICATE", 2, "GROUP", "g", *IDLE)
    mesh.settle()
    waiting = mesh[1].block("q")
    mesh.advance(1)
    assert first in str(mesh[1].replies(waiting)).encode()
    second = mesh.add(1, "REPLICATE", 1, "GROUP", "g", *IDLE)
    assert mesh[0]("ENQUEUE", first) == 1  # and nobody takes it there
    mesh.advance(4 * RETRY)
    assert mesh.states(first) == ["queued", "active"]
    assert mesh[1].get() == second
