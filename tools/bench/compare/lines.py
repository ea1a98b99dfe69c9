"""Protocols of requests and replies, one reply each: Disque's, Redis's and beanstalkd's.

Pipelined by N means that N requests of one kind are sent in one go.
"""

from __future__ import annotations

import re
import socket
from abc import abstractmethod
from collections.abc import Sequence

from tools.bench.compare.client import (
    CRLF,
    NOT_TIMED,
    Batches,
    Client,
    LinesReply,
    ask_line,
    dial,
    now,
)
from tools.bench.load import Exchange, LoadError, Script, Shape
from tools.bench.workloads import IN_HAND, QUEUE, ConstantReply, Dialect, Disque, Redis, encode

GROUP = b"workers"
TUBE = b"default"


class LineClient(Client):
    """Three requests a job, each of them answered."""

    added: Shape
    taken: Shape
    acked: Shape
    acks = 1
    """How many requests end a job."""

    @abstractmethod
    def add(self, bodies: Sequence[bytes]) -> bytes:
        """The requests that add these jobs."""

    @abstractmethod
    def take(self, worker: int) -> bytes:
        """The request that takes one job."""

    @abstractmethod
    def ack(self, worker: int, reply: bytes) -> bytes:
        """The requests that end the jobs in a reply to takes."""

    def connect(self, port: int, worker: int, pipeline: int) -> socket.socket:
        sock = dial(port)
        sock.setblocking(False)
        return sock

    def lives(self, worker: int, batches: Batches, times: list[float]) -> Script:
        take, acks = self.take(worker), self.acks
        started = NOT_TIMED
        for bodies in batches:
            count = len(bodies)
            yield Exchange(self.add(bodies), self.added, count)
            reply = yield Exchange(take * count, self.taken, count)
            yield Exchange(self.ack(worker, reply), self.acked, count * acks)
            ended = now()
            times.append(ended - started)
            started = ended


class RespClient(LineClient):
    """A server that knows PING."""

    def prepare(self, port: int) -> None:
        _expect(port, encode(b"PING"), b"+PONG\r\n")


class DialectClient(RespClient):
    """What the other benchmarks have the words for."""

    def __init__(self, size: int, dialect: Dialect) -> None:
        super().__init__(size)
        self.added, self.taken, self.acked = dialect.added, dialect.taken, dialect.acked
        self._dialect = dialect
        self._head, self._tail = dialect.add(b"x" * size).split(b"x" * size)

    def add(self, bodies: Sequence[bytes]) -> bytes:
        head, tail = self._head, self._tail
        return b"".join([head + body + tail for body in bodies])

    def take(self, worker: int) -> bytes:
        return self._dialect.take(worker)

    def ack(self, worker: int, reply: bytes) -> bytes:
        head, tail = self._around_handle(worker)
        return b"".join([head + handle + tail for handle in self._dialect.handles(reply)])

    @abstractmethod
    def _around_handle(self, worker: int) -> tuple[bytes, bytes]:
        """What stands before and behind the handle of a job in the request that ends it."""


class DisqueClient(DialectClient):
    """ADDJOB, GETJOB, ACKJOB."""

    def __init__(self, size: int) -> None:
        super().__init__(size, Disque(size))

    def _around_handle(self, worker: int) -> tuple[bytes, bytes]:
        return b"*2\r\n$6\r\nACKJOB\r\n$40\r\n", CRLF

    def unfinished(self, port: int) -> int:
        return _integer(port, encode(b"QLEN", QUEUE))


class ListClient(DialectClient):
    """A reliable queue of Redis lists: LPUSH, RPOPLPUSH, LREM."""

    def __init__(self, size: int) -> None:
        super().__init__(size, Redis(size))

    def _around_handle(self, worker: int) -> tuple[bytes, bytes]:
        mine = IN_HAND % worker
        head = b"*4\r\n$4\r\nLREM\r\n$%d\r\n%b\r\n$2\r\n-1\r\n$%d\r\n" % (
            len(mine),
            mine,
            self.size,
        )
        return head, CRLF

    def unfinished(self, port: int) -> int:
        # Every LREM said that it removed its job from a worker's list.
        return _integer(port, encode(b"LLEN", QUEUE))


class StreamClient(RespClient):
    """A Redis stream with a group: XADD, XREADGROUP, XACK and, unless entries are ``kept`` in the
    stream for ever, XDEL, sent together with the XACK."""

    FIELD = b"b"
    LINES = 13
    LINE_OF_ID = 7

    def __init__(self, size: int, kept: bool) -> None:
        super().__init__(size)
        self.kept = kept
        self.acks = 1 if kept else 2
        body = b"x" * size
        self._head, self._tail = encode(b"XADD", QUEUE, b"*", self.FIELD, body).split(body)
        self.added = LinesReply(b"$", 2)
        # A list of streams, of a name and entries, of an id and fields.
        self.taken = LinesReply(b"*1\r\n*2\r\n$%d\r\n%b" % (len(QUEUE), QUEUE), self.LINES)
        self.acked = ConstantReply(b":1\r\n")

    def prepare(self, port: int) -> None:
        super().prepare(port)
        _expect(port, encode(b"XGROUP", b"CREATE", QUEUE, GROUP, b"$", b"MKSTREAM"), b"+OK\r\n")

    def add(self, bodies: Sequence[bytes]) -> bytes:
        head, tail = self._head, self._tail
        return b"".join([head + body + tail for body in bodies])

    def take(self, worker: int) -> bytes:
        words = (b"XREADGROUP", b"GROUP", GROUP, b"w%d" % worker, b"COUNT", b"1")
        return encode(*words, b"STREAMS", QUEUE, b">")

    def ack(self, worker: int, reply: bytes) -> bytes:
        found = self.ids(reply)
        head = b"*4\r\n$4\r\nXACK\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            *(len(QUEUE), QUEUE),
            *(len(GROUP), GROUP),
        )
        acks = b"".join([b"%b$%d\r\n%b\r\n" % (head, len(one), one) for one in found])
        if self.kept:
            return acks
        head = b"*3\r\n$4\r\nXDEL\r\n$%d\r\n%b\r\n" % (len(QUEUE), QUEUE)
        return acks + b"".join([b"%b$%d\r\n%b\r\n" % (head, len(one), one) for one in found])

    def ids(self, reply: bytes) -> list[bytes]:
        """The ids of the entries in complete replies to XREADGROUPs of one entry."""
        return reply.split(CRLF)[self.LINE_OF_ID :: self.LINES]

    def unfinished(self, port: int) -> int:
        if not self.kept:
            return _integer(port, encode(b"XLEN", QUEUE))
        reply = ask_line(port, encode(b"XPENDING", QUEUE, GROUP))
        found = re.match(rb"\*4\r\n:(\d+)\r\n", reply)
        if found is None:
            raise LoadError(f"the server answered {reply[:100]!r}")
        return int(found[1])


class BeanstalkClient(LineClient):
    """put, reserve-with-timeout 0, delete."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        # Priority 0, no delay, 120 s to work.
        self._head = b"put 0 0 120 %d\r\n" % size
        self.added = LinesReply(b"INSERTED ", 1)
        self.taken = LinesReply(b"RESERVED ", 2)
        self.acked = ConstantReply(b"DELETED\r\n")

    def prepare(self, port: int) -> None:
        _expect(port, b"watch %b\r\n" % TUBE, b"WATCHING 1\r\n")

    def add(self, bodies: Sequence[bytes]) -> bytes:
        head = self._head
        return b"".join([head + body + CRLF for body in bodies])

    def take(self, worker: int) -> bytes:
        return b"reserve-with-timeout 0\r\n"

    def ack(self, worker: int, reply: bytes) -> bytes:
        lines = reply.split(CRLF)[:-1:2]
        return b"".join([b"delete %b\r\n" % line.split(b" ")[1] for line in lines])

    def unfinished(self, port: int) -> int:
        # beanstalkd ends a line with a mere LF inside of its reply, and with CRLF after it.
        reply = ask_line(port, b"stats-tube %b\r\n" % TUBE)
        found = re.findall(rb"^current-jobs-(?:ready|reserved|delayed|buried): (\d+)", reply, re.M)
        if not reply.startswith(b"OK ") or len(found) != 4:
            raise LoadError(f"the server answered {reply[:100]!r}")
        return sum(map(int, found))


def _expect(port: int, request: bytes, expected: bytes) -> None:
    reply = ask_line(port, request)
    if reply != expected:
        raise LoadError(f"the server answered {reply[:100]!r}")


def _integer(port: int, request: bytes) -> int:
    reply = ask_line(port, request)
    found = re.fullmatch(rb":(\d+)\r\n", reply)
    if found is None:
        raise LoadError(f"the server answered {reply[:100]!r}")
    return int(found[1])
