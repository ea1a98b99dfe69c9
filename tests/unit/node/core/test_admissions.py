"""MAXLEN and MAXBYTES in a cluster: the jobs of a queue count on all nodes together."""

import pytest

from disque_trio.node.core.copies.admissions import COUNT_TIME
from disque_trio.protocol import bus
from disque_trio.protocol.bus import packet_type
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

ONE = ("REPLICATE", 1)


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def ask(bench: Bench, *args: str | int, queue: str = "q") -> None:
    """Send an ADDJOB, whose reply is read later."""
    bench.send(bench.me, "ADDJOB", queue, "body", 0, *args)


def replies(bench: Bench) -> list[str]:
    """Return the replies since the last call: the codes of errors, and "id" for each id."""
    return [
        "id" if isinstance(reply, (bytes, str)) else str(reply).split()[0]
        for reply in bench.replies(bench.me)
    ]


def tried(mesh: Mesh, index: int, *args: str | int) -> str:
    """Return the reply to an ADDJOB on a node."""
    ask(mesh[index], *args)
    mesh.settle()
    (reply,) = replies(mesh[index])
    return reply


def lengths(mesh: Mesh) -> list[int]:
    return [bench.number_queued() for bench in mesh.nodes]


def memory_is_right(mesh: Mesh) -> bool:
    return all(bench.node.memory.used == bench.counted_memory() for bench in mesh.nodes)


@pytest.mark.parametrize("more", [ONE, ("REPLICATE", 3), ("ASYNC",), (*ONE, "UNIQUE", "k")])
def test_what_other_nodes_have_counts(mesh: Mesh, more: tuple[str | int, ...]) -> None:
    mesh.add(1, *ONE)
    mesh.add(2, *ONE)
    assert tried(mesh, 0, "MAXLEN", 2, *more) == "MAXLEN"
    assert memory_is_right(mesh)
    assert mesh[0].node.admissions.held == {}
    assert tried(mesh, 0, "MAXLEN", 3, *more) == "id"
    assert sum(lengths(mesh)) == 3
    assert memory_is_right(mesh)


def test_copies_do_not_count(mesh: Mesh) -> None:
    mesh.add(0, "REPLICATE", 3)
    assert tried(mesh, 1, "MAXLEN", 2, *ONE) == "id"
    assert tried(mesh, 2, "MAXLEN", 2, *ONE) == "MAXLEN"


def test_other_queues_do_not_count(mesh: Mesh) -> None:
    for queue in ("r", "s"):
        ask(mesh[1], *ONE, queue=queue)
    ask(mesh[0], "MAXLEN", 1, *ONE, queue="r")
    ask(mesh[0], "MAXLEN", 1, *ONE, queue="t")
    ask(mesh[0], "MAXLEN", 1, *ONE, queue="s")
    mesh.settle()
    assert replies(mesh[0]) == ["MAXLEN", "id", "MAXLEN"]
    assert mesh[1].node.queues.by_name.get(b"t") is None  # a question creates no queue


def test_adds_in_one_turn_of_one_node_are_counted_exactly(mesh: Mesh) -> None:
    mesh.add(1, *ONE)
    others = [mesh[0].client() for _ in range(5)]
    for client in others:
        mesh[0].send(client, "ADDJOB", "q", "b", 0, "MAXLEN", 4, *ONE)
    mesh.told()
    mesh.settle()
    got = [mesh[0].replies(client)[0] for client in others]
    assert [isinstance(reply, Exception) for reply in got] == [False, False, False, True, True]
    assert sum(lengths(mesh)) == 4
    assert mesh.told("answer") == [(1, "answer", 0), (2, "answer", 0)]


def test_a_group_adds_as_many_as_there_is_room_for(mesh: Mesh) -> None:
    bench = mesh[0]
    mesh.add(1, *ONE)
    bench.send(bench.me, "MULTI")
    for _ in range(4):
        bench.send(bench.me, "ADDJOB", "q", "b", 0, "MAXLEN", 3, *ONE)
    bench.send(bench.me, "EXEC")
    mesh.settle()
    (*_, group) = bench.replies(bench.me)
    assert isinstance(group, list)
    assert [isinstance(reply, Exception) for reply in group] == [False, False, True, True]


def test_at_several_nodes_at_once_each_sees_what_there_was_before(mesh: Mesh) -> None:
    for bench in mesh.nodes:
        ask(bench, "MAXLEN", 1, *ONE)
    mesh.settle()
    assert [replies(bench) for bench in mesh.nodes] == [["id"], ["id"], ["id"]]
    assert tried(mesh, 0, "MAXLEN", 3, *ONE) == "MAXLEN"


def test_a_node_that_is_away_is_not_waited_for(mesh: Mesh) -> None:
    mesh.add(2, *ONE)
    mesh.cut(0, 2)
    assert tried(mesh, 0, "MAXLEN", 1, *ONE) == "id"
    mesh.join(0, 2)
    assert tried(mesh, 0, "MAXLEN", 2, *ONE) == "MAXLEN"


@pytest.mark.parametrize("lost", [bus.QUESTION, bus.ANSWER])
@pytest.mark.parametrize(("most", "reply"), [(2, "id"), (1, "MAXLEN")])
def test_a_node_that_is_silent_counts_as_empty_after_a_while(
    mesh: Mesh, lost: int, most: int, reply: str
) -> None:
    for _ in range(3):
        mesh.add(2, *ONE)
    mesh.add(1, *ONE)
    mesh.lose = lambda source, target, packet: packet_type(packet) == lost and 2 in (source, target)
    ask(mesh[0], "MAXLEN", most, *ONE)
    mesh.advance((COUNT_TIME - 1) / 1000)
    assert replies(mesh[0]) == []
    mesh.advance(0.002)
    assert replies(mesh[0]) == [reply]


def test_an_answer_that_comes_too_late_changes_nothing(mesh: Mesh) -> None:
    mesh.add(1, *ONE)
    held: list[tuple[int, int, bytes]] = []

    def keep(source: int, target: int, packet: bytes) -> bool:
        if packet_type(packet) == bus.ANSWER:
            held.append((source, target, packet))
            return True
        return False

    mesh.lose = keep
    ask(mesh[0], "MAXLEN", 1, *ONE)
    mesh.advance(1)
    mesh.lose = lambda source, target, packet: False
    mesh.moving.extend(held)
    mesh.settle()
    assert replies(mesh[0]) == ["id"]


def test_answers_that_make_no_sense_count_as_none(mesh: Mesh) -> None:
    mesh.add(1, *ONE)
    mesh[1].node.rpc.handlers[4] = lambda sender, fields: [(3, b"xyz"), (9, b"")]
    assert tried(mesh, 0, "MAXLEN", 1, *ONE) == "id"


def test_c_nodes_are_not_asked(mesh: Mesh) -> None:
    mesh.c_nodes = {1}
    for peers in mesh.peers:
        peers.judge_extensions()
    mesh.add(1, *ONE)
    assert tried(mesh, 0, "MAXLEN", 1, *ONE) == "id"
    assert tried(mesh, 2, "MAXLEN", 1, *ONE) == "MAXLEN"  # node 0 can be asked
    assert mesh.told("question") == [(0, "question", 2), (2, "question", 0)]


def test_nothing_is_asked_where_this_node_has_enough(mesh: Mesh) -> None:
    mesh.add(0, *ONE)
    mesh.told()
    ask(mesh[0], "MAXLEN", 1)
    assert replies(mesh[0]) == ["MAXLEN"]
    ask(mesh[0], *ONE)
    assert replies(mesh[0]) == ["id"]
    assert mesh.told("question") == []


def test_a_repeat_is_answered_however_long_the_queue_is(mesh: Mesh) -> None:
    id = mesh.add(0, "UNIQUE", "k", "MAXLEN", 1)
    for node in range(3):
        assert mesh.add(node, "UNIQUE", "k", "MAXLEN", 1) == id
    assert tried(mesh, 1, "UNIQUE", "l", "MAXLEN", 1) == "MAXLEN"
    mesh[0]("DELJOB", id)
    mesh.settle()
    assert tried(mesh, 1, "UNIQUE", "l", "MAXLEN", 1) == "id"  # the refused job has not kept it


def test_replies_stay_in_order(mesh: Mesh) -> None:
    mesh.add(1, *ONE)
    ask(mesh[0], "MAXLEN", 1, *ONE)
    assert mesh[0].node.may_overlap([b"ADDJOB", b"q", b"b", b"0"])
    ask(mesh[0], *ONE, queue="r")
    ask(mesh[0], "REPLICATE", 3, queue="r")
    ask(mesh[0], "MAXLEN", 2, *ONE)
    assert replies(mesh[0]) == []
    mesh.settle()
    assert replies(mesh[0]) == ["MAXLEN", "id", "id", "id"]


def test_who_leaves_meanwhile_leaves_nothing(mesh: Mesh) -> None:
    client = mesh[0].client()
    mesh[0].send(client, "ADDJOB", "q", "b", 0, "MAXLEN", 5)
    mesh[0].disconnect(client)
    mesh.settle()
    mesh.advance(1)
    assert [bench.node.store.jobs.count for bench in mesh.nodes] == [0, 0, 0]
    assert memory_is_right(mesh)


def test_a_flush_ends_it(mesh: Mesh) -> None:
    ask(mesh[0], "MAXLEN", 5)
    other = mesh[0].client()
    mesh[0].ask(other, "DEBUG", "FLUSHALL")
    assert replies(mesh[0]) == ["NOREPL"]
    ask(mesh[0], "MAXLEN", 5)  # asks again
    mesh.settle()
    assert replies(mesh[0]) == ["id"]
    assert memory_is_right(mesh)


def test_a_queue_that_was_paused_meanwhile_takes_nothing(mesh: Mesh) -> None:
    ask(mesh[0], "MAXLEN", 5)
    other = mesh[0].client()
    mesh[0].ask(other, "PAUSE", "q", "in")
    mesh.settle()
    assert replies(mesh[0]) == ["PAUSED"]
    assert memory_is_right(mesh)


def test_it_waits_for_copies_as_usual(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: packet_type(packet) == bus.GOTJOB
    mesh[0].send(mesh[0].me, "ADDJOB", "q", "b", 300, "MAXLEN", 5)
    mesh.advance(0.5)
    assert replies(mesh[0]) == ["NOREPL"]
    mesh.lose = lambda source, target, packet: False
    assert tried(mesh, 0, "MAXLEN", 1) == "id"
    assert lengths(mesh) == [1, 0, 0]


def test_with_a_journal_the_reply_leaves_with_it(mesh: Mesh) -> None:
    node = mesh[0].node
    node.journaling = True
    ask(mesh[0], "MAXLEN", 5, *ONE)
    while mesh.moving:
        source, target, packet = mesh.moving.popleft()
        mesh[target].node.receive(mesh.ids[source], packet, mesh[target].now)
    assert len(node.journal) == 1
    node.roll_back(b"-MISCONF no\r\n")
    assert replies(mesh[0]) == ["MISCONF"]


def test_a_name_that_fits_into_no_packet_is_looked_up_here(mesh: Mesh) -> None:
    name = "q" * bus.MAX_CONTROL_PACKET
    ask(mesh[0], "MAXLEN", 1, *ONE, queue=name)
    ask(mesh[0], "MAXLEN", 1, *ONE, queue=name)
    mesh.settle()
    assert replies(mesh[0]) == ["id", "MAXLEN"]
    longest = "q" * bus.MAX_NAME_IN_FIELDS
    ask(mesh[0], "MAXLEN", 1, *ONE, queue=longest)
    assert len(mesh.moving) == 2
    assert max(len(packet) for _, _, packet in mesh.moving) <= bus.MAX_CONTROL_PACKET


def test_the_policy_of_a_queue_may_say_it(mesh: Mesh) -> None:
    assert mesh[2]("QSET", "q", "MAXLEN", 2) == b"OK"
    mesh.settle()
    assert [tried(mesh, index, *ONE) for index in (0, 1, 0, 1)] == ["id", "id", "MAXLEN", "MAXLEN"]
    assert tried(mesh, 0, *ONE, "MAXLEN", 3) == "id"
    mesh.advance(1)
    (id,) = mesh[1].get_all()
    mesh[1]("ACKJOB", id)
    mesh.settle()
    assert tried(mesh, 1, *ONE) == "MAXLEN"
    mesh[0]("QSET", "q", "MAXLEN", 0)
    mesh.settle()
    assert tried(mesh, 1, *ONE) == "id"
    assert memory_is_right(mesh)


def test_on_one_node_the_policy_counts_too(bench: Bench) -> None:
    bench("QSET", "mail.*", "MAXLEN", 1)
    bench.add("mail.a")
    assert bench.error("ADDJOB", "mail.a", "body", 0).startswith("MAXLEN")
    bench.add("mail.b")
    bench.add("sms")
    bench.add("sms")


def test_jobs_that_are_sent_at_once_see_each_other_where_the_policy_counts(mesh: Mesh) -> None:
    mesh[0]("QSET", "q", "MAXLEN", 2)
    mesh.settle()
    assert not mesh[0].node.may_overlap([b"ADDJOB", b"q", b"body", b"0"])
    assert mesh[0].node.may_overlap([b"ADDJOB", b"other", b"body", b"0"])
    assert mesh[0].node.may_overlap([b"addjob"])


# ---- MAXBYTES ---------------------------------------------------------------------------------


def allow_bytes(mesh: Mesh, most: int) -> None:
    for bench in mesh.nodes:
        bench("QSET", "q", "MAXBYTES", most)
    mesh.settle()
    for bench in mesh.nodes:
        bench.replies(bench.me)


def test_bytes_count_on_all_nodes_together() -> None:
    mesh = Mesh(3)
    allow_bytes(mesh, 12)
    assert tried(mesh, 0, *ONE, "UNIQUE", "key") == "id"
    assert tried(mesh, 1, *ONE) == "id"
    assert tried(mesh, 2, *ONE) == "id"
    assert tried(mesh, 0, *ONE) == "MAXBYTES"
    assert tried(mesh, 0, *ONE, "UNIQUE", "other") == "MAXBYTES"
    assert tried(mesh, 0, *ONE, "UNIQUE", "key") == "id"
    assert mesh[0].get() is not None
    assert tried(mesh, 1, *ONE) == "id"


def test_the_bytes_of_a_queue_follow_its_jobs() -> None:
    bench = Bench()
    queue = bench.node.queues.create(b"q")
    ids = [bench.add("q", "b" * size) for size in (1, 20, 300, 4000)]
    assert queue.bytes_queued() == 4321
    bench("UPDATEJOB", ids[1], "BODY", "bbb")
    assert queue.bytes_queued() == 4304
    bench("DEQUEUE", ids[0])
    bench("DELJOB", ids[2])
    assert queue.bytes_queued() == 4003
    assert bench.get() == ids[1]
    assert queue.bytes_queued() == 4000
    bench("ENQUEUE", ids[0])
    bench("NACK", ids[1])
    assert queue.bytes_queued() == 4004
    assert len(bench.get_all()) == 3
    assert queue.bytes_queued() == 0


def test_a_job_that_is_larger_than_the_queue_may_be_is_refused() -> None:
    bench = Bench()
    bench("QSET", "q", "MAXBYTES", 3)
    assert bench.error("ADDJOB", "q", "body", 0).startswith("MAXBYTES ")
    assert bench.add("q", "bod")
    assert bench.error("ADDJOB", "q", "b", 0).startswith("MAXBYTES ")
