"""The work: a job queue in each server's commands.

A *dialect* encodes the three steps of a job's life (add, take, ack) and knows their replies;
``scripts`` drive a connection through them. Redis uses its reliable queue pattern (LPUSH adds,
RPOPLPUSH moves a job into the worker's own list, LREM removes it from there), or a stream with a
group.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from disque_trio.resp.command import encode_command
from tools.bench.load import PING, LoadError, Shape, ask_once

QUEUE = b"bench"
GROUP = b"workers"
TUBE = b"default"
IN_HAND = b"bench:in-hand:%d"
ID_LENGTH = 40
CRLF = b"\r\n"
ADD_TIMEOUT = b"20000"  # ms
# Nothing must be requeued during a measurement.
LONG = (b"RETRY", b"86400", b"TTL", b"604800")


def encode(*args: bytes) -> bytes:
    """A command as a RESP array of bulk strings."""
    return encode_command(args)


def bad_reply(reply: bytes) -> LoadError:
    """The error for a wrong reply, with its first error line if there is one."""
    lines = reply.split(CRLF)
    said = next((line for line in lines if line.startswith(b"-")), reply[:100])
    return LoadError(f"the server answered {said!r}")


# ---- replies -------------------------------------------------------------------------------


class FixedReply(Shape):
    """Replies of a fixed size: each begins with ``head`` and contains ``lines`` CRLFs."""

    def __init__(self, head: bytes, size: int, lines: int) -> None:
        self.head = head
        self.size = size
        self.lines = lines

    def complete(self, reply: bytes, count: int) -> bool:
        size = self.size
        missing = count * size - len(reply)
        if missing == 0:
            # A different reply among good ones shifts the first bytes of those after it.
            if (
                reply.startswith(self.head)
                and reply[::size] == self.head[:1] * count
                and reply.count(CRLF) == self.lines * count
                and reply.endswith(CRLF)
            ):
                return True
            raise bad_reply(reply)
        # Check here to report a wrong reply at once, not after waiting for more.
        tail = reply[len(reply) // size * size :][: len(self.head)]
        if missing < 0 or not self.head.startswith(tail):
            raise bad_reply(reply)
        return False


class ConstantReply(Shape):
    """Identical replies."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def complete(self, reply: bytes, count: int) -> bool:
        expected = self.text * count
        if reply == expected:
            return True
        if not expected.startswith(reply):
            raise bad_reply(reply)
        return False


class ArrayReply(Shape):
    """A reply that is an array of any length, or null; each element takes ``each`` bytes."""

    def __init__(self, each: int) -> None:
        self.each = each

    def complete(self, reply: bytes, count: int) -> bool:
        head, ended, rest = reply.partition(CRLF)
        length = head[1:].removeprefix(b"-")
        if not reply.startswith(b"*") or (ended and not length.isdigit()):
            raise bad_reply(reply)
        missing = max(int(head[1:]), 0) * self.each - len(rest) if ended else 1
        if missing < 0:
            raise bad_reply(reply)
        return missing == 0


class LinesReply(Shape):
    """Replies of ``lines`` lines, each of which begins with ``head`` (which may contain lines)."""

    def __init__(self, head: bytes, lines: int) -> None:
        self.head = head
        self.lines = lines
        self._next = CRLF + head

    def complete(self, reply: bytes, count: int) -> bool:
        head = self.head
        if not reply.startswith(head) and not head.startswith(reply):
            raise bad_reply(reply)
        heads = 1 + reply.count(self._next)
        found = reply.count(CRLF)
        if found < self.lines * count and found <= self.lines * heads:
            return False
        if found != self.lines * count or heads != count:
            errors = (line for line in reply.split(CRLF) if line.startswith(b"-"))
            raise LoadError(f"the server answered {next(errors, reply[-100:])[:100]!r}")
        return reply.endswith(CRLF)


# ---- dialects ------------------------------------------------------------------------------


class Dialect(ABC):
    """One server's commands for the work. ``size``: of a job's body in bytes."""

    commands: ClassVar[Mapping[str, str]] = {}
    """The command names of the steps "add", "take" and "ack"."""
    length: ClassVar[bytes] = b""
    """The request for the number of queued jobs."""
    setup: ClassVar[tuple[bytes, bytes]] = PING
    """A request that creates the queue on a new server, and its reply."""
    acks: int = 1
    """The commands that end a job."""
    added: Shape
    taken: Shape
    acked: Shape

    @abstractmethod
    def add(self, body: bytes) -> bytes:
        """The request that adds a job."""

    @abstractmethod
    def take(self, worker: int) -> bytes:
        """The request that takes a job for a worker."""

    @abstractmethod
    def ack(self, worker: int, handle: bytes) -> bytes:
        """The request that ends the job with a handle, which this worker took."""

    @abstractmethod
    def handles(self, replies: bytes) -> list[bytes]:
        """The handles of the jobs in the replies to a batch of takes."""

    def unfinished(self, port: int) -> int:
        """The number of queued jobs."""
        reply = ask_once(port, self.length)
        if not reply.startswith(b":"):
            raise bad_reply(reply)
        return int(reply[1:])


class _FixedDialect(Dialect):
    """A dialect whose takes have replies of a fixed size, with the handle at a fixed place."""

    taken: FixedReply
    _handle: slice

    def handles(self, replies: bytes) -> list[bytes]:
        size, part = self.taken.size, self._handle
        return [replies[at + part.start : at + part.stop] for at in range(0, len(replies), size)]


class Disque(_FixedDialect):
    """ADDJOB (with ``options``), GETJOB, ACKJOB."""

    commands: ClassVar = {"add": "ADDJOB", "take": "GETJOB", "ack": "ACKJOB"}
    length = encode(b"QLEN", QUEUE)

    def __init__(
        self,
        size: int,
        queue: bytes = QUEUE,
        options: Sequence[bytes] = (b"0",),
        waits: bool = False,
    ) -> None:
        self.added = FixedReply(b"+D-", ID_LENGTH + 3, 1)
        before_id = b"*1\r\n*3\r\n$%d\r\n%b\r\n$%d\r\n" % (len(queue), queue, ID_LENGTH)
        reply = before_id + b"i" * ID_LENGTH + b"\r\n$%d\r\n%b\r\n" % (size, b"b" * size)
        self.taken = FixedReply(before_id, len(reply), reply.count(CRLF))
        self.acked = ConstantReply(b":1\r\n")
        self._handle = slice(len(before_id), len(before_id) + ID_LENGTH)
        self._head, self._tail = encode(b"ADDJOB", queue, b"b" * size, *options).split(b"b" * size)
        self._take = encode(b"GETJOB", *(() if waits else (b"NOHANG",)), b"FROM", queue)

    def add(self, body: bytes) -> bytes:
        return self._head + body + self._tail

    def take(self, worker: int) -> bytes:
        return self._take

    def ack(self, worker: int, handle: bytes) -> bytes:
        return b"*2\r\n$6\r\nACKJOB\r\n$%d\r\n%b\r\n" % (len(handle), handle)


def copied(size: int, queue: bytes, replicate: int, asynchronous: bool) -> Disque:
    """A dialect for replicated jobs in one queue; a take waits for a job."""
    options = (ADD_TIMEOUT, b"REPLICATE", b"%d" % replicate, *LONG, *[b"ASYNC"] * asynchronous)
    return Disque(size, queue, options, waits=True)


def idle(size: int, queue: bytes, replicate: int, retry: int) -> Disque:
    """A dialect for replicated jobs that are to lie in their queue for long."""
    options = (ADD_TIMEOUT, b"REPLICATE", b"%d" % replicate, b"RETRY", b"%d" % retry)
    return Disque(size, queue, options)


def timed(size: int, *options: bytes) -> Disque:
    """A dialect for jobs delivered at most once, with a timer."""
    return Disque(size, options=(b"0", b"RETRY", b"0", *options))


class Batched:
    """GETJOB with COUNT, for exactly that many (``take``) or what is available (``wait``), and one
    ACKJOB for all of them.

    Args:
        count: jobs in a batch. size: bytes of a body.
    """

    def __init__(self, count: int, size: int) -> None:
        one = Disque(size).taken
        head = b"*%d\r\n" % count
        # Each job is as in a reply with one job, without its head.
        self._each = one.size - len(b"*1\r\n")
        self._first = len(one.head) - len(b"*1\r\n") - len(b"$40\r\n")
        self.take = encode(b"GETJOB", b"NOHANG", b"COUNT", b"%d" % count, b"FROM", QUEUE)
        whole = len(head) + count * self._each
        self.taken = FixedReply(head, whole, 1 + count * (one.lines - 1))
        self.acked = ConstantReply(b":%d\r\n" % count)
        options = (b"TIMEOUT", b"50", b"COUNT", b"%d" % count)
        self.wait = encode(b"GETJOB", *options, b"FROM", QUEUE)
        self.waited = ArrayReply(self._each)

    def ack(self, reply: bytes) -> bytes:
        """The request that ends the jobs in a reply."""
        length = len(b"$40\r\n\r\n") + ID_LENGTH
        places = range(reply.index(CRLF) + 2 + self._first, len(reply), self._each)
        ids = [reply[at : at + length] for at in places]
        return b"*%d\r\n$6\r\nACKJOB\r\n" % (len(ids) + 1) + b"".join(ids)


class RedisList(_FixedDialect):
    """LPUSH, RPOPLPUSH, LREM."""

    commands: ClassVar = {"add": "LPUSH", "take": "RPOPLPUSH", "ack": "LREM"}
    length = encode(b"LLEN", QUEUE)

    def __init__(self, size: int) -> None:
        self.added = LinesReply(b":", 1)
        head = b"$%d\r\n" % size
        self.taken = FixedReply(head, len(head) + size + 2, 2)
        self.acked = ConstantReply(b":1\r\n")
        self._handle = slice(len(head), len(head) + size)

    def add(self, body: bytes) -> bytes:
        return encode(b"LPUSH", QUEUE, body)

    def take(self, worker: int) -> bytes:
        return encode(b"RPOPLPUSH", QUEUE, IN_HAND % worker)

    def ack(self, worker: int, handle: bytes) -> bytes:
        # A worker ends its jobs in the order in which it took them, so the job is the oldest in its
        # list, at the tail: -1 searches from there.
        mine = IN_HAND % worker
        head = b"*4\r\n$4\r\nLREM\r\n$%d\r\n%b\r\n$2\r\n-1\r\n" % (len(mine), mine)
        return b"%b$%d\r\n%b\r\n" % (head, len(handle), handle)


class RedisStream(Dialect):
    """A stream with a group: XADD, XREADGROUP, XACK and, unless entries are ``kept`` in the
    stream forever, XDEL, sent together with the XACK."""

    commands: ClassVar = {"add": "XADD", "take": "XREADGROUP", "ack": "XACK"}
    setup: ClassVar = (encode(b"XGROUP", b"CREATE", QUEUE, GROUP, b"0", b"MKSTREAM"), b"+OK")
    LINES = 13
    LINE_OF_ID = 7

    def __init__(self, size: int, kept: bool = False, queue: bytes = QUEUE) -> None:
        self.kept = kept
        self.queue = queue
        self.acks = 1 if kept else 2
        body = b"x" * size
        self._head, self._tail = encode(b"XADD", queue, b"*", b"b", body).split(body)
        self.added = LinesReply(b"$", 2)
        # A list of streams (name and entries) with entries (id and fields).
        self.taken = LinesReply(b"*1\r\n*2\r\n$%d\r\n%b" % (len(queue), queue), self.LINES)
        self.acked = ConstantReply(b":1\r\n")
        self._ack = (
            encode(b"XACK", queue, GROUP, b"").removesuffix(b"$0\r\n\r\n") + b"$%d\r\n%b\r\n"
        )
        self._delete = encode(b"XDEL", queue, b"").removesuffix(b"$0\r\n\r\n") + b"$%d\r\n%b\r\n"

    def add(self, body: bytes) -> bytes:
        return self._head + body + self._tail

    def take(self, worker: int) -> bytes:
        words = (b"XREADGROUP", b"GROUP", GROUP, b"w%d" % worker, b"COUNT", b"1")
        return encode(*words, b"STREAMS", self.queue, b">")

    def ack(self, worker: int, handle: bytes) -> bytes:
        ack = self._ack % (len(handle), handle)
        return ack if self.kept else ack + self._delete % (len(handle), handle)

    def handles(self, replies: bytes) -> list[bytes]:
        return replies.split(CRLF)[self.LINE_OF_ID :: self.LINES]

    def unfinished(self, port: int) -> int:
        words = (b"XPENDING", self.queue, GROUP) if self.kept else (b"XLEN", self.queue)
        reply = ask_once(port, encode(*words))
        found = re.match(rb"(?:\*4\r\n)?:(\d+)", reply)
        if found is None:
            raise bad_reply(reply)
        return int(found[1])


class Bananaq(Dialect):
    """QADD, QGET, QACK; events are kept for other groups."""

    def __init__(self, queue: bytes) -> None:
        self.queue = queue
        self.added = LinesReply(b"$", 2)
        self.taken = LinesReply(b"*2\r\n$", 5)
        self.acked = ConstantReply(b":1\r\n")
        self._take = encode(b"QGET", queue, GROUP, b"EX", b"600")

    def add(self, body: bytes) -> bytes:
        return encode(b"QADD", self.queue, b"3600", body)

    def take(self, worker: int) -> bytes:
        return self._take

    def ack(self, worker: int, handle: bytes) -> bytes:
        return encode(b"QACK", self.queue, GROUP, handle)

    def handles(self, replies: bytes) -> list[bytes]:
        return replies.split(CRLF)[2::5]


class Beanstalk(Dialect):
    """put, reserve-with-timeout 0, delete."""

    setup: ClassVar = (b"watch %b\r\n" % TUBE, b"WATCHING 1")

    def __init__(self, size: int) -> None:
        # Priority 0, no delay, 120 s to run.
        self._head = b"put 0 0 120 %d\r\n" % size
        self.added = LinesReply(b"INSERTED ", 1)
        self.taken = LinesReply(b"RESERVED ", 2)
        self.acked = ConstantReply(b"DELETED\r\n")

    def add(self, body: bytes) -> bytes:
        return self._head + body + CRLF

    def take(self, worker: int) -> bytes:
        return b"reserve-with-timeout 0\r\n"

    def ack(self, worker: int, handle: bytes) -> bytes:
        return b"delete %b\r\n" % handle

    def handles(self, replies: bytes) -> list[bytes]:
        return [line.split(b" ")[1] for line in replies.split(CRLF)[:-1:2]]

    def unfinished(self, port: int) -> int:
        # Lines within the reply end with LF, and the reply ends with CRLF.
        reply = ask_once(port, b"stats-tube %b\r\n" % TUBE).decode()
        kinds = ("ready", "reserved", "delayed", "buried")
        found = [
            line.partition(": ")[2]
            for line in reply.split("\n")
            if line.startswith(tuple(f"current-jobs-{kind}:" for kind in kinds))
        ]
        if not reply.startswith("OK ") or len(found) != len(kinds):
            raise LoadError(f"the server answered {reply[:100]!r}")
        return sum(map(int, found))


DIALECTS: Mapping[str, type[Disque | RedisList]] = {"disque": Disque, "redis": RedisList}
