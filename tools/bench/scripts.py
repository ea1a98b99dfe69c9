"""Scripts that take jobs through their lives: what one connection sends, and in which batches.

``dialects`` has each server's commands.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from tools.bench.dialects import Batched, ConstantReply, Dialect
from tools.bench.load import Exchange, Script, Shape

SERIAL_DIGITS = 12
NOT_TIMED = math.nan


def bodies(size: int) -> Iterator[bytes]:
    """An endless iterator of distinct job bodies of ``size`` bytes. Raises ValueError if that is
    too small."""
    if size < SERIAL_DIGITS:
        raise ValueError(f"a job's body needs at least {SERIAL_DIGITS} bytes, not {size}")
    filling = b"x" * (size - SERIAL_DIGITS)
    number = 0
    while True:
        yield b"%0*d%b" % (SERIAL_DIGITS, number, filling)
        number += 1


def portions(total: int, most: int) -> Iterator[int]:
    """Splits ``total`` into parts of at most ``most``."""
    return (min(most, total - at) for at in range(0, total, most))


def add_batches(dialect: Dialect, new: Iterator[bytes], jobs: int, pipeline: int) -> list[Exchange]:
    """The batches that add ``jobs`` jobs with bodies from ``new``."""
    requests = [dialect.add(body) for body in islice(new, jobs)]
    return _batches(requests, pipeline, dialect.added)


def ack_batches(
    dialect: Dialect, worker: int, handles: Sequence[bytes], pipeline: int
) -> list[Exchange]:
    """The batches in which a worker ends the jobs with these handles, in this order."""
    requests = [dialect.ack(worker, handle) for handle in handles]
    return _batches(requests, pipeline, dialect.acked)


def _batches(requests: Sequence[bytes], pipeline: int, shape: Shape) -> list[Exchange]:
    parts = (requests[at : at + pipeline] for at in range(0, len(requests), pipeline))
    return [Exchange(b"".join(part), shape, len(part)) for part in parts]


def send(batches: Iterable[Exchange], replies: list[bytes] | None = None) -> Script:
    """Sends all batches, and collects the replies; several connections may share an iterator."""
    for batch in batches:
        reply = yield batch
        if replies is not None:
            replies.append(reply)


def take(dialect: Dialect, worker: int, counts: Iterable[int], replies: list[bytes]) -> Script:
    """Takes jobs in batches of ``counts``, and collects the replies."""
    request = dialect.take(worker)
    return send((Exchange(request * count, dialect.taken, count) for count in counts), replies)


def consume(dialect: Dialect, worker: int, counts: Iterable[int]) -> Script:
    """Takes and ends jobs in batches of ``counts``, whoever added them."""
    request = dialect.take(worker)
    for count in counts:
        handles = dialect.handles((yield Exchange(request * count, dialect.taken, count)))
        acks = b"".join([dialect.ack(worker, handle) for handle in handles])
        yield Exchange(acks, dialect.acked, count * dialect.acks)


def cycle(
    dialect: Dialect, worker: int, adds: Iterable[Exchange], times: list[float] | None = None
) -> Script:
    """After every batch of adds, takes as many jobs and ends them.

    Each worker takes only after the replies to its own adds, so there is always a job. Appends to
    ``times`` the duration of each batch's life (s), from its first byte to its last reply; the
    first is NOT_TIMED, because it is prepared before the measurement begins.
    """
    started = NOT_TIMED
    for add in adds:
        yield add
        yield from consume(dialect, worker, (add.commands,))
        if times is not None:
            ended = time.perf_counter()
            times.append(ended - started)
            started = ended


def drain(words: Batched, left: list[int]) -> Script:
    """Takes and ends jobs until none is ``left``; several connections share the number."""
    while left[0] > 0:
        reply = yield Exchange(words.wait, words.waited, 1)
        count = int(reply[1 : reply.index(b"\r")])
        if count > 0:
            yield Exchange(words.ack(reply), ConstantReply(b":%d\r\n" % count), 1)
            left[0] -= count


def lives(words: Batched, adds: Iterable[Exchange]) -> Script:
    """Takes each batch through its life: ADDJOBs, one GETJOB, one ACKJOB.

    Each worker takes only after the replies to its own adds, so there are always enough jobs."""
    for add in adds:
        yield add
        reply = yield Exchange(words.take, words.taken, 1)
        yield Exchange(words.ack(reply), words.acked, 1)
