"""The files of the jobs that lie on disk (see ``node.core.queues.paging``): they are written,
read and removed at once as long as that takes no time, and otherwise in a thread between the turns.

They are a cache of what the append-only file says: they are never synced, and those of an earlier
process are removed at the start, unless it has left an index of them (see ``index_file``). A file
that cannot be read is made again from the append-only file.
"""

import os
from collections import deque
from collections.abc import Container, Iterable
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import NamedTuple

import trio

from disque_trio.config import Config
from disque_trio.node import lost_pages
from disque_trio.node.core.node import Node
from disque_trio.node.core.pages.pages import DROP, READ, REBUILD, WRITE, Order
from disque_trio.node.core.pages.segment import Segment
from disque_trio.process.clock import Clock
from disque_trio.process.logs import Log
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.memory import UNLIMITED

ENDING = ".seg"
ENDINGS = (ENDING, lost_pages.ENDING)
ORDERS_AT_ONCE = 256
AGAIN_SECONDS = 1.0  # until the append-only file, which could not be opened, is tried again
SLOW_SECONDS = 0.005  # for a file, after which a thread has the next ones
BYTES_A_TURN = 2 << 20  # that may be read and written outside the thread
DROP_TAKES = 1 << 16  # of these, about as much as removing a file takes
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class Done(NamedTuple):
    """An order that was carried out: what was read or found, and why it failed, or nothing.
    ``jobs``: None: they could not be looked for."""

    order: Order
    data: bytes | None = None
    jobs: dict[int, bytes] | None = None
    problem: str = ""


class Waiting:
    """Orders that wait for a thread."""

    def __init__(self) -> None:
        self._orders: deque[Order] = deque()
        self._ordered = trio.Event()

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self._orders)

    def add(self, orders: Iterable[Order]) -> None:
        """Add ``orders`` behind the others."""
        self._orders += orders
        self._ordered.set()

    async def some(self, most: int) -> list[Order]:
        """Wait until there are some; return the first ones."""
        while not self._orders:
            self._ordered = trio.Event()
            await self._ordered.wait()
        return [self._orders.popleft() for _ in range(min(len(self._orders), most))]


class PageFiles:
    """Carries out the orders of ``node``'s paging.

    Args:
        config: says whether jobs go to disk, and where.

    Attributes:
        problem: why jobs cannot go there, and stay in memory; empty: they can.
    """

    def __init__(self, node: Node, config: Config, clock: Clock, log: Log) -> None:
        self._node = node
        self._config = config
        self._clock = clock
        self._log = log
        self._orders = Waiting()
        self._searches = Waiting()  # they take long, and nobody else waits for them
        self._running = False
        self._later: list[Order] = []
        self.problem = ""
        self._is_slow = False  # the disk took long the last time
        self._is_busy = False  # the thread is at work
        self._moment = 0  # of the node, in which there is still ``_room`` for so many bytes
        self._room = 0
        self._home: Path | None = None  # stays the same if ``dir`` changes
        self._lost = lost_pages.LostPages(
            node.paging.pages, self.path, lambda: Path(config.appendfilename)
        )
        self._looking = Lock()  # a search that is under way when the node stops goes on
        node.paging.pages.perform = self._perform
        node.paging.damaged = self._damaged
        node.aof_codec.read_file = self._read_file
        node.paging.pages.seed = int.from_bytes(os.urandom(4))

    # ---- settings ---------------------------------------------------------------------------

    def prepare(self, kept: Container[int] = ()) -> None:
        """Remove the files of an earlier process, except those with the numbers that are
        ``kept``."""
        removed = 0
        problem: OSError | None = None
        try:
            for path in list(self.directory.iterdir()):
                if path.suffix in ENDINGS and path.stem.isdigit() and int(path.stem) not in kept:
                    try:
                        path.unlink(missing_ok=True)
                        removed += 1
                    except OSError as found:
                        problem = found
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as found:
            problem = found
        if problem is not None:
            # They are in nobody's way: what goes to disk again overwrites them.
            self._log.warning(
                "cannot remove all files of jobs that an earlier process had on disk",
                directory=str(self.directory),
                reason=problem.strerror or str(problem),
            )
        if removed:
            self._log.notice(
                "removed the files of jobs that an earlier process had on disk", files=removed
            )

    def apply(self) -> None:
        """Make changes of the settings take effect."""
        config = self._config
        off = ""
        if not config.paging:
            off = "paging is no"
        elif not config.appendonly:
            off = "appendonly is no"
        elif not config.maxmemory:
            off = "maxmemory is 0"
        above = None if off else config.maxmemory * config.paging_above // 100
        if above is not None:
            try:
                self.directory.mkdir(mode=0o700, exist_ok=True)
            except OSError as problem:
                self.problem = problem.strerror or str(problem)
        self._node.paging.set_above(above, off)

    def space(self) -> tuple[int, int]:
        """How many bytes of the disk are free, and how many it has; 0 if no jobs go there."""
        if self._node.paging.pages.above == UNLIMITED:
            return 0, 0
        try:
            found = os.statvfs(self.directory)
        except OSError:
            return 0, 0
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def finish(self, segments: Iterable[Segment]) -> None:
        """Write those files of ``segments`` that are not on disk yet: there are no more turns.
        Raises ``OSError``."""
        for segment in segments:
            if segment.data is not None:
                self._write(Order(WRITE, segment.number, data=segment.data))

    @property
    def directory(self) -> Path:
        """Where the files are."""
        if self._home is None:
            self._home = Path(self._config.page_dir).absolute()
        return self._home

    def path(self, number: int) -> Path:
        """The path of the file ``number``."""
        return self.directory / f"{number}{ENDING}"

    def _damaged(self, number: int, problem: str) -> None:
        self._log.warning(
            "jobs that lie on disk cannot be read: they are looked for in the append-only file",
            file=str(self.path(number)),
            reason=problem,
        )

    # ---- orders -----------------------------------------------------------------------------

    def _perform(self, orders: list[Order]) -> None:
        """Carry ``orders`` out: at once as long as the disk is fast, as the records of the
        append-only file are written; a thread would cost more. Otherwise in a thread, once there
        are turns.

        A busy node leaves a thread little time. When much waits to be written, it is written here.
        """
        pages = self._node.paging.pages
        behind = pages.writing > pages.most_writing // 2
        done: list[Done] = []
        for order in orders:
            if not self._running or (behind and order.kind == WRITE):
                done += self._carry_out([order])
            elif order.kind == REBUILD:
                self._searches.add([order])
            elif not self._do_now(order, done):
                self._orders.add([order])
        if done:
            self._take(done)

    def _do_now(self, order: Order, done: list[Done]) -> bool:
        """Carry ``order`` out if that does not take long, and add it to what is ``done``. Return
        whether it was carried out."""
        if self._node.now != self._moment:
            self._moment = self._node.now
            self._room = BYTES_A_TURN
        if self._is_busy or self._orders.number or self._is_slow or self._room <= 0:
            return False
        if order.kind == READ:
            data = _read_cached(self.path(order.number), order.parts)
            if data is None:
                return False
            self._room -= len(data)
            done.append(Done(order, data))
        else:
            self._room -= max(len(order.data), DROP_TAKES)
            done += self._carry_out([order])
        return True

    async def run(self, engine: Engine) -> None:
        """Carry out orders until cancelled."""
        self._running = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._search, engine)
                while True:
                    await self._carry_out_some(self._orders, ORDERS_AT_ONCE, engine)
        finally:
            self._running = self._is_busy = False

    async def _search(self, engine: Engine) -> None:
        """Look for jobs in the append-only file as they are ordered, and again later if it cannot
        be opened."""
        while True:
            if self._later:
                await trio.sleep(AGAIN_SECONDS)
                self.try_again()
            await self._carry_out_some(self._searches, 1, engine)

    async def _carry_out_some(self, waiting: Waiting, most: int, engine: Engine) -> None:
        """Carry out the next orders of ``waiting``, when there are some."""
        orders = await waiting.some(most)
        may_stop = waiting is self._searches
        self._is_busy = self._is_busy or not may_stop
        done = await trio.to_thread.run_sync(self._carry_out, orders, abandon_on_cancel=may_stop)
        self._is_busy = self._is_busy and may_stop
        self._node.now = self._clock.now()
        self._take(done)
        engine.after_node()

    def try_again(self) -> None:
        """Look for jobs again that could not be looked for."""
        later, self._later = self._later, []
        self._perform(later)

    def _carry_out(self, orders: list[Order]) -> list[Done]:
        """Carry ``orders`` out; may be called in another thread."""
        done: list[Done] = []
        started = perf_counter()
        gone = {order.number for order in orders if order.kind == DROP}
        for order in orders:
            try:
                if order.kind == WRITE:
                    if order.number not in gone:
                        self._write(order)
                    done.append(Done(order))
                elif order.kind == READ:
                    done.append(Done(order, _read(self.path(order.number), order.parts)))
                elif order.kind == DROP:
                    self.path(order.number).unlink(missing_ok=True)
                    self._lost.drop(order.number)
                else:
                    with self._looking:
                        found = self._lost.find(order.number)
                    done.append(Done(order, jobs=found))
            except OSError as problem:
                done.append(Done(order, problem=problem.strerror or str(problem)))
        if all(order.kind != REBUILD for order in orders):
            self._is_slow = perf_counter() - started > SLOW_SECONDS * len(orders)
        return done

    def _take(self, done: list[Done]) -> None:
        """Tell the node what was done."""
        for one in done:
            order = one.order
            if order.kind == WRITE:
                self.problem = one.problem
                self._node.paging.paged_out(order.number, one.problem)
            elif order.kind == READ:
                self._node.paged_in(order.number, order.place, one.data)
            elif one.jobs is not None:
                self._log.warning(
                    "jobs were found in the append-only file",
                    file=str(self.path(order.number)),
                    found=len(one.jobs),
                )
                self._node.rebuilt(order.number, one.jobs)
            elif order.kind != DROP:
                self._log.warning(
                    "the append-only file cannot be opened: jobs are looked for again later",
                    file=str(self.path(order.number)),
                    reason=one.problem,
                )
                self._later.append(order)

    def _write(self, order: Order) -> None:
        path = self.path(order.number)
        try:
            try:
                fd = os.open(path, _WRITE, 0o600)
            except FileNotFoundError:  # somebody has removed the directory
                self.directory.mkdir(mode=0o700, exist_ok=True)
                fd = os.open(path, _WRITE, 0o600)
            try:
                rest = memoryview(order.data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
            finally:
                os.close(fd)
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def _read_file(self, number: int) -> bytes:
        """The whole file ``number``. Raises ``OSError``."""
        return self.path(number).read_bytes()


def _read(path: Path, parts: list[tuple[int, int]]) -> bytes:
    """The ``parts`` of the file, between two offsets each."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = [os.pread(fd, end - start, start) for start, end in parts]
    finally:
        os.close(fd)
    return found[0] if len(found) == 1 else b"".join(found)


def _read_cached(path: Path, parts: list[tuple[int, int]]) -> bytes | None:
    """The same, if no disk has to be waited for; None: it has."""
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = [bytearray(end - start) for start, end in parts]
        for part, (start, _) in zip(found, parts, strict=True):
            if os.preadv(fd, [part], start, os.RWF_NOWAIT) != len(part):
                return None
    except OSError:  # it would have to wait, or the file system cannot tell
        return None
    finally:
        os.close(fd)
    return bytes(found[0]) if len(found) == 1 else b"".join(found)
