"""UPDATEJOB, on one node."""

from io import BytesIO

import pytest

from disque_trio.aof.format import RecordReader
from tests.support.node_bench import START, Bench

UNKNOWN = b"D-12345678-ABCDEFGHIJKLMNOPQRSTUVWX-05a1"


@pytest.fixture
def bench() -> Bench:
    return Bench(jitter=0)


def test_the_body_changes_and_the_place_in_the_queue_stays(bench: Bench) -> None:
    first, second = bench.add("q", "a"), bench.add("q", "b")
    assert bench("UPDATEJOB", first, "BODY", "longer") == b"OK"
    assert bench("UPDATEJOB", second, "body", "") == b"OK"
    assert bench.get_with_body() == (first, b"longer")
    assert bench.get_with_body() == (second, b"")
    assert bench.info("stats")["total_jobs_updated"] == "2"
    bench("ACKJOB", first, second)
    assert bench.node.memory.used == bench.counted_memory()


def test_a_delay_begins_now(bench: Bench) -> None:
    id = bench.add()
    bench.advance(100)
    assert bench("UPDATEJOB", id, "DELAY", "2.5") == b"OK"
    assert bench.get() is None
    assert bench.requeue_within(id) == 2500
    bench.advance(2.4)
    assert bench.get() is None
    bench.advance(0.2)
    assert bench.get() == id
    assert bench.number(id, b"additional-deliveries") == 0


def test_a_delayed_job_may_be_wanted_sooner_or_later(bench: Bench) -> None:
    id = bench.add("q", "body", "DELAY", 100)
    assert bench("UPDATEJOB", id, "DELAY", 200) == b"OK"
    bench.advance(150)
    assert bench.get() is None
    assert bench("UPDATEJOB", id, "DELAY", 0) == b"OK"
    assert bench.get() == id


def test_a_ttl_counts_from_now(bench: Bench) -> None:
    shorter, longer = bench.add("q", "body", "TTL", 100), bench.add("q", "body", "TTL", 100)
    bench.advance(90)
    assert bench("UPDATEJOB", shorter, "TTL", 5) == b"OK"
    assert bench("UPDATEJOB", longer, "TTL", 50) == b"OK"
    bench.advance(7)
    assert not bench.held(shorter)
    bench.advance(30)
    assert bench.held(longer)
    bench.advance(20)
    assert not bench.held(longer)


def test_the_life_of_a_job_with_a_key_is_not_extended(bench: Bench) -> None:
    """Otherwise, the key would be free while the job lives."""
    id = bench.add("q", "b", "UNIQUE", "k", "TTL", 10)
    problem = "ERR TTL cannot be extended for a job with a key of UNIQUE"
    assert bench.error("UPDATEJOB", id, "TTL", 11) == problem
    assert bench("UPDATEJOB", id, "TTL", 5, "BODY", "c") == b"OK"
    bench.advance(7)
    assert bench.add("q", "b", "UNIQUE", "k") != id
    with_time = bench.add("q", "b", "UNIQUE", "l", "FOR", 5)
    assert bench("UPDATEJOB", with_time, "TTL", 1_000_000) == b"OK"


def test_a_retry_time_holds_for_the_next_delivery(bench: Bench) -> None:
    id = bench.add("q", "body", "RETRY", 10)
    assert bench("UPDATEJOB", id, "RETRY", 50) == b"OK"
    assert bench.get() == id
    bench.advance(40)
    assert bench.get() is None
    bench.advance(20)
    assert bench.get() == id


def test_a_delivered_job_is_not_changed_until_it_is_queued_again(bench: Bench) -> None:
    id = bench.add("q", "old")
    assert bench.get_with_body() == (id, b"old")
    assert bench.error("UPDATEJOB", id, "BODY", "new").startswith("DELIVERED")
    assert bench("NACK", id) == 1
    assert bench("UPDATEJOB", id, "BODY", "new") == b"OK"
    assert bench.get_with_body() == (id, b"new")


def test_a_job_that_was_handed_back_may_be_changed_while_it_pauses(bench: Bench) -> None:
    id = bench.add("q", "old")
    bench.get()
    bench("NACK", id, "DELAY", 100)
    assert bench("UPDATEJOB", id, "BODY", "new", "RETRY", 7) == b"OK"
    bench.advance(99)
    assert bench.number_queued() == 0
    bench.advance(2)
    assert bench.get_with_body() == (id, b"new")
    bench("NACK", id, "DELAY", 100)
    assert bench("UPDATEJOB", id, "DELAY", 5) == b"OK"
    bench.advance(4)
    assert bench.number_queued() == 0
    bench.advance(2)
    assert bench.number_queued() == 1
    assert bench.number(id, b"nacks") == 2


def test_an_at_most_once_job_may_be_changed_before_its_delivery(bench: Bench) -> None:
    id = bench.add("q", "old", "RETRY", 0, "REPLICATE", 1)
    assert "RETRY" in bench.error("UPDATEJOB", id, "RETRY", 10)
    assert bench("UPDATEJOB", id, "BODY", "new", "DELAY", 10) == b"OK"
    bench.advance(11)
    assert bench.get_with_body() == (id, b"new")
    assert bench.error("UPDATEJOB", id, "BODY", "x").startswith("DELIVERED")


def test_a_paused_queue_takes_the_job_later(bench: Bench) -> None:
    id = bench.add("q", "body", "DELAY", 100)
    bench("PAUSE", "q", "in")
    assert bench("UPDATEJOB", id, "DELAY", 0) == b"OK"
    assert bench.number_queued() == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "wrong number"),
        (["BODY"], "wrong number"),
        (["BODY", "x", "TTL"], "syntax"),
        (["SIZE", "1"], "syntax"),
        (["BODY", "x", "BODY", "y"], "syntax"),
        (["DELAY", "1", "delay", "1"], "syntax"),
        (["DELAY", "-1"], "DELAY"),
        (["DELAY", "-0.5"], "DELAY"),
        (["DELAY", "x"], "DELAY"),
        (["DELAY", "1."], "DELAY"),
        (["DELAY", "."], "DELAY"),
        (["DELAY", "1.x"], "DELAY"),
        (["DELAY", "1.5.5"], "DELAY"),
        (["DELAY", "1e3"], "DELAY"),
        (["DELAY", str(2**63)], "DELAY"),
        (["DELAY", str(2**63 - 1)], "TTL"),
        (["DELAY", "100000"], "TTL"),
        (["DELAY", "10", "TTL", "10"], "TTL"),
        (["TTL", "0"], "TTL"),
        (["TTL", "-1"], "TTL"),
        (["TTL", "x"], "TTL"),
        (["TTL", "1.5"], "TTL"),
        (["RETRY", "-1"], "RETRY"),
        (["RETRY", "x"], "RETRY"),
        (["RETRY", "0"], "RETRY"),
    ],
)
def test_bad_arguments_change_nothing(bench: Bench, words: list[str], problem: str) -> None:
    id = bench.add()
    before = bench.show(id)
    assert problem in bench.error("UPDATEJOB", id, *words)
    assert bench.show(id) == before


def test_huge_times_are_cut(bench: Bench) -> None:
    id = bench.add()
    assert bench("UPDATEJOB", id, "TTL", 2**63 - 1, "RETRY", 2**63 - 1) == b"OK"
    assert bench.number(id, b"retry") == 2**32 - 1
    assert bench.number(id, b"ttl") == 2**32 - 1 - START // 1000


def test_other_jobs_cannot_be_changed(bench: Bench) -> None:
    id = bench.add()
    assert "BADID" in bench.error("UPDATEJOB", "nonsense", "BODY", "x")
    assert "NOJOB" in bench.error("UPDATEJOB", UNKNOWN, "BODY", "x")
    bench.node.peers.extended = False
    assert "NOEXT" in bench.error("UPDATEJOB", id, "BODY", "x")


def test_the_file_has_the_last_change(bench: Bench) -> None:
    bench.node.journaling = True
    id = bench.add("q", "old")
    bench("UPDATEJOB", id, "BODY", "new", "DELAY", 50)
    bench("UPDATEJOB", id, "BODY", "newer")
    other = Bench(jitter=0)
    for record in RecordReader(BytesIO(b"".join(bench.node.journal))):
        other.node.load_record(record, False)
    assert other.show(id)[b"body"] == b"newer"
    assert other.get() is None
    other.advance(51)
    assert other.get() == id


@pytest.mark.parametrize("due", [0, 5, 90])
def test_a_job_that_was_handed_back_and_pauses_is_changed(bench: Bench, due: int) -> None:
    id = bench.add("q", "body", "RETRY", 20)
    assert bench.get() == id
    bench("NACK", id, "DELAY", 53)
    bench.advance(3)
    assert bench("UPDATEJOB", id, "BODY", "new", "RETRY", 30) == b"OK"
    assert bench.requeue_within(id) == 50_000
    assert bench("UPDATEJOB", id, "DELAY", due) == b"OK"
    bench.advance(due - 0.1)
    assert bench.number_queued() == (due == 0)
    bench.advance(0.2)
    assert bench.get_with_body() == (id, b"new")
    assert bench.number(id, b"nacks") == 1
    assert bench.number(id, b"additional-deliveries") == 0
