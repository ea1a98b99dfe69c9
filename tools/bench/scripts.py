"""The scripts that lead jobs through their lives: what one connection sends, and in which batches.

``dialects`` has the words for each server.
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
    """Endless distinct job bodies of ``size`` bytes; ValueError when that is too small."""
    if size < SERIAL_DIGITS:
        raise ValueError(f"a job's body needs at least {SERIAL_DIGITS} bytes, not {size}")
    filling = b"x" * (size - SERIAL_DIGITS)
    number = 0
    while True:
        yield b"%0*d%b" % (SERIAL_DIGITS, number, filling)
        number += 1


def portions(total: int, most: int) -> Iterator[int]:
    """Parts of ``total`` of at most so many."""
    return (min(most, total - at) for at in range(0, total, most))


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


def send(batches: Iterable[Exchange], replies: list[bytes] | None = None) -> Script:
    """Sends batches while there are any, and keeps the replies; several connections may share an
    iterator."""
    for batch in batches:
        reply = yield batch
        if replies is not None:
            replies.append(reply)


def take(dialect: Dialect, worker: int, counts: Iterable[int], replies: list[bytes]) -> Script:
    """Takes so many jobs in a batch while there are counts, and keeps the replies."""
    request = dialect.take(worker)
    return send((Exchange(request * count, dialect.taken, count) for count in counts), replies)


def consume(dialect: Dialect, worker: int, counts: Iterable[int]) -> Script:
    """Takes and ends so many jobs in a batch, whoever added them, while there are counts."""
    request = dialect.take(worker)
    for count in counts:
        handles = dialect.handles((yield Exchange(request * count, dialect.taken, count)))
        acks = b"".join([dialect.ack(worker, handle) for handle in handles])
        yield Exchange(acks, dialect.acked, count * dialect.acks)


def cycle(
    dialect: Dialect, worker: int, adds: Iterable[Exchange], times: list[float] | None = None
) -> Script:
    """For every batch of adds takes as many jobs and ends those it got.

    Each worker takes only after its own adds were answered, so there is always a job. ``times``
    gets how long each batch's life took (s), from its first byte to its last reply; the first is
    NOT_TIMED, since it is made before the measurement begins.
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
    """Takes and ends what there is until nothing is ``left`` of so many jobs; several connections
    share the number."""
    while left[0] > 0:
        reply = yield Exchange(words.wait, words.waited, 1)
        count = int(reply[1 : reply.index(b"\r")])
        if count > 0:
            yield Exchange(words.ack(reply), ConstantReply(b":%d\r\n" % count), 1)
            left[0] -= count


def lives(words: Batched, adds: Iterable[Exchange]) -> Script:
    """Leads each batch through its life: so many ADDJOBs, one GETJOB, one ACKJOB.

    Each worker takes only after its own adds were answered, so there are always enough."""
    for add in adds:
        yield add
        reply = yield Exchange(words.take, words.taken, 1)
        yield Exchange(words.ack(reply), words.acked, 1)
