"""The figures of docs/sizing.md that follow from the sources."""

import re

import pytest

from tests.support import ROOT
from tests.support.node_bench import Bench

PAGE = (ROOT / "docs" / "sizing.md").read_text()
GIGABYTE = 1 << 30
NAME = "mail"


def figure(before: str, after: str) -> float:
    """The number between two texts of the page."""
    match = re.search(rf"{re.escape(before)} ([\d.,]+) {re.escape(after)}", PAGE)
    assert match, before
    return float(match[1].replace(",", ""))


def filled(body: int, count: int = 50) -> Bench:
    bench = Bench()
    bench.node.journaling = True
    for _ in range(count):
        bench.add(NAME, "x" * body)
    return bench


@pytest.mark.parametrize("body", [100, 10_000])
def test_a_job_takes_as_much_memory_as_the_page_says(body: int) -> None:
    one, many = filled(body, 1).node.memory.used, filled(body, 51).node.memory.used
    assert (many - one) / 50 == figure("against `maxmemory` |", "bytes and the body") + body


@pytest.mark.parametrize("body", [100, 10_000])
def test_a_job_takes_as_much_of_the_file_as_the_page_says(body: int) -> None:
    bench = filled(body)
    written = len(b"".join(bench.node.journal)) / 50
    told = figure("`disque.aof` |", "bytes, the name of the queue and the body") + len(NAME) + body
    assert written == pytest.approx(told, rel=0.02)


def test_the_end_of_a_job_takes_as_much_as_the_page_says() -> None:
    bench = filled(100)
    ids = bench.get_all(NAME)
    bench.node.journal.clear()
    assert bench("ACKJOB", *ids) == 50
    assert len(b"".join(bench.node.journal)) / 50 == figure("one of", "bytes for each that has")


def test_a_gigabyte_holds_as_many_jobs_as_the_page_says() -> None:
    overhead = figure("against `maxmemory` |", "bytes and the body")
    room = GIGABYTE * 0.75
    assert figure("holds", "million jobs of 100 bytes") * 1e6 == pytest.approx(
        room / (overhead + 100), rel=0.1
    )
    assert figure("or", "of 10 KB") == pytest.approx(room / (overhead + 10_000), rel=0.1)


def test_the_room_to_have_is_the_sum_of_what_is_there_at_once() -> None:
    file, new, pages = (
        r"just before the next one \| (\d) N \| (\d) N",
        r"during it, the new file \| N \| N",
        r"`pages/` \| +\| N",
    )
    assert re.search(file, PAGE)
    assert re.search(new, PAGE)
    assert re.search(pages, PAGE)
    without, with_paging = re.findall(r"\*\*(\d) N\*\*", PAGE)
    assert (int(without), int(with_paging)) == (2 + 1, 2 + 1 + 1)
