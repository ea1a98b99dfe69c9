"""A node without a process: time is moved by hand, randomness is seeded."""

import random
from collections.abc import Callable

import hiredis
import pytest

from disque_trio.commands.table import build_table
from disque_trio.core.client import Client
from disque_trio.core.host import Host
from disque_trio.core.node import Node
from disque_trio.core.peers import Peers

START = 1_700_000_000_000  # ms


class Bench:
    """A node, its clock and its clients."""

    def __init__(self, seed: int = 1, maxmemory: int = 0, host: Host | None = None) -> None:
        rng = random.Random(seed)
        self.now = START
        self.node = Node(
            id=b"%040x" % rng.getrandbits(160),
            commands=build_table(),
            host=host or Host(),
            peers=Peers(),
            entropy=rng.randbytes,
            rng=rng,
            clock=lambda: 0,
            maxmemory=maxmemory,
        )
        self._clients = 0
        self.me = self.client()

    def client(self) -> Client:
        self._clients += 1
        return Client(self._clients)

    def send(self, client: Client, *args: bytes | str | int) -> None:
        """A request of ``client``."""
        words = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        self.node.command(client, words, self.now)

    def replies(self, client: Client) -> list[object]:
        """What ``client`` was sent since the last call."""
        reader = hiredis.Reader()
        reader.feed(b"".join(client.out))
        client.out.clear()
        found: list[object] = []
        while (reply := reader.gets()) is not False:
            found.append(reply)
        return found

    def __call__(self, *args: bytes | str | int) -> object:
        """The reply to a request that does not block."""
        self.send(self.me, *args)
        replies = self.replies(self.me)
        assert len(replies) == 1, replies
        return replies[0]

    def error(self, *args: bytes | str | int) -> str:
        reply = self(*args)
        assert isinstance(reply, hiredis.ReplyError), reply
        return str(reply)

    def add(self, queue: str = "q", body: str = "body", *options: str | int) -> bytes:
        """ADDJOB; returns the id."""
        id = self("ADDJOB", queue, body, 0, *options)
        assert isinstance(id, bytes), id
        return id

    def get(self, *queues: str) -> bytes | None:
        """GETJOB NOHANG; returns the id or None."""
        reply = self("GETJOB", "NOHANG", "FROM", *(queues or ("q",)))
        if reply is None:
            return None
        assert isinstance(reply, list)
        id = reply[0][1]
        assert isinstance(id, bytes)
        return id

    def show(self, id: bytes) -> dict[bytes, object]:
        reply = self("SHOW", id)
        assert isinstance(reply, list), reply
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def advance(self, seconds: float) -> None:
        """Let time pass, ticking exactly when the node asks for it."""
        end = self.now + int(seconds * 1000)
        while (due := self.node.next_wake()) and due <= end:
            self.now = max(self.now, due)
            self.node.tick(self.now)
        self.now = end
        self.node.tick(end)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    return Bench
