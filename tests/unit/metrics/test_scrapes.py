"""Scrapes: shared, in slices, and never two at once."""

import gzip
from collections.abc import Iterator
from http import HTTPStatus

import pytest
import trio
import trio.testing

from disque_trio.metrics.scrapes import Scrapes
from disque_trio.metrics.sheet import Sheet
from disque_trio.metrics.web import Reply, Request


class Source:
    """Counts its calls. ``works`` is the number of steps that each takes."""

    def __init__(self, steps: int = 3) -> None:
        self.steps = steps
        self.asked = 0
        self.fails = False

    def collect(self, sheet: Sheet) -> Iterator[None]:
        self.asked += 1
        if self.fails:
            raise RuntimeError("it fails")
        gauge = sheet.gauge("asked", "How often", self.asked)
        for step in range(self.steps):
            gauge.add(step, f'step="{step}"')
            yield


def request(**headers: str) -> Request:
    return Request("GET", "/metrics", {name.replace("_", "-"): headers[name] for name in headers})


def text(reply: Reply) -> str:
    assert reply.status == HTTPStatus.OK
    return b"".join(reply.chunks).decode()


async def test_a_later_request_gets_later_figures() -> None:
    source = Source()
    scrapes = Scrapes("disque", [source])
    assert "asked 1\n" in text(await scrapes.page(request()))
    second = text(await scrapes.page(request()))
    assert "asked 2\n" in second
    assert "disque_metrics_scrapes_total 2\n" in second


async def test_a_hundred_concurrent_requests_share_one_collection() -> None:
    source = Source(steps=50_000)
    scrapes = Scrapes("disque", [source])
    pages: list[Reply] = []

    async def scrape() -> None:
        pages.append(await scrapes.page(request()))

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(scrape)
    assert source.asked == 1
    assert len({text(reply) for reply in pages}) == 1
    assert len(pages) == 100


async def test_other_tasks_run_during_a_collection() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await Scrapes("disque", [Source(steps=100_000)]).page(request())
        assert turns > 10
        nursery.cancel_scope.cancel()


async def test_a_failed_scrape_does_not_prevent_the_next() -> None:
    source = Source()
    scrapes = Scrapes("disque", [source])
    source.fails = True
    with pytest.raises(RuntimeError):
        await scrapes.page(request())
    source.fails = False
    assert "asked 2\n" in text(await scrapes.page(request()))


async def test_each_request_gets_its_format() -> None:
    scrapes = Scrapes("disque", [Source()])
    zipped = await scrapes.page(request(accept_encoding="gzip, deflate"))
    assert zipped.encoding == "gzip"
    assert b"asked 1\n" in gzip.decompress(b"".join(zipped.chunks))
    openly = await scrapes.page(request(accept="application/openmetrics-text"))
    assert text(openly).endswith("# EOF\n")
    assert openly.encoding == ""
