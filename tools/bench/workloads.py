"""The work itself: one job queue in the words of Disque and in those of Redis.

A *dialect* encodes the three steps of a job's life (add, take, ack) and knows what their
replies look like; the scripts below drive a connection through them. Redis does the job
as its reliable queues do: LPUSH adds, RPOPLPUSH takes into the worker's own list of jobs in
hand, LREM removes the job from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import ClassVar

from tools.bench.load import Exchange, LoadError, Script, Shape

QUEUE = b"bench"
IN_HAND = b"bench:in-hand:%d"
SERIAL_DIGITS = 12
CRLF = b"\r\n"


def encode(*args: bytes) -> bytes:
    """A command as a RESP array of bulk strings."""
    return b"*%d\r\n%b" % (len(args), b"".join(b"$%d\r\n%b\r\n" % (len(a), a) for a in args))


def bad_reply(reply: bytes) -> LoadError:
    """The error that names what the server said, its first error line if there is one."""
    lines = reply.split(CRLF)
    said = next((line for line in lines if line.startswith(b"-")), reply[:100])
    return LoadError(f"the server answered {said!r}")


class FixedReply(Shape):
    """Replies that all have one size: ``head`` begins each, ``lines`` CRLFs are in each."""

    def __init__(self, head: bytes, size: int, lines: int) -> None:
        self.head = head
        self.size = size
        self.lines = lines

    def complete(self, reply: bytes, count: int) -> bool:
        size = self.size
        missing = count * size - len(reply)
        if missing == 0:
            # A reply of another kind among good ones shifts the first bytes of what follows.
            if (
                reply.startswith(self.head)
                and reply[::size] == self.head[:1] * count
                and reply.count(CRLF) == self.lines * count
                and reply.endswith(CRLF)
            ):
                return True
            raise bad_reply(reply)
        # Seen here, a wrong reply is reported at once instead of when the wait for more ends.
        tail = reply[len(reply) // size * size :][: len(self.head)]
        if missing < 0 or not self.head.startswith(tail):
            raise bad_reply(reply)
        return False


class ConstantReply(Shape):
    """Replies that are all the same bytes."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def complete(self, reply: bytes, count: int) -> bool:
        expected = self.text * count
        if reply == expected:
            return True
        if not expected.startswith(reply):
            raise bad_reply(reply)
        return False


class IntegerReply(Shape):
    """Integer replies of any value, as LPUSH gives."""

    def complete(self, reply: bytes, count: int) -> bool:
        if not reply.startswith(b":") or b"-" in reply:
            raise bad_reply(reply)
        if reply.count(CRLF) < count or not reply.endswith(CRLF):
            return False
        if reply.count(CRLF) != count or reply.count(b":") != count:
            raise bad_reply(reply)
        return True


class Dialect(ABC):
    """One server's words for the work. ``size`` is a job's body in bytes."""

    commands: ClassVar[Mapping[str, str]]
    """The command's name for each of the steps "add", "take" and "ack"."""
    length: ClassVar[bytes]
    """The request for the number of jobs queued."""
    added: Shape
    taken: FixedReply
    acked: Shape
    _handle: slice

    @abstractmethod
    def __init__(self, size: int) -> None: ...

    @abstractmethod
    def add(self, body: bytes) -> bytes:
        """The request that adds a job."""

    @abstractmethod
    def take(self, worker: int) -> bytes:
        """The request that takes a job for a worker."""

    @abstractmethod
    def ack(self, worker: int, handle: bytes) -> bytes:
        """The request that ends the job of a handle, which this worker took."""

    def handles(self, replies: bytes) -> list[bytes]:
        """What acknowledges each of the jobs in the replies to a batch of takes."""
        size, part = self.taken.size, self._handle
        return [replies[at + part.start : at + part.stop] for at in range(0, len(replies), size)]


class Disque(Dialect):
    """ADDJOB, GETJOB, ACKJOB."""

    commands: ClassVar = {"add": "ADDJOB", "take": "GETJOB", "ack": "ACKJOB"}
    length = encode(b"QLEN", QUEUE)
    ID_LENGTH = 40

    def __init__(self, size: int, queue: bytes = QUEUE) -> None:
        self.added = FixedReply(b"+D-", self.ID_LENGTH + 3, 1)
        before_id = b"*1\r\n*3\r\n$%d\r\n%b\r\n$%d\r\n" % (len(queue), queue, self.ID_LENGTH)
        reply = before_id + b"i" * self.ID_LENGTH + b"\r\n$%d\r\n%b\r\n" % (size, b"b" * size)
        self.taken = FixedReply(before_id, len(reply), reply.count(CRLF))
        self.acked = ConstantReply(b":1\r\n")
        self._handle = slice(len(before_id), len(before_id) + self.ID_LENGTH)

    def add(self, body: bytes) -> bytes:
        return encode(b"ADDJOB", QUEUE, body, b"0")

    def take(self, worker: int) -> bytes:
        return encode(b"GETJOB", b"NOHANG", b"FROM", QUEUE)

    def ack(self, worker: int, handle: bytes) -> bytes:
        return encode(b"ACKJOB", handle)


class Redis(Dialect):
    """LPUSH, RPOPLPUSH, LREM."""

    commands: ClassVar = {"add": "LPUSH", "take": "RPOPLPUSH", "ack": "LREM"}
    length = encode(b"LLEN", QUEUE)

    def __init__(self, size: int) -> None:
        self.added = IntegerReply()
        head = b"$%d\r\n" % size
        self.taken = FixedReply(head, len(head) + size + 2, 2)
        self.acked = ConstantReply(b":1\r\n")
        self._handle = slice(len(head), len(head) + size)

    def add(self, body: bytes) -> bytes:
        return encode(b"LPUSH", QUEUE, body)

    def take(self, worker: int) -> bytes:
        return encode(b"RPOPLPUSH", QUEUE, IN_HAND % worker)

    def ack(self, worker: int, handle: bytes) -> bytes:
        # A worker ends its jobs in the order in which it took them, so the job is the one
        # in hand for longest, at the tail: -1 searches from there.
        return encode(b"LREM", IN_HAND % worker, b"-1", handle)


DIALECTS: Mapping[str, type[Dialect]] = {"disque": Disque, "redis": Redis}


def bodies(size: int) -> Iterator[bytes]:
    """Endless distinct job bodies of ``size`` bytes; ValueError when that is too small."""
    if size < SERIAL_DIGITS:
        raise ValueError(f"a job's body needs at least {SERIAL_DIGITS} bytes, not {size}")
    filling = b"x" * (size - SERIAL_DIGITS)
    number = 0
    while True:
        yield b"%0*d%b" % (SERIAL_DIGITS, number, filling)
        number += 1


def add_batches(dialect: Dialect, new: Iterator[bytes], jobs: int, pipeline: int) -> list[Exchange]:
    """The batches that add ``jobs`` jobs with bodies from ``new``."""
    requests = [dialect.add(body) for body in islice(new, jobs)]
    return _batches(requests, pipeline, dialect.added)


def ack_batches(
    dialect: Dialect, worker: int, handles: Sequence[bytes], pipeline: int
) -> list[Exchange]:
    """The batches in which a worker ends the jobs of these handles, in this order."""
    requests = [dialect.ack(worker, handle) for handle in handles]
    return _batches(requests, pipeline, dialect.acked)


def _batches(requests: Sequence[bytes], pipeline: int, shape: Shape) -> list[Exchange]:
    parts = (requests[at : at + pipeline] for at in range(0, len(requests), pipeline))
    return [Exchange(b"".join(part), shape, len(part)) for part in parts]


def send(batches: Iterable[Exchange]) -> Script:
    """Sends batches while there are any; several connections may share an iterator."""
    # Not "yield from": that would hand the replies on to an iterator, which takes none.
    for batch in batches:  # noqa: UP028
        yield batch


def take(dialect: Dialect, worker: int, counts: Iterable[int], replies: list[bytes]) -> Script:
    """Takes so many jobs in a batch while there are counts, and keeps the replies."""
    request = dialect.take(worker)
    for count in counts:
        reply = yield Exchange(request * count, dialect.taken, count)
        replies.append(reply)


def cycle(dialect: Dialect, worker: int, adds: Iterable[Exchange]) -> Script:
    """For every batch of adds takes as many jobs and ends those it got.

    Each worker takes only after its own adds were answered, so there is always a job.
    """
    request = dialect.take(worker)
    for add in adds:
        yield add
        count = add.commands
        handles = dialect.handles((yield Exchange(request * count, dialect.taken, count)))
        acks = b"".join([dialect.ack(worker, handle) for handle in handles])
        yield Exchange(acks, dialect.acked, count)
