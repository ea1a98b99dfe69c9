"""A scripted node: a TCP server in the test process with predefined replies."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import hiredis
import trio

from tests.support.harness import HANG_SECONDS, free_port

ID = "a" * 40
JOB_ID = "D-aaaaaaaa-{:024d}-05a1"


Value: TypeAlias = "bytes | int | list[Value] | None"


def bulk(*values: Value) -> bytes:
    """Encode an array of bulk strings, integers, nulls and nested arrays."""
    out = b"*%d\r\n" % len(values)
    for value in values:
        if value is None:
            out += b"$-1\r\n"
        elif isinstance(value, list):
            out += bulk(*value)
        elif isinstance(value, int):
            out += b":%d\r\n" % value
        else:
            out += b"$%d\r\n%s\r\n" % (len(value), value)
    return out


def array(*encoded: bytes) -> bytes:
    """An array of encoded elements."""
    return b"*%d\r\n" % len(encoded) + b"".join(encoded)


def job(number: int, body: bytes = b"body", queue: bytes = b"q") -> bytes:
    """GETJOB's reply with one job, WITHCOUNTERS."""
    id = JOB_ID.format(number).encode()
    return array(bulk(queue, id, body, b"nacks", 0, b"additional-deliveries", 0))


def hello(node_id: str, *nodes: tuple[str, str, int, int]) -> bytes:
    """HELLO's reply; a node is (id, ip, port, priority)."""
    entries = [
        bulk(id.encode(), ip.encode(), str(port).encode(), str(priority).encode())
        for id, ip, port, priority in nodes
    ]
    return array(b":1\r\n", b"$40\r\n" + node_id.encode() + b"\r\n", *entries)


class FakeNode:
    """Answers each command by ``self.answers[NAME]``.

    An answer is bytes, a list of bytes (one per call, repeating the last), or a function of the
    command's arguments that returns bytes. ``HANG`` never answers, ``DROP`` closes the connection.
    """

    HANG = b"<hang>"
    DROP = b"<drop>"

    def __init__(self, id: str = ID) -> None:
        self.id = id
        self.port = 0
        self.priority = 1
        self.others: list[tuple[str, str, int, int]] = []
        self.seen: list[list[bytes]] = []
        self.seen_on: list[tuple[int, str]] = []  # connection number, command name
        self.connections = 0
        self.open_connections = 0
        self.answers: dict[str, bytes | list[bytes] | Callable[[list[bytes]], bytes]] = {}
        self.late: bytes = b""
        """Sent to a hanging client when it hangs up."""
        self._news = trio.Event()
        self._listening = trio.CancelScope()
        self._stopped = trio.Event()
        self._streams: set[trio.SocketStream] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def names(self) -> list[str]:
        """The names of the commands so far, except HELLO."""
        return [name for name in (c[0].decode() for c in self.seen) if name != "HELLO"]

    def count(self, name: str) -> int:
        return self.names().count(name)

    async def wait_for(self, condition: Callable[[], bool], seconds: float = HANG_SECONDS) -> None:
        with trio.fail_after(seconds):
            while not condition():
                await self._news.wait()

    async def start(self, nursery: trio.Nursery) -> None:
        self._listening, self._stopped = trio.CancelScope(), trio.Event()
        while True:
            # Not an ephemeral port: it must still be free when we start again.
            port = self.port or free_port()
            try:
                listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
            except OSError:
                if self.port:
                    raise
                continue
            self.port = port
            break

        async def listen() -> None:
            with self._listening:
                await trio.serve_listeners(self._serve, listeners, handler_nursery=nursery)
            self._stopped.set()

        nursery.start_soon(listen)

    async def stop(self) -> None:
        """Refuse new connections and drop existing ones."""
        self._listening.cancel()
        await self._stopped.wait()
        self.drop_all()

    def drop_all(self) -> None:
        for stream in self._streams:
            stream.socket.close()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _answer(self, command: list[bytes]) -> bytes:
        name = command[0].decode().upper()
        answer = self.answers.get(name)
        if answer is None and name == "HELLO":
            return hello(self.id, (self.id, "", self.port, self.priority), *self.others)
        if isinstance(answer, list):
            return answer.pop(0) if len(answer) > 1 else answer[0]
        if callable(answer):
            return answer(command)
        return answer if answer is not None else b"-ERR unknown command\r\n"

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        number = self.connections
        self.open_connections += 1
        self._streams.add(stream)
        hanging = False
        try:
            reader = hiredis.Reader()
            async for data in stream:
                reader.feed(bytes(data))
                while (command := reader.gets()) is not False:
                    self.seen.append(command)
                    self.seen_on.append((number, command[0].decode()))
                    answer = self._answer(command)
                    self._tell()
                    if answer == self.DROP:
                        return
                    if answer == self.HANG:
                        hanging = True
                        continue
                    await stream.send_all(answer)
            if hanging and self.late:
                await stream.send_all(self.late)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass
        finally:
            self._streams.discard(stream)
            self.open_connections -= 1
            self._tell()
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def fake_nodes(count: int = 1) -> AsyncIterator[list[FakeNode]]:
    """Nodes that know each other with priority 1."""
    nodes = [FakeNode(chr(ord("a") + n) * 40) for n in range(count)]
    async with trio.open_nursery() as nursery:
        for node in nodes:
            await node.start(nursery)
        for node in nodes:
            node.others = [(n.id, "127.0.0.1", n.port, 1) for n in nodes if n is not node]
        yield nodes
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def fake_node() -> AsyncIterator[FakeNode]:
    async with fake_nodes(1) as [node]:
        yield node
