"""Two processes that watch, one the node, one the machine; and whose fault a pause was.

The first sends the node a PING every millisecond and notes how long the answers took, and for long
ones what the kernel knows of the node meanwhile. The second only sleeps, on the CPU of the node:
when it does not get up in time although no other program of this machine had that CPU, then
something outside of the machine had it. Both work until they are asked for what they found.

They have the highest ordinary priority, if they may, so that they seldom wait for the load or the
node. Not that of real time: with it, other programs were seen to wait for most of a second.
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
"""From this many seconds on an answer's time is a pause."""
LATE: Final = 0.002
"""From this many seconds on getting up late is a stall of the machine."""
PRIORITY: Final = -20

now: Final = time.monotonic  # the same clock in all processes
Span = tuple[float, float]


class Wait(NamedTuple):
    """A PING that was answered late: from when to when, the node's CPU time meanwhile, and how long
    the node's main thread, or the one that asked, could run but others had the CPU (s)."""

    start: float
    end: float
    cpu: float
    waited: float


@dataclass(frozen=True, slots=True)
class Pause:
    """An answer that took long; all times in s.

    ``cpu``: that the node's process used meanwhile. ``waited``: the node's main thread, or the one
    that asked, could run, but others had the CPU. ``stalled``: nobody of this machine had the CPU.
    """

    length: float
    cpu: float
    waited: float
    stalled: float

    @property
    def foreign(self) -> float:
        """The part that the node can do nothing about."""
        return min(self.length, self.waited + self.stalled)

    @property
    def own(self) -> float:
        """The rest: it computed, or waited for a disk or another lock."""
        return self.length - self.foreign


@dataclass(frozen=True, slots=True)
class Watched:
    """What so many PINGs found: the longest that was no pause (s), and the ``pauses``."""

    pings: int
    short: float
    pauses: Sequence[Pause]

    @property
    def longest_own(self) -> float:
        """The longest pause of the node's own doing, s. Whatever was too short for a pause is
        taken for the node's own."""
        return max(self.short, max((pause.own for pause in self.pauses), default=0.0))

    @property
    def longest(self) -> Pause | None:
        """The longest pause whoever made it; None: there was none."""
        return max(self.pauses, key=lambda pause: pause.length, default=None)


def overlap(span: Span, others: Iterable[Span]) -> float:
    """How long ``span`` and any of ``others``, which do not overlap each other, are both."""
    start, end = span
    return sum(max(0.0, min(end, b) - max(start, a)) for a, b in others)


def judge(found: Iterable[Wait], stalls: Sequence[Span]) -> list[Pause]:
    """The pauses that one watcher saw, by what the other one saw of the machine."""
    pauses = []
    for one in found:
        length = one.end - one.start
        stalled = overlap((one.start, one.end), stalls)
        # Where the machine stood still, the kernel may take that for waiting as well.
        waited = min(one.waited, length - stalled)
        pauses.append(Pause(length, one.cpu, max(0.0, waited), stalled))
    return pauses


def _settle_on(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    with suppress(OSError):  # then it is late more often
        os.nice(PRIORITY)
    gc.collect()
    gc.disable()


def _waited(schedule: int) -> float:
    """How long the main thread of a process could run but others had the CPU, s."""
    return int(os.pread(schedule, 100, 0).split()[1]) / 1e9


def watch_node(pipe: Connection, port: int, pid: int, cpu: int) -> None:
    """PINGs until it is asked; says how many times, the longest time that was no pause, and the
    Waits."""
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
                due -= rest  # what was missed is part of the pause, and not made up for
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
    """Sleeps until it is asked; says from when to when it should have been awake and nobody was."""
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
            # Where it waited, others of this machine had the CPU.
            end = after - (waited - before)
            if end - due >= LATE:
                stalls.append((due, end))
            due = after
        else:
            waited = _waited(schedule)
    pipe.send(stalls)
