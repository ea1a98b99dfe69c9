"""Load from several processes at once: each drives its connections until the time is over.

The jobs' bodies and the requests that add them are made beforehand and used again and again, and
GETJOB and ACKJOB can be about a whole batch: what a generator costs is missing to the nodes that
share the cores with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle as endless
from multiprocessing import get_context
from multiprocessing.connection import Connection

from tools.bench.load import Exchange, LoadError, Script, connections, run
from tools.bench.replicated import Copied
from tools.bench.workloads import Disque, add_batches, bad_reply, bodies, cycle, encode

QUEUE = b"bench"
PREPARED = 64  # batches that go round
PATIENCE = 60.0  # s beyond the time of the load, until a generator is given up


@dataclass(frozen=True, slots=True)
class Part:
    """The work of one process: at which port, on which CPUs, by how many clients; in batches of
    so many (``pipeline``), with one GETJOB and one ACKJOB for each (``batched``) or one a job;
    ``size`` is that of a body in bytes."""

    port: int
    cpus: frozenset[int]
    clients: int
    pipeline: int
    batched: bool
    size: int


@dataclass(frozen=True, slots=True)
class Done:
    """What came of it: whole lives of jobs, wall seconds, CPU seconds of the generators."""

    jobs: int
    seconds: float
    own_cpu: float


class Acked:
    """The reply to an ACKJOB with ``jobs`` jobs."""

    def __init__(self, jobs: int) -> None:
        self._text = b":%d\r\n" % jobs

    def complete(self, reply: bytes, count: int) -> bool:
        """Whether all were ended."""
        if not self._text.startswith(reply):
            raise bad_reply(reply)
        return reply == self._text


class Batch:
    """The replies to GETJOB COUNT and to ACKJOB with all that it gave.

    Args:
        count: jobs of a batch. size: bytes of a body. queue: their queue.
    """

    def __init__(self, count: int, size: int, queue: bytes = QUEUE) -> None:
        one = Disque(size, queue).taken
        self._head = b"*%d\r\n" % count
        # Each job is as in a reply with one, less the head of that.
        self._each = one.size - len(b"*1\r\n")
        self._before = len(one.head) - len(b"*1\r\n") - len(b"$40\r\n")
        self._size = len(self._head) + count * self._each
        self._lines = 1 + count * (one.lines - 1)
        self._ack = b"*%d\r\n$6\r\nACKJOB\r\n" % (count + 1)
        self.take = encode(b"GETJOB", b"NOHANG", b"COUNT", b"%d" % count, b"FROM", queue)
        self.added = Disque(size, queue).added
        self.acked = Acked(count)

    def complete(self, reply: bytes, count: int) -> bool:
        """Whether all jobs are there (``count`` is 1: one command)."""
        if len(reply) < self._size:
            if not self._head.startswith(reply[: len(self._head)]):
                raise bad_reply(reply)
            return False
        if len(reply) > self._size or reply.count(b"\r\n") != self._lines:
            raise bad_reply(reply)
        return True

    def ack(self, reply: bytes) -> bytes:
        """The request that ends the jobs of a reply."""
        start = len(self._head) + self._before
        length = len(b"$40\r\n\r\n") + Disque.ID_LENGTH
        return self._ack + b"".join(
            [reply[at : at + length] for at in range(start, self._size, self._each)]
        )


def lives(words: Batch, adds: Iterator[Exchange]) -> Script:
    """Leads each batch through its life: so many ADDJOBs, one GETJOB, one ACKJOB.

    Each worker takes only after its own adds were answered, so there are always enough."""
    for add in adds:
        yield add
        reply = yield Exchange(words.take, words, 1)
        yield Exchange(words.ack(reply), words.acked, 1)


def until(deadline: float, batches: Sequence[Exchange], given: list[int]) -> Iterator[Exchange]:
    """The batches again and again until the deadline (time.perf_counter); ``given`` gets the
    number of commands of each."""
    for batch in endless(batches):
        if time.perf_counter() > deadline:
            return
        given.append(batch.commands)
        yield batch


def drive(parts: Sequence[Part], seconds: float) -> Done:
    """Does all parts at the same time, each in a process of its own. Raises LoadError when a
    reply is not what it has to be, or a generator ends."""
    context = get_context("fork")
    ends: list[Connection] = []
    processes = []
    try:
        for part in parts:
            mine, other = context.Pipe()
            ends.append(mine)
            processes.append(
                context.Process(target=_work, args=(part, seconds, other), daemon=True)
            )
            processes[-1].start()
            other.close()
        for end in ends:
            _hear(end, PATIENCE)  # all clients are connected
        started = time.perf_counter()
        for end in ends:
            end.send(started)
        found = [_hear(end, seconds + PATIENCE) for end in ends]
    finally:
        for process, end in zip(processes, ends, strict=True):
            end.close()
            process.kill()
            process.join()
    jobs, finished, own_cpu = zip(*found, strict=True)
    return Done(sum(map(int, jobs)), max(finished) - started, sum(own_cpu))


def _hear(end: Connection, patience: float) -> tuple[float, float, float]:
    """What a generator says: jobs, when it ended and its CPU seconds."""
    try:
        said = end.recv() if end.poll(patience) else "it does not answer"
    except EOFError:
        said = "it has ended"
    if isinstance(said, str):
        raise LoadError(f"a generator failed: {said}")
    jobs, finished, own_cpu = said
    return float(jobs), float(finished), float(own_cpu)


def _work(part: Part, seconds: float, end: Connection) -> None:
    """The life of a generator's process."""
    try:
        os.sched_setaffinity(0, part.cpus)
        words = Batch(part.pipeline, part.size)
        single = Copied(part.size, QUEUE, 1, False)
        new = bodies(part.size)
        batches = add_batches(single, new, part.pipeline * PREPARED, part.pipeline)
        given: list[int] = []
        with connections(part.port, part.clients) as socks:
            end.send((0, 0, 0))
            adds = until(end.recv() + seconds, batches, given)
            script: Callable[[int], Script] = (
                (lambda _: lives(words, adds))
                if part.batched
                else (lambda worker: cycle(single, worker, adds))
            )
            load = run(socks, [script(worker) for worker in range(part.clients)])
            end.send((sum(given), time.perf_counter(), load.own_cpu))
    except (LoadError, OSError) as failure:
        end.send(str(failure))
