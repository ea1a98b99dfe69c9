"""Answers scrapes: collects a sheet of metrics, and makes pages of it.

All of this is done in slices, between which other tasks run. Scrapes that arrive during one get the
same page, and expensive work is not repeated immediately.
"""

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus

import trio

from disque_trio.metrics.formats import Format, Formats, SystemMetrics, add_metrics
from disque_trio.metrics.sheet import BLOCK, Family, Sheet, Source, raw
from disque_trio.metrics.web import Reply, Request

SLICE = 0.0003  # s
_LONG = 0.05  # s; work that takes longer than this
_REST = 5  # is not repeated before this multiple of its time has passed
_GZIP = 31  # of zlib's window: with the head of gzip


async def in_slices(steps: Iterator[None], slice_seconds: float = SLICE) -> float:
    """Take all ``steps``, letting other tasks run after each slice of time. Returns the CPU time
    that they took, in seconds."""
    spent = 0.0
    started, began = time.perf_counter(), time.thread_time()
    for _ in steps:
        if time.perf_counter() - started >= slice_seconds:
            spent += time.thread_time() - began
            await trio.lowlevel.checkpoint()
            started, began = time.perf_counter(), time.thread_time()
    return spent + time.thread_time() - began


class Collection:
    """A sheet, and the pages that were made of it.

    Attributes:
        cost: the CPU time it took, in seconds.
        ended: when it was complete, in seconds.
        pages: pages by format and whether they are compressed.
    """

    def __init__(self, sheet: Sheet, cost: float, ended: float) -> None:
        self.sheet = sheet
        self.cost = cost
        self.ended = ended
        self.pages: dict[tuple[str, bool], list[bytes]] = {}

    def free(self) -> Iterator[None]:
        """Free the memory bit by bit, since freeing many megabytes takes 10 ms."""
        for page in self.pages.values():
            while page:
                page.pop()
                yield
        for family in self.sheet.families:
            blocks = family.blocks()
            while blocks:
                blocks.pop()
                yield


class Scrapes:
    """Answers the scrapes of one process.

    Args:
        prefix: the prefix of its own metrics' names.
        sources: provide the metrics.
        common: labels of all samples.
    """

    def __init__(self, prefix: str, sources: Sequence[Source], common: str = "") -> None:
        self._prefix = prefix
        self._sources = sources
        self._common = common
        self._formats = Formats()
        self._process = SystemMetrics()
        self._lock = trio.Lock()
        self._last: Collection | None = None
        self._count = 0
        self._cost = 0.0

    async def page(self, request: Request) -> Reply:
        """Return the page with all metrics."""
        form = self._formats.of(request.headers.get("accept", ""))
        compressed = "gzip" in request.headers.get("accept-encoding", "").lower()
        self._count += 1
        arrived = trio.current_time()
        async with self._lock:
            last = await self._collection(arrived)
            page = last.pages.get((form.content_type, compressed))
            if page is None:
                page = []
                self._cost += await in_slices(write_page(last.sheet, form, compressed, page.append))
                last.pages[form.content_type, compressed] = page
        encoding = "gzip" if compressed else ""
        return Reply(HTTPStatus.OK, page, form.content_type, encoding)

    async def families(self) -> list[Family]:
        """The metrics, for somebody who adds others."""
        self._count += 1
        arrived = trio.current_time()
        async with self._lock:
            found = (await self._collection(arrived)).sheet.families
            copies = [Family(family.name, family.kind, family.text) for family in found]
            for copy, family in zip(copies, found, strict=True):
                copy.add_blocks(family.blocks())
            return copies

    async def raw_page(self, request: Request) -> Reply:
        """Return the page for another process of the server."""
        return Reply(HTTPStatus.OK, raw(await self.families()))

    async def _collection(self, arrived: float) -> Collection:
        """What serves a scrape that arrived at the time ``arrived``; with the lock."""
        last = self._last
        if last is None or not _serves(last, arrived):
            self._last = None
            if last is not None:
                self._cost += await in_slices(last.free())
            last = self._last = await self._collect()
        return last

    async def _collect(self) -> Collection:
        sheet = Sheet(self._common)
        cost = 0.0
        for source in self._sources:
            cost += await in_slices(source.collect(sheet))
        self._cost += cost
        prefix = self._prefix
        sheet.counter(f"{prefix}_metrics_scrapes_total", "Scrapes answered.", self._count)
        sheet.counter(
            f"{prefix}_metrics_cpu_seconds_total", "Total CPU time spent on scrapes.", self._cost
        )
        add_metrics(sheet, await trio.to_thread.run_sync(self._process.read))
        return Collection(sheet, cost, trio.current_time())


def _serves(last: Collection, arrived: float) -> bool:
    """Return whether ``last`` will do for a scrape that arrived at the time ``arrived``."""
    return last.ended >= arrived or (last.cost > _LONG and arrived < last.ended + _REST * last.cost)


def write_page(
    sheet: Sheet, form: Format, compressed: bool, send: Callable[[bytes], None]
) -> Iterator[None]:
    """Make a page of ``sheet``, passing it to ``send`` in chunks."""
    zipper = zlib.compressobj(1, zlib.DEFLATED, _GZIP) if compressed else None
    waiting: list[bytes] = []
    size = 0
    for piece in _pieces(sheet, form):
        waiting.append(piece)
        size += len(piece)
        if size >= BLOCK:
            chunk = b"".join(waiting)
            if zipper is not None:
                chunk = zipper.compress(chunk)
            if chunk:
                send(chunk)
            waiting.clear()
            size = 0
        yield
    chunk = b"".join(waiting)
    send(chunk if zipper is None else zipper.compress(chunk) + zipper.flush())


def _pieces(sheet: Sheet, form: Format) -> Iterator[bytes]:
    for family in sheet.families:
        yield form.head(family)
        yield from family.blocks()
    yield form.end
