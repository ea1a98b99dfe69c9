"""Where the jobs of a node are after a kill, or a stop, and a start."""

import pytest

from disque_trio.protocol.progress import (
    MAGIC,
    JobEnding,
    JobProgress,
    pack_block,
    pack_ending,
    pack_job,
    pack_taken,
    pack_time,
)
from tests.support.consumers import consumer, pushed
from tests.support.node_bench import Bench
from tests.support.policies import set_policy
from tests.support.recovered import End, Files, ends, restarted, waits


@pytest.fixture
def bench() -> Bench:
    return Bench(1, jitter=0)


@pytest.mark.parametrize("time", [-(2**63), -1, 2**48 + 1, 2**63 - 1])
@pytest.mark.parametrize("state", [1, 2, 255])
def test_what_is_in_no_clock_and_no_release_is_not_known(
    bench: Bench, time: int, state: int
) -> None:
    files = Files(bench)
    id, ended = bench.add("q", "body", "RETRY", 100), b"D-00000000-" + b"e" * 24 + b"-05a1"
    files.kill()
    known = JobProgress(state, 0xFFFF, time, time, 65535, 65535)
    endings = [pack_ending(JobEnding(ended, kind, 2**63 - 1, b"x")) for kind in (0, 7, 255)]
    files.progress.append(pack_block([pack_time(time), pack_job(id, known), *endings]))
    files.progress.append(pack_taken([id], time))
    again = restarted(bench, files)
    assert again.node.store.jobs.get(id) is not None
    reply = again.fields("SHOW", id, "CLIENT")
    assert all(abs(value) < 2**62 for value in reply.values() if isinstance(value, int))
    waiting = again.client()
    again.send(waiting, "WAITJOB", 1000, ended, id)
    again.advance(101)
    assert again.get() == id
    assert again("ACKJOB", id) == 1
    assert again.replies(waiting) == [[[ended, b"gone", None], [id, b"pending", None]]]


@ends
def test_what_nobody_had_is_queued_at_once_in_its_order(bench: Bench, end: End) -> None:
    files = Files(bench)
    ids = [bench.add("q", "body", "RETRY", 300 * (n % 2)) for n in range(6)]
    end(files)
    again = restarted(bench, files)
    assert [again.get() for _ in ids] == ids
    assert not again.node.progress.waiting
    assert again.show(ids[1])[b"additional-deliveries"] == 0


@ends
def test_a_delivered_job_waits_for_the_rest_of_its_retry_time(bench: Bench, end: End) -> None:
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 100)
    bench.advance(10)
    assert bench.get() == id
    end(files)
    again = restarted(bench, files, 20)
    assert again.number_queued() == 0
    assert waits(again, id) == pytest.approx(70, abs=0.1)
    again.advance(69)
    assert again.number_queued() == 0
    again.advance(2)
    assert again.get() == id
    assert again.show(id)[b"additional-deliveries"] == 1


@ends
def test_a_job_whose_client_is_gone_comes_back_as_soon_as_it_would_have(
    bench: Bench, end: End
) -> None:
    files = Files(bench)
    client = consumer(bench, "q", "CREDIT", 2, "ONLOSS", "soon")
    first, second = (bench.add("q", "body", "RETRY", 100) for _ in range(2))
    assert pushed(bench, client) == [first, second]
    bench.advance(3)
    bench.disconnect(client)
    assert bench("WORKING", second) == 100
    end(files)
    again = restarted(bench, files, 0.5)
    again.advance(1.3)
    assert again.get_all() == []
    again.advance(0.3)
    assert again.get_all() == [first]
    assert waits(again, second) == pytest.approx(98, abs=0.2)


@ends
def test_a_job_delivered_late_waits_for_a_whole_retry_time(bench: Bench, end: End) -> None:
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 100)
    bench.advance(80)
    assert bench.get() == id
    end(files)
    assert waits(restarted(bench, files, 10), id) == pytest.approx(90, abs=0.1)


@ends
@pytest.mark.parametrize(("retry", "again_after"), [(0, None), (1, 3), (2, 4)])
def test_only_what_may_be_delivered_again_is(
    bench: Bench, end: End, retry: int, again_after: int | None
) -> None:
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", retry, "REPLICATE", 1)
    assert bench.get() == id
    end(files)
    again = restarted(bench, files)
    assert again.get() is None
    again.advance(again_after or 100)
    assert again.get() == (None if again_after is None else id)


@ends
def test_a_worker_that_says_that_it_works_keeps_its_time(bench: Bench, end: End) -> None:
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 100)
    assert bench.get() == id
    bench.advance(60)
    assert bench("WORKING", id) == 100
    end(files)
    assert waits(restarted(bench, files, 10), id) == pytest.approx(90, abs=0.1)


@ends
def test_a_job_whose_time_ended_meanwhile_is_queued_and_counted(bench: Bench, end: End) -> None:
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 100)
    assert bench.get() == id
    end(files)
    again = restarted(bench, files, 500)
    again.advance(0.1)
    assert again.get() == id
    assert again.show(id)[b"additional-deliveries"] == 1


@ends
def test_a_pause_goes_on(bench: Bench, end: End) -> None:
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 5)
    assert bench.get() == id
    assert bench("NACK", id, "DELAY", 600, "REASON", "why") == 1
    end(files)
    again = restarted(bench, files, 100)
    assert waits(again, id) == pytest.approx(500, abs=0.1)
    assert again.show(id)[b"last-reason"] == b"why"
    again.advance(501)
    assert again.get() == id
    assert again.show(id)[b"nacks"] == 1


@ends
def test_a_clock_that_was_set_back_makes_no_pause_longer(bench: Bench, end: End) -> None:
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 5)
    assert bench.get() == id
    assert bench("NACK", id, "DELAY", 600) == 1
    bench.advance(100)
    end(files)
    left = 500 if end is Files.stop else 600  # who is killed has noted only how it began
    again = restarted(bench, files, -3600)
    assert waits(again, id) == pytest.approx(left, abs=0.1)
    end(files)
    assert waits(restarted(again, files, -3600), id) == pytest.approx(left, abs=0.1)


@ends
def test_a_job_that_came_back_is_queued_and_its_counters_stay(bench: Bench, end: End) -> None:
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 5)
    for _ in range(2):
        assert bench.get() == id
        bench.advance(6)
    assert bench.get() == id
    assert bench("NACK", id) == 1
    end(files)
    again = restarted(bench, files)
    assert again.get() == id
    shown = again.show(id)
    assert (shown[b"nacks"], shown[b"additional-deliveries"]) == (1, 2)


@ends
def test_a_job_taken_out_of_its_queue_stays_out(bench: Bench, end: End) -> None:
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 100)
    assert bench("DEQUEUE", id) == 1
    end(files)
    again = restarted(bench, files)
    assert again.number_queued() == 0
    assert waits(again, id) == pytest.approx(99, abs=0.1)


@ends
def test_attempts_are_not_forgotten(bench: Bench, end: End) -> None:
    set_policy(bench, attempts=2, dead=b"dead")
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 5)
    assert bench.get() == id
    assert bench("NACK", id) == 1
    end(files)
    again = Bench(7, id=bench.node.id, jitter=0)
    set_policy(again, attempts=2, dead=b"dead")
    again.now = bench.now
    files.start(again)
    assert again.get() == id
    assert again("NACK", id) == 1
    assert again.number_queued("dead") == 1


@ends
def test_at_most_once_is_only_queued_if_every_delivery_is_known(bench: Bench, end: End) -> None:
    files = Files(bench)
    queued, taken, delayed = (bench.add("q", "body", "RETRY", 0) for _ in range(3))
    later = bench.add("q", "body", "RETRY", 0, "DELAY", 50)
    assert bench.get() == queued
    end(files)
    exact = Bench(7, id=bench.node.id, jitter=0)
    exact.now = bench.now
    files.start(exact)
    assert [exact.get(), exact.get(), exact.get()] == [taken, delayed, None]
    exact.advance(51)
    assert exact.get() == later


def test_at_most_once_is_not_queued_if_a_delivery_may_be_lost(bench: Bench) -> None:
    files = Files(bench)
    bench.add("q", "body", "RETRY", 0)
    files.kill()
    again = Bench(7, id=bench.node.id, jitter=0)
    again.now = bench.now
    files.start(again, complete=False)
    assert again.get() is None


def test_what_is_not_known_once_is_not_known_after_the_next_start_either(bench: Bench) -> None:
    files = Files(bench)
    bench.add("q", "body", "RETRY", 0)
    files.kill()
    again = Bench(7, id=bench.node.id, jitter=0)
    again.now = bench.now
    files.start(again, complete=False)
    files.stop()  # what a start writes as well
    third = Bench(8, id=bench.node.id, jitter=0)
    third.now = bench.now
    assert files.start(third).get() is None


def test_an_attempt_counts_only_once_its_reply_has_left(bench: Bench) -> None:
    set_policy(bench, attempts=1, dead=b"dead")
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 100)
    bench.send(bench.me, "GETJOB", "FROM", "q")
    bench.node.commit()  # the node dies before the reply leaves
    again = Bench(7, id=bench.node.id, jitter=0)
    set_policy(again, attempts=1, dead=b"dead")
    again.now = bench.now
    files.start(again)
    assert again.get() is None  # somebody may have it
    again.advance(101)
    assert again.get() == id


def test_a_job_is_not_delivered_again_even_if_the_node_dies_with_the_reply(bench: Bench) -> None:
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 100)
    bench.send(bench.me, "GETJOB", "FROM", "q")
    bench.node.commit()
    again = restarted(bench, files)
    assert again.get() is None
    assert waits(again, id) == pytest.approx(99, abs=0.1)


def test_after_a_flush_no_notes_are_written(bench: Bench) -> None:
    files = Files(bench)
    id = bench.add()
    files.kill()
    bench("DEQUEUE", id)
    bench("DEBUG", "FLUSHALL")
    before = list(files.progress)
    files.kill()
    assert files.progress == before


def test_what_is_not_queued_yet_is_counted_until_it_is(bench: Bench) -> None:
    files = Files(bench)
    ids = [bench.add("q", "body", "RETRY", 100) for _ in range(4)]
    records = b"".join(files.records)
    again = Bench(7, id=bench.node.id, jitter=0)
    again.now = again.node.now = bench.now
    at, _, jobs = again.node.load_usual(records, 0, 100, False)
    again.node.recovery.finish()
    assert (at, jobs) == (len(records), 4)
    waiting = again.node.progress.waiting
    assert sorted(waiting) == sorted(ids)
    assert again("ENQUEUE", ids[0]) == 1
    assert again("ACKJOB", ids[1]) == 1
    assert again("DELJOB", ids[2]) == 1
    assert list(waiting) == [ids[3]]
    again.advance(101)
    assert not waiting


@pytest.mark.parametrize("own", [True, False])
def test_what_is_not_queued_yet_is_also_counted_if_the_node_ends_again(
    bench: Bench, own: bool
) -> None:
    """``own``: the node has made the job, or had it in its queue."""
    files = Files(bench)
    id = bench.add("q", "body", "RETRY", 100)
    again = Bench(7, id=bench.node.id if own else b"b" * 40, jitter=0)
    again.now = again.node.now = bench.now
    again.node.load_usual(b"".join(files.records), 0, 100, False)
    again.node.recovery.finish()
    assert list(again.node.progress.waiting) == [id]
    jobs = list(again.node.store.jobs.values())
    files.progress.append(pack_block(again.node.progress.records_of(jobs)))
    again = restarted(again, files, 20)
    assert list(again.node.progress.waiting) == [id]
    assert waits(again, id) == pytest.approx(80, abs=0.1)
    again.advance(81)
    assert again.get() == id
    assert not again.node.progress.waiting


def test_a_wrong_clock_at_a_start_brings_no_at_most_once_job_back(bench: Bench) -> None:
    files = Files(bench)
    id = bench.add("q", "once", "RETRY", 0, "TTL", 30)
    assert len(files.records) == 1
    assert bench.get() == id
    bench.node.journal.clear()  # the machine dies, and loses that it was delivered
    files.progress[:] = [MAGIC]
    wrong = Bench(7, id=bench.node.id, jitter=0)
    wrong.now = bench.now + 60_000
    files.start(wrong, complete=False)
    assert not wrong.held(id)
    wrong.node.cron(wrong.now)
    right = Bench(7, id=bench.node.id, jitter=0)
    right.now = bench.now + 1000
    files.start(right)
    assert right.get() is None
