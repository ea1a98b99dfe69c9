"""A network between nodes that a test can break: a TCP proxy in front of the bus of each node.

A node that announces the port P is called at P + 10000, where the proxy listens; it passes on what
it gets to the port where the node's bus really is. The first packet of a connection says who
calls, so each direction between two nodes can be broken alone. Nodes are named by their index in
the list of doors. It runs in a thread of its own, with Trio.
"""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

import trio

from disque_trio.protocol.bus import HEADER_SIZE, sender_address
from tests.support.harness import BUS_OFFSET, HANG_SECONDS

HOST = "127.0.0.1"
CHUNK = 1 << 16

Pair = tuple[int, int]
Pieces = trio.MemorySendChannel[tuple[float, bytes]]


@dataclass(frozen=True)
class Door:
    """A node's client port as it announces it, and the one that it really has."""

    announced: int
    real: int


class BusProxy:
    """The network. All methods may be called from any thread and act before they return.

    Two connections join two nodes, one opened by each. ``cut`` breaks the one that the first node
    opened, with the answers that come back on it. ``stall`` and ``delay`` are about what the first
    node says to the second, on whichever connection.
    """

    def __init__(self, doors: Sequence[Door]) -> None:
        self._doors = list(doors)
        self._by_port = {door.announced: index for index, door in enumerate(doors)}
        self._cut: set[Pair] = set()
        self._stalled: set[Pair] = set()
        self._delays: dict[Pair, float] = {}
        self._links: dict[trio.CancelScope, Pair] = {}
        self._started = threading.Event()
        self._changed = trio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="bus-proxy")

    # ---- for the test ------------------------------------------------------------------------

    def cut(self, a: int, b: int) -> None:
        """Close the connection that ``a`` opened to ``b`` and refuse further ones."""

        def act() -> None:
            self._cut.add((a, b))
            for scope, pair in list(self._links.items()):
                if pair == (a, b):
                    scope.cancel()

        self._do(act)

    def stall(self, a: int, b: int) -> None:
        """Hold what ``a`` says to ``b``; connections stay, and the end of one is not told."""
        self._do(lambda: self._stalled.add((a, b)))

    def delay(self, a: int, b: int, seconds: float) -> None:
        """Let what ``a`` says to ``b`` take ``seconds``."""
        self._do(lambda: self._delays.update({(a, b): seconds}))

    def heal(self) -> None:
        """Nothing is broken any more. What was held arrives now."""

        def act() -> None:
            self._cut.clear()
            self._stalled.clear()
            self._delays.clear()

        self._do(act)

    def split(self, left: Iterable[int], right: Iterable[int], stall: bool = False) -> None:
        """Break everything between two groups: closed and refused, or held (``stall``)."""
        how = self.stall if stall else self.cut
        right = list(right)
        for a in left:
            for b in right:
                how(a, b)
                how(b, a)

    def isolate(self, node: int, stall: bool = False) -> None:
        """Break everything between ``node`` and all others."""
        others = [index for index in range(len(self._doors)) if index != node]
        self.split([node], others, stall)

    def mute(self, node: int) -> None:
        """One-way: nobody hears ``node``, it hears all."""
        for other in range(len(self._doors)):
            if other != node:
                self.stall(node, other)

    def ring(self) -> None:
        """Each node reaches only the one before and the one behind it."""
        count = len(self._doors)
        for a in range(count):
            for b in range(count):
                if a != b and (a - b) % count not in (1, count - 1):
                    self.cut(a, b)

    def links(self) -> list[Pair]:
        """Who opened a connection to whom, sorted."""
        found: list[Pair] = []
        self._do(lambda: found.extend(self._links.values()))
        return sorted(found)

    # ---- the thread ----------------------------------------------------------------------------

    def open(self) -> None:
        """Start to listen. Raises OSError when a port is taken."""
        self._thread.start()
        self._started.wait(HANG_SECONDS)
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def close(self) -> None:
        """End it, and all connections."""
        if self._thread.is_alive():
            self._do(lambda: self._whole.cancel())
        self._thread.join()

    def _do(self, act: Callable[[], object]) -> None:
        def in_thread() -> None:
            act()
            self._changed.set()
            self._changed = trio.Event()

        trio.from_thread.run_sync(in_thread, trio_token=self._token)

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as problem:
            self._failure = problem
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        listeners: list[trio.SocketListener] = []
        try:
            for door in self._doors:
                listeners += await trio.open_tcp_listeners(door.announced + BUS_OFFSET, host=HOST)
            async with trio.open_nursery() as nursery:
                self._whole = nursery.cancel_scope
                for index, listener in enumerate(listeners):
                    nursery.start_soon(self._listen, nursery, index, listener)
                self._started.set()
        finally:
            for listener in listeners:
                listener.socket.close()

    async def _listen(
        self, nursery: trio.Nursery, callee: int, listener: trio.SocketListener
    ) -> None:
        while True:
            stream = await listener.accept()
            nursery.start_soon(self._link, callee, stream)

    async def _link(self, callee: int, outer: trio.SocketStream) -> None:
        """Serve one connection to the node ``callee``."""
        async with outer:
            try:
                first = await _first_bytes(outer)
                caller = self._by_port[sender_address(first)[1]]
                if (caller, callee) in self._cut:
                    return
                with trio.CancelScope() as scope:
                    self._links[scope] = (caller, callee)
                    try:
                        await self._join(caller, callee, outer, first)
                    finally:
                        del self._links[scope]
            except (OSError, EOFError, trio.BrokenResourceError, KeyError):
                return  # an end is gone, or the caller is no node of ours

    async def _join(self, caller: int, callee: int, outer: trio.SocketStream, first: bytes) -> None:
        port = self._doors[callee].real + BUS_OFFSET
        async with await trio.open_tcp_stream(HOST, port) as inner:
            assert isinstance(inner, trio.SocketStream)
            inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with trio.open_nursery() as nursery:
                end = nursery.cancel_scope
                nursery.start_soon(self._pass, (caller, callee), outer, inner, first, end)
                nursery.start_soon(self._pass, (callee, caller), inner, outer, b"", end)

    async def _pass(
        self,
        pair: Pair,
        source: trio.SocketStream,
        target: trio.SocketStream,
        first: bytes,
        end: trio.CancelScope,
    ) -> None:
        """Pass on one direction until it ends, which ends the connection."""
        send, receive = trio.open_memory_channel[tuple[float, bytes]](inf)
        async with send, receive, trio.open_nursery() as nursery:
            nursery.start_soon(self._read, pair, source, send, first)
            async for due, data in receive:
                await trio.sleep_until(due)
                while pair in self._stalled:
                    await self._changed.wait()
                if not data:
                    break
                try:
                    await target.send_all(data)
                except trio.BrokenResourceError:
                    break
            end.cancel()

    async def _read(
        self, pair: Pair, source: trio.SocketStream, send: Pieces, first: bytes
    ) -> None:
        data = first
        while True:
            if data:
                send.send_nowait((trio.current_time() + self._delays.get(pair, 0.0), data))
            try:
                data = await source.receive_some(CHUNK)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                send.send_nowait((trio.current_time(), b""))
                return


async def _first_bytes(stream: trio.SocketStream) -> bytes:
    """Enough to know who calls. Raises EOFError."""
    data = b""
    while len(data) < HEADER_SIZE:
        piece = await stream.receive_some(CHUNK)
        if not piece:
            raise EOFError
        data += piece
    return data


@contextmanager
def bus_proxy(doors: Sequence[Door]) -> Iterator[BusProxy]:
    """A proxy that ends with the block."""
    proxy = BusProxy(doors)
    proxy.open()
    try:
        yield proxy
    finally:
        proxy.close()
