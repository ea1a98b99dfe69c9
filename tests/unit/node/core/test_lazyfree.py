"""A flush replies at once, and the memory is freed in steps."""

import sys

from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.store import FREED_AT_ONCE, LazyFree
from tests.support.node_bench import Bench

MANY = 3 * FREED_AT_ONCE


def make_jobs(count: int) -> list[Job]:
    return [Job(b"%040d" % number, b"q", b"", 1, number, 0, 0, 0) for number in range(count)]


def test_a_flushed_node_is_empty_at_once_and_wants_to_free_the_rest(bench: Bench) -> None:
    id = bench.add("q", "kept alive by the test")
    job = bench.node.store.jobs.get(id)
    assert job is not None
    for number in range(MANY):
        bench.add(f"q{number % 3}", "body", "RETRY", 0 if number % 2 else 300)
    held = sys.getrefcount(job)
    assert bench("DEBUG", "FLUSHALL") == b"OK"
    assert bench.node.held() == bench("QLEN", "q") == bench.node.memory.used == 0
    steps = 0
    while bench.node.next_wake():
        assert bench.node.next_wake() <= bench.now
        bench.node.tick(bench.now)
        steps += 1
    assert 2 <= steps <= 20
    assert sys.getrefcount(job) < held


def test_jobs_that_are_added_while_a_flush_is_freed_are_as_all_others(bench: Bench) -> None:
    for _ in range(MANY):
        bench.add("q")
    bench("DEBUG", "FLUSHALL")
    id = bench.add("q", "new", "DELAY", 5)
    other = bench.add("q", "other")
    while 0 < bench.node.next_wake() <= bench.now:
        bench.node.tick(bench.now)
    assert bench.get() == other
    assert bench("ACKJOB", other) == 1
    bench.advance(6)
    assert bench.get() == id
    assert bench.node.held() == 1


def test_a_small_flush_is_done_at_once(bench: Bench) -> None:
    for number in range(100):
        bench.add(f"q{number}")
    bench("DEBUG", "FLUSHALL")
    assert bench.node.next_wake() == 0


def test_no_step_frees_more_than_it_may() -> None:
    jobs = make_jobs(1000)
    queue = Queue(b"q", 0)
    for job in jobs:
        queue.push(job)
    freeing = LazyFree()
    assert not freeing.free(10)
    freeing.add([jobs[:600], jobs[600:]], [{job.id: job for job in jobs}], [{b"q": queue}])
    job = jobs[0]
    jobs.clear()
    del queue
    before = sys.getrefcount(job)
    steps = 0
    while freeing.free(50):
        steps += 1
    # Each job exists three times.
    assert 3000 // 50 <= steps <= 3000 // 50 + 10
    assert before - sys.getrefcount(job) == 3


def test_trailers_of_flushed_jobs_are_freed_in_steps_as_well(bench: Bench) -> None:
    for _ in range(MANY):
        bench.add("q", "body", "HEADERS", 1, "n", "v")
    trailer = bench.node.store.trailers.of(next(iter(bench.node.store.jobs.values())))
    held = sys.getrefcount(trailer)
    assert bench("DEBUG", "FLUSHALL") == b"OK"
    assert sys.getrefcount(trailer) == held
    while bench.node.next_wake():
        bench.node.tick(bench.now)
    assert sys.getrefcount(trailer) == held - 1


def test_containers_count_as_much_as_what_is_in_them() -> None:
    jobs = make_jobs(20)
    freeing = LazyFree()
    freeing.add([[job] for job in jobs], [{job.id: job} for job in jobs], [])
    freeing.add([], [], [{b"q": Queue(b"q", 0)} for _ in range(20)])
    steps = 0
    while freeing.free(10):
        steps += 1
    assert steps == (20 + 20 + 20) * 2 // 10
