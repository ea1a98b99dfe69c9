"""Two tenants of one queue, and workers that do their jobs at a limited rate.

The quiet tenant adds a job now and then; the noisy one adds all of its jobs at once, in its own
process. A worker takes one job at a time and needs a while for it, so the noisy tenant's jobs stay
in the queue for some time. The waiting time of a job is from sending it until a worker has it.
"""

from __future__ import annotations

import gc
import os
import random
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from multiprocessing.connection import Connection

from tools.bench.dialects import LONG, Disque
from tools.bench.load import RECEIVE_BYTES, STALL_SECONDS, LoadError, Shape, connections, run
from tools.bench.scripts import add_batches, send
from tools.bench.workers import Worker, worker

QUIET, NOISY = b"quiet", b"noisy"
HEAD = 13  # bytes that identify a job
PIPELINE = 100
NICER = 5  # the noisy tenant yields to the measuring process
SPREAD = 0.5  # the duration of a job varies by this fraction of the mean


@dataclass(frozen=True, slots=True)
class Order:
    """What to do. Times in s.

    ``jobs``: of the noisy tenant, which adds them ``lead`` after the start; ``every``: the mean of
    the random intervals between the quiet tenant's jobs; ``service``: the mean duration of a job.
    ``size``: bytes of a body.
    """

    port: int
    jobs: int
    workers: int
    service: float
    every: float
    lead: float
    size: int
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Waited:
    """A job of the quiet tenant: when it was added, relative to the start of the noisy tenant, how
    long it waited for a worker (s), and how many of the noisy tenant's jobs were delivered
    meanwhile."""

    added: float
    wait: float
    overtaken: int


@dataclass(frozen=True, slots=True)
class Result:
    """The ``quiet`` jobs in order of delivery, and how long after its start the noisy tenant's last
    job was added, and delivered (s)."""

    quiet: Sequence[Waited]
    burst: float
    drained: float


def words_of(tenant: bytes, size: int) -> Disque:
    """The dialect for a tenant's jobs; a take waits for a job."""
    return Disque(size, options=(b"0", b"GROUP", tenant, *LONG), waits=True)


def bodies_of(tenant: bytes, size: int) -> Iterator[bytes]:
    """The bodies of a tenant's jobs, which begin with its name and a number."""
    for number in count():
        yield b"%b%0*d" % (tenant, HEAD - len(tenant), number) + b"x" * (size - HEAD)


def add_all(pipe: Connection, port: int, jobs: int, size: int) -> None:
    """The noisy tenant: sends True when it is ready, adds its jobs when told to, and sends the
    times of the start and the end."""
    os.nice(NICER)
    words = words_of(NOISY, size)
    batches = add_batches(words, bodies_of(NOISY, size), jobs, PIPELINE)
    with connections(port, 1) as socks:
        pipe.send(True)
        pipe.recv()
        began = time.perf_counter()
        run(socks, [send(batches)])
        pipe.send((began, time.perf_counter()))


def carry_out(order: Order) -> Result:
    """Runs both tenants and the workers until all jobs of the noisy tenant, and those that the
    quiet one added meanwhile, are done. Raises LoadError if the node fails."""
    collecting = gc.isenabled()
    with ExitStack() as stack:
        arguments = (order.port, order.jobs, order.size)
        noisy = stack.enter_context(worker("the noisy tenant", add_all, *arguments))
        noisy.hear()
        socks = stack.enter_context(connections(order.port, 1 + order.workers))
        if collecting:
            gc.disable()
            stack.callback(gc.enable)
        epoll = stack.enter_context(select.epoll())
        for sock in socks:
            epoll.register(sock, select.EPOLLIN)
        stage = _Stage(order, *map(_Client, socks))
        stage.play(epoll, noisy)
        began, added = noisy.hear()
        return Result(stage.waited(began), added - began, stage.moved - began)


class _Client:
    """A connection that waits for the reply to one request, of the form ``shape``, if any.

    Attributes:
        job: the id of the job that the worker has.
    """

    __slots__ = ("_reply", "job", "shape", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.shape: Shape | None = None
        self.job = b""
        self._reply = b""

    def send(self, request: bytes, shape: Shape) -> None:
        """Send a request with a reply of this shape."""
        self.shape = shape
        self.sock.send(request)

    def receive(self) -> bytes:
        """The reply if it is complete, else nothing."""
        chunk = self.sock.recv(RECEIVE_BYTES)
        if not chunk or self.shape is None:
            raise LoadError(f"the server said {chunk!r} unasked" if chunk else "the server is gone")
        reply = self._reply + chunk
        if not self.shape.complete(reply, 1):
            self._reply = reply
            return b""
        self._reply = b""
        self.shape = None
        return reply


class _Stage:
    """The quiet tenant and the workers.

    Attributes:
        moved: when the last of the noisy tenant's jobs was delivered.
    """

    def __init__(self, order: Order, quiet: _Client, *workers: _Client) -> None:
        self.moved = 0.0
        self._order = order
        self._rng = random.Random(order.seed)
        self._words = words_of(QUIET, order.size)
        self._bodies = bodies_of(QUIET, order.size)
        self._quiet = quiet
        self._workers = {one.sock.fileno(): one for one in workers}
        self._added: list[
            tuple[float, int]
        ] = []  # when, and how many noisy jobs had been delivered
        self._found: list[tuple[int, float, int]] = []  # number, wait, overtaken
        self._noisy = 0  # delivered noisy jobs
        self._in_hand: list[tuple[float, int]] = []  # a heap: until when, and whose

    def play(self, epoll: select.epoll, noisy: Worker) -> None:
        """Run everything, and tell ``noisy`` when to begin."""
        order = self._order
        begin = time.perf_counter() + order.lead
        due = 0.0  # time of the quiet tenant's next job
        for one in self._workers.values():
            self._take(one)
        self.moved = begin
        told = False
        while self._noisy < order.jobs or self._in_hand or len(self._found) < len(self._added):
            now = time.perf_counter()
            if now >= begin and not told:
                noisy.tell()
                told = True
            if now >= due and self._noisy < order.jobs and self._quiet.shape is None:
                self._add()
                due = now + self._rng.expovariate(1 / order.every)
            while self._in_hand and self._in_hand[0][0] <= now:
                one = self._workers[heappop(self._in_hand)[1]]
                one.send(self._words.ack(0, one.job), self._words.acked)
            if now > self.moved + STALL_SECONDS:
                raise LoadError(f"no job of the noisy tenant for {STALL_SECONDS:g} s")
            ends = [until for until, _ in self._in_hand[:1]]
            ends.append(begin if not told else now + STALL_SECONDS)
            if self._quiet.shape is None:
                ends.append(max(due, now))
            for fd, _ in epoll.poll(max(min(ends) - now, 0.0)):
                self._answered(fd)

    def _add(self) -> None:
        self._added.append((time.perf_counter(), self._noisy))
        self._quiet.send(self._words.add(next(self._bodies)), self._words.added)

    def _take(self, one: _Client) -> None:
        one.send(self._words.take(0), self._words.taken)

    def _answered(self, fd: int) -> None:
        one = self._workers.get(fd)
        if one is None:
            self._quiet.receive()
            return
        shape = one.shape
        reply = one.receive()
        if not reply:
            return
        if shape is self._words.acked:
            self._take(one)
            return
        now = time.perf_counter()
        (one.job,) = self._words.handles(reply)
        body = reply[-2 - self._order.size :]
        if body.startswith(NOISY):
            self._noisy += 1
            self.moved = now
        else:
            number = int(body[len(QUIET) : HEAD])
            added, before = self._added[number]
            self._found.append((number, now - added, self._noisy - before))
        takes = self._order.service * self._rng.uniform(1 - SPREAD, 1 + SPREAD)
        heappush(self._in_hand, (now + takes, fd))

    def waited(self, began: float) -> list[Waited]:
        """The quiet tenant's jobs, with times relative to when the noisy one ``began``."""
        return [
            Waited(self._added[number][0] - began, wait, overtaken)
            for number, wait, overtaken in self._found
        ]
