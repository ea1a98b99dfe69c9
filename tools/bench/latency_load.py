"""The load: full cycles of jobs that begin when they are due, however slow the node is.

A cycle is ADDJOB, GETJOB and ACKJOB, one after the other on a connection. Cycles are due at random
times with a fixed mean rate, like those of independent clients; the times are drawn in advance. A
cycle that is due while all connections are busy waits for one. Its time counts from when it was
due, so a pause of the node affects every cycle that falls into it, not only the 50 in progress.

Run this in its own process without a garbage collector. If it begins cycles late despite a free
connection, that is its own fault, and part of the result.
"""

from __future__ import annotations

import gc
import os
import random
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from multiprocessing.connection import Connection

from tools.bench.dialects import ID_LENGTH, QUEUE, Disque, bad_reply
from tools.bench.load import RECEIVE_BYTES, STALL_SECONDS, LoadError, connections

# Shorter waits would end late, so do not wait.
SPIN_SECONDS = 0.0001
PRIORITY = -10
_ADDED, _TAKEN, _ACKED = range(3)


@dataclass(frozen=True, slots=True)
class Order:
    """What to do.

    Jobs are added at ``add_port``, and taken and acknowledged at ``take_port``. ``rate`` is in
    cycles per second; 0 means that each connection begins the next cycle when it has ended one.
    Unless ``whole``, cycles are just an ADDJOB.
    """

    add_port: int
    take_port: int
    rate: float
    seconds: float
    clients: int = 50
    size: int = 100
    seed: int = 1
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """The result, in ``seconds`` (until the last cycle ended). Times are sorted, in seconds.

    ``cycles``: times from due to end. ``late``: times from when a cycle was due and a connection
    free until it began. ``own_cpu``: the generator's CPU time.
    """

    seconds: float
    own_cpu: float
    cycles: Sequence[float]
    late: Sequence[float]

    @property
    def rate(self) -> float:
        """Cycles per second."""
        return len(self.cycles) / self.seconds


class _Client:
    """A connection, or one to each of two nodes, and the cycle in progress."""

    __slots__ = ("add", "due", "reply", "step", "take")

    def __init__(self, add: socket.socket, take: socket.socket) -> None:
        self.add = add
        self.take = take
        self.step = _ADDED
        self.due = 0.0
        self.reply = b""


def arrivals(rate: float, seconds: float, rng: random.Random) -> list[float]:
    """When cycles are due, in s from the start: independently, at ``rate`` per second."""
    gaps = (rng.expovariate(rate) for _ in range(round(rate * seconds)))
    return list(accumulate(gaps))


def work(pipe: Connection, order: Order, cpus: frozenset[int], alone: bool) -> None:
    """Carries out ``order`` on ``cpus`` and sends the Result; ``alone``: no node runs there."""
    os.sched_setaffinity(0, cpus)
    if alone:
        # Do not measure other programs on these CPUs.
        with suppress(OSError):
            os.nice(PRIORITY)
    pipe.send(generate(order))


def generate(order: Order) -> Result:
    """Carries out ``order``. Raises LoadError if the node misbehaves."""
    with connections(order.add_port, order.clients) as adders:
        if order.add_port == order.take_port:
            return _drive(order, [_Client(sock, sock) for sock in adders])
        with connections(order.take_port, order.clients) as takers:
            return _drive(order, [_Client(*pair) for pair in zip(adders, takers, strict=True)])


def _drive(order: Order, clients: list[_Client]) -> Result:  # noqa: C901
    body = b"x" * order.size
    if order.add_port != order.take_port:
        # With one copy, the job must move. Clients get each other's jobs, so a take may have to
        # wait.
        words = Disque(order.size, QUEUE, (b"0", b"REPLICATE", b"1"), waits=True)
    else:
        words = Disque(order.size)
    add, take = words.add(body), words.take(0)
    id_at = len(words.taken.head)
    lengths = (ID_LENGTH + 3, words.taken.size, 4)
    heads = (b"+", b"*1\r\n*3", b":1\r\n")

    closed = order.rate == 0
    due = [] if closed else arrivals(order.rate, order.seconds, random.Random(order.seed))
    by_fd: dict[int, _Client] = {}
    times: list[float] = []
    late: list[float] = []
    now = time.perf_counter
    idle: deque[_Client] = deque(clients)
    busy = 0
    begun = 0
    starved = False  # due cycles wait for a connection
    starved_until = 0.0
    gc.collect()
    gc.disable()
    events: list[tuple[int, int]] = []
    with select.epoll() as epoll:
        for client in clients:
            for sock in {client.add, client.take}:
                by_fd[sock.fileno()] = client
                epoll.register(sock.fileno(), select.EPOLLIN)
        watched = [epoll.fileno()]
        cpu = time.process_time()
        start = current = now()
        end = start + order.seconds
        due = [start + at for at in due]
        count = len(due)
        while True:
            looked = current
            # Begin due cycles.
            if closed:
                if current < end:
                    while idle:
                        client = idle.popleft()
                        client.due = current
                        client.step = _ADDED
                        client.add.send(add)
                        busy += 1
            else:
                if starved and idle:
                    starved, starved_until = False, current
                while begun < count and due[begun] <= current:
                    if not idle:
                        starved = True
                        break
                    client = idle.popleft()
                    client.due = at = due[begun]
                    client.step = _ADDED
                    client.add.send(add)
                    busy += 1
                    begun += 1
                    current = now()
                    if at > starved_until:
                        late.append(current - at)
            if not busy and (current >= end if closed else begun == count):
                break
            current = now()
            # Wait for replies, or the next due cycle.
            wait = STALL_SECONDS
            if begun < count and idle:
                wait = due[begun] - current
            if wait > SPIN_SECONDS:
                select.select(watched, (), (), wait - SPIN_SECONDS / 2)
            events = epoll.poll(0)
            current = now()
            if not events and wait == STALL_SECONDS and current - looked > STALL_SECONDS / 2:
                raise LoadError(f"no reply for {STALL_SECONDS:g} s")
            for fd, _ in events:
                client = by_fd[fd]
                step = client.step
                sock = client.add if step == _ADDED else client.take
                reply = sock.recv(RECEIVE_BYTES)
                if client.reply:
                    reply = client.reply + reply
                    client.reply = b""
                if len(reply) != lengths[step] or not reply.startswith(heads[step]):
                    if not reply or not heads[step].startswith(reply[: len(heads[step])]):
                        raise bad_reply(reply)
                    client.reply = reply
                    continue
                if step == _ADDED and order.whole:
                    client.step = _TAKEN
                    client.take.send(take)
                elif step == _TAKEN:
                    client.step = _ACKED
                    sock.send(words.ack(0, reply[id_at : id_at + ID_LENGTH]))
                else:
                    times.append(current - client.due)
                    idle.append(client)
                    busy -= 1
        seconds = now() - start
        cpu = time.process_time() - cpu
    return Result(seconds, cpu, sorted(times), sorted(late))
