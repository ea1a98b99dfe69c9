"""The latency of a job's life at a given load, and the pauses of the node.

Measures three ways to keep the file, each at three fractions of its own peak rate; then half the
peak during other work: rewrites of the file, the expiry of a million jobs, jobs that move to
another node of the cluster. docs/performance-tables.md explains the figures.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tools.bench import latency_plot
from tools.bench.cli import Findings, Picture, option, say, table, words
from tools.bench.latency_stage import Measurement, Stage
from tools.bench.load import info, percentile
from tools.bench.nodes import cluster
from tools.bench.servers import (
    DISQUE_COMMAND,
    GENERATOR_CPUS,
    NO_REWRITE,
    SERVER_CPUS,
    disque_server,
)

PAGE = "performance-tables.md"
SECTION = "latency"
LEVELS = ("no file", "everysec", "always")
REWRITE, EXPIRY, FEDERATION = "rewrites", "mass expiry", "federation"
SITUATIONS = (*LEVELS, REWRITE, EXPIRY, FEDERATION)
HALF = 0.5
PROBE_JOBS = 20_000  # added to measure how fast the node can be filled
SYNCS = 200
LEAD_SECONDS = 2.0  # from the last added job to the first load, and to the expiry
AIM_P99 = 0.002
AIM_PAUSE = 0.020


def _parts(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure; times in s."""

    situations: tuple[str, ...] = option(SITUATIONS, "what", choices=SITUATIONS)
    loads: tuple[float, ...] = option(
        (0.1, HALF, 0.9), "fractions of the peak rate", quick=(HALF,), parse=_parts
    )
    seconds: float = option(8.0, "seconds of each measurement", quick=1.0)
    peak_seconds: float = option(2.0, "seconds for measuring a peak rate", quick=0.3)
    clients: int = option(50, "connections", quick=8)
    size: int = option(100, "bytes of a job's body")
    held: int = option(500_000, "jobs in the file that is rewritten", quick=2_000)
    expiring: int = option(1_000_000, "jobs that expire at the same time", quick=5_000)
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table: a situation at ``load``, a fraction of the ``peak`` (cycles per
    second). ``note`` describes the other work."""

    situation: str
    load: float
    peak: float
    measured: Measurement
    note: str = ""


def run(plan: Plan) -> Findings:
    """Measures everything, in turn. Raises ServerError, LoadError or OSError if a node fails."""
    syncs = sync_times()
    found: list[Finding] = []
    others = {REWRITE: _rewrites, EXPIRY: _expiry, FEDERATION: _federation}
    for situation in plan.situations:
        if situation in LEVELS:
            found += _levels(plan, situation)
        else:
            found.append(others[situation](plan))
    shared = GENERATOR_CPUS & SERVER_CPUS
    facts = {
        "CPUs for the nodes": str(len(SERVER_CPUS)),
        "for the generator": "the same" if shared else str(len(GENERATOR_CPUS)),
    }
    text = "\n\n".join([aims_table(found), latency_table(found), disk_line(syncs)])
    lines = [(one.situation, one.load, one.measured.load.cycles) for one in found]
    picture = Picture("latency.svg", latency_plot.plot(lines, LEVELS, AIM_P99), latency_plot.TITLE)
    return Findings(text, found, [picture], facts)


def sync_times(count: int = SYNCS) -> list[float]:
    """The times to sync a small write in the nodes' directory, on an idle disk: with ``appendfsync
    always`` no node can confirm a write sooner."""
    times = []
    with tempfile.TemporaryFile(prefix="bench-sync-") as file:
        for _ in range(count):
            os.write(file.fileno(), b"x" * 4096)
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    return sorted(times)


@contextmanager
def _node(plan: Plan, level: str) -> Iterator[Stage]:
    file = () if level == LEVELS[0] else ("--appendonly", "yes", "--appendfsync", level)
    with disque_server("disque", (*plan.server, *file, *NO_REWRITE)) as server:
        yield Stage(server, server, plan.clients, plan.size)


def _finding(
    situation: str, load: float, peak: float, found: Measurement, note: str = ""
) -> Finding:
    cycles = found.load.cycles
    p50, p99, worst = (percentile(cycles, part) * 1000 for part in (0.5, 0.99, 1.0))
    say(
        f"{situation} at {load:.0%} of {peak:,.0f} cycles/s: p50 {p50:.2f}, p99 {p99:.2f},"
        f" worst {worst:.1f} ms; longest pause of the node's own"
        f" {found.watched.longest_own * 1000:.1f} ms"
    )
    return Finding(situation, load, peak, found, note)


def _levels(plan: Plan, level: str) -> list[Finding]:
    with _node(plan, level) as stage:
        peak = stage.peak(plan.peak_seconds)
        return [
            _finding(level, load, peak, stage.measure(peak * load, plan.seconds))
            for load in plan.loads
        ]


def _rewrites(plan: Plan) -> Finding:
    """One rewrite after the other of a file with many jobs."""
    with _node(plan, "everysec") as stage:
        peak = stage.peak(plan.peak_seconds)
        say(f"adding {plan.held:,} jobs")
        stage.fill(plan.held)
        with stage.measuring(peak * HALF, plan.seconds) as measured, stage.rewriting() as done:
            time.sleep(plan.seconds)
    note = f"{len(done)} rewrites, {plan.held:,} jobs held"
    return _finding(REWRITE, HALF, peak, measured[0], note)


def _expiry(plan: Plan) -> Finding:
    """Many jobs expire at the same time in the middle of the run."""
    with _node(plan, LEVELS[0]) as stage:
        peak = stage.peak(plan.peak_seconds)
        speed = PROBE_JOBS / stage.fill(PROBE_JOBS)
        ends = int(time.time() + 1.5 * plan.expiring / speed + LEAD_SECONDS + plan.seconds / 2) + 1
        say(f"adding {plan.expiring:,} jobs")
        stage.fill(plan.expiring, until=ends)
        # A job expires up to a second after its time.
        spare = ends + 1 - plan.seconds / 2 - time.time()
        if spare < 0:
            raise stage.adds.failure("filling it took too long")
        time.sleep(spare)
        measured = stage.measure(peak * HALF, plan.seconds)

        def all_expired() -> bool:
            stats = info(stage.adds.port, b"stats")
            return int(stats["total_jobs_expired"]) >= plan.expiring

        stage.adds.wait(all_expired, "not all jobs have expired")
    return _finding(EXPIRY, HALF, peak, measured, f"{plan.expiring:,} jobs expire at once")


def _federation(plan: Plan) -> Finding:
    """Jobs with one copy are added to one node and taken from another."""
    with cluster([plan.server] * 2) as nodes:
        adds, takes = nodes.servers
        stage = Stage(adds, takes, plan.clients, plan.size)
        peak = stage.peak(plan.peak_seconds)
        measured = stage.measure(peak * HALF, plan.seconds)
    return _finding(FEDERATION, HALF, peak, measured, "two nodes on one CPU")


# ---- tables --------------------------------------------------------------------------------


def latency_table(found: Sequence[Finding]) -> str:
    """A row for each finding: cycle times, the longest pause, and the generator's share in it."""
    titles = ["situation", "load, of the peak rate", "cycles/s", "p50 / p99 / p999 / worst ms"]
    titles += ["CPU", "longest pause, the node's own ms", "longest pause ms (not the node's)"]
    titles += ["generator late p50 / p99 ms"]
    rows = []
    for one in found:
        load, watched = one.measured.load, one.measured.watched
        name = f"{one.situation}: {one.note}" if one.note else one.situation
        times = _ms(load.cycles, 0.5, 0.99, 0.999, 1.0)
        times[1] = f"**{times[1]}**"
        row = [name, f"{one.load:.0%} of {one.peak:,.0f}", f"{load.rate:,.0f}", " / ".join(times)]
        row += [f"{one.measured.cpu / load.seconds:.0%}", f"**{watched.longest_own * 1000:.1f}**"]
        longest = watched.longest
        length, foreign = (longest.length, longest.foreign) if longest else (watched.short, 0.0)
        row.append(f"{length * 1000:.1f} ({foreign * 1000:.1f})")
        row.append(" / ".join(_ms(load.late, 0.5, 0.99)) if load.late else "-")
        rows.append(row)
    return table(titles, rows)


def aims_table(found: Sequence[Finding]) -> str:
    """Whether the goals are met: a row for each goal, at half load."""
    others = [name for name in dict.fromkeys(one.situation for one in found) if name not in LEVELS]
    p99, pause = ["p99 below 2 ms at half load"], ["no pause of the node over 20 ms"]
    for name in (*LEVELS, *others):
        mine = [one for one in found if one.situation == name]
        at_half = [one for one in mine if one.load == HALF]
        if not at_half:
            p99.append("not measured")
            pause.append("not measured")
            continue
        p99.append(_verdict(percentile(at_half[0].measured.load.cycles, 0.99), AIM_P99))
        pause.append(_verdict(max(one.measured.watched.longest_own for one in mine), AIM_PAUSE))
    return table(["aim", "without a file", "everysec", "always", *others], [p99, pause])


def disk_line(syncs: Sequence[float]) -> str:
    """The duration of a sync on this disk."""
    p50, p99, worst = _ms(syncs, 0.5, 0.99, 1.0)
    return (
        f"A sync of 4 KiB on this disk, with nothing else to do: p50 {p50}, p99 {p99},"
        f" worst {worst} ms. With `always` a cycle waits for two of them."
    )


def _ms(times: Sequence[float], *parts: float) -> list[str]:
    return [f"{percentile(times, part) * 1000:.2f}" for part in parts]


def _verdict(seconds: float, aim: float) -> str:
    return f"{seconds * 1000:.1f} ms" + (": missed" if seconds > aim else "")
