"""UPDATEJOB, among several nodes."""

from collections import Counter
from io import BytesIO

import pytest

from disque_trio.aof.format import RecordReader
from disque_trio.node.core.changes.updates import MANY_LATE
from disque_trio.protocol import bus
from disque_trio.protocol.bus import packet_type
from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

UNKNOWN = b"D-12345678-ABCDEFGHIJKLMNOPQRSTUVWX-05a1"


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def update(mesh: Mesh, index: int, id: bytes, *options: str | int | bytes) -> Client:
    client = mesh[index].client()
    mesh[index].send(client, "UPDATEJOB", id, *options)
    mesh.settle()
    return client


def reply(mesh: Mesh, index: int, client: Client) -> str:
    mesh.settle()
    (found,) = mesh[index].replies(client)
    return found.decode() if isinstance(found, bytes) else str(found)


def isolate(mesh: Mesh, index: int) -> None:
    """Let no packets pass between a node and any other, and let all notice."""
    mesh.isolate(index)
    for peers in mesh.peers:
        peers.reachable = [id for id in peers.everyone() if id not in peers.away]


def bodies(mesh: Mesh, id: bytes) -> list[object]:
    return [mesh[index].show(id)[b"body"] for index in mesh.holders(id)]


@pytest.mark.parametrize("at", [0, 1])
def test_a_change_of_a_job_that_pauses_reaches_all_holders(mesh: Mesh, at: int) -> None:
    id = mesh.add(0, "REPLICATE", 3)
    mesh[0].get()
    mesh[0]("NACK", id, "DELAY", 100)
    mesh.settle()
    assert reply(mesh, at, update(mesh, at, id, "BODY", "new", "DELAY", 5)) == "OK"
    mesh.advance(4)
    assert sum(node.number_queued() for node in mesh.nodes) == 0
    mesh.advance(3)
    assert sum(node.number_queued() for node in mesh.nodes) == 1
    mesh.advance(150)
    assert sum(node.number_queued() for node in mesh.nodes) == 1
    assert bodies(mesh, id) == [b"new"] * 3


@pytest.mark.parametrize("at", [0, 1, 2])
def test_all_holders_have_it_when_the_client_is_answered(mesh: Mesh, at: int) -> None:
    id = mesh.add(0)
    client = mesh[at].client()
    mesh[at].send(client, "UPDATEJOB", id, "BODY", "new", "RETRY", 77, "TTL", 5000)
    assert client.blocked
    assert reply(mesh, at, client) == "OK"
    assert bodies(mesh, id) == [b"new"] * 3
    for bench in mesh.nodes:
        assert bench.number(id, b"retry") == 77
        assert 4998 <= bench.number(id, b"ttl") <= 5002
    assert mesh[0].get_with_body() == (id, b"new")
    mesh[0]("ACKJOB", id)
    mesh.settle()
    for bench in mesh.nodes:
        assert bench.node.memory.used == bench.counted_memory()


@pytest.mark.parametrize("at", [0, 1])
def test_a_delay_is_kept_wherever_the_job_is_queued(mesh: Mesh, at: int) -> None:
    id = mesh.add(0)
    mesh.advance(10)
    assert reply(mesh, at, update(mesh, at, id, "DELAY", 20)) == "OK"
    mesh.advance(19)
    assert [bench.number_queued() for bench in mesh.nodes] == [0, 0, 0]
    mesh.advance(3)
    assert [bench.number_queued() for bench in mesh.nodes] == [1, 0, 0]
    assert mesh[0].number(id, b"additional-deliveries") == 0


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("due", [0, 5, 90])
def test_a_pause_is_changed_on_all_holders(mesh: Mesh, at: int, due: int) -> None:
    id = mesh.add(0, "RETRY", 20)
    assert mesh[0].get() == id
    mesh[0]("NACK", id, "DELAY", 50)
    mesh.advance(3)
    assert reply(mesh, at, update(mesh, at, id, "BODY", "new", "DELAY", due)) == "OK"
    assert bodies(mesh, id) == [b"new"] * 3
    if due:
        mesh.advance(due - 0.5)
        assert [bench.number_queued() for bench in mesh.nodes] == [0, 0, 0]
        mesh.advance(1)
    mesh.told()
    mesh.advance(19)
    assert [bench.number_queued() for bench in mesh.nodes] == [i == at for i in range(3)]
    assert [bench.number(id, b"nacks") for bench in mesh.nodes] == [1, 1, 1]
    assert [bench.number(id, b"additional-deliveries") for bench in mesh.nodes] == [0, 0, 0]


def test_a_pause_is_not_cut_short_where_another_node_delivered_the_job(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 20)
    assert mesh[0].get() == id
    mesh[0]("NACK", id, "DELAY", 50)
    mesh.settle()
    mesh[1]("ENQUEUE", id)
    assert mesh[1].get() == id
    mesh.moving.clear()  # nobody hears that
    mesh.advance(3)
    assert reply(mesh, 0, update(mesh, 0, id, "DELAY", 40)).startswith("DELIVERED")
    mesh.advance(15)
    assert [bench.number_queued() for bench in mesh.nodes] == [0, 0, 0]


def test_a_job_that_another_node_delivered_keeps_its_contents(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 20)
    assert mesh[0].get() == id
    mesh.settle()
    assert reply(mesh, 1, update(mesh, 1, id, "BODY", "new", "RETRY", 500)).startswith("DELIVERED")
    assert bodies(mesh, id) == [b"body"] * 3
    assert [bench.number(id, b"retry") for bench in mesh.nodes] == [20] * 3


def test_a_job_that_was_given_to_another_node_is_changed_there(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1)
    consumer = mesh[1].client()
    mesh[1].send(consumer, "GETJOB", "FROM", "q")
    mesh.settle()
    assert mesh[1].got(consumer) == id
    assert mesh[1]("NACK", id) == 1
    mesh.settle()
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "new")) == "OK"
    assert mesh[1].get_with_body() == (id, b"new")
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "newer")).startswith("DELIVERED")


def test_an_at_most_once_job_goes_with_the_change_to_who_waits_for_it(mesh: Mesh) -> None:
    mesh[0].node.journaling = True
    id = mesh.add(0, "RETRY", 0, "REPLICATE", 1, "DELAY", 50)
    consumer = mesh[1].client()
    mesh[1].send(consumer, "GETJOB", "FROM", "q")
    mesh.settle()
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "new", "DELAY", 0)) == "OK"
    (entries,) = mesh[1].replies(consumer)
    assert entries == [[b"q", id, b"new"]]
    assert mesh.holders(id) == [1]
    # Its file can be read, and the job is no longer in it.
    restarted = Bench()
    for command in RecordReader(BytesIO(b"".join(mesh[0].node.journal))):
        restarted.node.load_record(command, False)
    assert not restarted.held(id)


def test_a_holder_that_only_another_holder_knows_of_has_it_as_well(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    other = next(index for index in (1, 2) if mesh[index].held(id))
    third = 3 - other
    mesh.lose = lambda source, target, packet: target == other
    consumer = mesh[third].client()
    mesh[third].send(consumer, "GETJOB", "FROM", "q")
    mesh.settle()
    assert mesh[third].got(consumer) == id
    assert mesh[third]("NACK", id) == 1
    mesh.settle()
    mesh.lose = lambda source, target, packet: False
    assert mesh.ids[third] not in mesh[other].show(id)[b"nodes-delivered"]
    assert reply(mesh, other, update(mesh, other, id, "BODY", "new")) == "OK"
    assert bodies(mesh, id) == [b"new"] * 3
    mesh.told()
    mesh.advance(10)
    assert mesh.told("updatejob") == []  # nobody keeps announcing it


def test_a_holder_that_another_holder_tells_of_twice_is_told_once(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    (_, other) = mesh.holders(id)
    third = 3 - other
    for holder in (0, other):
        job = mesh[holder].node.store.jobs.get(id)
        assert job is not None
        mesh[holder].node.replicas.add(job, mesh.ids[third if holder == 0 else 0])
    said: list[tuple[int, int, bytes]] = []

    def lose(source: int, target: int, packet: bytes) -> bool:
        if source == 0 and packet_type(packet) == bus.UPDATEJOB:
            said.append((source, target, packet))
        return target == third

    mesh.lose = lose
    update(mesh, other, id, "BODY", "new")
    assert (other, "updatejob", third) in mesh.told("updatejob")
    mesh.moving.append(next(move for move in said if move[1] == other))
    mesh.settle()
    assert mesh.told("updatejob") == []


@pytest.mark.parametrize("lost", [bus.UPDATEJOB, bus.QUESTION])
def test_lost_packets_are_sent_again(mesh: Mesh, lost: int) -> None:
    id = mesh.add(0)
    dropped = []
    mesh.lose = lambda source, target, packet: (
        packet_type(packet) == lost and len(dropped) < 2 and dropped.append(packet) is None
    )
    client = update(mesh, 0, id, "BODY", "new")
    assert client.blocked
    mesh.advance(1)
    assert reply(mesh, 0, client) == "OK"
    assert bodies(mesh, id) == [b"new"] * 3


def test_a_repeated_change_of_a_job_delivered_since_is_confirmed(mesh: Mesh) -> None:
    id = mesh.add(0)
    mesh.lose = lambda source, target, packet: target == 1 and source == 0
    client = update(mesh, 1, id, "BODY", "new")
    assert client.blocked
    assert mesh[0].get_with_body() == (id, b"new")
    mesh.lose = lambda source, target, packet: False
    mesh.advance(1)
    assert reply(mesh, 1, client) == "OK"
    assert bodies(mesh, id) == [b"new"] * 3


def test_of_very_many_late_changes_the_latest_are_known_to_be_late(mesh: Mesh) -> None:
    mesh = Mesh(2)
    ids = [mesh.add(0, "REPLICATE", 2) for _ in range(MANY_LATE + 1)]
    mesh.lose = lambda source, target, packet: True
    clients = [update(mesh, 1, id, "BODY", "new") for id in ids]
    assert mesh[0].get_all() == ids
    mesh.settle()
    mesh.lose = lambda source, target, packet: source == 0
    mesh.advance(0.6)  # it hears of the changes, but its answers are lost
    assert mesh[0].show(ids[-1])[b"body"] == b"new"
    mesh.lose = lambda source, target, packet: False
    mesh.advance(1.5)
    answers = Counter(reply(mesh, 1, client).partition(" ")[0] for client in clients)
    assert answers == {"DELIVERED": MANY_LATE, "OK": 1}


def test_a_holder_that_does_not_answer_is_told_of_and_told_again(mesh: Mesh) -> None:
    id = mesh.add(0)
    mesh.lose = lambda source, target, packet: target == 2
    client = update(mesh, 0, id, "BODY", "new")
    mesh.advance(3)
    assert reply(mesh, 0, client).startswith("NOREPL")
    assert bodies(mesh, id) == [b"new", b"new", b"body"]
    mesh.lose = lambda source, target, packet: False
    mesh.advance(10)
    assert bodies(mesh, id) == [b"new"] * 3


def test_a_node_that_is_thought_to_be_there_is_waited_for(mesh: Mesh) -> None:
    id = mesh.add(0)
    mesh.isolate(2)
    client = update(mesh, 0, id, "BODY", "new")
    assert client.blocked
    mesh.rejoin(2)
    mesh.advance(1)
    assert reply(mesh, 0, client) == "OK"
    mesh.isolate(2)
    client = update(mesh, 0, id, "BODY", "newer")
    mesh.advance(3)
    assert reply(mesh, 0, client).startswith("NOREPL")


def test_a_restarted_node_tells_the_changes_that_it_has(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 1000)
    mesh[0].node.journaling = True
    isolate(mesh, 2)
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "new")) == "OK"
    isolate(mesh, 0)
    records = b"".join(mesh[0].node.journal)
    mesh[0]("DEBUG", "FLUSHALL")
    for record in RecordReader(BytesIO(records)):
        mesh[0].node.load_record(record, False)
    mesh.rejoin(2)
    mesh[0].node.updates.resume()
    mesh.advance(2)
    assert bodies(mesh, id)[1:] == [b"new"] * (len(mesh.holders(id)) - 1)


def test_who_queues_an_old_job_is_told_of_the_change(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 1000)
    isolate(mesh, 2)
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "new")) == "OK"
    isolate(mesh, 0)
    mesh.join(1, 2)
    assert mesh[2]("NACK", id) == 1
    mesh.settle()
    assert mesh[2].get_with_body() == (id, b"new")


def test_a_holder_that_was_away_hears_of_it_when_it_is_back(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 1000)
    isolate(mesh, 2)
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "new")) == "OK"
    mesh.rejoin(2)
    mesh.advance(10)
    assert bodies(mesh, id) == [b"new"] * 3
    mesh.advance(100)
    mesh.told()
    mesh.advance(200)
    assert mesh.told("updatejob") == []


def test_a_holder_hears_of_it_before_it_queues_the_job_again(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 30)
    isolate(mesh, 2)
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "new")) == "OK"
    assert mesh[0].get_with_body() == (id, b"new")
    mesh.settle()
    isolate(mesh, 0)
    mesh.join(1, 2)
    mesh.advance(40)
    found = [mesh[index].get_with_body() for index in (1, 2)]
    assert [entry for entry in found if entry] == [(id, b"new")]


def test_the_newest_wins_when_a_partition_is_over(mesh: Mesh) -> None:
    id = mesh.add(0)
    isolate(mesh, 2)
    assert reply(mesh, 2, update(mesh, 2, id, "BODY", "far")) == "OK"
    mesh.advance(0.01)
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "near")) == "OK"
    assert bodies(mesh, id) == [b"near", b"near", b"far"]
    mesh.rejoin(2)
    mesh.advance(10)
    assert bodies(mesh, id) == [b"near"] * 3


def test_changes_of_the_same_ms_on_two_nodes_are_decided_the_same_everywhere(mesh: Mesh) -> None:
    id = mesh.add(0)
    one, two = mesh[0].client(), mesh[1].client()
    mesh[0].send(one, "UPDATEJOB", id, "BODY", "one")
    mesh[1].send(two, "UPDATEJOB", id, "BODY", "two")
    assert reply(mesh, 0, one) == "OK"
    assert reply(mesh, 1, two) == "OK"
    mesh.advance(2)
    assert len(set(bodies(mesh, id))) == 1


def test_late_packets_change_nothing(mesh: Mesh) -> None:
    id = mesh.add(0)
    sent = []
    mesh.lose = lambda source, target, packet: (
        packet_type(packet) == bus.UPDATEJOB and sent.append((source, target, packet)) is not None
    )
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "one")) == "OK"
    old = list(sent)
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "two")) == "OK"
    mesh.moving.extend(old + old)
    mesh.settle()
    assert bodies(mesh, id) == [b"two"] * 3


def test_several_changes_at_once_are_all_answered(mesh: Mesh) -> None:
    id = mesh.add(0)
    clients = [mesh[0].client() for _ in range(3)]
    for number, client in enumerate(clients):
        mesh[0].send(client, "UPDATEJOB", id, "BODY", str(number))
    assert [reply(mesh, 0, client) for client in clients] == ["OK"] * 3
    assert bodies(mesh, id) == [b"2"] * 3


def test_a_client_that_leaves_does_not_stop_the_change(mesh: Mesh) -> None:
    id = mesh.add(0)
    client = mesh[0].client()
    mesh[0].send(client, "UPDATEJOB", id, "BODY", "new")
    mesh[0].disconnect(client)
    mesh.settle()
    assert bodies(mesh, id) == [b"new"] * 3


def test_a_change_that_is_not_on_disk_is_not_confirmed(mesh: Mesh) -> None:
    id = mesh.add(0)
    mesh[0].node.journaling = True
    client = mesh[0].client()
    mesh[0].send(client, "UPDATEJOB", id, "BODY", "new")
    mesh[0].node.roll_back(b"-MISCONF no space\r\n")
    assert reply(mesh, 0, client) == "MISCONF no space"
    mesh.advance(2)
    assert mesh[0].replies(client) == []
    assert mesh[0].node.uncommitted == []


def test_each_change_that_is_not_on_disk_is_refused(mesh: Mesh) -> None:
    id = mesh.add(0)
    mesh[0].node.journaling = True
    for body in ("new", "newer"):
        mesh.lose = lambda source, target, packet: target == 0
        client = update(mesh, 0, id, "BODY", body)
        mesh[0].node.roll_back(b"-MISCONF no space\r\n")
        assert reply(mesh, 0, client) == "MISCONF no space"
        mesh.lose = lambda source, target, packet: False
        mesh.advance(2)  # the holders confirm it
        assert mesh[0].replies(client) == []
        assert bodies(mesh, id) == [body.encode()] * 3


def test_an_ending_that_is_not_on_disk_is_not_told(mesh: Mesh) -> None:
    id = mesh.add(0)
    mesh[0].node.journaling = True
    client = mesh[0].client()
    mesh[0].send(client, "WAITJOB", 0, id)
    mesh[0].send(mesh[0].me, "ACKJOB", id)
    mesh[0].node.roll_back(b"-MISCONF no space\r\n")
    assert reply(mesh, 0, client) == "MISCONF no space"


def test_the_wait_ends_with_the_job(mesh: Mesh) -> None:
    id = mesh.add(0)
    client = mesh[0].client()
    mesh[0].send(client, "UPDATEJOB", id, "BODY", "new")
    mesh[0]("CANCEL", id)
    mesh.advance(3)
    assert reply(mesh, 0, client) in ("OK", "NOJOB Job has ended meanwhile.")
    id = mesh.add(0)
    mesh[0].send(client, "UPDATEJOB", id, "BODY", "new")
    mesh[0]("DEBUG", "FLUSHALL")
    assert reply(mesh, 0, client).startswith("NOJOB")


def test_a_copy_or_a_gift_with_a_newer_change_counts(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    (other,) = [index for index in mesh.holders(id) if index]
    isolate(mesh, other)
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "new")) == "OK"
    mesh.rejoin(other)
    mesh[other]("DEQUEUE", id)
    consumer = mesh[other].client()
    mesh[other].send(consumer, "GETJOB", "FROM", "q")
    mesh.settle()
    assert mesh[other].replies(consumer) == [[[b"q", id, b"new"]]]


def test_the_event_log_has_it_on_all_holders(mesh: Mesh) -> None:
    id = mesh.add(0)
    for bench in mesh.nodes:
        bench.node.notes.eventing = True
    update(mesh, 0, id, "BODY", "new")
    found = [
        [what[1:4:2] for what in bench.node.notes.events if isinstance(what, tuple)]
        for bench in mesh.nodes
    ]
    assert found == [[("updated", "client")], [("updated", "peer")], [("updated", "peer")]]


@pytest.mark.parametrize(("words", "reason"), [(("NACK", "DELAY", 30), "nack"), ((), "delay")])
def test_the_event_log_says_why_a_job_is_queued_whose_wait_is_cut_short(
    bench: Bench, words: tuple[str | int, ...], reason: str
) -> None:
    bench.node.notes.eventing = True
    id = bench.add("q", "body", *(() if words else ("DELAY", 30)))
    if words:
        assert bench.get() == id
        assert bench(words[0], id, *words[1:]) == 1
    bench.advance(1)
    assert bench("UPDATEJOB", id, "DELAY", 0) == b"OK"
    what = [what[1:4:2] for what in bench.node.notes.events if isinstance(what, tuple)]
    assert ("queued", reason) in what


def test_a_change_with_a_damaged_time_of_creation_can_be_written(mesh: Mesh) -> None:
    id = mesh.add(0)
    mesh[1].node.journaling = True
    sent: list[bytes] = []

    def keep(source: int, target: int, packet: bytes) -> bool:
        if packet_type(packet) == bus.UPDATEJOB and target == 1:
            sent.append(packet)
        return packet_type(packet) == bus.UPDATEJOB

    mesh.lose = keep
    update(mesh, 0, id, "BODY", "changed", "DELAY", 5)
    at = sent[0].index(id) + 48
    damaged = sent[0][:at] + (2**63 - 1).to_bytes(8, "little") + sent[0][at + 8 :]
    mesh[1].node.receive(mesh.ids[0], damaged, mesh[1].now)
    assert mesh[1].show(id)[b"delay"] == 2**32 - 1
    assert any(b"changed" in record for record in mesh[1].node.journal)


def test_a_change_that_leaves_the_time_to_live_alone_leaves_it_as_each_holder_knows_it(
    mesh: Mesh,
) -> None:
    id = mesh.add(0, "REPLICATE", 3, "TTL", 100)
    jobs = [mesh[index].node.store.jobs.get(id) for index in range(3)]
    jobs[1].etime += 2  # as far as its clock is ahead
    before = [job.etime for job in jobs]
    assert reply(mesh, 0, update(mesh, 0, id, "BODY", "new")) == "OK"
    assert bodies(mesh, id) == [b"new"] * 3
    assert [job.etime for job in jobs] == before
