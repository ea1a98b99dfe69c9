"""A noisy tenant beside a quiet one in the same queue: how long the quiet one's jobs wait.

The noisy tenant adds all of its jobs at once, the quiet one a job now and then, and workers take
them at a limited rate: first from a queue in order of age, then, on a new node, from one with
``GROUPS fair``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import tenants_plot
from benchmarks.tenants_load import HEAD, Order, Result, Waited, carry_out
from tools.bench.cli import Findings, Picture, option, say, size, table, words
from tools.bench.dialects import QUEUE, encode
from tools.bench.load import ask_once, percentile
from tools.bench.servers import DISQUE_COMMAND, disque_server

PAGE = "performance-details.md"
SECTION = "tenants"
AGE, FAIR = "in the order of age", "`GROUPS fair`"
PARTS = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """The load of the tenants and workers; times in s."""

    jobs: int = option(100_000, "jobs of the noisy tenant", quick=400)
    workers: int = option(50, "workers, which take one job at a time", quick=4)
    service: float = option(0.025, "mean time that a job takes", quick=0.004)
    every: float = option(0.05, "mean time between jobs of the quiet tenant", quick=0.01)
    lead: float = option(5.0, "time before the noisy tenant begins", quick=0.1)
    size: int = option(100, "bytes of a job's body", parse=size(HEAD))
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one kind of queue."""

    way: str
    result: Result

    @property
    def beside(self) -> list[Waited]:
        """The quiet jobs added after the noisy tenant began."""
        return [one for one in self.result.quiet if one.added >= 0]

    @property
    def before(self) -> list[Waited]:
        """The quiet jobs added while the quiet tenant was alone."""
        return [one for one in self.result.quiet if one.added < 0]


def run(plan: Plan) -> Findings:
    """Measures both kinds, in turn. Raises ServerError if a node fails."""
    found = [measure(plan, AGE), measure(plan, FAIR)]
    lines = [(one.way.replace("`", ""), one.result.quiet) for one in found]
    picture = Picture("tenants.svg", tenants_plot.plot(lines, plan.jobs), tenants_plot.TITLE)
    return Findings(waits_table(found), found, [picture])


def measure(plan: Plan, way: str) -> Finding:
    """Measures one kind of queue, on its own node."""
    with disque_server(command=plan.server) as server, server.blamed():
        if way == FAIR:
            policy = encode(b"QSET", QUEUE, b"GROUPS", b"fair")
            if ask_once(server.port, policy) != b"+OK":
                raise server.failure("does not support groups")
        say(f"{plan.jobs:,} jobs, {way}")
        order = Order(
            server.port,
            plan.jobs,
            plan.workers,
            plan.service,
            plan.every,
            plan.lead,
            plan.size,
        )
        return Finding(way, carry_out(order))


def waits_table(found: Sequence[Finding]) -> str:
    """How long the quiet tenant's jobs waited, and the effect on the noisy one."""
    titles = ["queue", "quiet jobs", "waited p50 / p90 / p99 / worst ms"]
    titles += ["noisy jobs that came meanwhile, p50 / worst"]
    titles += ["alone before, p50 / worst ms", "last noisy job delivered after s"]
    rows = []
    for one in found:
        waits, alone = _waits(one.beside), _waits(one.before)
        overtaken = sorted(job.overtaken for job in one.beside)
        row = [one.way, f"{len(waits):,}", _each(waits, 1000, PARTS, 1)]
        row.append(_each(overtaken, 1, (0.5, 1.0), 0))
        row += [_each(alone, 1000, (0.5, 1.0), 1), f"{one.result.drained:.1f}"]
        rows.append(row)
    return table(titles, rows)


def _waits(jobs: Sequence[Waited]) -> list[float]:
    return sorted(job.wait for job in jobs)


def _each(ordered: Sequence[float], unit: float, parts: Sequence[float], digits: int) -> str:
    if not ordered:
        return ""
    return " / ".join(f"{percentile(ordered, part) * unit:,.{digits}f}" for part in parts)
