"""The process behind ``BusProxy``: forwards traffic between nodes, or does not; that of clients
always.

``python -m tests.support.bus_network DESCRIPTOR`` reads the doors from that socket, listens, and
then executes one order per line. It ends when the socket is closed.
"""

import json
import select
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from math import inf

import trio

from disque_trio.protocol.bus import HEADER_SIZE, sender_address
from tests.support.harness import BUS_OFFSET

HOST = "127.0.0.1"
CHUNK = 1 << 16

Pair = tuple[int, int]
Pieces = trio.MemorySendChannel[tuple[float, bytes]]


class BusNetwork:
    """The network.

    Args:
        doors: the announced and the real client port of each node.
    """

    def __init__(self, doors: Sequence[Sequence[int]]) -> None:
        self._doors = doors
        self._ports = [real + BUS_OFFSET for _, real in doors]
        self._announced = [announced + BUS_OFFSET for announced, _ in doors]
        self._by_port = {announced: index for index, (announced, _) in enumerate(doors)}
        self._cut: set[Pair] = set()
        self._stalled: set[Pair] = set()
        self._delays: dict[Pair, float] = {}
        self._links: dict[trio.CancelScope, Pair] = {}
        self._changed = trio.Event()

    # ---- orders of BusProxy --------------------------------------------------------------------

    def act(self, name: str, pairs: list[Pair], seconds: float) -> list[Pair]:
        """Execute the method of ``BusProxy`` with this name on ``pairs``; returns its result."""
        if name == "cut":
            self._cut.update(pairs)
            for scope, pair in list(self._links.items()):
                if pair in self._cut:
                    scope.cancel()
        elif name == "stall":
            self._stalled.update(pairs)
        elif name == "delay":
            self._delays.update(dict.fromkeys(pairs, seconds))
        elif name == "heal":
            self._cut.clear()
            self._stalled.clear()
            self._delays.clear()
        self._changed.set()
        self._changed = trio.Event()
        return sorted(self._links.values()) if name == "links" else []

    # ---- connections ---------------------------------------------------------------------------

    async def open(self) -> list[trio.SocketListener]:
        """Listen in place of the nodes: for each other, then for clients. Raises OSError if a port
        is taken."""
        listeners: list[trio.SocketListener] = []
        for port in [*self._announced, *self._by_port]:
            listeners += await trio.open_tcp_listeners(port, host=HOST)
        return listeners

    async def serve(self, listeners: list[trio.SocketListener]) -> None:
        """Forward traffic forever."""
        count = len(self._ports)
        async with trio.open_nursery() as nursery:
            for index, listener in enumerate(listeners[:count]):
                nursery.start_soon(self._listen, nursery, index, listener)
            for (_, real), listener in zip(self._doors, listeners[count:], strict=True):
                nursery.start_soon(_listen_to_clients, nursery, real, listener)

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
                if (caller, callee) in self._cut or _is_given_up(outer):
                    return
                with trio.CancelScope() as scope:
                    self._links[scope] = (caller, callee)
                    try:
                        await self._join(caller, callee, outer, first)
                    finally:
                        del self._links[scope]
            except (OSError, EOFError, trio.BrokenResourceError, KeyError):
                return  # one end is gone, or the caller is not one of our nodes

    async def _join(self, caller: int, callee: int, outer: trio.SocketStream, first: bytes) -> None:
        port = self._ports[callee]
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
        """Forward one direction until it ends, which ends the connection."""
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


async def _listen_to_clients(
    nursery: trio.Nursery, real: int, listener: trio.SocketListener
) -> None:
    while True:
        nursery.start_soon(_serve_client, real, await listener.accept())


async def _serve_client(real: int, outer: trio.SocketStream) -> None:
    """Forward a client's connection to the ``real`` port of a node until one of them ends it."""
    async with outer:
        try:
            async with (
                await trio.open_tcp_stream(HOST, real) as inner,
                trio.open_nursery() as nursery,
            ):
                end = nursery.cancel_scope
                nursery.start_soon(_copy, outer, inner, end)
                nursery.start_soon(_copy, inner, outer, end)
        except OSError:
            return  # the node is gone


async def _copy(source: trio.abc.Stream, target: trio.abc.Stream, end: trio.CancelScope) -> None:
    with suppress(trio.BrokenResourceError):
        async for data in source:
            await target.send_all(data)
    end.cancel()


def _is_given_up(stream: trio.SocketStream) -> bool:
    """Whether the caller has closed the connection. On a machine so busy that nodes abandon
    connections before they are served, and open new ones, abandoned ones must cost almost nothing;
    otherwise all are served too late, even when the machine is less busy again."""
    poll = select.poll()
    poll.register(stream.socket.fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


async def _first_bytes(stream: trio.SocketStream) -> bytes:
    """Enough bytes to identify the caller. Raises EOFError."""
    data = b""
    while len(data) < HEADER_SIZE:
        piece = await stream.receive_some(CHUNK)
        if not piece:
            raise EOFError
        data += piece
    return data


async def _lines(stream: trio.SocketStream) -> AsyncIterator[bytes]:
    """The received lines, until the other side closes."""
    rest = b""
    async for data in stream:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line


async def run(sock: socket.socket) -> None:
    """Execute the orders from ``sock``."""
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
    network: BusNetwork | None = None
    async with trio.open_nursery() as nursery:
        async for line in _lines(stream):
            words = json.loads(line)
            answer: object = None
            if network is None:
                network = BusNetwork(words)
                try:
                    nursery.start_soon(network.serve, await network.open())
                except OSError as problem:
                    answer = str(problem)
            else:
                name, pairs, seconds = words
                answer = network.act(name, [(a, b) for a, b in pairs], seconds)
            await stream.send_all(json.dumps(answer).encode() + b"\n")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(run, socket.socket(fileno=int(sys.argv[1])))
