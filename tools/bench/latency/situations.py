"""The situations in which latencies are measured.

Three ways to keep the file, each at three parts of its own peak rate; then at half of the peak
while something else goes on: rewrites of the file, the expiry of a million jobs, jobs that move to
another node of the cluster.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tools.bench.fleet import fleet
from tools.bench.latency.histogram import Histogram
from tools.bench.latency.stage import Measurement, Stage
from tools.bench.servers import DISQUE_COMMAND, NO_REWRITE, Server, disque_server

LEVELS = ("no file", "everysec", "always")
REWRITE, EXPIRY, FEDERATION = "rewrites", "mass expiry", "federation"
HALF = 0.5
PROBE_JOBS = 20_000  # added to see how fast the node can be filled
SYNCS = 200
EXPIRY_SECONDS = 120.0  # behind the load; a busy machine takes its time
LEAD_SECONDS = 2.0  # from the last job that is added to the first load, and to what expires


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. ``loads`` are parts of the peak rate, times in s."""

    command: Sequence[str] = DISQUE_COMMAND
    situations: Sequence[str] = (*LEVELS, REWRITE, EXPIRY, FEDERATION)
    loads: Sequence[float] = (0.1, HALF, 0.9)
    seconds: float = 8.0
    peak_seconds: float = 2.0
    clients: int = 50
    size: int = 100
    held: int = 500_000
    expiring: int = 1_000_000
    seed: int = 1
    say: Callable[[str], None] = lambda text: None


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table: a situation at ``load``, a part of the ``peak`` (cycles a second).
    ``note`` says what went on besides."""

    situation: str
    load: float
    peak: float
    measured: Measurement
    note: str = ""


def measure(plan: Plan) -> list[Finding]:
    """Everything, in turn. Raises ServerError, LoadError or OSError when a node fails."""
    found: list[Finding] = []
    for situation in plan.situations:
        if situation in LEVELS:
            found += _levels(plan, situation)
        elif situation == REWRITE:
            found.append(_rewrites(plan))
        elif situation == EXPIRY:
            found.append(_expiry(plan))
        else:
            found.append(_federation(plan))
    return found


def sync_times(count: int = SYNCS) -> Histogram:
    """How long a sync of a small write takes where the nodes have their files, while nothing else
    uses the disk: no node can confirm a write sooner with ``appendfsync always``."""
    times = []
    with tempfile.TemporaryFile(prefix="bench-sync-") as file:
        for _ in range(count):
            os.write(file.fileno(), b"x" * 4096)
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    found = Histogram()
    found.record(times)
    return found


@contextmanager
def _node(plan: Plan, level: str) -> Iterator[Stage]:
    file = () if level == LEVELS[0] else ("--appendonly", "yes", "--appendfsync", level)
    with disque_server("disque", (*plan.command, *file, *NO_REWRITE)) as server:
        yield _stage(plan, server, server)


def _stage(plan: Plan, adds: Server, takes: Server) -> Stage:
    return Stage(adds, takes, plan.clients, plan.size, plan.seed)


def _finding(
    plan: Plan, situation: str, load: float, peak: float, measured: Measurement, note: str = ""
) -> Finding:
    cycles = measured.load.cycles
    p50, p99 = (cycles.percentile(part) * 1000 for part in (0.5, 0.99))
    plan.say(
        f"{situation} at {load:.0%} of {peak:,.0f} cycles/s: p50 {p50:.2f}, p99 {p99:.2f},"
        f" worst {cycles.worst * 1000:.1f} ms; longest pause of the node's own"
        f" {measured.watched.longest_own * 1000:.1f} ms"
    )
    return Finding(situation, load, peak, measured, note)


def _levels(plan: Plan, level: str) -> list[Finding]:
    with _node(plan, level) as stage:
        peak = stage.peak(plan.peak_seconds)
        return [
            _finding(plan, level, load, peak, stage.measure(peak * load, plan.seconds))
            for load in plan.loads
        ]


def _rewrites(plan: Plan) -> Finding:
    """One rewrite after the other, of a file with many jobs that are held."""
    with _node(plan, "everysec") as stage:
        peak = stage.peak(plan.peak_seconds)
        plan.say(f"adding {plan.held:,} jobs")
        stage.fill(plan.held)
        stop = threading.Event()
        done = [0]

        def rewrite() -> None:
            while not stop.is_set():
                stage.ask(b"BGREWRITEAOF")
                while not stop.wait(0.02):
                    if (
                        stage.info(b"persistence", b"aof_rewrite_scheduled") == b"0"
                        and stage.info(b"persistence", b"aof_rewrite_in_progress") == b"0"
                    ):
                        done[0] += 1
                        break

        thread = threading.Thread(target=rewrite)
        with stage.measuring(stage.order(peak * HALF, plan.seconds)) as measured:
            thread.start()
        stop.set()
        thread.join()
        status = stage.info(b"persistence", b"aof_last_bgrewrite_status")
        if status != b"ok":
            raise stage.adds.failure("a rewrite failed")
    note = f"{done[0]} rewrites, {plan.held:,} jobs held"
    return _finding(plan, REWRITE, HALF, peak, measured[0], note)


def _expiry(plan: Plan) -> Finding:
    """Many jobs expire in the middle of the run, all at the same time."""
    with _node(plan, LEVELS[0]) as stage:
        peak = stage.peak(plan.peak_seconds)
        speed = PROBE_JOBS / stage.fill(PROBE_JOBS)
        ends = int(time.time() + 1.5 * plan.expiring / speed + LEAD_SECONDS + plan.seconds / 2) + 1
        plan.say(f"adding {plan.expiring:,} jobs")
        stage.fill(plan.expiring, until=ends)
        # A job is looked at a second after its time.
        spare = ends + 1 - plan.seconds / 2 - time.time()
        if spare < 0:
            raise stage.adds.failure("filling it took too long")
        time.sleep(spare)
        measured = stage.measure(peak * HALF, plan.seconds)
        deadline = time.monotonic() + EXPIRY_SECONDS
        while (expired := int(stage.info(b"stats", b"total_jobs_expired"))) < plan.expiring:
            if time.monotonic() > deadline:
                raise stage.adds.failure(f"only {expired} jobs have expired")
            time.sleep(0.1)
    return _finding(plan, EXPIRY, HALF, peak, measured, f"{plan.expiring:,} jobs expire at once")


def _federation(plan: Plan) -> Finding:
    """Jobs are added to one node, one copy of each, and taken from another."""
    with fleet(2, plan.command) as nodes:
        stage = _stage(plan, *nodes.servers)
        peak = stage.peak(plan.peak_seconds)
        measured = stage.measure(peak * HALF, plan.seconds)
    return _finding(plan, FEDERATION, HALF, peak, measured, "two nodes on one CPU")
