"""The counts of jobs by queue, and of how long they waited and were processed."""

import pytest

from disque_trio.histogram import JOB_TIMES, MS, Histogram
from disque_trio.node.core.jobs.counts import JobCounts
from tests.support.node_bench import Bench

NAMES = (
    "added",
    "delivered",
    "acked",
    "requeued",
    "nacked",
    "expired",
    "evicted",
    "dead",
    "cancelled",
)


@pytest.fixture
def counts(bench: Bench) -> JobCounts:
    counts = JobCounts(100)
    bench.node.notes.count(counts)
    return counts


def of(counts: JobCounts, queue: str = "q") -> dict[str, int]:
    """Return the nonzero counters of ``queue``."""
    own = counts.of(queue.encode())
    return {name: getattr(own, name) for name in NAMES if getattr(own, name)}


def seconds(histogram: Histogram | None) -> tuple[int, float]:
    """Return how many were observed, and their total time."""
    return (sum(histogram.counts), histogram.sum / MS) if histogram else (0, 0.0)


def test_a_job_is_counted_from_its_addition_to_its_end(bench: Bench, counts: JobCounts) -> None:
    id = bench.add("q")
    bench.now += 2_000
    assert bench.get("q") == id
    bench.now += 3_000
    bench("ACKJOB", id)
    assert of(counts) == {"added": 1, "delivered": 1, "acked": 1}
    own = counts.of(b"q")
    assert seconds(own.wait) == (1, 2.0)
    assert seconds(own.processing) == (1, 3.0)


def test_a_job_that_comes_again_waits_from_then_on(bench: Bench, counts: JobCounts) -> None:
    id = bench.add("q")
    bench.get("q")
    bench.now += 10_000
    bench("NACK", id)
    bench.now += 1_000
    bench.get("q")
    assert seconds(counts.of(b"q").wait) == (2, 1.0)
    bench.now += 4_000
    bench("ACKJOB", id)
    assert seconds(counts.of(b"q").processing) == (1, 4.0)
    assert of(counts) == {"added": 1, "delivered": 2, "requeued": 1, "nacked": 1, "acked": 1}


def test_the_end_of_the_retry_time_is_a_requeue(bench: Bench, counts: JobCounts) -> None:
    bench.add("q", "body", "RETRY", 10)
    bench.get("q")
    bench.advance(11)
    assert of(counts) == {"added": 1, "delivered": 1, "requeued": 1}


def test_a_job_from_a_clock_that_is_ahead_has_not_waited(bench: Bench, counts: JobCounts) -> None:
    bench.add("q")
    bench.now -= 60_000
    assert bench.get("q")
    assert seconds(counts.of(b"q").wait) == (1, 0.0)


def test_a_delay_is_no_waiting(bench: Bench, counts: JobCounts) -> None:
    bench.add("q", "body", "DELAY", 60)
    bench.advance(62)
    assert bench.get("q")
    count, waited = seconds(counts.of(b"q").wait)
    assert (count, waited < 3) == (1, True)
    assert of(counts) == {"added": 1, "delivered": 1}


def test_other_ends_are_counted(bench: Bench, counts: JobCounts) -> None:
    bench.add("q", "body", "TTL", 5, "RETRY", 1)
    bench.advance(8)
    assert of(counts)["expired"] == 1
    bench("CANCEL", bench.add("q"))
    bench("FASTACK", bench.add("q"))
    bench("DELJOB", bench.add("q"))
    found = of(counts)
    assert (found["cancelled"], found["acked"], found["added"]) == (1, 1, 4)
    bench("ACKJOB", "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1")  # which no node knows
    assert of(counts)["acked"] == 1


def test_a_dead_letter_is_counted_where_it_died(bench: Bench, counts: JobCounts) -> None:
    bench("QSET", "q", "DEAD", "letters", "ATTEMPTS", "1")
    id = bench.add("q")
    bench.get("q")
    bench("NACK", id)
    assert of(counts)["dead"] == 1
    assert of(counts, "letters") == {}
    assert bench.get("letters")
    assert of(counts, "letters") == {"delivered": 1}


def test_queues_beyond_the_limit_share_their_counts_for_good(bench: Bench) -> None:
    counts = JobCounts(2)
    bench.node.notes.count(counts)
    for queue in ("a", "b", "c", "d", "c"):
        bench.add(queue)
    assert list(counts.by_queue) == [b"a", b"b"]
    assert counts.rest.added == 3
    counts.forget(b"a")
    bench.add("c")
    assert of(counts, "c") == {"added": 1}
    assert counts.rest.added == 3
    counts.limit(1)
    assert list(counts.by_queue) == [b"b"]
    counts.limit(0)
    bench.add("b")
    assert counts.rest.added == 4


def test_the_queue_without_a_name_is_one_of_the_rest(bench: Bench, counts: JobCounts) -> None:
    bench.add("")
    bench("ACKJOB", bench.get("") or b"")
    assert (counts.rest.added, counts.rest.acked) == (1, 1)


def test_resetstat_resets_them(bench: Bench, counts: JobCounts) -> None:
    bench.add("q")
    bench("CONFIG", "RESETSTAT")
    assert of(counts) == {}


def test_the_event_log_and_the_counts_do_not_need_each_other(bench: Bench) -> None:
    counts = JobCounts(1)
    notes = bench.node.notes
    notes.count(counts)
    bench.add("q")
    assert notes.events == []
    notes.eventing = True
    bench.add("q")
    assert len(notes.events) > 0
    notes.eventing = False
    bench.add("q")
    assert of(counts) == {"added": 3}


def test_only_the_latest_times_are_kept(bench: Bench) -> None:
    counts = JobCounts(1, most_times=2)
    bench.node.notes.count(counts)
    ids = [bench.add("q") for _ in range(3)]
    bench.get_all("q")
    for id in ids:
        bench("ACKJOB", id)
    assert counts.of(b"q").acked == 3
    assert seconds(counts.of(b"q").processing)[0] == 2


def test_a_bound_belongs_to_its_range() -> None:
    histogram = Histogram(JOB_TIMES, MS)
    for value in (0, 5, 6, 10**9):
        histogram.observe(value)
    assert (histogram.counts[0], histogram.counts[1], histogram.counts[-1]) == (2, 1, 1)
    assert histogram.sum == 11 + 10**9
