"""An engine, its tasks, and a disk on which threads write only on permission."""

import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import hiredis
import trio
import trio.testing

from disque_trio.aof.checksums import ENDING as CHECKSUMS
from disque_trio.aof.disk import Disk
from disque_trio.aof.dump import TEMPORARY
from disque_trio.aof.loader import Loader
from disque_trio.aof.persistence import Persistence
from disque_trio.aof.writer import LARGE
from disque_trio.cluster.peers import Peers
from disque_trio.config import Config
from disque_trio.node.core.node import Node
from disque_trio.process.clock import Clock
from disque_trio.process.logs import Log, Logging
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.links import Links
from disque_trio.respserver.io.poller import Poller
from disque_trio.respserver.io.stats import Stats
from disque_trio.respserver.io.tasks import RequeueTimer, run_cron, serve
from tests.support.harness import HANG_SECONDS
from tests.support.node_bench import Bench

BODY = bytes(LARGE + 1)


async def until(condition: Callable[[], object]) -> None:
    """Wait for ``condition``."""
    with trio.fail_after(HANG_SECONDS):
        while not condition():
            await trio.sleep(0.001)


class SlowDisk(Disk):
    """A disk on which threads write only on permission; turns write at once."""

    def __init__(self) -> None:
        self.loop = threading.get_ident()
        self._all = False
        self._some = threading.Condition()  # guards the threads' allowance
        self._bytes = 0
        self.failure: OSError | None = None
        self.by_turns = 0  # bytes
        self.synced_by_threads = 0
        self.may_sync = threading.Event()  # set when threads may sync the new file
        self.may_sync.set()

    def let(self, size: int) -> None:
        """Permit threads to write ``size`` bytes."""
        with self._some:
            self._bytes = size
            self._some.notify_all()

    def let_all(self) -> None:
        """Permit threads to write everything."""
        with self._some:
            self._all = True
            self._some.notify_all()

    def _may(self, size: int) -> bool:
        return self._all or self._bytes >= size

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if str(Path(f"/proc/self/fd/{fd}").readlink()).endswith(CHECKSUMS):
            return super().write(fd, data)
        if threading.get_ident() == self.loop:
            self.by_turns += len(data)
        else:
            with self._some:
                assert self._some.wait_for(lambda: self._may(len(data)), HANG_SECONDS)
                self._bytes -= len(data)
        if self.failure is not None:
            super().write(fd, data[: len(data) // 2])
            raise self.failure
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        if threading.get_ident() != self.loop:
            if TEMPORARY in str(Path(f"/proc/self/fd/{fd}").readlink()):
                assert self.may_sync.wait(HANG_SECONDS)
            self.synced_by_threads += 1
        super().sync(fd)


class Wire:
    """A client."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = trio.socket.from_stdlib_socket(sock)
        self._reader = hiredis.Reader()

    async def send(self, *requests: tuple[bytes | str | int, ...]) -> None:
        data = b""
        for words in requests:
            parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
            data += b"*%d\r\n" % len(parts)
            data += b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
        await self.send_bytes(data)

    async def send_bytes(self, data: bytes) -> None:
        while data:
            data = data[await self._sock.send(data) :]

    async def reply(self) -> object:
        with trio.fail_after(HANG_SECONDS):
            while (reply := self._reader.gets()) is False:
                self._reader.feed(await self._sock.recv(1 << 20))
        return reply

    async def ask(self, *words: bytes | str | int) -> object:
        await self.send(words)
        return await self.reply()

    def end(self) -> None:
        """End the client's side of the connection."""
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._sock.close()


MakeLinks = Callable[[Config, Clock, Stats, Log, Poller, Node], Links]


class Stage:
    """An engine with its tasks, a node and a file on a slow disk."""

    def __init__(
        self,
        path: Path,
        policy: str = "everysec",
        peers: Peers | None = None,
        make_links: MakeLinks = lambda *parts: Links(),
    ) -> None:
        self.bench = Bench(peers=peers)
        self.path = path / "aof"
        self.logging = Logging(path=str(path / "log"))
        self.config = Config({"appendonly": True, "appendfilename": str(self.path)})
        self.config.appendfsync = policy
        self.disk = SlowDisk()
        log = self.logging.log
        node = self.bench.node
        self.persistence = Persistence(node, self.config, log, self.disk)
        self.persistence.file.open()
        clock, stats, poller = Clock(), Stats(), Poller()
        links = make_links(self.config, clock, stats, log, poller, self.bench.node)
        self.timer = RequeueTimer(clock)
        self.engine = Engine(
            node,
            links,
            self.config,
            clock,
            stats,
            log,
            self.persistence,
            poller,
            self.timer.wake_at,
        )
        self.wires: list[Wire] = []

    def wire(self) -> Wire:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.engine.clients.add(ours, "client", True)
        self.wires.append(Wire(theirs))
        return self.wires[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, self.engine)
            nursery.start_soon(self.timer.run, self.engine)
            nursery.start_soon(run_cron, self.engine)
            nursery.start_soon(self.persistence.run, self.engine)
            try:
                await trio.testing.wait_all_tasks_blocked()
                yield
            finally:
                self.disk.let_all()
                self.disk.may_sync.set()
                nursery.cancel_scope.cancel()

    async def add_large(self, wire: Wire) -> None:
        """Send a large job, and wait until it is being received."""
        await wire.send(("ADDJOB", "q", BODY, 0))
        await until(lambda: self.engine.hold.on)

    def close(self) -> None:
        self.persistence.close()
        self.engine.close_all()
        for wire in self.wires:
            wire.close()
        self.logging.close()

    def loaded(self) -> set[bytes]:
        """The ids of the jobs in the file."""
        other = Bench(seed=2)
        for _ in Loader(str(self.path), other.node, False).steps():
            pass
        return {job.id for job in other.node.store.jobs.values()}
