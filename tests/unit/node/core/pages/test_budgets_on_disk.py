"""Budgets of users while jobs lie on disk: these count as much as in memory."""

from random import Random

import pytest

from disque_trio.node.core.jobs.job import JOB_OVERHEAD
from tests.support.paged import PagedBench


def declare(bench: PagedBench) -> None:
    bench("ACL", "SETUSER", "shop", "on", "nopass", "~shop.*", "+@all", "%maxmemory=100mb")


def memory(bench: PagedBench) -> int:
    """What counts for the user."""
    return bench.node.budgets.used_by(bench.node.users.by_name[b"shop"])["memory"]


def test_jobs_on_disk_count_until_they_end() -> None:
    bench = PagedBench(above=1)
    declare(bench)
    ids = [bench.add("shop.a", "x" * 100) for _ in range(100)]
    bench.add("other", "x")
    bench.settle()
    assert bench.pages.jobs > 50
    assert memory(bench) == 100 * (JOB_OVERHEAD + 100)
    on_disk = [id for id in ids if bench.node.paging.knows(id)]
    assert bench("ACKJOB", *on_disk[:20]) == 20
    assert memory(bench) == 80 * (JOB_OVERHEAD + 100)
    taken = bench.get_all("shop.a", count=100)
    assert len(taken) == 80
    assert memory(bench) == 80 * (JOB_OVERHEAD + 100)
    bench("ACKJOB", *taken)
    bench.settle()
    assert memory(bench) == 0


def test_jobs_that_are_lost_do_not_count() -> None:
    bench = PagedBench(above=1)
    bench.node.journaling = True
    declare(bench)
    ids = [bench.add("shop.a", "x" * 100) for _ in range(100)]
    bench.settle()
    on_disk = [id for id in ids if bench.node.paging.knows(id)]
    bench.files = dict.fromkeys(bench.files, b"damaged")
    bench.lost = set(on_disk[10:20])
    assert len(bench.get_all("shop.a", count=100)) == 90
    bench.settle()
    assert bench.pages.lost == 10
    assert memory(bench) == 90 * (JOB_OVERHEAD + 100)


@pytest.mark.parametrize("seed", range(20))
def test_jobs_move_while_they_are_counted_for_the_first_time(seed: int) -> None:
    rng = Random(seed)
    bench = PagedBench(seed, above=1, late=seed)
    held = {bench.add("shop.a", "x" * size): size for size in range(200)}
    bench.settle()
    declare(bench)
    while bench.node.budgets.busy:
        bench.node.budgets.go_on()
        match rng.randrange(4):
            case 0:
                bench.pages.above = rng.choice([1, 1 << 40])
                bench.turn()
            case 1:
                id = rng.choice(list(held))
                assert bench("ACKJOB", id) == 1
                del held[id]
            case 2:
                bench("SHOW", rng.choice(list(held)))
            case 3:
                size = rng.randrange(100)
                held[bench.add("shop.a", "x" * size)] = size
    bench.settle()
    assert bench.pages.jobs
    assert memory(bench) == sum(held.values()) + JOB_OVERHEAD * len(held)
