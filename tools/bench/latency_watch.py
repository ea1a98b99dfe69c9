"""Two watchers, one of the node and one of the machine, which tell who caused a pause.

The first sends the node a PING every millisecond and records the response times, and for slow ones
the kernel's figures for the node. The second only sleeps, on the node's CPU: if it wakes up late
although no other program on this machine had the CPU, something outside the machine had it. Both
run until they are asked for their results.

They have the highest normal priority, if permitted, so that they rarely wait for the load or the
node. They do not use real-time priority: it made other programs wait for most of a second.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from tools.bench.load import PING, ask, dial
from tools.bench.servers import cpu_seconds

TICK: Final = 0.001
LONG: Final = 0.005
"""A response time of at least this many seconds is a pause."""
LATE: Final = 0.002
"""Waking up at least this many seconds late is a stall of the machine."""
PRIORITY: Final = -20

now: Final = time.monotonic  # the same clock in all processes
Span = tuple[float, float]


class Wait(NamedTuple):
    """A PING with a late response: start and end, the node's CPU time meanwhile, and how long the
    node's main thread or the watcher was runnable while others had the CPU (s)."""

    start: float
    end: float
    cpu: float
    waited: float


@dataclass(frozen=True, slots=True)
class Pause:
    """A slow response; all times in s.

    ``cpu``: used by the node's process meanwhile. ``waited``: the node's main thread or the watcher
    was runnable, but others had the CPU. ``stalled``: nothing on this machine had the CPU.
    """

    length: float
    cpu: float
    waited: float
    stalled: float

    @property
    def foreign(self) -> float:
        """The part that is beyond the node's control."""
        return min(self.length, self.waited + self.stalled)

    @property
    def own(self) -> float:
        """The rest: it computed, or waited for a disk or a lock."""
        return self.length - self.foreign


@dataclass(frozen=True, slots=True)
class Watched:
    """The result of the PINGs: the longest response that was not a pause (s), and the
    ``pauses``."""

    pings: int
    short: float
    pauses: Sequence[Pause]

    @property
    def longest_own(self) -> float:
        """The longest pause caused by the node, in s. Responses too short for a pause are blamed on
        the node."""
        return max(self.short, max((pause.own for pause in self.pauses), default=0.0))

    @property
    def longest(self) -> Pause | None:
        """The longest pause, whatever the cause, or None."""
        return max(self.pauses, key=lambda pause: pause.length, default=None)


def overlap(span: Span, others: Iterable[Span]) -> float:
    """How long ``span`` overlaps with ``others``, which do not overlap each other."""
    start, end = span
    return sum(max(0.0, min(end, b) - max(start, a)) for a, b in others)


def judge(found: Iterable[Wait], stalls: Sequence[Span]) -> list[Pause]:
    """The pauses that one watcher saw, judged by what the other saw of the machine."""
    pauses = []
    for one in found:
        length = one.end - one.start
        stalled = overlap((one.start, one.end), stalls)
        # The kernel may also count a stall of the machine as waiting.
        waited = min(one.waited, length - stalled)
        pauses.append(Pause(length, one.cpu, max(0.0, waited), stalled))
    return pauses


def _settle_on(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    with suppress(OSError):  # otherwise it is late more often
        os.nice(PRIORITY)
    gc.collect()
    gc.disable()


def _waited(schedule: int) -> float:
    """How long the main thread of a process was runnable while others had the CPU, in s."""
    return int(os.pread(schedule, 100, 0).split()[1]) / 1e9


def watch_node(pipe: Connection, port: int, pid: int, cpu: int) -> None:
    """Sends PINGs until asked; then sends their number, the longest time that was not a pause, and
    the Waits."""
    _settle_on(cpu)
    schedule = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)
    own_schedule = os.open("/proc/self/schedstat", os.O_RDONLY)
    pings = 0
    longest_short = 0.0
    waits: list[Wait] = []
    with dial(port) as sock:
        sock.settimeout(60.0)
        pipe.send("watching")
        due = now()
        while not pipe.poll():
            due += TICK
            rest = due - now()
            if rest > 0:
                time.sleep(rest)
            else:
                due -= rest  # do not make up for PINGs missed in the pause
            used, waited = cpu_seconds(pid), _waited(schedule) + _waited(own_schedule)
            start = now()
            reply = ask(sock, PING[0])
            end = now()
            if reply != PING[1]:
                raise OSError(f"the node answered {reply!r} to PING")
            pings += 1
            if end - start >= LONG:
                used = cpu_seconds(pid) - used
                waited = _waited(schedule) + _waited(own_schedule) - waited
                waits.append(Wait(start, end, used, waited))
            else:
                longest_short = max(longest_short, end - start)
    pipe.send((pings, longest_short, waits))


def watch_machine(pipe: Connection, cpu: int) -> None:
    """Sleeps until asked; then sends the times in which it should have been awake but nothing
    ran."""
    _settle_on(cpu)
    stalls: list[Span] = []
    schedule = os.open("/proc/self/schedstat", os.O_RDONLY)
    pipe.send("watching")
    waited = _waited(schedule)
    due = now()
    while not pipe.poll():
        due += TICK
        rest = due - now()
        if rest > 0:
            time.sleep(rest)
        after = now()
        if after - due >= LATE:
            waited, before = _waited(schedule), waited
            # While it waited, other programs on this machine had the CPU.
            end = after - (waited - before)
            if end - due >= LATE:
                stalls.append((due, end))
            due = after
        else:
            waited = _waited(schedule)
    pipe.send(stalls)
