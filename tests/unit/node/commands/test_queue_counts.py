"""What QSTAT counts: the oldest job, expired jobs, and with FULL, jobs by what they wait for."""

import pytest

from disque_trio.node.core.changes.state_counts import SLICE
from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench


def counted(bench: Bench, queue: str = "q") -> dict[bytes, object]:
    """Return the fields of QSTAT FULL that the node counts."""
    bench.send(bench.me, "QSTAT", queue, "FULL")
    reply = finish(bench, bench.me)
    assert isinstance(reply, list)
    fields = dict(zip(reply[::2], reply[1::2], strict=True))
    return {name: fields[b"jobs-" + name] for name in (b"delayed", b"in-hand", b"dead")}


def finish(bench: Bench, client: Client) -> object:
    """Return the one reply that ``client`` waits for."""
    bench.node.tick(bench.now)
    bench.node.commit()
    (reply,) = bench.replies(client)
    return reply


@pytest.mark.parametrize("urgent", [0, 3])
def test_the_oldest_job_counts_whatever_its_priority(bench: Bench, urgent: int) -> None:
    bench.make_queue()
    assert bench.queue()[b"oldest-job-age"] == 0
    bench.add("q", "old", "PRIORITY", urgent)
    bench.advance(2)
    bench.add("q", "young", "PRIORITY", 3 - urgent)
    bench.advance(0.5)
    assert bench.queue()[b"oldest-job-age"] == 2_500
    while bench("QPEEK", "q", 1) != []:
        left = bench.queue()[b"oldest-job-age"]
        bench.get()
    assert left == (2_500 if urgent == 0 else 500)
    assert bench.queue()[b"oldest-job-age"] == 0


def test_what_expires_is_counted_and_what_was_acknowledged_is_not(bench: Bench) -> None:
    bench.add("q", "body", "TTL", 5, "RETRY", 1)
    bench("ACKJOB", bench.add("q", "body", "TTL", 5))
    bench.add("other", "body", "TTL", 5)
    assert bench.queue()[b"jobs-expired"] == 0
    bench.advance(10)
    assert bench.queue()[b"jobs-expired"] == 1


def test_what_clients_acknowledge_is_counted_once_however_they_do(bench: Bench) -> None:
    for command in (["ACKJOB"], ["FASTACK"], ["CANCEL"], ["DELJOB"]):
        id = bench.add()
        bench(*command, id)
        bench(*command, id)
    assert bench.queue()[b"jobs-acked"] == 2
    id = bench.add()
    assert bench.get() == id
    bench("ACKJOB", id, "RESULT", "done")
    bench("ACKJOB", bench.add("other"))
    assert bench.queue()[b"jobs-acked"] == 3


def test_a_job_with_copies_is_acknowledged_on_one_node() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 1)
    mesh.advance(5)
    (holder,) = [i for i in range(3) if mesh[i].number_queued()]
    for node in (holder, (holder + 1) % 3):
        mesh[node]("ACKJOB", id)
        mesh.settle()
    counted = [mesh[i].queue()[b"jobs-acked"] for i in range(3) if mesh[i]("QSTAT", "q")]
    assert sum(map(int, counted)) == 1  # type: ignore[call-overload]


def test_a_copy_that_expires_after_its_acknowledge_is_not_counted() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 1, "TTL", 5)
    mesh.cut(0, 1)
    mesh[0]("ACKJOB", id)
    mesh.advance(10)
    assert mesh[0].queue()[b"jobs-expired"] == 0
    assert mesh[1].queue()[b"jobs-expired"] == 1


def test_full_counts_what_is_delayed_in_hand_and_dead(bench: Bench) -> None:
    bench("QSET", "q", "DEAD", "dead", "ATTEMPTS", 5)
    bench.add("q", "body", "DELAY", 50)
    handed_back = bench.add()
    assert bench.get() == handed_back
    bench("NACK", handed_back, "DELAY", 20)
    once = bench.add("q", "body", "RETRY", 0)
    given_up = bench.add()
    acked = bench.add()
    in_hand = bench.add()
    assert bench.get_all() == [once, given_up, acked, in_hand]
    bench("NACK", given_up, "DEAD")
    bench("ACKJOB", acked)
    bench.add()
    bench.add("other", "body", "DELAY", 50)
    assert counted(bench) == {b"delayed": 2, b"in-hand": 1, b"dead": 0}
    assert counted(bench, "dead") == {b"delayed": 0, b"in-hand": 0, b"dead": 1}
    bench.advance(60)
    assert counted(bench) == {b"delayed": 0, b"in-hand": 1, b"dead": 0}


def test_a_letter_in_hand_is_dead_and_one_that_was_sent_back_is_not(bench: Bench) -> None:
    bench("QSET", "q", "DEAD", "dead", "ATTEMPTS", 5)
    for _ in range(2):
        id = bench.add()
        assert bench.get() == id
        bench("NACK", id, "DEAD")
    assert bench.get("dead")
    assert counted(bench, "dead") == {b"delayed": 0, b"in-hand": 1, b"dead": 2}
    bench.send(bench.me, "REDRIVE", "dead")
    assert finish(bench, bench.me) == 1
    assert counted(bench)[b"dead"] == 0


def test_a_queue_that_only_has_delayed_jobs_is_found(bench: Bench) -> None:
    bench.add("q", "body", "DELAY", 50)
    assert bench("QSTAT", "q") is None
    assert counted(bench)[b"delayed"] == 1
    bench.send(bench.me, "QSTAT", "nowhere", "full")
    assert finish(bench, bench.me) is None
    assert bench("QSTAT", "q") is None, "asking does not make it"


def test_many_jobs_are_counted_in_slices_and_once_for_all_who_ask(bench: Bench) -> None:
    for _ in range(2 * SLICE):
        bench.add()
    bench.get_all()
    first, same, other = bench.client(), bench.client(), bench.client()
    bench.send(first, "QSTAT", "q", "FULL")
    bench.send(same, "QSTAT", "q", "FULL")
    bench.node.tick(bench.now)
    bench.send(other, "QSTAT", "q", "FULL")
    ticks = 1
    while not (replies := bench.replies(first)):
        bench.node.tick(bench.now)
        bench.node.commit()
        ticks += 1
    assert ticks == 2
    (reply,) = replies
    assert isinstance(reply, list)
    assert reply[reply.index(b"jobs-in-hand") + 1] == 2 * SLICE
    assert bench.replies(same) == [reply]
    assert bench.replies(other) == []
    bench.node.tick(bench.now)
    bench.node.tick(bench.now)
    bench.node.commit()
    assert bench.replies(other) == [reply]
    assert bench.node.next_wake() > bench.now


def test_a_flush_answers_who_waits(bench: Bench) -> None:
    for _ in range(SLICE + 1_000):
        bench.add()
    bench.get_all()
    asking, later = bench.client(), bench.client()
    bench.send(asking, "QSTAT", "q", "FULL")
    bench.node.tick(bench.now)
    bench.send(later, "QSTAT", "q", "FULL")
    bench("DEBUG", "FLUSHALL")
    bench.node.commit()
    assert len(bench.replies(asking)) == 1
    assert len(bench.replies(later)) == 1


def test_other_words_are_refused(bench: Bench) -> None:
    assert bench.error("QSTAT", "q", "WHOLE") == "ERR syntax error"
    assert bench.error("QSTAT", "q", "FULL", "FULL") == "ERR syntax error"
