"""The cost of a job for a whole cluster.

Nodes run on this machine, and copies go over the loopback. The run measures the rate, the CPU time
of all nodes together until the last copy is made or removed, and the traffic on the bus. Redis does
the same work without copies in the same rounds, so that figures of different days are comparable.
Scenarios: ways, ADDJOB and whole lives of jobs, at one node and across nodes; nodes, with growing
numbers of nodes; apart, these nodes beside as many in clusters of three, since more processes on a
processor cost more whatever they do; held, with growing numbers of jobs held; idle, what jobs cost
each second that lie in a queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median

from benchmarks import cluster_plot
from tools.bench.cli import (
    Findings,
    Picture,
    grouped,
    middle,
    option,
    say,
    size,
    spread,
    table,
    words,
)
from tools.bench.measure import Bench, Setting
from tools.bench.nodes import WAYS, ClusterBench, Result, Usage, Way, cluster
from tools.bench.scripts import SERIAL_DIGITS
from tools.bench.servers import DISQUE_COMMAND, redis_server

PAGE = "performance-tables.md"
SECTION = "cluster {scenario}"
WARM_UP_JOBS = 1_000
SMALL = 3  # nodes of a cluster that others are compared with


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much."""

    scenario: str = option("ways", "what", choices=("ways", "nodes", "apart", "held", "idle"))
    rounds: int = option(3, "how often everything is measured", quick=1)
    replicate: int = option(3, "copies of a job")
    clients: int = option(50, "clients of all nodes together; apart: of three nodes")
    pipelines: tuple[int, ...] = option((1, 16), "pipeline depths")
    nodes: tuple[int, ...] = option((1, 2, 3, 5, 7, 9), "numbers of nodes", quick=(1, 3))
    held: tuple[int, ...] = option((1_000, 100_000, 1_000_000), "jobs held", quick=(100, 1_000))
    size: int = option(100, "bytes of a job's body", parse=size(SERIAL_DIGITS))
    idle: int = option(200_000, "jobs that lie in a queue, for idle", quick=1_000)
    retry: int = option(30, "their retry time, in s", quick=4)
    work: float = option(1.0, "scales the number of jobs measured", quick=0.05)
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)

    def jobs(self, pipeline: int) -> int:
        """The jobs in one run: a deeper pipeline makes each cheaper."""
        wanted = self.work * min(40_000, 8_000 + 1_500 * pipeline)
        return max(1, round(wanted / pipeline)) * pipeline


@dataclass(frozen=True, slots=True)
class Beside:
    """Redis for comparison: CPU seconds per 100,000 jobs, and jobs per second."""

    step: str
    pipeline: int
    round: int
    cpu_per_100k: float
    rate: float


@dataclass(frozen=True, slots=True)
class Rest:
    """What all nodes used in some seconds with ``jobs`` in a queue, of this retry time (s)."""

    jobs: int
    retry: int
    round: int
    seconds: float
    usage: Usage


def run(plan: Plan) -> Findings:
    """Runs the scenario."""
    if plan.scenario == "ways":
        results, redis = ways(plan)
        return Findings(ways_table(results, redis), [*results, *redis])
    if plan.scenario == "nodes":
        results = by_nodes(plan)
        return Findings(growth_table(results, lambda r: r.nodes, "nodes"), results)
    if plan.scenario == "apart":
        pairs = apart(plan)
        samples = [result for pair in pairs for result in pair]
        alt = "What a job costs in one cluster and in clusters of three, by the number of nodes"
        pictures = [Picture("cluster.svg", apart_plot(pairs), alt)]
        return Findings(apart_table(pairs), samples, pictures)
    if plan.scenario == "idle":
        rests = idle(plan)
        return Findings(idle_table(rests), rests)
    results = by_held(plan)
    return Findings(growth_table(results, lambda r: r.held, "jobs held"), results)


def ways(plan: Plan) -> tuple[list[Result], list[Beside]]:
    """All ways through a cluster with as many nodes as copies, and Redis."""
    results: list[Result] = []
    redis: list[Beside] = []
    with ExitStack() as stack:
        bench = _bench(plan, plan.replicate, stack)
        other = Bench(stack.enter_context(redis_server()), plan.size)
        for pipeline in plan.pipelines:
            jobs = plan.jobs(pipeline)
            for round in range(plan.rounds):
                say(f"pipelined by {pipeline}, round {round + 1}, {jobs} jobs")
                redis += _redis(other, plan, pipeline, round)
                for step in WAYS:
                    for asynchronous in (False, True):
                        way = Way(step, plan.replicate, asynchronous, pipeline, plan.clients)
                        results.append(bench.measure(way, jobs, round))
    return results, redis


def by_nodes(plan: Plan) -> list[Result]:
    """The cycle in clusters with growing numbers of nodes, one after the other."""
    results: list[Result] = []
    for count in plan.nodes:
        say(f"{count} nodes")
        with ExitStack() as stack:
            results += _cycles(plan, _bench(plan, count, stack), count)
    return results


def apart(plan: Plan) -> list[tuple[Result, Result]]:
    """The cycle in clusters of three, and in one cluster of as many nodes: pairs, the two measured
    one after the other, with as many clients at each node."""
    pairs: list[tuple[Result, Result]] = []
    for count in plan.nodes:
        say(f"{count} nodes")
        part = replace(plan, clients=plan.clients * count // SMALL)
        with ExitStack() as stack:
            threes = _bench(part, count, stack, SMALL)
            whole = _bench(part, count, stack)
            for round in range(plan.rounds):
                measured = [_cycles(replace(part, rounds=1), b, SMALL) for b in (threes, whole)]
                pairs += [
                    (replace(one, round=round), replace(other, round=round))
                    for one, other in zip(*measured, strict=True)
                ]
    return pairs


def by_held(plan: Plan) -> list[Result]:
    """The cycle in clusters that hold growing numbers of jobs, one after the other."""
    results: list[Result] = []
    for held in plan.held:
        with ExitStack() as stack:
            bench = _bench(plan, plan.replicate, stack)
            say(f"filling with {held} jobs")
            bench.fill(held, plan.replicate)
            results += _cycles(plan, bench, plan.replicate)
    return results


def idle(plan: Plan) -> list[Rest]:
    """What nodes use that do nothing, without and with jobs in a queue. These have been there for
    two retry times before."""
    found: list[Rest] = []
    with ExitStack() as stack:
        bench = _bench(plan, plan.replicate, stack)
        for jobs in (0, plan.idle):
            if jobs:
                say(f"filling with {jobs} jobs")
                bench.fill_idle(jobs, plan.replicate, plan.retry)
                time.sleep(2 * plan.retry)
            for round in range(plan.rounds):
                say(f"{jobs} jobs, round {round + 1}")
                seconds, before = time.monotonic(), bench.nodes.usage()
                time.sleep(plan.retry)
                usage = bench.nodes.usage().since(before)
                found.append(Rest(jobs, plan.retry, round, time.monotonic() - seconds, usage))
    return found


def _bench(plan: Plan, nodes: int, stack: ExitStack, size: int = 0) -> ClusterBench:
    """A cluster, or clusters of ``size`` nodes, warmed up with a few jobs."""
    running = stack.enter_context(cluster([plan.server] * nodes, size=size))
    bench = ClusterBench(running, plan.size)
    for step in WAYS:
        way = Way(step, min(size or nodes, plan.replicate), False, 16, plan.clients)
        bench.measure(way, min(WARM_UP_JOBS, plan.jobs(1)))
    return bench


def _cycles(plan: Plan, bench: ClusterBench, nodes: int) -> list[Result]:
    wanted = min(nodes, plan.replicate)
    return [
        bench.measure(Way(step, wanted, False, pipeline, plan.clients), plan.jobs(pipeline), round)
        for round in range(plan.rounds)
        for pipeline in plan.pipelines
        for step in WAYS
    ]


def _redis(bench: Bench, plan: Plan, pipeline: int, round: int) -> list[Beside]:
    setting = Setting(round, pipeline, plan.clients)
    jobs = plan.jobs(pipeline)
    add = bench.steps(setting, jobs)[0]
    whole = bench.cycles(setting, jobs)
    return [
        Beside("add", pipeline, round, add.cpu_per_100k, add.rate),
        # Three commands are the life of a job.
        Beside("cycle", pipeline, round, whole.cpu_per_100k * 3, whole.rate / 3),
    ]


def idle_table(rests: Sequence[Rest]) -> str:
    """One row without jobs, one with them, and the difference."""
    titles = ["jobs", "RETRY", "packets/s, all nodes", "bytes/s on the bus", "CPU ms/s, all nodes"]
    rows: list[list[str]] = []
    levels: list[list[float]] = []
    for jobs, mine in grouped(rests, lambda rest: rest.jobs).items():
        figures = [
            median([rest.usage.packets / rest.seconds for rest in mine]),
            median([(rest.usage.bus_bytes or 0) / rest.seconds for rest in mine]),
            median([1_000 * rest.usage.cpu / rest.seconds for rest in mine]),
        ]
        levels.append(figures)
        rows.append([f"{jobs:,}", f"{mine[0].retry} s", *[f"{figure:,.2f}" for figure in figures]])
    more = [after - before for before, after in zip(*levels, strict=True)]
    rows.append(["the jobs alone", "", *[f"{figure:,.2f}" for figure in more]])
    return table(titles, rows)


def ways_table(results: Sequence[Result], redis: Sequence[Beside]) -> str:
    """One row for each way."""
    titles = ["what", "reply to ADDJOB", "pipelined", "CPU s/100k jobs, all nodes", "(range)"]
    titles += ["CPU ratio to Redis", "jobs/s", "rate ratio"]
    titles += ["packets a job", "bytes on the bus a job"]
    rows = []
    for way, mine in grouped(results, lambda result: result.way).items():
        step = "add" if way.step == "add" else "cycle"
        beside = [r for r in redis if r.step == step and r.pipeline == way.pipeline]
        cpu = [r.cpu_per_100k / b.cpu_per_100k for r, b in zip(mine, beside, strict=True)]
        rate = [r.rate / b.rate for r, b in zip(mine, beside, strict=True)]
        row = [_name(way), "at once" if way.asynchronous else "with all copies"]
        row += [str(way.pipeline), *_cpu(mine), f"{median(cpu):.1f}"]
        row += [middle(mine, lambda r: r.rate), f"{median(rate):.2f}", *_bus(mine)]
        rows.append(row)
    return table(titles, rows)


def growth_table(results: Sequence[Result], level: Callable[[Result], int], what: str) -> str:
    """One row for each way and level (nodes, or jobs held); ratios are to the lowest level."""
    titles = ["what", "pipelined", what, "copies", "CPU s/100k jobs, all nodes", "(range)"]
    titles += ["CPU ratio", "jobs/s", "packets a job", "bytes on the bus a job"]
    rows = []
    for (_, pipeline), kind in grouped(results, lambda r: (r.way.step, r.way.pipeline)).items():
        levels = sorted(grouped(kind, level).items())
        lowest = median(r.cpu_per_100k for r in levels[0][1])
        for height, mine in levels:
            row = [_name(mine[0].way), str(pipeline), f"{height:,}", str(mine[0].way.replicate)]
            ratio = median(r.cpu_per_100k for r in mine) / lowest
            row += [*_cpu(mine), f"{ratio:.2f}", middle(mine, lambda r: r.rate), *_bus(mine)]
            rows.append(row)
    return table(titles, rows)


def apart_table(pairs: Sequence[tuple[Result, Result]]) -> str:
    """One row for each way and number of nodes: clusters of three, one cluster, and the ratio."""
    titles = ["what", "pipelined", "nodes", "CPU s/100k jobs, in threes", "(range)"]
    titles += ["in one cluster", "(range)", "CPU ratio", "(range)", "packets a job, in threes"]
    titles += ["in one cluster"]
    rows = []
    for (way, count), mine in grouped(pairs, lambda p: (p[0].way, p[0].nodes)).items():
        threes, whole = [one for one, _ in mine], [other for _, other in mine]
        ratios = [other.cpu_per_100k / one.cpu_per_100k for one, other in mine]
        row = [_name(way), str(way.pipeline), f"{count:,}", *_cpu(threes), *_cpu(whole)]
        rows.append([*row, *spread(ratios), _bus(threes)[0], _bus(whole)[0]])
    return table(titles, rows)


def apart_plot(pairs: Sequence[tuple[Result, Result]]) -> str:
    """The cycle at the deepest pipeline, in one cluster and in clusters of three."""
    deepest = max(one.way.pipeline for one, _ in pairs)
    wanted = [
        pair for pair in pairs if (pair[0].way.step, pair[0].way.pipeline) == ("cycle", deepest)
    ]
    lines = []
    for place, name in enumerate(("in one cluster", "in clusters of three")):
        found = grouped([pair[1 - place] for pair in wanted], lambda result: result.nodes)
        points = [
            (count, median(one.cpu_per_100k for one in mine) * 10) for count, mine in found.items()
        ]
        lines.append((name, points))
    copies = wanted[0][0].way.replicate
    note = f"added, taken and acknowledged with {copies} copies, pipelined by {deepest}"
    return cluster_plot.plot(lines, note + "; all nodes on one processor")


def _name(way: Way) -> str:
    return "ADDJOB" if way.step == "add" else way.step


def _cpu(results: Sequence[Result]) -> tuple[str, str]:
    return spread([result.cpu_per_100k for result in results])


def _bus(results: Sequence[Result]) -> list[str]:
    packets = middle(results, lambda r: r.usage.packets / r.jobs, 1)
    if any(r.usage.bus_bytes is None for r in results):
        return [packets, "not counted"]
    return [packets, middle(results, lambda r: (r.usage.bus_bytes or 0) / r.jobs)]
