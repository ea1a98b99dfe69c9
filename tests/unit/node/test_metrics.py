"""The metrics of jobs and queues, collected while jobs and queues change."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from disque_trio.metrics.formats import Formats
from disque_trio.metrics.labels import label_value
from disque_trio.metrics.scrapes import write_page
from disque_trio.metrics.sheet import Sheet
from disque_trio.node.core.jobs.counts import JobCounts
from disque_trio.node.metrics import JobFigures, PagingFigures
from tests.support.node_bench import Bench
from tests.support.paged import PagedBench

Found = dict[str, dict[tuple[str, ...], float]]
"""Values by name and labels."""


def parse(sheet: Sheet) -> list[Metric]:
    chunks: list[bytes] = []
    for _ in write_page(sheet, Formats().of(""), chunks.append):
        pass
    return list(text_string_to_metric_families(b"".join(chunks).decode()))


def values(sheet: Sheet) -> Found:
    found: Found = {}
    for family in parse(sheet):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def figures_of(
    bench: Bench, most: int = 100, clock: Callable[[], float] = lambda: 0.0
) -> JobFigures:
    """The figures, for which no time passes unless ``clock`` says so."""
    counts = JobCounts(most)
    bench.node.notes.count(counts)
    return JobFigures(bench.node, counts, clock)


def scrape(figures: JobFigures) -> Found:
    sheet = Sheet()
    for _ in figures.collect(sheet):
        pass
    return values(sheet)


@pytest.fixture
def figures(bench: Bench) -> JobFigures:
    return figures_of(bench)


def test_a_queue_shows_its_jobs_by_state(bench: Bench, figures: JobFigures) -> None:
    bench.add("q")
    bench.add("q")
    bench.add("q", "body", "DELAY", 100)
    bench.get("q")
    bench("PAUSE", "q", "out")
    bench.block("q", "r")
    bench.now += 5_000
    bench.node.tick(bench.now)
    found = scrape(figures)
    assert found["disque_queue_jobs"] == {
        ("q", "queued"): 1,
        ("q", "active"): 1,
        ("q", "delayed"): 1,
        ("q", "dead"): 0,
        ("r", "queued"): 0,
        ("r", "active"): 0,
        ("r", "delayed"): 0,
        ("r", "dead"): 0,
    }
    assert found["disque_jobs"][("active",)] == found["disque_jobs"][("delayed",)] == 1
    assert found["disque_queue_oldest_job_age_seconds"] == {("q",): 5, ("r",): 0}
    assert found["disque_queue_paused"][("q", "out")] == 1
    assert found["disque_queue_paused"][("q", "in")] == 0
    assert found["disque_queue_blocked_clients"][("q",)] == 1
    assert found["disque_jobs_added_total"] == {("q",): 3, ("r",): 0}
    assert found["disque_job_wait_seconds_count"] == {("q",): 1}
    assert found["disque_queues"][()] == 2


def test_dead_letters_and_groups_are_seen(bench: Bench, figures: JobFigures) -> None:
    bench("QSET", "q", "DEAD", "letters", "ATTEMPTS", "1", "GROUPS", "fifo")
    for number in range(200):
        bench.add("q", "body", "GROUP", f"g{number}")
        bench.now += 1_000
    bench("NACK", bench.get("q") or b"")
    bench.node.tick(bench.now)
    found = scrape(figures)
    assert found["disque_queue_jobs"][("letters", "dead")] == 1
    assert found["disque_queue_jobs"][("q", "queued")] == 199
    assert found["disque_queue_oldest_job_age_seconds"][("q",)] == 199
    assert found["disque_jobs_dead_total"][("q",)] == 1


def test_all_that_is_not_shown_is_added_up(bench: Bench) -> None:
    figures = figures_of(bench, most=2)
    for queue in ("a", "b", "c", "d", "d", ""):
        bench.add(queue)
    bench.get("d")
    found = scrape(figures)
    assert found["disque_queue_jobs"][("", "queued")] == 3
    assert found["disque_queue_jobs"][("", "active")] == 1
    assert found["disque_jobs_added_total"] == {("a",): 1, ("b",): 1, ("",): 4}
    assert found["disque_queues_added_up"][()] == 3
    assert sum(found["disque_jobs_added_total"].values()) == 6


def test_a_queue_without_jobs_is_forgotten_and_another_takes_its_place(bench: Bench) -> None:
    figures = figures_of(bench, most=1)
    id = bench.add("a")
    bench.get("a")
    scrape(figures)
    bench.now += 400_000
    bench.evict_idle_queues()
    bench.add("b")
    # A client still has its job.
    assert scrape(figures)["disque_queue_jobs"][("a", "active")] == 1
    bench("ACKJOB", id)
    bench.add("b")
    found = scrape(figures)
    assert found["disque_jobs_added_total"] == {("",): 2} | {
        key: value for key, value in found["disque_jobs_added_total"].items() if key != ("",)
    }
    bench.evict_idle_queues()
    scrape(figures)
    bench.add("b")
    assert scrape(figures)["disque_jobs_added_total"][("b",)] == 1


def test_jobs_that_took_long_to_count_are_counted_again_only_after_a_while(bench: Bench) -> None:
    now, step = 100.0, 0.1

    def clock() -> float:
        nonlocal now
        now += step
        return now

    figures = figures_of(bench, clock=clock)
    bench.add("q")
    scrape(figures)  # the count took 0.1 s, so it will do for 2 s
    ended, step = now, 0
    for later, shown in ((0.5, 1), (1.5, 1), (2.5, 4), (2.6, 5)):
        bench.add("q")
        now = ended + later
        assert scrape(figures)["disque_jobs"][("queued",)] == shown


def test_hostile_names_of_queues_are_labels(bench: Bench, figures: JobFigures) -> None:
    names = [b'a"b', b"a\nb", b"a\\b", b"a\0b", b"\xff\xfe", b"x" * 65_000, b"{}", b'",state="x']
    for name in names:
        bench("ADDJOB", name, "body", "0")
    shown = {key[0] for key in scrape(figures)["disque_queue_blocked_clients"]}
    assert shown == {label_value(name) for name in names}


@pytest.mark.parametrize("seed", range(10))
def test_no_queue_is_there_twice_whatever_happens_meanwhile(seed: int) -> None:
    bench = Bench(seed)
    rng = random.Random(seed)
    figures = figures_of(bench, most=rng.choice((0, 5, 1_000)))
    ids: list[bytes] = []

    def something() -> None:
        queue = f"q{rng.randrange(60)}"
        what = rng.randrange(9)
        if what < 4:
            ids.append(bench.add(queue, "body", *rng.choice(((), ("DELAY", 9), ("RETRY", 0)))))
        elif what < 6:
            got = bench.get(queue)
            if got and rng.random() < 0.8:
                bench("ACKJOB", got)
        elif what == 6:
            bench.now += rng.choice((10, 1_000, 400_000))
            bench.advance(0)
        elif what == 7:
            bench.evict_idle_queues()
        elif rng.random() < 0.1:
            bench("DEBUG", "FLUSHALL")

    for _ in range(300):
        something()
    for _ in range(4):
        sheet = Sheet()
        for _ in figures.collect(sheet):
            if rng.random() < 0.3:
                something()
        for family in parse(sheet):
            keys = Counter((sample.name, *sample.labels.items()) for sample in family.samples)
            assert [key for key, count in keys.items() if count > 1] == []


def test_delayed_jobs_on_disk_are_delayed_jobs() -> None:
    bench = PagedBench(above=1)
    figures = figures_of(bench)
    for _ in range(100):
        bench.add("q", "body", "DELAY", 1_000)
        bench.advance(1)
    bench.settle()
    assert bench.pages.jobs > 50
    found = scrape(figures)
    assert found["disque_jobs"][("delayed",)] == found["disque_registered_jobs"][()] == 100
    assert found["disque_queue_jobs"][("q", "delayed")] == 100


def test_jobs_on_disk_are_queued_jobs() -> None:
    bench = PagedBench(above=1)
    figures = figures_of(bench)
    for _ in range(100):
        bench.add("q")
        bench.advance(1)
    bench.settle()
    pages = bench.pages
    assert pages.jobs > 50
    found = scrape(figures)
    assert found["disque_jobs"][("queued",)] == found["disque_registered_jobs"][()] == 100
    assert found["disque_queue_jobs"][("q", "queued")] == 100
    bench("GETJOB", "COUNT", 100, "FROM", "q")
    sheet = Sheet()
    for _ in PagingFigures(pages, lambda: (3, 10)).collect(sheet):
        pass
    told = values(sheet)
    assert told["disque_paging_jobs"][()] == pages.jobs
    assert told["disque_paging_index_bytes"][()] == pages.taken - pages.writing
    assert told["disque_paging_disk_free_bytes"][()] == 3
    assert told["disque_paging_write_ok"][()] == 1
    assert told["disque_paging_reads_total"][()] == pages.reads > 0
    bench("CONFIG", "RESETSTAT")
    assert pages.reads == 0
    pages.problem = "No space left on device"
    sheet = Sheet()
    for _ in PagingFigures(pages, lambda: (0, 10)).collect(sheet):
        pass
    assert values(sheet)["disque_paging_write_ok"][()] == 0
