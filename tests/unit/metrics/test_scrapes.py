"""Scrapes: shared, in slices, and never two at once."""

import gzip
import time
from collections.abc import Iterator
from http import HTTPStatus

import pytest
import trio
import trio.testing

from disque_trio.metrics import scrapes as module
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


# ---- what takes long ------------------------------------------------------------------------


class Slow(Source):
    """Takes ``cost`` seconds of CPU time, and waits for nobody."""

    def __init__(self, cost: float = 0.0) -> None:
        super().__init__(1)
        self.cost = cost

    def collect(self, sheet: Sheet) -> Iterator[None]:
        self.asked += 1
        if self.fails:
            raise RuntimeError("it fails")
        until = time.thread_time() + self.cost
        while time.thread_time() < until:
            yield
        sheet.gauge("slow", "How often", self.asked)


class Stuck(Slow):
    """Never ends unless ``open``."""

    open = False

    def collect(self, sheet: Sheet) -> Iterator[None]:
        while not self.open:
            yield
        yield from super().collect(sheet)


async def test_what_is_quick_after_all_is_collected_for_each_scrape(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slow = Slow()
    scrapes = Scrapes("disque", [Source()], slow=[slow])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrapes.keep)
        await trio.testing.wait_all_tasks_blocked()
        assert slow.asked == 1  # before anybody asked
        for count in (1, 2):
            before = slow.asked
            await trio.sleep(0.1)
            found = text(await scrapes.page(request()))
            assert int(found.split("\nslow ")[1].split()[0]) > before
            assert f"asked {count}\n" in found
            assert "disque_metrics_page_age_seconds 0.0\n" in found
        nursery.cancel_scope.cancel()


async def test_the_last_that_is_complete_is_shown_with_its_age(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slow = Slow(2 * module._LONG)
    scrapes = Scrapes("disque", [Source()], slow=[slow])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrapes.keep)
        while not slow.asked or scrapes._kept is None:
            await trio.lowlevel.checkpoint()
        ended = trio.current_time()
        await trio.sleep(30)
        assert slow.asked == 1  # nobody asked
        found = text(await scrapes.page(request()))
        assert "slow 1\n" in found
        assert "asked 1\n" in found
        assert f"disque_metrics_page_age_seconds {trio.current_time() - ended!r}\n" in found
        await trio.sleep(1)
        assert "slow 2\n" in text(await scrapes.page(request()))
        nursery.cancel_scope.cancel()


async def test_it_is_collected_now_and_again_although_nobody_asks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slow = Slow()
    scrapes = Scrapes("disque", [], slow=[slow])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrapes.keep)
        await trio.sleep(10 * module._KEPT + 1)
        assert 10 <= slow.asked <= 11
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("zipped", [False, True])
async def test_a_page_comes_before_it_is_complete_for_the_first_time(zipped: bool) -> None:
    slow = Stuck()
    scrapes = Scrapes("disque", [Source()], slow=[slow])
    headers = {"accept_encoding": "gzip"} if zipped else {}

    async def page() -> str:
        chunks = b"".join((await scrapes.page(request(**headers))).chunks)
        return (gzip.decompress(chunks) if zipped else chunks).decode()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrapes.keep)
        first = await page()
        assert "asked 1\n" in first
        assert "slow" not in first
        assert "page_age" not in first
        slow.open = True
        second = await page()
        assert "slow " in second
        assert "page_age" in second
        third = await page()
        assert third.index("slow ") < third.index("asked 3\n")
        nursery.cancel_scope.cancel()


async def test_an_error_in_the_background_stops_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slow = Slow()
    slow.fails = True
    errors: list[Exception] = []
    scrapes = Scrapes("disque", [Source()], slow=[slow], failed=errors.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrapes.keep)
        assert "slow" not in text(await scrapes.page(request()))
        assert errors
        slow.fails = False
        await trio.sleep(10)
        assert "slow " in text(await scrapes.page(request()))
        nursery.cancel_scope.cancel()


async def test_parts_that_follow_each_other_are_one_compressed_page(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scrapes = Scrapes("disque", [Source(steps=20_000)], slow=[Source(steps=20_000)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrapes.keep)
        for accept in ("", "application/openmetrics-text"):
            for _ in range(2):
                headers = {"accept": accept, "accept_encoding": "gzip"}
                zipped = await scrapes.page(request(**headers))
                lines = gzip.decompress(b"".join(zipped.chunks)).decode().splitlines()
                assert len([line for line in lines if line.startswith("asked{")]) == 40_000
                assert (lines[-1] == "# EOF") == bool(accept)
                assert "# EOF" not in lines[:-1]
        nursery.cancel_scope.cancel()


async def test_nothing_is_collected_in_the_background_before_it_is_ready(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slow, ready = Slow(), False
    scrapes = Scrapes("disque", [Source()], slow=[slow], ready=lambda: ready)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrapes.keep)
        assert "slow" not in text(await scrapes.page(request()))
        assert not slow.asked
        ready = True
        assert "slow " in text(await scrapes.page(request()))
        nursery.cancel_scope.cancel()
