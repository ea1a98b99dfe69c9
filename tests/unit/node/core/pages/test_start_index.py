"""A start with the index has the same effect as one that reads the whole append-only file, after
any history, and whatever happens next."""

from typing import Any

import pytest

from tests.support.paged import PagedBench
from tests.support.stopped import Stopped
from tests.unit.node.core.pages.test_same_replies import Pair, without_times

SLOW_SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 60)]


def facts(bench: PagedBench, ids: list[bytes]) -> dict[str, Any]:
    """All that clients and operators can find out about ``bench`` without changing it."""
    found: dict[str, Any] = {}
    for queue in ("a", "b"):
        for count in (1000, -1000):
            found[f"QPEEK {queue} {count}"] = without_times(bench("QPEEK", queue, count))
        stat = bench("QSTAT", queue, "FULL")
        if stat is not None:
            pairs = dict(zip(stat[::2], stat[1::2], strict=True))
            for name in (b"jobs-paged", b"jobs-in", b"jobs-out", b"age"):  # what the file says
                pairs.pop(name)
            found[f"QSTAT {queue}"] = pairs
    jobs = bench("JSCAN", "BUSYLOOP", "REPLY", "all")[1]
    found["JSCAN"] = sorted([repr(without_times(job)) for job in jobs])
    for id in ids:
        found[f"SHOW {id!r}"] = without_times(bench("SHOW", id))
        found[f"WAIT {id!r}"] = str(bench("RESULT", id))
    keys = bench.node.store.uniques.entries.values()
    found["keys"] = sorted((one.queue, one.key, one.id, one.until, one.lasts) for one in keys)
    found["held"] = bench.node.held()
    return found


def drained(bench: PagedBench) -> list[Any]:
    """All jobs as they come, with time between."""
    found: list[Any] = []
    for _ in range(4):
        for queue in ("a", "b"):
            while reply := bench("GETJOB", "NOHANG", "COUNT", 7, "WITHCOUNTERS", "FROM", queue):
                found += reply
                bench("ACKJOB", *[job[1] for job in reply])
                bench.settle()
        found.append(None)
        bench.advance(97.3)
        bench.settle()
    return found


def history(seed: int, steps: int = 60) -> Pair:
    pair = Pair(seed)
    for _ in range(steps):
        pair.step()
    forget_odd(pair.paged)
    return pair


def forget_odd(bench: PagedBench) -> None:
    """Delete the jobs of which a start without index does not know all: those that are queued in
    spite of their delays, and at-most-once jobs that were put back, or taken out of their
    queue."""
    for job in bench("JSCAN", "BUSYLOOP", "REPLY", "all")[1]:
        about = dict(zip(job[::2], job[1::2], strict=True))
        is_delayed = about[b"ctime"] // 1_000_000 + about[b"delay"] * 1000 > bench.now
        is_queued = about[b"state"] == b"queued"
        is_once = not about[b"retry"]
        if (is_delayed == is_queued and (is_queued or is_once)) or (is_once and about[b"nacks"]):
            bench("DELJOB", about[b"id"])
    bench.settle()


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *SLOW_SEEDS])
def test_a_start_with_the_index_is_as_one_without(seed: int) -> None:
    pair = history(seed)
    stopped = Stopped(pair.paged)
    full, fast = stopped.started(False), stopped.started(True)
    ids = list(dict.fromkeys(pair.ids))
    assert facts(fast, ids) == facts(full, ids)
    assert drained(fast) == drained(full)
    assert facts(fast, ids) == facts(full, ids)
