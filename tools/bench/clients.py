"""What a comparison asks of a server's protocol, whichever it is.

A job's *life* is: it is added, and that is confirmed; it is taken; it is acknowledged. A client
leads a batch of jobs through their lives, then the next. Where a protocol can do a part of that
without waiting for an answer, it may: each server is used as its own clients use it.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from tools.bench.dialects import Dialect
from tools.bench.load import Exchange, LoadError, Script, ask_once, dial
from tools.bench.scripts import cycle

Batches = Iterator[Sequence[bytes]]
"""The bodies of the jobs of each batch. Clients share one iterator."""


class Client(ABC):
    """One server's protocol. No byte of a body ends a line.

    All methods raise LoadError or OSError when the server does not do what it is asked.
    """

    @abstractmethod
    def prepare(self, port: int) -> None:
        """Makes the queue on a server that has just been started."""

    @abstractmethod
    def connect(self, port: int, worker: int, pipeline: int) -> socket.socket:
        """The connection of a worker that has batches of ``pipeline`` jobs."""

    @abstractmethod
    def lives(self, worker: int, batches: Batches, times: list[float]) -> Script:
        """Leads the jobs of the batches through their lives.

        Adds to ``times`` how long each batch took, in seconds: from sending the first byte that
        adds its jobs until the answer that ends the last, or, where that is not answered, until
        the last was there to be acknowledged. A worker's first batch is NOT_TIMED: it is made
        before the measurement begins.
        """

    @abstractmethod
    def unfinished(self, port: int) -> int:
        """The jobs that have not ended, of which there must be none after a measurement."""

    def close(self, sock: socket.socket) -> None:
        """Ends the connection of a worker as the protocol has it."""
        sock.close()


class DialectClient(Client):
    """A protocol of requests and replies, one reply each. Pipelined by N means that N requests of
    one kind are sent in one go."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def prepare(self, port: int) -> None:
        request, expected = self.dialect.setup
        reply = ask_once(port, request)
        if reply != expected:
            raise LoadError(f"the server answered {reply[:100]!r}")

    def connect(self, port: int, worker: int, pipeline: int) -> socket.socket:
        sock = dial(port)
        sock.setblocking(False)
        return sock

    def lives(self, worker: int, batches: Batches, times: list[float]) -> Script:
        words = self.dialect
        adds = (
            Exchange(b"".join(map(words.add, bodies)), words.added, len(bodies))
            for bodies in batches
        )
        return cycle(words, worker, adds, times)

    def unfinished(self, port: int) -> int:
        return self.dialect.unfinished(port)
