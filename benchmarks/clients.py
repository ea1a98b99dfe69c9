"""The interface between the comparison and the servers' protocols.

A job's *life* is: it is added, with a confirmation; it is taken; it is acknowledged. A client takes
a batch of jobs through their lives, then the next. If a protocol can do part of that without
waiting for a reply, it may: each server is used as its own clients use it.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from tools.bench.dialects import Dialect
from tools.bench.load import Exchange, LoadError, Script, ask_once, dial
from tools.bench.scripts import consume, cycle, portions, send

Batches = Iterator[Sequence[bytes]]
"""The job bodies of each batch. Clients share one iterator."""


class Client(ABC):
    """One server's protocol. Bodies contain no line ends.

    All methods raise LoadError or OSError if the server does not do as asked.
    """

    @abstractmethod
    def prepare(self, port: int) -> None:
        """Creates the queue on a server that has just started."""

    @abstractmethod
    def connect(self, port: int, worker: int, pipeline: int) -> socket.socket:
        """The connection of a worker with batches of ``pipeline`` jobs."""

    @abstractmethod
    def lives(self, worker: int, batches: Batches, times: list[float]) -> Script:
        """Takes the jobs of the batches through their lives.

        Appends to ``times`` how long each batch took, in seconds: from sending the first byte that
        adds its jobs until the reply that ends the last job, or, if there is no such reply, until
        the last job was there to be acknowledged. A worker's first batch is NOT_TIMED, because it
        is prepared before the measurement begins.
        """

    def taker(self, port: int, worker: int, pipeline: int) -> socket.socket:
        """A worker's connection for ``adds``, or for ``takes`` with such batches."""
        return self.connect(port, worker, pipeline)

    @abstractmethod
    def adds(self, worker: int, batches: Batches) -> Script:
        """Adds the jobs of the batches, each after the last is confirmed."""

    @abstractmethod
    def takes(self, worker: int, counts: Iterable[int]) -> Script:
        """Takes and acknowledges jobs in batches, each of as many as its connection is for. Clients
        share ``counts``, which add up to all jobs, and each finds at least one."""

    def takers(self, workers: int, jobs: int, pipeline: int) -> list[Script]:
        """Scripts that take and acknowledge this many jobs together, in batches."""
        counts = portions(jobs, pipeline)
        return [self.takes(worker, counts) for worker in range(workers)]

    @abstractmethod
    def unfinished(self, port: int) -> int:
        """The number of unfinished jobs, which must be 0 after a measurement."""

    def close(self, sock: socket.socket) -> None:
        """Ends a worker's connection as the protocol requires."""
        sock.close()


class DialectClient(Client):
    """A protocol with one reply per request. Pipelined by N means that N requests of one kind are
    sent at once."""

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
        return cycle(self.dialect, worker, self._exchanges(batches), times)

    def adds(self, worker: int, batches: Batches) -> Script:
        return send(self._exchanges(batches))

    def takes(self, worker: int, counts: Iterable[int]) -> Script:
        return consume(self.dialect, worker, counts)

    def _exchanges(self, batches: Batches) -> Iterator[Exchange]:
        words = self.dialect
        for bodies in batches:
            yield Exchange(b"".join(map(words.add, bodies)), words.added, len(bodies))

    def unfinished(self, port: int) -> int:
        return self.dialect.unfinished(port)
