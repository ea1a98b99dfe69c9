"""What clients did with the jobs of a queue, as QSTAT tells it."""

from typing import Any

from disque_trio.log_times import merge
from disque_trio.node.core.jobs.counts import JobCounts
from disque_trio.node.core.jobs.moments import Moments
from disque_trio.node.core.queues.traffic import EXACT, STEP, WINDOW, Times
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

COUNTED = ("added", "delivered", "acked", "imported", "exported")


def told(bench: Bench, queue: str = "q") -> dict[bytes, Any]:
    """The fields of QSTAT."""
    return bench.queue(queue)


def counts(bench: Bench, queue: str = "q") -> dict[str, Any]:
    """The counters of ``queue`` that are not 0."""
    stat = told(bench, queue)
    return {name: value for name in COUNTED if (value := stat[f"jobs-{name}".encode()])}


def times(bench: Bench, name: str = "wait", queue: str = "q") -> dict[int, int]:
    """The durations that were counted, by the number of bits of the milliseconds."""
    stat = told(bench, queue)
    return {at: count for at, count in enumerate(stat[f"{name}-total".encode()]) if count}


def done(bench: Bench, *args: str | int) -> Any:
    """The reply to a request that takes a few turns."""
    bench.send(bench.me, *args)
    bench.advance(0.1)
    (reply,) = bench.replies(bench.me)
    return reply


# ---- counters -------------------------------------------------------------------------------


def test_what_clients_do_is_counted_without_metrics(bench: Bench) -> None:
    ids = [bench.add() for _ in range(3)]
    bench.get()
    bench.get()
    bench("ACKJOB", ids[0])
    bench("FASTACK", ids[1], ids[2])
    assert bench.node.notes.counts is None
    assert counts(bench) == {"added": 3, "delivered": 2, "acked": 3}


def test_a_job_that_is_delivered_again_counts_again(bench: Bench) -> None:
    id = bench.add()
    for _ in range(3):
        bench.get()
        bench("NACK", id)
    assert counts(bench) == {"added": 1, "delivered": 3}


def test_a_job_with_a_delay_counts_when_it_is_added(bench: Bench) -> None:
    id = bench.add("q", "body", "DELAY", 10)
    reply = done(bench, "QSTAT", "q", "FULL")
    assert dict(zip(reply[::2], reply[1::2], strict=True))[b"jobs-added"] == 1
    bench.advance(11)
    bench.get()
    bench("ACKJOB", id)
    assert counts(bench) == {"added": 1, "delivered": 1, "acked": 1}


def test_names_without_a_queue_are_bounded(bench: Bench) -> None:
    for number in range(20_010):
        bench.node.queues.traffic(b"%d" % number).added += 1
    assert bench.node.queues.traffic(b"0").added == 0
    assert bench.node.queues.traffic(b"20009").added == 1


def test_an_acknowledgement_counts_although_the_queue_is_gone(bench: Bench) -> None:
    id = bench.add("q", "body", "RETRY", 3600)
    bench.get("q")
    bench.advance(301)
    bench.evict_idle_queues()
    assert bench("QSTAT", "q") is None
    bench("ACKJOB", id)
    bench.add("q")
    assert counts(bench) == {"added": 1, "acked": 1}


def test_a_job_that_moves_to_another_queue_is_neither_added_nor_delivered(bench: Bench) -> None:
    bench.add("q")
    assert done(bench, "QMOVE", "q", "other") == 1
    assert counts(bench) == {"added": 1}
    assert counts(bench, "other") == {}
    assert bench.queue("other")[b"jobs-in"] == 1


def test_dead_letters_and_those_sent_back_are_not_added(bench: Bench) -> None:
    bench("QSET", "q", "ATTEMPTS", 1, "DEAD", "letters")
    id = bench.add("q")
    bench.get("q")
    bench("NACK", id)
    assert counts(bench, "letters") == {}
    assert done(bench, "REDRIVE", "letters") == 1
    assert counts(bench, "q") == {"added": 1, "delivered": 1}
    assert bench.queue("q")[b"len"] == 1


def test_moves_between_nodes_count_apart() -> None:
    mesh = Mesh(3)
    for _ in range(8):
        mesh.add(0, "REPLICATE", 2)
    waiting = mesh[1].block("q")
    mesh.settle()
    id = mesh[1].got(waiting)
    assert id is not None
    mesh[1]("ACKJOB", id)
    mesh.advance(1)
    assert counts(mesh[0]) == {"added": 8, "exported": 1}
    assert counts(mesh[1]) == {"delivered": 1, "acked": 1, "imported": 1}


def test_all_counts_begin_again_after_a_flush(bench: Bench) -> None:
    bench.add("q", "body", "DELAY", 100)
    bench.add()
    bench("DEBUG", "FLUSHALL")
    bench.add()
    assert counts(bench) == {"added": 1}


# ---- times ----------------------------------------------------------------------------------


def test_a_job_waits_from_its_addition_and_is_processed_from_its_delivery(bench: Bench) -> None:
    id = bench.add()
    bench.now += 900
    bench.get()
    bench.now += 3_000
    bench("WORKING", id)
    bench.now += 3_000
    bench("ACKJOB", id)
    assert times(bench) == {10: 1}  # 512 to 1,024 ms
    assert times(bench, "processing") == {13: 1}  # 4,096 to 8,192 ms
    stat = told(bench)
    assert 512 <= stat[b"wait-p50"] <= stat[b"wait-p99"] <= 1024
    assert 4096 <= stat[b"processing-p50"] <= stat[b"processing-p99"] <= 8192


def test_a_delay_is_no_waiting(bench: Bench) -> None:
    bench.add("q", "body", "DELAY", 60)
    bench.advance(60.5)
    bench.get()
    assert list(times(bench)) == [9]  # 256 to 512 ms


def test_a_job_that_comes_again_waits_from_then_on(bench: Bench) -> None:
    id = bench.add()
    bench.get()
    bench.now += 50_000
    bench("NACK", id)
    bench.now += 3
    bench.get()
    assert times(bench) == {0: 1, 2: 1}


def test_a_job_whose_wait_was_forgotten_waits_about_from_its_queueing(bench: Bench) -> None:
    id = bench.add()
    bench.get()
    bench.now += 50_000
    bench("NACK", id)
    bench.node.queues.queued_again = Moments()
    bench.now += 600
    bench.get()
    assert times(bench) == {0: 1, 10: 1}


def test_jobs_that_came_again_are_forgotten_when_they_end(bench: Bench) -> None:
    ids = []
    for end in ("ACKJOB", "DELJOB", "CANCEL"):
        id = bench.add()
        ids.append(id)
        bench.get()
        bench("NACK", id)
        bench(end, id)
    bench.advance(5)
    assert [bench.node.queues.queued_again.at(id) for id in ids] == [0, 0, 0]


def test_the_clock_of_another_node_makes_no_time_negative(bench: Bench) -> None:
    bench.add()
    bench.now -= 10_000
    bench.get()
    assert times(bench) == {0: 1}


def test_nobody_who_got_a_job_is_minus_one(bench: Bench) -> None:
    bench.add()
    stat = told(bench)
    assert stat[b"wait-p50"] == stat[b"processing-p99"] == -1
    assert stat[b"wait-recent"] == stat[b"processing-total"] == []


def test_the_percentiles_are_those_of_the_last_minutes(bench: Bench) -> None:
    bench.add()
    bench.now += 100_000
    bench.get()
    bench.now += 2 * WINDOW
    bench.add()
    bench.get()
    stat = told(bench)
    assert stat[b"wait-p99"] == 1
    assert sum(stat[b"wait-recent"]) == 1
    assert sum(stat[b"wait-total"]) == 2
    bench.now += 2 * WINDOW
    stat = told(bench)
    assert (stat[b"wait-p99"], stat[b"wait-recent"]) == (-1, [])
    assert sum(stat[b"wait-total"]) == 2


def test_recent_goes_back_for_one_to_two_windows() -> None:
    taken = Times()
    for minute in range(21):
        taken.observe(1, minute * 60_000)
    assert 5 <= sum(taken.recent(20 * 60_000)) <= 11


def test_of_very_many_only_some_are_observed_and_stand_for_all(bench: Bench) -> None:
    most = EXACT + 40 * STEP
    for _ in range(most):
        bench.add()
        bench.get()
    found = sum(told(bench)[b"wait-total"])
    assert most - STEP < found <= most
    bench.now += WINDOW  # the next ones are all observed again
    for _ in range(STEP + 20):
        bench.add()
        bench.get()
    assert sum(told(bench)[b"wait-total"]) >= found + 20


def test_times_without_end_are_in_the_last_range() -> None:
    taken = Times()
    taken.observe(1 << 60, 0)
    assert len(taken.total) == 31
    assert taken.total[30] == 1


def test_the_times_of_nodes_add_up() -> None:
    mesh = Mesh(3)
    for index in (0, 1, 2):
        mesh.add(index, "REPLICATE", 1)
    mesh.advance(1)
    for index in (0, 1, 2):
        assert mesh[index].get("q")
    stats = [told(bench)[b"wait-total"] for bench in mesh.nodes]
    assert sum(merge(*stats)) == 3


def test_the_metrics_count_the_same(bench: Bench) -> None:
    metrics = JobCounts(100)
    bench.node.notes.count(metrics)
    ids = [bench.add() for _ in range(5)]
    for id in ids:
        bench.get()
        bench("NACK", id)
        bench.get()
    bench("ACKJOB", *ids)
    own = metrics.of(b"q")
    there = {"added": own.added, "delivered": own.delivered, "acked": own.acked}
    assert counts(bench) == there == {"added": 5, "delivered": 10, "acked": 5}
