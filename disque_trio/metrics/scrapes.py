"""Answers scrapes: collects a sheet of metrics, and makes pages of it.

All of this is done in slices, between which other tasks run. Scrapes that arrive during one get the
same page, and expensive work is not repeated immediately.

What takes long to collect is collected in the background: a scrape gets the last of it that is
complete, and before there is one, a page without it.
"""

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from struct import pack

import trio

from disque_trio.metrics.formats import Format, Formats, SystemMetrics, add_metrics
from disque_trio.metrics.sheet import BLOCK, Family, Sheet, Source, raw
from disque_trio.metrics.web import Reply, Request

SLICE = 0.0003  # s
_LONG = 0.05  # s; work that takes longer than this
_REST = 5  # is not repeated before this multiple of its time has passed
_PATIENCE = 1.0  # s that a scrape waits for what is collected in the background
_KEPT = 60.0  # s after which that is collected again although nobody asked, or longer ...
_KEPT_TIMES = 20  # ... if this multiple of its time is
_AGAIN = 5.0  # s after a failure
_LOOK = 0.1  # s between looks whether it can begin
GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\x04\xff"


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


class Body:
    """A part of a page. Parts that are compressed can follow each other in one stream.

    Attributes:
        chunks: its bytes.
        before: the part of the page that it follows.
        checksum, size: of all bytes of the page up to its end, before they are compressed.
    """

    def __init__(self, compressed: bool, before: "Body | None" = None) -> None:
        self.chunks: list[bytes] = []
        self.before = before
        self.checksum: int = 0 if before is None else before.checksum
        self.size: int = 0 if before is None else before.size
        self._zipper = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS) if compressed else None

    def add(self, chunk: bytes) -> None:
        """Add ``chunk``."""
        if self._zipper is not None:
            self.checksum = zlib.crc32(chunk, self.checksum)
            self.size += len(chunk)
            chunk = self._zipper.compress(chunk)
        if chunk:
            self.chunks.append(chunk)

    def end(self, last: bool) -> None:
        """End it. ``last``: it ends the page."""
        if self._zipper is not None:
            self.chunks.append(self._zipper.flush(zlib.Z_FINISH if last else zlib.Z_FULL_FLUSH))
            self._zipper = None
            if last:
                self.chunks.append(pack("<II", self.checksum, self.size & 0xFFFFFFFF))


class Collection:
    """A sheet, and the pages that were made of it.

    Attributes:
        cost: the CPU time it took, in seconds.
        began, ended: when it was begun, and complete, in seconds.
        bodies: by format and whether they are compressed.
    """

    def __init__(self, sheet: Sheet, cost: float, began: float, ended: float) -> None:
        self.sheet = sheet
        self.cost = cost
        self.began = began
        self.ended = ended
        self.bodies: dict[tuple[str, bool], Body] = {}

    def free(self) -> Iterator[None]:
        """Free the memory bit by bit, since freeing many megabytes takes 10 ms."""
        for body in self.bodies.values():
            while body.chunks:
                body.chunks.pop()
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
        slow: provide those that take long, which ``keep`` collects in the background.
        ready: whether there is anything to collect there yet. failed: is told of an error there.
    """

    def __init__(
        self,
        prefix: str,
        sources: Sequence[Source],
        common: str = "",
        slow: Sequence[Source] = (),
        ready: Callable[[], bool] = lambda: True,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        self._prefix = prefix
        self._sources = sources
        self._slow = slow
        self._ready = ready
        self._common = common
        self._failed = failed
        self._formats = Formats()
        self._process = SystemMetrics()
        self._lock = trio.Lock()
        self._last: Collection | None = None
        self._kept: Collection | None = None
        self._wanted = trio.Event()
        self._made = trio.Event()
        self._count = 0
        self._cost = 0.0

    # ---- in the background ----------------------------------------------------------------------

    async def keep(self) -> None:
        """Collect what takes long, now and again, until cancelled."""
        while not self._ready():  # noqa: ASYNC110  - the core tells nobody
            await trio.sleep(_LOOK)
        while self._slow:
            self._wanted = trio.Event()
            try:
                new = await self._collect_slow()
            except Exception as problem:  # the server has to go on
                if self._failed is not None:
                    self._failed(problem)
                await trio.sleep(_AGAIN)
                continue
            last = self._kept
            if last is not None and new.cost > _LONG:
                for content_type, compressed in list(last.bodies):  # they will be asked for again
                    form = self._formats.named(content_type)
                    await self._write(new, form, compressed, None, False)
            async with self._lock:  # no page is being made of the last one
                self._kept = new
            self._made.set()
            self._made = trio.Event()
            if last is not None:
                self._cost += await in_slices(last.free())
            if new.cost > _LONG:
                await trio.sleep(_REST * new.cost)
            with trio.move_on_after(max(_KEPT, _KEPT_TIMES * new.cost)):
                await self._wanted.wait()

    async def _collect_slow(self) -> Collection:
        began = trio.current_time()
        sheet = Sheet(self._common)
        cost = 0.0
        for source in self._slow:
            cost += await in_slices(source.collect(sheet))
        self._cost += cost
        return Collection(sheet, cost, began, trio.current_time())

    async def _ask_for_slow(self) -> None:
        """Have what takes long collected again, and wait a little if it does not take so long, or
        there is none yet."""
        arrived = trio.current_time()
        self._wanted.set()
        kept = self._kept
        if not self._slow or (kept is not None and kept.cost > _LONG):
            return
        with trio.move_on_after(_PATIENCE):
            while self._kept is None or self._kept.began < arrived:
                await self._made.wait()

    # ---- scrapes --------------------------------------------------------------------------------

    async def page(self, request: Request) -> Reply:
        """Return the page with all metrics."""
        form = self._formats.of(request.headers.get("accept", ""))
        compressed = "gzip" in request.headers.get("accept-encoding", "").lower()
        self._count += 1
        arrived = trio.current_time()
        await self._ask_for_slow()
        async with self._lock:
            last = await self._collection(arrived)
            before: Body | None = None
            if self._kept is not None:
                before = await self._body(self._kept, form, compressed, None)
            body = await self._body(last, form, compressed, before)
            chunks = [GZIP_HEAD] if compressed else []
            chunks += [] if before is None else before.chunks
            chunks += body.chunks
        encoding = "gzip" if compressed else ""
        return Reply(HTTPStatus.OK, chunks, form.content_type, encoding)

    async def _body(
        self, part: Collection, form: Format, compressed: bool, before: Body | None
    ) -> Body:
        """The body of ``part``, with which the page ends unless it is what takes long."""
        body = part.bodies.get((form.content_type, compressed))
        if body is None or body.before is not before:
            body = await self._write(part, form, compressed, before, part is not self._kept)
        return body

    async def _write(
        self, part: Collection, form: Format, compressed: bool, before: Body | None, last: bool
    ) -> Body:
        """Make the body of ``part``, with which the page ends if it is the ``last``."""
        body = Body(compressed, before)
        self._cost += await in_slices(write_page(part.sheet, form, body.add, last))
        body.end(last)
        part.bodies[form.content_type, compressed] = body
        return body

    async def families(self) -> list[Family]:
        """The metrics, for somebody who adds others."""
        self._count += 1
        arrived = trio.current_time()
        await self._ask_for_slow()
        async with self._lock:
            found = [] if self._kept is None else self._kept.sheet.families
            found = found + (await self._collection(arrived)).sheet.families
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
        began = trio.current_time()
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
        if self._kept is not None:
            sheet.gauge(
                f"{prefix}_metrics_page_age_seconds",
                "Time since the figures of jobs and queues on this page were collected.",
                began - self._kept.ended,
            )
        add_metrics(sheet, await trio.to_thread.run_sync(self._process.read))
        return Collection(sheet, cost, began, trio.current_time())


def _serves(last: Collection, arrived: float) -> bool:
    """Return whether ``last`` will do for a scrape that arrived at the time ``arrived``."""
    return last.ended >= arrived or (last.cost > _LONG and arrived < last.ended + _REST * last.cost)


def write_page(
    sheet: Sheet, form: Format, send: Callable[[bytes], None], last: bool = True
) -> Iterator[None]:
    """Make a page of ``sheet``, or the part of one if it is not the ``last``, passing it to
    ``send`` in chunks."""
    waiting: list[bytes] = []
    size = 0
    for piece in _pieces(sheet, form):
        waiting.append(piece)
        size += len(piece)
        if size >= BLOCK:
            send(b"".join(waiting))
            waiting.clear()
            size = 0
        yield
    if last:
        waiting.append(form.end)
    send(b"".join(waiting))


def _pieces(sheet: Sheet, form: Format) -> Iterator[bytes]:
    for family in sheet.families:
        yield form.head(family)
        yield from family.blocks()
