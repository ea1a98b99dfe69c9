"""What a measurement asks of a server's protocol, whichever it is.

A job's *life* is: it is added, and that is confirmed; it is taken; it is acknowledged. A client
leads a batch of jobs through their lives, then the next. Where a protocol can do a part of that
without waiting for an answer, it may: each server is used as its own clients use it.
"""

from __future__ import annotations

import math
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tools.bench.load import RECEIVE_BYTES, LoadError, Script, Shape

HOST: Final = "127.0.0.1"
CRLF: Final = b"\r\n"
ANSWER_SECONDS: Final = 30.0
now: Final = time.perf_counter
NOT_TIMED: Final = math.nan

Batches = Iterator[Sequence[bytes]]
"""The bodies of the jobs of each batch. Clients share one iterator."""


class Client(ABC):
    """One server's protocol. Bodies have ``size`` bytes, none of which ends a line.

    All methods raise LoadError or OSError when the server does not do what it is asked.
    """

    def __init__(self, size: int) -> None:
        self.size = size

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


def dial(port: int) -> socket.socket:
    """A blocking connection that sends at once."""
    sock = socket.create_connection((HOST, port), ANSWER_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive(sock: socket.socket, done: Callable[[bytes], bool]) -> bytes:
    """What a blocking connection brings until there is enough of it."""
    reply = b""
    while not done(reply):
        chunk = sock.recv(RECEIVE_BYTES)
        if not chunk:
            raise LoadError("the server closed the connection")
        reply += chunk
    return reply


def ask_line(port: int, request: bytes) -> bytes:
    """What a server answers on a connection of its own: at least one line, CRLFs included."""
    with dial(port) as sock:
        sock.sendall(request)
        return receive(sock, lambda reply: reply.endswith(CRLF))


class LinesReply(Shape):
    """Replies of so many ``lines``, each of which begins with ``head`` (maybe itself lines)."""

    def __init__(self, head: bytes, lines: int) -> None:
        self.head = head
        self.lines = lines
        self._next = CRLF + head

    def complete(self, reply: bytes, count: int) -> bool:
        head = self.head
        if not reply.startswith(head) and not head.startswith(reply):
            raise LoadError(f"the server answered {reply[:100]!r}")
        heads = 1 + reply.count(self._next)
        found = reply.count(CRLF)
        if found < self.lines * count and found <= self.lines * heads:
            return False
        if found != self.lines * count or heads != count:
            errors = (line for line in reply.split(CRLF) if line.startswith(b"-"))
            raise LoadError(f"the server answered {next(errors, reply[-100:])[:100]!r}")
        return reply.endswith(CRLF)
