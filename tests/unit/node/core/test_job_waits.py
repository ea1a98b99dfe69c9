"""WAITJOB, results and CANCEL among several nodes."""

import random
from inspect import isfunction
from io import BytesIO

import pytest

from disque_trio.aof.format import RecordReader
from disque_trio.node.core.jobs.job import ACKED
from disque_trio.node.core.jobs.outcomes import Outcome
from disque_trio.node.core.lifecycle.job_waits import MOST_IDS, JobWaits
from disque_trio.protocol import bus
from disque_trio.protocol.bus import packet_type
from disque_trio.protocol.fields import pack_texts
from disque_trio.respserver.client import Client
from tests.support.gifts import is_gift
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

UNKNOWN = b"D-12345678-ABCDEFGHIJKLMNOPQRSTUVWX-05a1"


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def waiting(mesh: Mesh, index: int, *ids: bytes, ms: int = 0) -> Client:
    client = mesh[index].client()
    mesh[index].send(client, "WAITJOB", ms, *ids)
    mesh.settle()
    return client


def heard(mesh: Mesh, index: int, client: Client) -> object:
    mesh.settle()
    assert not client.blocked
    (reply,) = mesh[index].replies(client)
    return reply


def alone(mesh: Mesh, index: int, *options: str | int) -> bytes:
    """Return the id of a job that only one node holds."""
    id = mesh.add(index, "REPLICATE", 1, *options)
    assert mesh.holders(id) == [index]
    return id


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("by", [0, 1, 2])
def test_any_node_may_be_asked_wherever_the_job_is_acknowledged(
    mesh: Mesh, copies: int, at: int, by: int
) -> None:
    id = mesh.add(0, "REPLICATE", copies)
    assert mesh[0].get() == id
    client = waiting(mesh, at, id)
    assert client.blocked
    mesh[by]("ACKJOB", id, "RESULT", "42")
    assert heard(mesh, at, client) == [[id, b"acked", b"42"]]
    for index in mesh.holders(id) or range(3):
        late = waiting(mesh, index, id)
        assert heard(mesh, index, late) == [[id, b"acked", b"42"]]
    assert all(bench.node.store.jobs.count == 0 for bench in mesh.nodes)


@pytest.mark.parametrize("command", ["ACKJOB", "FASTACK"])
def test_a_plain_acknowledge_is_known_afterwards_as_well(mesh: Mesh, command: str) -> None:
    id = alone(mesh, 0)
    mesh[0](command, id)
    mesh.settle()
    for index in range(3):
        assert heard(mesh, index, waiting(mesh, index, id)) == [[id, b"acked", None]]


def test_several_plain_acknowledges_are_all_known_afterwards(mesh: Mesh) -> None:
    ids = [mesh.add(0) for _ in range(3)]
    mesh[0]("ACKJOB", *ids)
    mesh.settle()
    for bench in mesh.nodes:
        assert bench("WAITJOB", 0, *ids) == [[id, b"acked", None] for id in ids]


def test_a_dead_letter_that_was_sent_back_counts_as_acknowledged_on_all_nodes(mesh: Mesh) -> None:
    mesh[0]("QSET", "q", "DEAD", "dead")
    mesh.settle()
    first = alone(mesh, 0)
    assert mesh[0].get() == first
    mesh[0]("NACK", first, "DEAD")
    letter = next(job.id for job in mesh[0].node.store.jobs.values() if job.queue == b"dead")
    before = waiting(mesh, 1, letter)
    mesh[0].send(mesh[0].me, "REDRIVE", "dead")
    mesh.advance(0.1)
    assert heard(mesh, 1, before) == [[letter, b"acked", None]]
    for index in range(3):
        assert heard(mesh, index, waiting(mesh, index, letter)) == [[letter, b"acked", None]]
    assert not any(bench.node.bad_packets for bench in mesh.nodes)


def test_a_job_that_no_node_knows_is_gone(mesh: Mesh) -> None:
    client = waiting(mesh, 1, UNKNOWN)
    mesh.advance(1)
    assert heard(mesh, 1, client) == [[UNKNOWN, b"gone", None]]


def test_a_silent_node_is_asked_until_it_answers_or_is_not_reachable(mesh: Mesh) -> None:
    id = alone(mesh, 0)
    mesh.lose = lambda source, target, packet: packet_type(packet) == bus.ANSWER
    client = waiting(mesh, 1, id)
    mesh.advance(60)
    assert client.blocked
    mesh.lose = lambda source, target, packet: False
    mesh.advance(6)
    mesh[0]("ACKJOB", id)
    assert heard(mesh, 1, client) == [[id, b"acked", None]]


def test_the_node_that_holds_it_may_not_be_reachable(mesh: Mesh) -> None:
    id = alone(mesh, 0)
    mesh.isolate(0)
    client = waiting(mesh, 1, id)
    mesh.advance(1)
    assert heard(mesh, 1, client) == [[id, b"gone", None]]


def test_lost_news_are_asked_for(mesh: Mesh) -> None:
    id = alone(mesh, 0)
    client = waiting(mesh, 1, id)
    mesh.lose = lambda source, target, packet: True
    mesh[0]("ACKJOB", id, "RESULT", "x")
    mesh.settle()
    mesh.lose = lambda source, target, packet: False
    mesh.advance(6)
    assert heard(mesh, 1, client) == [[id, b"acked", b"x"]]


def test_several_clients_of_several_nodes_wait_for_one_job(mesh: Mesh) -> None:
    id = alone(mesh, 0)
    clients = [(index, waiting(mesh, index, id)) for index in (0, 1, 1, 2)]
    mesh[0]("CANCEL", id)
    for index, client in clients:
        assert heard(mesh, index, client) == [[id, b"cancelled", None]]


def test_an_expiry_is_told_to_the_node_that_waits(mesh: Mesh) -> None:
    id = alone(mesh, 0, "TTL", 10)
    client = waiting(mesh, 1, id)
    mesh.advance(12)
    assert heard(mesh, 1, client) == [[id, b"expired", None]]


@pytest.mark.parametrize("options", [("RETRY", 0), ()])
def test_a_job_that_moves_to_another_node_is_pending_there(
    mesh: Mesh, options: tuple[str, int]
) -> None:
    id = alone(mesh, 0, *options)
    clients = [waiting(mesh, 0, id), waiting(mesh, 2, id)]
    consumer = mesh[1].client()
    mesh[1].send(consumer, "GETJOB", "FROM", "q")
    mesh.settle()
    assert mesh[1].got(consumer) == id
    mesh.advance(20)
    assert all(client.blocked for client in clients)
    mesh[1]("ACKJOB", id, "RESULT", "x")
    assert heard(mesh, 0, clients[0]) == [[id, b"acked", b"x"]]
    assert heard(mesh, 2, clients[1]) == [[id, b"acked", b"x"]]


def test_a_job_on_its_way_is_not_gone(mesh: Mesh) -> None:
    id = alone(mesh, 0, "RETRY", 0)
    consumer = mesh[1].client()
    mesh[1].send(consumer, "GETJOB", "FROM", "q")
    held = []
    mesh.lose = lambda source, target, packet: (
        is_gift(packet) and held.append((source, target, packet)) is None
    )
    mesh.settle()
    assert mesh.holders(id) == []
    client = waiting(mesh, 2, id)
    assert client.blocked
    mesh.lose = lambda source, target, packet: False
    mesh.moving.extend(held)
    mesh.advance(10)
    assert client.blocked
    mesh[1]("ACKJOB", id)
    assert heard(mesh, 2, client) == [[id, b"acked", None]]


def test_the_time_may_be_over_before_a_node_answers(mesh: Mesh) -> None:
    id = alone(mesh, 0)
    client = waiting(mesh, 1, id, ms=2000)
    mesh.advance(3)
    assert heard(mesh, 1, client) == [[id, b"pending", None]]
    mesh[0]("ACKJOB", id)
    mesh.settle()
    assert mesh[1].replies(client) == []


def test_results_that_do_not_fit_into_one_answer_come_in_several(mesh: Mesh) -> None:
    ids = [alone(mesh, 0) for _ in range(5)]
    for id in ids:
        mesh[0]("ACKJOB", id, "RESULT", id * 15_000)
    client = waiting(mesh, 1, *ids)
    mesh.advance(0.1)
    assert heard(mesh, 1, client) == [[id, b"acked", id * 15_000] for id in ids]
    largest = [alone(mesh, 0) for _ in range(3)]
    for id in largest:
        mesh[0]("ACKJOB", id, "RESULT", bytes(1_000_000))
    mesh.log.clear()
    sizes = []
    mesh.lose = lambda source, target, packet: sizes.append(len(packet)) is not None
    client = waiting(mesh, 1, *largest)
    mesh.advance(0.1)
    assert len(heard(mesh, 1, client)) == 3  # type: ignore[arg-type]
    assert max(sizes) <= bus.MAX_CONTROL_PACKET


def test_a_malformed_answer_ends_no_wait(mesh: Mesh) -> None:
    id = alone(mesh, 0)
    mesh.lose = lambda source, target, packet: packet_type(packet) == bus.ANSWER
    client = waiting(mesh, 1, id)
    mesh.lose = lambda source, target, packet: False
    (number,) = mesh[1].node.rpc.open
    for sender in (mesh.ids[0], mesh.ids[2]):
        ticket = (1, number.to_bytes(8, "little") + (1).to_bytes(8, "little"))
        answer = mesh[0].node.packets.fields(bus.ANSWER, [ticket, (3, b"nonsense")])
        mesh[1].node.receive(sender, answer, mesh[1].now)
    assert mesh[1].node.bad_packets == 2
    mesh.advance(3)
    assert client.blocked
    mesh[0]("ACKJOB", id)
    assert heard(mesh, 1, client) == [[id, b"acked", None]]


@pytest.mark.parametrize("type", [bus.QUESTION, bus.ANSWER, bus.UPDATEJOB, bus.ENDJOB])
def test_random_packets_of_other_nodes_do_no_harm(mesh: Mesh, type: int) -> None:
    rng = random.Random(type)
    id = mesh.add(0)
    client = waiting(mesh, 1, id, UNKNOWN)
    packets = mesh[2].node.packets
    for _ in range(500):
        kind = rng.choice([1, 2, 5, 6])
        ticket = (1, rng.randrange(3).to_bytes(8, "little") + kind.to_bytes(8, "little"))
        texts = [rng.choice([id, UNKNOWN, b"", rng.randbytes(40)])]
        texts += [rng.choice([rng.randbytes(8), rng.randrange(40).to_bytes(8, "little")])]
        texts += [rng.randbytes(rng.randrange(9))] * rng.randrange(3)
        fields = [ticket, *[(rng.randrange(4), pack_texts(texts)) for _ in range(2)]]
        packet = packets.fields(type, fields)
        mesh[1].node.receive(
            mesh.ids[2], packet[: rng.randrange(144, len(packet) + 1)], mesh[1].now
        )
    mesh.settle()
    mesh[0]("ACKJOB", id)
    mesh.advance(3)
    assert not client.blocked


def test_as_many_jobs_as_one_may_wait_for(mesh: Mesh) -> None:
    ids = [alone(mesh, 0) for _ in range(MOST_IDS)]
    client = waiting(mesh, 1, *ids)
    mesh.advance(0)
    mesh[0]("ACKJOB", *ids[:-1])
    mesh.advance(0)
    assert client.blocked
    mesh[0]("ACKJOB", ids[-1])
    mesh.advance(0)
    assert heard(mesh, 1, client) == [[id, b"acked", None] for id in ids]


# ---- many clients that wait for many jobs -------------------------------------------------------


def crowd(bench: Bench, ids: list[bytes], ms: int = 0) -> list[Client]:
    """Clients that all wait for all of ``ids``; their waits have not begun yet."""
    clients = [bench.client() for _ in range(20)]
    for client in clients:
        bench.send(client, "WAITJOB", ms, *ids)
        assert client.blocked
    return clients


def slices(bench: Bench, look_ups: list[bytes]) -> list[int]:
    """Do what is due now; return how many jobs were looked up in each slice of it."""
    found: list[int] = []
    while bench.node.next_wake() and bench.node.next_wake() <= bench.now:
        look_ups.clear()
        bench.node.tick(bench.now)
        found.append(len(look_ups))
    return found


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The ids of the jobs that a WAITJOB looked up."""
    found: list[bytes] = []
    known = JobWaits._known
    if not isfunction(known):
        pytest.skip("a compiled method cannot be replaced")

    def note(self: JobWaits, id: bytes) -> Outcome | None:
        found.append(id)
        return known(self, id)

    monkeypatch.setattr(JobWaits, "_known", note)
    return found


def test_a_slice_begins_one_wait_for_many_jobs(bench: Bench, look_ups: list[bytes]) -> None:
    ids = [bench.add() for _ in range(MOST_IDS)]
    clients = crowd(bench, ids)
    assert not look_ups
    assert slices(bench, look_ups) == [MOST_IDS] * len(clients)
    bench("ACKJOB", *ids)
    slices(bench, look_ups)
    for client in clients:
        assert bench.replies(client) == [[[id, b"acked", None] for id in ids]]


def test_a_slice_replies_to_one_client_whose_time_is_over(
    bench: Bench, look_ups: list[bytes]
) -> None:
    ids = [bench.add() for _ in range(MOST_IDS)]
    clients = crowd(bench, ids, 500)
    slices(bench, look_ups)
    bench("ACKJOB", ids[0])
    bench.now += 500
    for left in range(len(clients), 0, -1):
        assert sum(client.blocked for client in clients) == left
        bench.node.tick(bench.now)
        if left == len(clients):
            bench.node.tick(bench.now)
    states = [[ids[0], b"acked", None], *[[id, b"pending", None] for id in ids[1:]]]
    for client in clients:
        assert bench.replies(client) == [states]


def test_the_time_of_a_wait_may_be_over_before_it_begins(mesh: Mesh) -> None:
    ids = [mesh.add(0) for _ in range(150)]
    mesh[0]("ACKJOB", ids[0])
    client = mesh[0].client()
    mesh[0].send(client, "WAITJOB", 0, *ids)
    assert mesh[0]("CLIENT", "UNBLOCK", client.id) == 1
    assert client.blocked
    mesh[0].node.tick(mesh[0].now)
    (reply,) = mesh[0].replies(client)
    assert reply == [[ids[0], b"acked", None], *[[id, b"pending", None] for id in ids[1:]]]


def test_clients_that_leave_before_their_waits_begin_or_end(bench: Bench) -> None:
    ids = [bench.add() for _ in range(150)]
    gone, waits, stays = [bench.client() for _ in range(3)]
    for client in (gone, waits, stays):
        bench.send(client, "WAITJOB", 1_000, *ids)
        if client is gone:
            bench.disconnect(client)
        bench.advance(0)
    assert bench.node.memory.used == bench.counted_memory()
    bench.disconnect(waits)
    bench.advance(0)
    bench("ACKJOB", *ids)
    bench.advance(0)
    assert bench.replies(stays) == [[[id, b"acked", None] for id in ids]]
    assert bench.replies(waits) == bench.replies(gone) == []
    assert bench.node.memory.used == bench.counted_memory()


def test_a_flush_replies_to_all_that_wait(bench: Bench) -> None:
    ids = [bench.add() for _ in range(150)]
    begun, new = bench.client(), bench.client()
    bench.send(begun, "WAITJOB", 0, *ids)
    bench.advance(0)
    bench.send(new, "WAITJOB", 0, *ids)
    bench("DEBUG", "FLUSHALL")
    for client in (begun, new):
        assert bench.replies(client) == [[[id, b"pending", None] for id in ids]]
    bench.advance(1)
    assert bench.node.memory.used == 0


def test_a_question_names_as_many_jobs_as_fit(mesh: Mesh) -> None:
    ids = [alone(mesh, 0) for _ in range(MOST_IDS)]
    clients = [mesh[1].client() for _ in range(4)]
    for at, client in enumerate(clients):
        mesh[1].send(client, "WAITJOB", 0, *ids[at * 250 : (at + 1) * 250 + 10])
    mesh.advance(0)
    mesh[0]("ACKJOB", *ids)
    mesh.advance(0)
    for at, client in enumerate(clients):
        mine = ids[at * 250 : (at + 1) * 250 + 10]
        assert heard(mesh, 1, client) == [[id, b"acked", None] for id in mine]


def test_nodes_remember_nobody_when_jobs_end_or_clients_go(mesh: Mesh) -> None:
    id = mesh.add(0)
    client = waiting(mesh, 1, UNKNOWN, id)
    mesh[1].disconnect(client)
    mesh[0]("ACKJOB", id)
    mesh.advance(30)
    mesh.told()
    mesh.advance(30)
    assert mesh.told("question") == []
    assert not any(bench.node.job_waits._nodes for bench in mesh.nodes)


# ---- CANCEL -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("options", [("REPLICATE", 2), ("REPLICATE", 1, "RETRY", 0)])
def test_a_job_may_be_cancelled_at_any_node(
    mesh: Mesh, at: int, options: tuple[str | int, ...]
) -> None:
    id = mesh.add(0, "DELAY", 20, *options)
    holders = mesh.holders(id)
    assert mesh[at]("CANCEL", id) == (1 if at in holders else 0)
    mesh.settle()
    assert mesh.holders(id) == []
    mesh.advance(1000)
    for index in range(3):
        assert mesh[index].get() is None
    for index in holders:
        assert mesh[index].error("WORKING", id).startswith("CANCELLED")
        assert heard(mesh, index, waiting(mesh, index, id)) == [[id, b"cancelled", None]]


def test_an_acknowledge_elsewhere_does_not_hide_that_it_was_cancelled(mesh: Mesh) -> None:
    id = alone(mesh, 0)
    mesh[0]("CANCEL", id)
    assert mesh[1]("ACKJOB", id) == 0
    client = waiting(mesh, 1, id)
    mesh.advance(1)
    assert heard(mesh, 1, client) == [[id, b"cancelled", None]]


def test_hearsay_is_all_that_is_known_where_the_holder_is_away(mesh: Mesh) -> None:
    id = alone(mesh, 0)
    mesh.isolate(0)
    mesh[1]("CANCEL", id)
    for index in (1, 2):
        client = waiting(mesh, index, id)
        mesh.advance(1)
        assert heard(mesh, index, client) == [[id, b"cancelled", None]]
    mesh.rejoin(0)
    mesh.advance(10)
    assert mesh.holders(id) == []
    assert mesh[0].get() is None


def test_a_confirmation_does_not_say_how_the_job_ended(mesh: Mesh) -> None:
    """A node that has forgotten what it told the others gets the job, then their confirmation."""
    id = alone(mesh, 0)
    client = waiting(mesh, 0, id)
    packet = mesh[1].node.packets.about_job(bus.GOTACK, id, 0)
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    assert mesh[0].get() is None
    waiters = [(0, client), (0, waiting(mesh, 0, id)), (2, waiting(mesh, 2, id))]
    mesh.advance(10)
    for index, waiter in waiters:
        assert heard(mesh, index, waiter) == [[id, b"gone", None]]


def test_a_holder_that_was_away_hears_that_it_was_cancelled(mesh: Mesh) -> None:
    id = mesh.add(0, "DELAY", 50, "RETRY", 100)
    mesh.isolate(2)
    assert mesh[0]("CANCEL", id) == 1
    mesh.advance(100)
    mesh.rejoin(2)
    mesh.advance(300)
    assert mesh.holders(id) == []
    assert mesh[2].info("stats")["total_jobs_delivered"] == "0"
    assert heard(mesh, 2, waiting(mesh, 2, id)) == [[id, b"cancelled", None]]


def test_a_holder_that_nobody_knew_of_is_told_before_it_queues_the_job(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 30)
    mesh.isolate(2)
    for bench in (mesh[0], mesh[1]):  # as if the third copy had come late
        job = bench.node.store.jobs.get(id)
        assert job is not None
        job.delivered = (mesh.ids[0], mesh.ids[1])
    mesh[0]("CANCEL", id)
    mesh.settle()
    assert mesh.holders(id) == [2]
    mesh.rejoin(2)
    mesh.advance(40)
    assert mesh.holders(id) == []
    assert mesh[2].number_queued() == 0


def test_who_queues_a_cancelled_job_is_told_what_became_of_it(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 30)
    mesh.isolate(2)
    mesh[0]("CANCEL", id)
    mesh.advance(20)
    mesh.rejoin(2)
    assert mesh[2]("NACK", id) == 1
    mesh.settle()
    assert heard(mesh, 2, waiting(mesh, 2, id)) == [[id, b"cancelled", None]]


def test_a_late_copy_of_a_cancelled_job_is_refused(mesh: Mesh) -> None:
    held = []
    mesh.lose = lambda source, target, packet: (
        target == 2
        and packet_type(packet) == bus.REPLJOB
        and held.append((source, target, packet)) is None
    )
    id = mesh.add(0, "REPLICATE", 3, "ASYNC")
    mesh.lose = lambda source, target, packet: False
    assert mesh.holders(id) == [0, 1]
    mesh[0]("CANCEL", id)
    mesh.settle()
    mesh.moving.extend(held)
    mesh.advance(10)
    assert mesh.holders(id) == []


def test_a_node_that_a_client_told_first_refuses_a_late_copy_as_well(mesh: Mesh) -> None:
    held = []
    mesh.lose = lambda source, target, packet: (
        target == 2
        and packet_type(packet) == bus.REPLJOB
        and held.append((source, target, packet)) is None
    )
    id = mesh.add(0, "REPLICATE", 3, "ASYNC")
    told = []
    mesh.lose = lambda source, target, packet: (
        target == 2 and packet_type(packet) == bus.ENDJOB and (told.append(source) or len(told) > 1)
    )
    mesh[2]("CANCEL", id)  # it does not know the job, and tells the others
    mesh.settle()
    assert told
    assert not mesh[2].held(id)
    mesh.moving.extend(held)
    mesh.settle()
    assert not mesh[2].held(id)


def test_c_nodes_take_the_cancelling_as_an_acknowledge() -> None:
    mesh = Mesh(3)
    mesh.c_nodes = {2}
    for peers in mesh.peers:
        peers.judge_extensions()
    id = mesh.add(0)
    client = waiting(mesh, 1, id)
    assert mesh[0]("CANCEL", id) == 1
    assert heard(mesh, 1, client) == [[id, b"cancelled", None]]
    mesh.advance(10)
    assert mesh.holders(id) == []


def test_the_peers_note_that_it_was_cancelled(mesh: Mesh) -> None:
    for bench in mesh.nodes:
        bench.node.notes.eventing = True
    id = mesh.add(0)
    mesh[0]("CANCEL", id)
    mesh.settle()
    found = [
        [what[1:4:2] for what in bench.node.notes.events if isinstance(what, tuple)]
        for bench in mesh.nodes
    ]
    assert ("cancelled", "client") in found[0]
    assert ("cancelled", "peer") in found[1]
    assert ("cancelled", "peer") in found[2]


@pytest.mark.parametrize("at", [0, 1])
def test_a_crash_does_not_undo_a_cancellation(mesh: Mesh, at: int) -> None:
    mesh[at].node.journaling = True
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 20) if at == 0 else alone(mesh, 0, "RETRY", 20)
    mesh.isolate(at)
    mesh[at]("CANCEL", id)
    restarted = Mesh(2)[0].node
    for record in RecordReader(BytesIO(b"".join(mesh[at].node.journal))):
        restarted.load_record(record, False)
    job = restarted.store.jobs.get(id)
    assert job is not None
    assert restarted.store.outcomes.of_held(job).kind == 4  # type: ignore[union-attr]


def test_a_crash_of_the_notified_holder_does_not_undo_a_cancellation(mesh: Mesh) -> None:
    for bench in mesh.nodes:
        bench.node.journaling = True
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 20)
    holder = next(index for index in (1, 2) if mesh[index].held(id))
    mesh.isolate(0)
    mesh[3 - holder]("CANCEL", id)
    mesh.settle()
    restarted = Mesh(2)[0].node
    for record in RecordReader(BytesIO(b"".join(mesh[holder].node.journal))):
        restarted.load_record(record, False)
    job = restarted.store.jobs.get(id)
    assert job is not None
    assert restarted.store.outcomes.of_held(job).kind == 4  # type: ignore[union-attr]


# ---- a holder that nobody knew of hears how the job ended ----------------------------------------


def unknown_holder(mesh: Mesh, *command: str) -> bytes:
    """The id of a job that node 2 has queued, and that ended by ``command`` on the others, which
    did not know that it is there."""
    mesh[0]("QSET", "q", "DEAD", "letters")
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 30)
    mesh.isolate(2)
    for bench in (mesh[0], mesh[1]):
        job = bench.node.store.jobs.get(id)
        assert job is not None
        job.delivered = (mesh.ids[0], mesh.ids[1])
    assert mesh[0].get() == id
    mesh[0](command[0], id, *command[1:])
    mesh.settle()
    assert mesh.holders(id) == [2]
    mesh.advance(40)
    assert mesh[2].number_queued() == 1
    mesh.rejoin(2)
    return id


@pytest.mark.parametrize(
    ("command", "state"),
    [
        (["NACK", "DEAD"], [b"dead", None]),
        (["ACKJOB"], [b"acked", None]),
        (["ACKJOB", "RESULT", "42"], [b"acked", b"42"]),
        (["CANCEL"], [b"cancelled", None]),
    ],
)
def test_who_gives_away_a_job_that_has_ended_hears_how(
    mesh: Mesh, command: list[str], state: list[bytes | None]
) -> None:
    id = unknown_holder(mesh, *command)
    early = waiting(mesh, 2, id)
    assert early.blocked
    taker = mesh[0].block("q")
    mesh.advance(2)
    assert taker.blocked
    assert mesh[2].number_queued() == 0
    assert heard(mesh, 2, early) == [[id, *state]]
    late = waiting(mesh, 2, id)
    mesh.advance(1)
    assert heard(mesh, 2, late) == [[id, *state]]


def test_an_end_that_is_not_known_is_passed_on_as_such(mesh: Mesh) -> None:
    id = unknown_holder(mesh, "NACK", "DEAD")
    mesh.isolate(0)
    mesh.isolate(1)
    job = mesh[2].node.store.jobs.get(id)
    assert job is not None
    for flags in (bus.UNKNOWN_END, 0):  # the first that it hears
        packet = mesh[0].node.packets.about_job(bus.SETACK, id, 1, flags)
        mesh[2].node.receive(mesh.ids[0], packet, mesh[2].now)
    mesh.rejoin(1)
    copy = mesh[1].node.packets.about_job(bus.QUEUED, id)
    mesh[2].node.receive(mesh.ids[1], copy, mesh[2].now)
    mesh[2].node.commit()
    told = [
        bus.read_about_job(packet).flags
        for _, target, packet in mesh.moving
        if target == 1 and packet_type(packet) == bus.SETACK
    ]
    assert told
    assert all(flags == bus.UNKNOWN_END for flags in told)


def test_c_nodes_take_a_dead_job_for_an_acknowledged_one(mesh: Mesh) -> None:
    id = unknown_holder(mesh, "NACK", "DEAD")
    mesh.c_nodes = {2}
    mesh[0].block("q")
    mesh.advance(2)
    assert mesh[2].number_queued() == 0
    job = mesh[2].node.store.jobs.get(id)
    assert job is None or job.state == ACKED


def test_who_has_got_the_job_meanwhile_asks_nobody(mesh: Mesh) -> None:
    id = alone(mesh, 1)
    client = waiting(mesh, 0, id)
    taking = mesh[0].client()
    mesh[0].send(taking, "GETJOB", "FROM", "q")
    mesh.settle()
    assert mesh[0].got(taking) == id
    mesh.told()
    mesh.advance(60)
    assert mesh.told("answer") == []
    mesh[0]("ACKJOB", id)
    assert heard(mesh, 0, client) == [[id, b"acked", None]]
