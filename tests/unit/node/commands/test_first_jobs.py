"""JSCAN FIRST, against a look at all jobs, and where jobs lie on disk."""

import random
from typing import Any

import pytest

from disque_trio.node.commands.first_jobs import READ, rank
from disque_trio.node.core.changes.state_counts import DEAD, STAGES, stage_of
from tests.support.node_bench import Bench
from tests.support.paged import PagedBench


def first(bench: Bench, state: str, count: int, *words: str | int) -> tuple[dict[str, int], Any]:
    """The counts of the lists, and the first jobs of one."""
    reply: Any = bench("JSCAN", "FIRST", count, "STATE", state, *words)
    names = [name.decode() for name in reply[0][::2]]
    return dict(zip(names, reply[0][1::2], strict=True)), reply[1]


def by_stage(bench: Bench, queue: str = "") -> dict[bytes, list[bytes]]:
    """The ids of the jobs in each stage, in order, from a look at all of them."""
    node = bench.node
    found: dict[bytes, list[Any]] = {stage: [] for stage in STAGES}
    for job in node.store.jobs.values():
        stage = stage_of(job, node.store.trailers, node.now)
        if stage and (not queue or job.queue == queue.encode()):
            found[stage].append((rank(job, stage), job.id))
    return {stage: [id for _, id in sorted(jobs)] for stage, jobs in found.items()}


def check(bench: Bench, queue: str = "", *words: str | int) -> None:
    there = by_stage(bench, queue)
    chosen = ["QUEUE", queue] if queue else []
    for stage in STAGES:
        for count in (0, 3, 1_000):
            counts, jobs = first(bench, stage.decode(), count, *chosen, *words)
            found = {name: counts[name.decode()] for name in STAGES}
            assert found == {name: len(ids) for name, ids in there.items()}
            assert jobs == there[stage][:count]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_the_lists_are_those_of_a_look_at_all_jobs(
    bench: Bench, seed: int
) -> None:
    rng = random.Random(seed)
    bench("QSET", "*", "DEAD", "letters", "ATTEMPTS", 4, *(("GROUPS", "fair") if seed % 2 else ()))
    taken: list[bytes] = []
    for _ in range(300):
        queue = rng.choice(("a", "b", "c"))
        step = rng.randrange(9)
        if step < 4:
            options: list[str | int] = []
            for words in (["DELAY", rng.randrange(1, 40)], ["PRIORITY", 5], ["GROUP", "g"],
                          ["HEADERS", 1, "task", "t"]):  # fmt: skip
                if rng.random() < 0.3:
                    options += words
            bench.add(queue, "body", *options)
        elif step == 4:
            taken += bench.get_all("a", "b", "c", "letters", count=rng.randrange(1, 5))
        elif step == 5 and taken:
            id = taken.pop(rng.randrange(len(taken)))
            more = rng.choice(([], ["DELAY", 20], ["DEAD"], ["DEAD", "REASON", "why"]))
            bench("NACK", id, *more)
        elif step == 6 and taken:
            bench("ACKJOB", taken.pop(rng.randrange(len(taken))))
        elif step == 7:
            bench.advance(rng.choice((1, 5, 30)))
        elif taken:
            bench(rng.choice(("ENQUEUE", "WORKING", "DELJOB")), rng.choice(taken))
        if rng.random() < 0.1:
            check(bench)
            check(bench, queue)
    check(bench)
    check(bench, "letters")
    check(bench, "", "MINAGE", 0)  # then each job is looked at


def test_few_jobs_of_a_long_queue_are_looked_at(bench: Bench) -> None:
    for number in range(20_000):
        bench.add(f"q{number % 10}")
    taken = bench.get_all("q3", count=3)
    for state in ("fresh", "running", "retrying", "dead"):
        bench.send(bench.me, "JSCAN", "FIRST", 50, "STATE", state)
        turns = 1
        while bench.me.in_slices:
            turns += 1
            bench.node.batches.waiting[0].step(bench.node.batches.size)
            bench.finish(bench.me)
        assert turns < 6
        [[counts, jobs]] = bench.replies(bench.me)  # type: ignore[misc]
        assert counts[:4] == [b"fresh", 19_997, b"running", 3]
        assert len(jobs) == {"fresh": 50, "running": 3}.get(state, 0)
    assert first(bench, "running", 5)[1] == taken


def paged(count: int) -> tuple[PagedBench, list[bytes]]:
    """A node with jobs on disk, in segments of 8."""
    bench = PagedBench(above=1, jitter=0)
    ids = [bench.add("q") for _ in range(count)]
    for _ in range(4):
        bench.settle()
    assert bench.pages.jobs > count // 2
    return bench, ids


def test_the_first_jobs_are_read_if_they_lie_on_disk() -> None:
    bench, ids = paged(200)
    on_disk = bench.pages.jobs
    counts, jobs = first(bench, "fresh", 20)
    assert jobs == ids[:20]
    assert (counts["fresh"], counts["on-disk"]) == (200, on_disk)
    assert 0 < on_disk - counts["on-disk-unread"] <= READ * 8
    assert bench.pages.jobs == on_disk  # they stay there
    # Of more than it reads, it tells how many there are.
    counts, jobs = first(bench, "fresh", 200)
    assert counts["fresh"] == 200
    assert len(jobs) == 200 - counts["on-disk-unread"] > 200 - on_disk
    counts, jobs = first(bench, "running", 5)
    assert (counts["running"], counts["on-disk-unread"], jobs) == (0, 0, [])


def test_a_search_says_what_it_did_not_look_at_on_disk() -> None:
    bench, ids = paged(200)
    counts, jobs = first(bench, "fresh", 300, "BODY", "body")
    assert counts["fresh"] == len(jobs) == 200 - counts["on-disk-unread"]
    assert set(jobs) <= set(ids)
    counts, jobs = first(bench, "fresh", 300, "QUEUE", "other")
    assert (counts["fresh"], counts["on-disk-unread"], jobs) == (0, 0, [])


def test_delayed_jobs_and_letters_on_disk_are_listed() -> None:
    bench = PagedBench(above=1 << 30, jitter=0)
    late = [bench.add("q", "b", "DELAY", 100 + number) for number in range(60)]
    bench("QSET", "work", "DEAD", "letters")
    jobs = [bench.add("work") for _ in range(60)]
    bench.get_all("work", count=60)
    for id in jobs:
        bench("NACK", id, "DEAD")
    letters = by_stage(bench)[DEAD]
    bench.advance(2)
    bench.node.paging.set_above(1)
    for _ in range(20):
        bench.settle()
    assert bench.pages.jobs > 80
    for stage, ids in (("delayed", late), ("dead", letters)):
        counts, found = first(bench, stage, 10)
        assert (counts["delayed"], counts["dead"], counts["fresh"]) == (60, 60, 0)
        assert found == ids[:10]
