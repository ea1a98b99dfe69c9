"""WAITJOB, results and CANCEL on one node."""

from random import Random

import pytest

from disque_trio.node.core.jobs import outcomes
from disque_trio.node.core.jobs.job import FLAG_WATCHED
from disque_trio.node.core.jobs.outcomes import MOST_BYTES, RING, Index
from disque_trio.node.core.lifecycle import ack_gc
from disque_trio.respserver.client import Client
from disque_trio.respserver.memory import Memory
from tests.support.node_bench import Bench

UNKNOWN = b"D-12345678-ABCDEFGHIJKLMNOPQRSTUVWX-05a1"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def waiting(bench: Bench, *ids: bytes, ms: int = 0) -> Client:
    client = bench.client()
    bench.send(client, "WAITJOB", ms, *ids)
    assert client.blocked
    assert client.out == []
    return client


def test_jobs_that_ended_are_told_at_once_in_the_order_asked(bench: Bench) -> None:
    acked, cancelled, result = bench.add(), bench.add(), bench.add()
    assert bench("ACKJOB", acked) == 1
    assert bench("CANCEL", cancelled) == 1
    assert bench("ACKJOB", result, "RESULT", "42") == 1
    assert bench("WAITJOB", 0, result, UNKNOWN, acked, cancelled, result) == [
        [result, b"acked", b"42"],
        [UNKNOWN, b"gone", None],
        [acked, b"acked", None],
        [cancelled, b"cancelled", None],
        [result, b"acked", b"42"],
    ]


def test_the_nulls_are_those_of_the_protocol(bench: Bench) -> None:
    id = bench.add()
    bench("ACKJOB", id)
    bench.me.resp = 3
    bench.send(bench.me, "WAITJOB", 0, id)
    assert bench.raw(bench.me) == b"*1\r\n*3\r\n$40\r\n%b\r\n$5\r\nacked\r\n_\r\n" % id


def test_several_clients_wait_until_all_their_jobs_have_ended(bench: Bench) -> None:
    one, two = bench.add(), bench.add()
    both, first = waiting(bench, one, two, one), waiting(bench, one)
    bench("ACKJOB", one, "RESULT", "")
    assert bench.replies(first) == [[[one, b"acked", b""]]]
    assert both.blocked
    bench("FASTACK", two)
    assert bench.replies(both) == [
        [[one, b"acked", b""], [two, b"acked", None], [one, b"acked", b""]]
    ]
    assert not both.blocked


def test_at_the_timeout_jobs_that_have_not_ended_are_pending(bench: Bench) -> None:
    one, two = bench.add(), bench.add()
    client = waiting(bench, one, two, ms=500)
    bench("ACKJOB", two)
    bench.advance(0.4)
    assert client.blocked
    bench.advance(0.2)
    assert bench.replies(client) == [[[one, b"pending", None], [two, b"acked", None]]]
    bench("ACKJOB", one)
    assert bench.replies(client) == []


def test_an_expiry_is_told_to_who_waits_and_known_for_a_while(bench: Bench) -> None:
    id, other = bench.add("q", "body", "TTL", 10), bench.add("q", "body", "TTL", 10)
    client = waiting(bench, id)
    bench.advance(12)
    assert bench.replies(client) == [[[id, b"expired", None]]]
    assert bench("WAITJOB", 0, id) == [[id, b"expired", None]]
    assert bench("WAITJOB", 0, other) == [[other, b"expired", None]]


def test_a_job_that_is_deleted_while_somebody_waits_is_gone(bench: Bench) -> None:
    id = bench.add()
    client = waiting(bench, id)
    bench("DELJOB", id)
    bench.advance(1)
    assert bench.replies(client) == [[[id, b"gone", None]]]


def test_an_at_most_once_job_is_pending_until_it_is_acknowledged(bench: Bench) -> None:
    id = bench.add("q", "body", "RETRY", 0, "REPLICATE", 1)
    assert bench.get() == id
    client = waiting(bench, id)
    bench("ACKJOB", id, "RESULT", "x")
    assert bench.replies(client) == [[[id, b"acked", b"x"]]]


def test_a_client_that_leaves_is_forgotten(bench: Bench) -> None:
    one, two = bench.add(), bench.add()
    client = waiting(bench, one, two, ms=1000)
    bench.disconnect(client)
    assert bench.node.blocked_clients == 0
    bench("ACKJOB", one, two)
    bench.advance(2)
    assert client.out == []
    assert not bench.node.job_waits.by_client


def test_flushall_and_unblock_end_the_wait(bench: Bench) -> None:
    id = bench.add()
    client = waiting(bench, id)
    bench("DEBUG", "FLUSHALL")
    assert bench.replies(client) == [[[id, b"pending", None]]]
    assert bench("WAITJOB", 0, id) == [[id, b"gone", None]]
    client = waiting(bench, bench.add())
    bench("CLIENT", "UNBLOCK", client.id)
    (reply,) = bench.replies(client)
    assert reply[0][1] == b"pending"  # type: ignore[index]
    client = waiting(bench, bench.add())
    bench("CLIENT", "UNBLOCK", client.id, "ERROR")
    assert "UNBLOCKED" in str(bench.replies(client)[0])


def test_a_node_that_leaves_lets_nobody_wait(bench: Bench) -> None:
    done, id = bench.add(), bench.add()
    bench("ACKJOB", done)
    client = waiting(bench, id)
    bench.node.set_leaving(True)
    assert "LEAVING" in str(bench.replies(client)[0])
    assert "LEAVING" in bench.error("WAITJOB", 0, id)
    assert bench("WAITJOB", 0, done) == [[done, b"acked", None]]


def test_results_are_kept_for_their_time(bench: Bench) -> None:
    id = bench.add()
    bench("ACKJOB", id, "RESULT", "x")
    bench.advance(59)
    bench.node.cron(bench.now)
    assert bench("WAITJOB", 0, id) == [[id, b"acked", b"x"]]
    assert bench.info("stats")["results_kept"] == "1"
    bench.advance(2)
    bench.node.cron(bench.now)
    assert bench("WAITJOB", 0, id) == [[id, b"acked", None]]
    assert bench.info("stats")["results_kept"] == "0"
    assert bench.node.memory.used == bench.counted_memory()


def test_results_are_counted_and_bounded(bench: Bench) -> None:
    small = Bench(maxmemory=10_000_000)
    ids = [small.add() for _ in range(30)]
    for id in ids:
        small("ACKJOB", id, "RESULT", bytes(100_000))
    states = [entry[1] for entry in small("WAITJOB", 0, *ids)]  # type: ignore[attr-defined]
    assert states == [b"gone"] * 21 + [b"acked"] * 9
    assert 900_000 < small.node.store.outcomes.kept.size <= 1_000_000
    assert small.node.memory.used == small.counted_memory()
    ids = [bench.add() for _ in range(70)]
    for id in ids:
        bench("ACKJOB", id, "RESULT", bytes(1_000_000))
    assert bench.node.memory.used - bench.counted_memory() <= MOST_BYTES
    bench("DEBUG", "FLUSHALL")
    assert bench.node.memory.used == 0


def test_a_result_that_is_too_large_is_not_kept_and_takes_no_room_from_others(bench: Bench) -> None:
    small = Bench(maxmemory=1_000_000)
    one, two = small.add(), small.add()
    small("ACKJOB", one, "RESULT", "1")
    client = waiting(small, two)
    small("ACKJOB", two, "RESULT", bytes(100_000))
    assert small.replies(client) == [[[two, b"acked", bytes(100_000)]]]
    assert small("WAITJOB", 0, one, two) == [[one, b"acked", b"1"], [two, b"gone", None]]


def test_results_make_room_for_jobs(bench: Bench) -> None:
    small = Bench(maxmemory=1_000_000)
    for _ in range(9):
        small("ACKJOB", small.add(), "RESULT", bytes(10_000))
    assert small.node.memory.used > 90_000
    while not isinstance(small("ADDJOB", "q", bytes(10_000), 0), Exception):
        pass
    assert not len(small.node.store.outcomes.kept.by_id)
    assert small.node.memory.used == small.counted_memory()


def test_that_jobs_were_cancelled_makes_room_for_jobs(bench: Bench) -> None:
    small = Bench(maxmemory=1_000_000)
    for _ in range(100):
        small("CANCEL", small.add())
    small.advance(1)
    assert len(small.node.store.outcomes.cancelled.by_id)
    while not isinstance(small("ADDJOB", "q", bytes(10_000), 0), Exception):
        pass
    assert not len(small.node.store.outcomes.cancelled.by_id)
    assert small.node.memory.used == small.counted_memory()


def test_with_a_result_ttl_of_zero_only_who_waits_hears_results(bench: Bench) -> None:
    bench.node.store.outcomes.result_ttl = 0
    id = bench.add()
    client = waiting(bench, id)
    bench("ACKJOB", id, "RESULT", "x")
    assert bench.replies(client) == [[[id, b"acked", b"x"]]]
    assert bench("WAITJOB", 0, id) == [[id, b"acked", None]]


def test_only_the_last_acknowledges_are_known(bench: Bench) -> None:
    first = bench.add()
    bench("ACKJOB", first)
    for _ in range(RING - 1):
        id = bench.add()
        bench("ACKJOB", id)
    assert bench("WAITJOB", 0, first) == [[first, b"acked", None]]
    bench("ACKJOB", bench.add())
    assert bench("WAITJOB", 0, first, id) == [[first, b"gone", None], [id, b"acked", None]]


def test_acknowledges_after_a_flush_are_known_wherever_the_ring_was(
    monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    monkeypatch.setattr(outcomes, "RING", 4)
    monkeypatch.setattr(outcomes, "RING_MASK", 3)
    monkeypatch.setattr(ack_gc, "RING_MASK", 3)
    for _ in range(3):
        bench("ACKJOB", bench.add())
    bench("DEBUG", "FLUSHALL")
    ids = [bench.add() for _ in range(3)]
    for id in ids:
        bench("ACKJOB", id)
    assert [entry[1] for entry in bench("WAITJOB", 0, *ids)] == [b"acked"] * 3


def test_the_first_ending_stays(bench: Bench) -> None:
    id = bench.add()
    assert bench("ACKJOB", id, "RESULT", "first") == 1
    assert bench("ACKJOB", id, "RESULT", "second") == 0
    assert bench("CANCEL", id) == 0
    assert bench("WAITJOB", 0, id) == [[id, b"acked", b"first"]]


def test_a_result_is_for_each_of_the_jobs(bench: Bench) -> None:
    ids = [bench.add() for _ in range(250)]
    assert bench("ACKJOB", *ids, "result", "x") == 250
    assert bench("WAITJOB", 0, *ids) == [[id, b"acked", b"x"] for id in ids]


def test_a_cancelled_job_is_not_delivered_and_its_worker_hears_of_it(bench: Bench) -> None:
    worked, queued, delayed = bench.add(), bench.add(), bench.add("q", "body", "DELAY", 5)
    assert bench.get() == worked
    assert bench("CANCEL", worked, queued, delayed, queued) == 3
    assert bench.error("WORKING", worked).startswith("CANCELLED")
    assert bench("ACKJOB", worked) == 0
    bench.advance(1000)
    assert bench.get() is None
    assert bench.info("stats")["total_jobs_cancelled"] == "3"
    assert bench("WAITJOB", 0, worked) == [[worked, b"cancelled", None]]


def test_that_a_job_was_cancelled_is_known_until_its_time_is_over(bench: Bench) -> None:
    id = bench.add("q", "body", "TTL", 500)
    bench("CANCEL", id)
    bench.advance(490)
    bench.node.cron(bench.now)
    assert bench.error("WORKING", id).startswith("CANCELLED")
    bench.advance(20)
    bench.node.cron(bench.now)
    assert bench.error("WORKING", id).startswith("NOJOB")
    assert bench.node.memory.used == bench.counted_memory()


def test_many_jobs_are_cancelled_in_slices(bench: Bench) -> None:
    ids = [bench.add() for _ in range(1000)]
    assert bench("CANCEL", *ids) == 1000
    assert bench.node.store.jobs.count == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["WAITJOB"], "wrong number"),
        (["WAITJOB", "0"], "wrong number"),
        (["WAITJOB", "x", UNKNOWN], "timeout"),
        (["WAITJOB", "-1", UNKNOWN], "negative"),
        (["WAITJOB", str(2**63), UNKNOWN], "timeout"),
        (["WAITJOB", "0", "nonsense"], "BADID"),
        (["WAITJOB", "0", UNKNOWN, b"D-" + bytes(38)], "BADID"),
        (["WAITJOB", "0", *[UNKNOWN] * 1001], "1000"),
        (["CANCEL"], "wrong number"),
        (["CANCEL", "nonsense"], "BADID"),
        (["CANCEL", UNKNOWN, "nonsense"], "BADID"),
        (["ACKJOB", UNKNOWN, "RESULT"], "syntax"),
        (["ACKJOB", "RESULT", "x"], "syntax"),
        (["ACKJOB", UNKNOWN, "RESULT", "a", "RESULT", "b"], "syntax"),
        (["ACKJOB", UNKNOWN, "RESULT", "a", UNKNOWN], "BADID"),
        (["ACKJOB", "nonsense", "RESULT", "a"], "BADID"),
        (["ACKJOB", UNKNOWN, "RESULT", bytes(1_000_001)], "1000000"),
    ],
)
def test_bad_arguments_are_refused(bench: Bench, words: list[str], problem: str) -> None:
    id = bench.add()
    assert problem in bench.error(*words)
    assert bench.held(id)


def test_bad_ids_refuse_the_whole_call(bench: Bench) -> None:
    id = bench.add()
    assert "BADID" in bench.error("CANCEL", id, "nonsense")
    assert "BADID" in bench.error("ACKJOB", id, "nonsense", "RESULT", "x")
    assert bench.get() == id


def test_a_word_may_be_a_result(bench: Bench) -> None:
    id = bench.add()
    assert bench("ACKJOB", id, "RESULT", "RESULT") == 1
    assert bench("WAITJOB", 0, id) == [[id, b"acked", b"RESULT"]]


def test_a_job_is_watched_only_while_it_lives(bench: Bench) -> None:
    id = bench.add()
    waiting(bench, id)
    job = bench.node.store.jobs.get(id)
    assert job is not None
    assert job.flags & FLAG_WATCHED
    bench("ACKJOB", id)
    assert not job.flags & FLAG_WATCHED


def test_the_ring_of_ids_is_as_long_as_its_writers_know() -> None:
    assert ack_gc.RING_MASK == outcomes.RING_MASK == outcomes.RING - 1


def test_what_is_in_a_ring_is_found_however_much_was_written_since() -> None:
    rng = Random(1)
    index, ring, at, written = Index(Memory(0)), [b""] * RING, 0, 0
    for _ in range(40):
        for _ in range(rng.choice([0, 1, 2, 100, RING - 1, RING, RING + 1])):
            # Now and then, an id is there twice: a job was acknowledged on two nodes.
            ring[at] = b"%d" % (written - rng.choice([0, 0, 0, 1]))
            at = (at + 1) % RING
            written += 1
        there = {*ring} - {b""}
        asked = [b"%d" % n for n in range(max(written - 2 * RING, 0), written + 2, 7)]
        assert [id for id in asked if index.has(id, ring, at)] == [
            id for id in asked if id in there
        ]
    assert not index.has(b"1", [b""] * RING, 0)  # after FLUSHALL
