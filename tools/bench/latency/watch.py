"""Two processes that watch: one the node, one the machine.

    python -m tools.bench.latency.watch node PORT PID CPU
    python -m tools.bench.latency.watch machine CPU

The first sends the node a PING every millisecond and notes how long the answers took, and for long
ones what the kernel knows of the node meanwhile. The second only sleeps, on the CPU of the node:
when it does not get up in time although no other program of this machine had that CPU, then
something outside of the machine had it. Both work until SIGTERM and print what they found as JSON.

They have the highest ordinary priority, if they may, so that they seldom wait for the load or the
node. Not that of real time: with it, other programs were seen to wait for most of a second.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
from typing import Final

from tools.bench.latency.histogram import Histogram

TICK: Final = 0.001
LONG: Final = 0.005
"""From this many seconds on an answer's time is a pause."""
LATE: Final = 0.002
"""From this many seconds on getting up late is a stall of the machine."""
PRIORITY: Final = -20
PING: Final = b"*1\r\n$4\r\nPING\r\n"
PONG: Final = b"+PONG\r\n"

now: Final = time.monotonic  # the same clock in all processes


class _Stop:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


def _settle_on(cpus: set[int]) -> None:
    os.sched_setaffinity(0, cpus)
    try:
        os.nice(PRIORITY)
    except OSError:
        pass  # then it is late more often
    gc.collect()
    gc.disable()


def _waited(schedule: int) -> float:
    """How long the main thread of a process could run but others had the CPU, s."""
    return int(os.pread(schedule, 100, 0).split()[1]) / 1e9


def watch_node(port: int, pid: int, stop: _Stop) -> dict[str, object]:
    """PINGs until ``stop``: all times, and the pauses with what happened in them."""
    schedule = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)
    own_schedule = os.open("/proc/self/schedstat", os.O_RDONLY)
    clock = (~pid << 3) | 2  # clock_getcpuclockid(3), CPUCLOCK_SCHED

    def used() -> tuple[float, float]:
        """CPU time of the node, and how long its main thread or this one waited for a CPU (s)."""
        return time.clock_gettime(clock), _waited(schedule) + _waited(own_schedule)

    times: list[float] = []
    longest_short = 0.0
    pauses: list[dict[str, float]] = []
    with socket.create_connection(("127.0.0.1", port), 60.0) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        due = now()
        while not stop.asked:
            due += TICK
            rest = due - now()
            if rest > 0:
                time.sleep(rest)
            else:
                due -= rest  # what was missed is part of the pause, and not made up for
            cpu, waited = used()
            start = now()
            sock.sendall(PING)
            reply = sock.recv(100)
            end = now()
            if reply != PONG:
                raise OSError(f"the node answered {reply!r} to PING")
            times.append(end - start)
            if end - start >= LONG:
                cpu_after, waited_after = used()
                pause = {"start": start, "end": end}
                pauses.append({**pause, "cpu": cpu_after - cpu, "waited": waited_after - waited})
            else:
                longest_short = max(longest_short, end - start)
    found = Histogram()
    found.record(times)
    return {"times": found.as_data(), "short": longest_short, "pauses": pauses}


def watch_machine(stop: _Stop) -> dict[str, object]:
    """Sleeps until ``stop``; from when to when it should have been awake and nobody was."""
    stalls: list[tuple[float, float]] = []
    schedule = os.open("/proc/self/schedstat", os.O_RDONLY)
    waited = _waited(schedule)
    due = now()
    while not stop.asked:
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
    return {"stalls": stalls}


def main(arguments: list[str]) -> None:
    """One of the two, as ``arguments`` say."""
    stop = _Stop()
    what, *numbers = arguments
    *rest, cpu = map(int, numbers)
    _settle_on({cpu})
    # Whoever started this waits for the line, so that nothing is missed.
    print("watching", flush=True)
    if what == "node":
        port, pid = rest
        found = watch_node(port, pid, stop)
    else:
        found = watch_machine(stop)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
