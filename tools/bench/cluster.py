"""What a job costs a whole cluster: ``python -m tools.bench.cluster``.

Nodes run on this machine and copies go over the loopback. Measured are the rate, the CPU time of
all nodes together until the last copy is made or removed, and what goes over the bus. Redis does
the same job without copies in the same rounds, so that figures of different days compare.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tools.bench import report
from tools.bench.command import number, numbers, run, say
from tools.bench.fleet import GENERATOR_CPUS, fleet
from tools.bench.measure import Bench, Setting
from tools.bench.replicated import WAYS, ClusterBench, Result, Way, copies
from tools.bench.servers import DISQUE_COMMAND, redis_server
from tools.bench.workloads import SERIAL_DIGITS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
MODULE = "tools.bench.cluster"
WARM_UP_JOBS = 1_000
SCENARIOS = ("ways", "nodes", "held")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured and how much of it: ``work`` scales the jobs of each run, ``size`` is a
    job's body in bytes, ``nodes`` and ``held`` are the steps of the scenarios of these names."""

    command: Sequence[str]
    rounds: int
    replicate: int
    clients: int
    pipelines: Sequence[int]
    nodes: Sequence[int]
    held: Sequence[int]
    size: int
    work: float
    say: Callable[[str], None]

    def jobs(self, pipeline: int) -> int:
        """The jobs of one run: the deeper the pipeline the cheaper each is."""
        return max(1, round(self.work * min(40_000, 8_000 + 1_500 * pipeline) / pipeline)) * (
            pipeline
        )


@dataclass(frozen=True, slots=True)
class Beside:
    """Redis beside it: CPU seconds for 100,000 jobs, and jobs in a second."""

    step: str
    pipeline: int
    round: int
    cpu_per_100k: float
    rate: float


def ways(plan: Plan) -> tuple[list[Result], list[Beside]]:
    """All ways through a cluster of as many nodes as there are copies, and Redis."""
    results: list[Result] = []
    redis: list[Beside] = []
    with ExitStack() as stack:
        bench = _bench(plan, plan.replicate, stack)
        other = Bench(stack.enter_context(redis_server()), plan.size)
        for pipeline in plan.pipelines:
            jobs = plan.jobs(pipeline)
            for round in range(plan.rounds):
                plan.say(f"pipelined by {pipeline}, round {round + 1}, {jobs} jobs")
                redis += _redis(other, plan, pipeline, round)
                for step in WAYS:
                    for asynchronous in (False, True):
                        way = Way(step, plan.replicate, asynchronous, pipeline, plan.clients)
                        results.append(bench.measure(way, jobs, round))
    return results, redis


def by_nodes(plan: Plan) -> list[Result]:
    """The cycle in clusters of more and more nodes, one cluster after the other."""
    results: list[Result] = []
    for count in plan.nodes:
        plan.say(f"{count} nodes")
        with ExitStack() as stack:
            results += _cycles(plan, _bench(plan, count, stack), count)
    return results


def by_held(plan: Plan) -> list[Result]:
    """The cycle in clusters that hold more and more jobs, one cluster after the other."""
    results: list[Result] = []
    for held in plan.held:
        with ExitStack() as stack:
            bench = _bench(plan, plan.replicate, stack)
            plan.say(f"filling with {held} jobs")
            bench.fill(held, plan.replicate)
            results += _cycles(plan, bench, plan.replicate)
    return results


def _bench(plan: Plan, nodes: int, stack: ExitStack) -> ClusterBench:
    """A cluster, warmed up by a few jobs."""
    bench = ClusterBench(stack.enter_context(fleet(nodes, plan.command)), plan.size)
    for step in WAYS:
        way = Way(step, copies(nodes, plan.replicate), False, 16, plan.clients)
        bench.measure(way, WARM_UP_JOBS)
    return bench


def _cycles(plan: Plan, bench: ClusterBench, nodes: int) -> list[Result]:
    wanted = copies(nodes, plan.replicate)
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


# ---- tables --------------------------------------------------------------------------------


def ways_table(results: Sequence[Result], redis: Sequence[Beside]) -> str:
    """One row for each way."""
    titles = ["what", "reply to ADDJOB", "pipelined", "CPU s/100k jobs, all nodes", "(range)"]
    titles += ["CPU ratio to Redis", "jobs/s", "rate ratio"]
    titles += ["packets a job", "bytes on the bus a job"]
    rows = []
    for way in dict.fromkeys(result.way for result in results):
        mine = [result for result in results if result.way == way]
        step = "add" if way.step == "add" else "cycle"
        beside = [r for r in redis if r.step == step and r.pipeline == way.pipeline]
        cpu = [r.cpu_per_100k / b.cpu_per_100k for r, b in zip(mine, beside, strict=True)]
        rate = [r.rate / b.rate for r, b in zip(mine, beside, strict=True)]
        row = [_name(way), "at once" if way.asynchronous else "with all copies"]
        row += [str(way.pipeline), *_cpu(mine), f"{median(cpu):.1f}"]
        row += [f"{median(r.rate for r in mine):,.0f}", f"{median(rate):.2f}", *_bus(mine)]
        rows.append(row)
    return report.table(titles, rows)


def growth_table(results: Sequence[Result], level: Callable[[Result], int], what: str) -> str:
    """One row for each way and level (nodes, or jobs held); ratios are to the lowest level."""
    titles = ["what", "pipelined", what, "copies", "CPU s/100k jobs, all nodes", "(range)"]
    titles += ["CPU ratio", "jobs/s", "packets a job", "bytes on the bus a job"]
    rows = []
    kinds = dict.fromkeys((r.way.step, r.way.pipeline) for r in results)
    for step, pipeline in kinds:
        kind = [r for r in results if (r.way.step, r.way.pipeline) == (step, pipeline)]
        levels = sorted({level(r) for r in kind})
        lowest = median(r.cpu_per_100k for r in kind if level(r) == levels[0])
        for size in levels:
            mine = [r for r in kind if level(r) == size]
            row = [_name(mine[0].way), str(pipeline), f"{size:,}", str(mine[0].way.replicate)]
            ratio = median(r.cpu_per_100k for r in mine) / lowest
            row += [*_cpu(mine), f"{ratio:.2f}"]
            row += [f"{median(r.rate for r in mine):,.0f}", *_bus(mine)]
            rows.append(row)
    return report.table(titles, rows)


def _name(way: Way) -> str:
    return "ADDJOB" if way.step == "add" else way.step


def _cpu(results: Sequence[Result]) -> list[str]:
    found = [result.cpu_per_100k for result in results]
    return [f"**{median(found):.2f}**", f"{min(found):.2f}-{max(found):.2f}"]


def _bus(results: Iterable[Result]) -> list[str]:
    results = list(results)
    packets = median(result.usage.packets / result.jobs for result in results)
    sizes = [result.usage.bus_bytes for result in results]
    if None in sizes:
        return [f"{packets:.1f}", "not counted"]
    size = median((r.usage.bus_bytes or 0) / r.jobs for r in results)
    return [f"{packets:.1f}", f"{size:,.0f}"]


# ---- the command line ----------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """Runs one scenario and prints its table. Returns the exit status."""
    options = _parser().parse_args(arguments)
    quick = bool(options.quick)
    plan = Plan(
        command=shlex.split(options.server),
        rounds=options.rounds or (1 if quick else 3),
        replicate=options.replicate,
        clients=options.clients,
        pipelines=options.pipelines or (1, 16),
        nodes=options.nodes or ((1, 3) if quick else (1, 2, 3, 5, 7, 9)),
        held=options.held or ((100, 1_000) if quick else (1_000, 100_000, 1_000_000)),
        size=max(options.size, SERIAL_DIGITS),
        work=options.work or (0.05 if quick else 1.0),
        say=say,
    )
    section = f"cluster {options.scenario}"
    if options.write_docs:
        # Not after minutes of work: is there a place for the table?
        report.replace_section(DOCS.read_text(), section, "")
    os.sched_setaffinity(0, GENERATOR_CPUS)
    if options.scenario == "ways":
        table = ways_table(*ways(plan))
    elif options.scenario == "nodes":
        table = growth_table(by_nodes(plan), lambda r: r.nodes, "nodes")
    else:
        table = growth_table(by_held(plan), lambda r: r.held, "jobs held")
    text = f"{report.heading(arguments, report.machine(), MODULE)}\n\n{table}"
    print(text)
    if options.write_docs:
        DOCS.write_text(report.replace_section(DOCS.read_text(), section, text))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    add = parser.add_argument
    add(
        "--scenario",
        choices=SCENARIOS,
        default="ways",
        help="ways: ADDJOB and whole lives of jobs, at one node and across nodes (the default);"
        " nodes: with more and more nodes; held: with more and more jobs held",
    )
    add("--quick", action="store_true", help="a few seconds' run, to see that everything works")
    add("--rounds", type=number, help="how often everything is measured (default 3)")
    add("--replicate", type=number, default=3, help="copies of a job (default 3)")
    add("--clients", type=number, default=50, help="of all nodes together (default 50)")
    add("--pipelines", type=numbers, metavar="N,N", help="pipeline depths (default 1,16)")
    add("--nodes", type=numbers, metavar="N,N", help="numbers of nodes (default 1,2,3,5,7,9)")
    add("--held", type=numbers, metavar="N,N", help="jobs held (default 1000,100000,1000000)")
    add("--size", type=number, default=100, help="bytes of a job's body (default 100)")
    add("--work", type=float, help="scales the number of jobs measured (default 1.0)")
    add("--server", metavar="COMMAND", default=shlex.join(DISQUE_COMMAND), help="starts a node")
    add("--write-docs", action="store_true", help=f"replace the table in docs/{DOCS.name}")
    return parser


if __name__ == "__main__":
    run(main)
