"""The load: full cycles of jobs that begin when they are due, whatever the node does.

    python -m tools.bench.latency.generator < ORDER > RESULT        # both JSON, see Order, Result

A cycle is ADDJOB, GETJOB and ACKJOB, one after the other on a connection. Cycles are due at random
times of a fixed mean rate, as those of independent clients are; the times are drawn beforehand. A
cycle that is due while all connections are busy waits for one. Its time counts from when it was
due: a pause of the node is seen by every cycle that falls into it, not just by the 50 that were
under way.

This is a process of its own without a garbage collector. How late it began cycles although it had a
free connection is its own fault and part of the result.
"""

from __future__ import annotations

import gc
import json
import os
import random
import select
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import accumulate

from tools.bench.latency.histogram import Histogram
from tools.bench.load import RECEIVE_BYTES, STALL_SECONDS, LoadError, connections
from tools.bench.workloads import QUEUE, bad_reply, encode

# A wait shorter than this ends later than it should, so it is not begun.
SPIN_SECONDS = 0.0001
ID_LENGTH = 40
PRIORITY = -10
_ADDED, _TAKEN, _ACKED = range(3)


@dataclass(frozen=True, slots=True)
class Order:
    """What to do.

    Jobs are added at ``add_port`` and taken and acknowledged at ``take_port``. ``rate`` is in
    cycles a second; 0: each connection begins the next cycle when it has ended one.
    """

    add_port: int
    take_port: int
    rate: float
    seconds: float
    clients: int = 50
    size: int = 100
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Result:
    """What was done, in ``seconds`` (until the last cycle ended).

    ``cycles``: times from when they were due to when they ended. ``late``: from when a cycle was
    due, and a connection free, to when it began. ``rounds``: how long the generator worked on what
    one look at the sockets brought, before it looked again. ``own_cpu``: its CPU time, s.
    """

    seconds: float
    own_cpu: float
    cycles: Histogram
    late: Histogram
    rounds: Histogram

    @property
    def rate(self) -> float:
        """Cycles a second."""
        return self.cycles.total / self.seconds


class _Client:
    """A connection, or one to each of two nodes, and the cycle that is under way there."""

    __slots__ = ("add", "due", "reply", "step", "take")

    def __init__(self, add: socket.socket, take: socket.socket) -> None:
        self.add = add
        self.take = take
        self.step = _ADDED
        self.due = 0.0
        self.reply = b""


def arrivals(rate: float, seconds: float, rng: random.Random) -> list[float]:
    """When cycles are due, in s from the start: independent of each other, ``rate`` a second."""
    gaps = (rng.expovariate(rate) for _ in range(round(rate * seconds)))
    return list(accumulate(gaps))


def generate(order: Order) -> Result:
    """Carries ``order`` out. Raises LoadError when the node does not do what it has to."""
    across = order.add_port != order.take_port
    with connections(order.add_port, order.clients) as adders:
        if not across:
            return _drive(order, [_Client(sock, sock) for sock in adders])
        with connections(order.take_port, order.clients) as takers:
            return _drive(order, [_Client(*pair) for pair in zip(adders, takers, strict=True)])


def _drive(order: Order, clients: list[_Client]) -> Result:
    body = b"x" * order.size
    across = order.add_port != order.take_port
    if across:
        # One copy: the job has to move. Whose job a client gets is chance, so it waits for one.
        add = encode(b"ADDJOB", QUEUE, body, b"0", b"REPLICATE", b"1")
        take = encode(b"GETJOB", b"FROM", QUEUE)
    else:
        add = encode(b"ADDJOB", QUEUE, body, b"0")
        take = encode(b"GETJOB", b"NOHANG", b"FROM", QUEUE)
    id_at = len(b"*1\r\n*3\r\n$%d\r\n%b\r\n$%d\r\n" % (len(QUEUE), QUEUE, ID_LENGTH))
    taken_length = id_at + ID_LENGTH + len(b"\r\n$%d\r\n%b\r\n" % (len(body), body))
    lengths = (ID_LENGTH + 3, taken_length, 4)
    heads = (b"+", b"*1\r\n*3", b":1\r\n")
    ack_head = b"*2\r\n$6\r\nACKJOB\r\n$%d\r\n" % ID_LENGTH

    closed = order.rate == 0
    due = [] if closed else arrivals(order.rate, order.seconds, random.Random(order.seed))
    by_fd: dict[int, _Client] = {}
    times: list[float] = []
    late: list[float] = []
    rounds: list[float] = []
    now = time.perf_counter
    idle: deque[_Client] = deque(clients)
    busy = 0
    begun = 0
    starved = False  # what is due waits for a connection
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
            # Begin what is due.
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
            if events:
                rounds.append(current - looked)
            # Wait for replies, or for what is due next.
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
                if step == _ADDED:
                    client.step = _TAKEN
                    client.take.send(take)
                elif step == _TAKEN:
                    client.step = _ACKED
                    sock.send(b"%b%b\r\n" % (ack_head, reply[id_at : id_at + ID_LENGTH]))
                else:
                    times.append(current - client.due)
                    idle.append(client)
                    busy -= 1
        seconds = now() - start
        cpu = time.process_time() - cpu
    result = Result(seconds, cpu, Histogram(), Histogram(), Histogram())
    result.cycles.record(times)
    result.late.record(late)
    result.rounds.record(rounds)
    return result


def main() -> None:
    """Reads the order, prints the result."""
    data = json.load(sys.stdin)
    cpus, alone = data.pop("cpus"), data.pop("alone")
    os.sched_setaffinity(0, cpus)
    if alone:
        # What else runs on these CPUs is not to be measured.
        with suppress(OSError):
            os.nice(PRIORITY)
    try:
        result = generate(Order(**data))
    except (LoadError, OSError) as failure:
        sys.exit(f"generator: {failure}")
    json.dump(
        {
            "seconds": result.seconds,
            "own_cpu": result.own_cpu,
            "cycles": result.cycles.as_data(),
            "late": result.late.as_data(),
            "rounds": result.rounds.as_data(),
        },
        sys.stdout,
    )


def order_text(order: Order, cpus: frozenset[int], alone: bool) -> str:
    """An order as the process reads it, which runs on ``cpus``; ``alone``: no node does."""
    return json.dumps({**asdict(order), "cpus": sorted(cpus), "alone": alone})


def read_result(text: str) -> Result:
    """What the process prints."""
    data = json.loads(text)
    return Result(
        data["seconds"],
        data["own_cpu"],
        *(Histogram.from_data(**data[name]) for name in ("cycles", "late", "rounds")),
    )


if __name__ == "__main__":
    main()
