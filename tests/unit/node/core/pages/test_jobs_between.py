"""Jobs that belong between those on disk go to disk as well; sparse segments are merged."""

import random
from itertools import pairwise

import pytest

from disque_trio.node.core.pages.segment import Segment
from tests.support.paged import PagedBench
from tests.support.paged_mesh import PagedMesh

SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40)]


def filled(count: int, size: int = 1, **more: int | None) -> tuple[PagedBench, list[bytes]]:
    bench = PagedBench(above=1, jitter=0, **more)
    bench.node.journaling = True
    ids = [bench.add("q", "b" * size) for _ in range(count)]
    bench.settle()
    return bench, ids


def line(bench: PagedBench) -> list[Segment]:
    """The segments of the queue."""
    paged = bench.node.queues.by_name[b"q"].paged
    return [] if paged is None else paged.all()


def overlaps(bench: PagedBench) -> int:
    """How many segments begin before the one ahead of them ends."""
    segments = line(bench)
    return sum(two.begin < one.end for one, two in pairwise(segments))


def take_all(bench: PagedBench) -> list[bytes]:
    found: list[bytes] = []
    while (id := bench.get()) is not None:
        found.append(id)
        bench.settle()
    return found


def change_some(bench: PagedBench, ids: list[bytes]) -> None:
    """Bring jobs of the middle into memory, and change them so that they do not fit their places
    there."""
    for id in ids:
        bench("UPDATEJOB", id, "BODY", "other")
        bench.advance(0.1)
    bench.settle()
    bench.advance(2.5)
    bench.settle()


def test_jobs_between_those_on_disk_go_there_too() -> None:
    bench, ids = filled(400)
    change_some(bench, ids[40:360:4])
    assert overlaps(bench)
    assert len(ids) - bench.pages.jobs < 60
    assert bench.node.memory.used == bench.counted_memory() + bench.pages.taken
    assert bench.ids(bench("QPEEK", "q", 1000)) == ids
    assert bench.ids(bench("QPEEK", "q", -1000)) == ids[::-1]
    assert bench.ids(bench("QPEEK", "q", 150)) == ids[:150]
    assert bench.ids(bench("QPEEK", "q", -150)) == ids[:-151:-1]
    assert sorted(bench("JSCAN", "BUSYLOOP")[1]) == sorted(ids)
    assert take_all(bench) == ids
    assert (bench.pages.jobs, bench.pages.taken, bench.files) == (0, 0, {})


def test_they_are_purged_and_moved_in_their_order() -> None:
    bench, ids = filled(400)
    change_some(bench, ids[40:360:4])
    assert overlaps(bench)
    assert bench("QMOVE", "q", "other", "COUNT", 120) == 120
    assert sorted(bench.ids(bench("QPEEK", "other", 1000))) == sorted(ids[:120])
    assert bench("QPURGE", "q") == 280
    bench.settle()
    assert bench.number_queued() == 0


def test_a_change_of_many_jobs_reads_and_writes_in_proportion() -> None:
    bench, ids = filled(2000)
    reads, last = bench.pages.reads, max(bench.pages.segments)
    change_some(bench, ids[40:1960:10])
    assert bench.pages.reads - reads <= 192 + 20
    assert max(bench.pages.segments) - last < 60
    last, reads = max(bench.pages.segments), bench.pages.reads
    assert take_all(bench) == ids
    assert bench.pages.reads - reads < 350
    assert bench.pages.begin(b"q", 0, 0).number - last < 20


def test_jobs_taken_over_from_a_dead_node_go_to_disk() -> None:
    mesh = PagedMesh(2, jitter=0)
    mesh.stop_paging(0)
    mesh.send_to_disk(1)
    ids: list[bytes] = []
    for number in range(300):
        ids.append(mesh.add(number % 2, "REPLICATE", 2, "RETRY", 20))
        if number % 10 == 0:
            mesh.advance(0.01)
    mesh.advance(1.5)
    mesh.settle()
    mesh.isolate(0)
    mesh.advance(60)
    bench = mesh[1]
    assert bench.number_queued() == 300
    queue = bench.node.queues.by_name[b"q"]
    assert queue.on_disk() > 240
    found: list[bytes] = []
    while (id := bench.get()) is not None:
        found.append(id)
    assert sorted(found) == sorted(ids)
    assert [int(bench.show(id)[b"ctime"]) for id in found] == sorted(
        int(bench.show(id)[b"ctime"]) for id in found
    )


def test_sparse_segments_next_to_each_other_are_merged() -> None:
    bench, ids = filled(800)
    files = len(bench.files)
    left = [id for at, id in enumerate(ids) if at % 8 == 3 or at < 40 or at > 760]
    gone = [id for id in ids if id not in set(left)]
    random.Random(1).shuffle(gone)
    for at in range(0, len(gone), 10):
        assert bench("ACKJOB", *gone[at : at + 10])
        bench.settle()
    bench.advance(3)
    bench.settle()
    assert len(bench.files) < files // 3
    assert len(left) - bench.pages.jobs < 70
    assert take_all(bench) == left


def test_acknowledging_in_order_merges_nothing() -> None:
    bench, ids = filled(800)
    reads = bench.pages.reads
    for at in range(0, 720, 3):
        assert bench("ACKJOB", *ids[at + 40 : at + 43]) == 3
        bench.settle()
    assert bench.pages.reads - reads <= 3


def test_small_jobs_behind_large_ones_do_not_come_and_go() -> None:
    bench = PagedBench(above=1, jitter=0, most=64)
    bench.pages.most_bytes = 10_000
    ids = [bench.add("q", "b" * (5000 if number < 4 else 1)) for number in range(400)]
    bench.settle()
    assert bench.pages.jobs > 200
    reads = bench.pages.reads
    for _ in range(10):
        bench.advance(1)
        bench.settle()
    assert bench.pages.reads - reads <= 2
    assert take_all(bench) == ids


@pytest.mark.parametrize("seed", [0, 1, *SEEDS])
def test_whatever_changes_jobs_are_found_in_their_order(seed: int) -> None:
    rng = random.Random(seed)
    bench, ids = filled(rng.choice((60, 300)), most=rng.choice((2, 4, 8)), late=seed % 2 or None)
    for _ in range(30):
        what = rng.randrange(6)
        if what == 0:
            ids += [
                bench.add("q", "b" * rng.choice((1, 1, 2000))) for _ in range(rng.choice((1, 30)))
            ]
        elif what == 1:
            change_some(bench, rng.sample(ids, len(ids) // 10))
        elif what == 2:
            gone = set(rng.sample(ids, len(ids) // rng.choice((3, 20))))
            assert bench("ACKJOB", *gone) == len(gone)
            ids = [id for id in ids if id not in gone]
        elif what == 3:
            count = rng.randrange(1, 30)
            assert [bench.get() for _ in range(min(count, len(ids)))] == ids[:count]
            ids = ids[count:]
        elif what == 4:
            bench.advance(rng.choice((0.1, 3)))
            bench.settle()
        else:
            count = rng.randrange(1, 400)
            assert bench.ids(bench("QPEEK", "q", count)) == ids[:count]
            assert bench.ids(bench("QPEEK", "q", -count)) == ids[: -count - 1 : -1]
        assert bench.number_queued() == len(ids)
        if len(ids) < 10:
            break
    bench.settle()
    assert sorted(bench("JSCAN", "BUSYLOOP", "STATE", "queued")[1]) == sorted(ids)
    assert take_all(bench) == ids


def test_a_queue_that_gets_groups_keeps_the_order() -> None:
    bench, ids = filled(400)
    bench.node.paging.set_above(None)
    change_some(bench, ids[40:360:4])
    assert bench("QSET", "q", "GROUPS", "fair")
    bench.settle()
    assert take_all(bench) == ids
