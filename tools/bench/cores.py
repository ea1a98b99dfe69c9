"""What the cores of one machine are good for: ``python -m tools.bench.cores``.

One node against two that form a cluster, on this machine and under the same load. Each node has
generators of its own, as each client has a node; jobs live through ADDJOB, GETJOB and ACKJOB in
batches, or go from producers at one node to consumers at the other. Measured are jobs in a second,
the CPU time that all nodes use for a job, and that of the generators, which share the same cores.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tools.bench import report
from tools.bench.command import run
from tools.bench.fleet import HOST, Fleet
from tools.bench.generators import Part, drive
from tools.bench.load import LoadError
from tools.bench.replicated import ClusterBench
from tools.bench.replicated import Way as ReplicatedWay
from tools.bench.servers import DISQUE_COMMAND, NO_REWRITE, disque_server

DOCS = Path(__file__).resolve().parents[2] / "docs" / "design.md"
MODULE = "tools.bench.cores"
CPUS = tuple(sorted(os.sched_getaffinity(0)))
STEPS = ("one by one", "batch", "across")
AOF = {
    "none": (),
    "everysec": ("--appendonly", "yes", "--appendfsync", "everysec"),
}
WARM_UP = 0.3  # s
ACROSS_RATE = 10_000  # jobs, for each second of a measurement


@dataclass(frozen=True, slots=True)
class Way:
    """How jobs go through their lives.

    ``step`` is one of STEPS: each command about one job; GETJOB and ACKJOB about a batch; that,
    but with the producers at the first node and the consumers at the last. ``pinned``: each node
    and its generator have a CPU, and the generator of a single node another one; else the kernel
    decides.
    """

    step: str
    pipeline: int
    aof: str
    pinned: bool


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement: ``cpu`` is that of all nodes, ``own_cpu`` that of all generators, in
    seconds."""

    way: Way
    nodes: int
    round: int
    jobs: int
    seconds: float
    cpu: float
    own_cpu: float

    @property
    def rate(self) -> float:
        """Jobs in a second."""
        return self.jobs / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of all nodes for a job, in microseconds."""
        return self.cpu / self.jobs * 1e6

    @property
    def own_us(self) -> float:
        """CPU time of the generators for a job, in microseconds."""
        return self.own_cpu / self.jobs * 1e6


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: each way for ``seconds`` in each round, with so many ``clients`` in all."""

    command: Sequence[str]
    ways: Sequence[Way]
    rounds: int
    nodes: int
    clients: int
    size: int
    seconds: float
    say: Callable[[str], None]


def ways(pipelines: Sequence[int], levels: Sequence[str]) -> list[Way]:
    """All that is measured by default."""
    found = [Way("one by one", 1, "none", False)]
    for pinned in (False, True):
        for aof in levels:
            found += [Way("batch", pipeline, aof, pinned) for pipeline in pipelines]
    found += [Way("one by one", pipeline, "none", False) for pipeline in pipelines if pipeline > 1]
    found += [Way("across", pipeline, "none", False) for pipeline in pipelines]
    return found


def placed(way: Way, nodes: int, cpus: Sequence[int]) -> list[tuple[set[int], set[int]]]:
    """On which CPUs each node and its generator may run."""
    if not way.pinned:
        return [(set(cpus), set(cpus))] * nodes
    if nodes == 1:
        # The best there is for it: nobody takes its CPU.
        return [({cpus[-1]}, set(cpus[:-1]) or {cpus[-1]})]
    return [({cpus[n % len(cpus)]}, {cpus[n % len(cpus)]}) for n in range(nodes)]


def measure(plan: Plan) -> list[Result]:
    """Every way with one node and with several, in turn, in every round."""
    results: list[Result] = []
    for round in range(plan.rounds):
        for aof in dict.fromkeys(way.aof for way in plan.ways):
            with ExitStack() as stack:
                groups = [
                    stack.enter_context(_nodes(plan.command, count, aof))
                    for count in (1, plan.nodes)
                ]
                for way in plan.ways:
                    if way.aof == aof:
                        plan.say(f"round {round + 1}, {describe(way)}")
                        results += [_measure(plan, way, group, round) for group in groups]
    return results


@contextmanager
def _nodes(command: Sequence[str], count: int, aof: str) -> Iterator[Fleet]:
    """A cluster of so many nodes."""
    with ExitStack() as stack:
        whole = (*command, *NO_REWRITE, *AOF[aof])
        servers = [
            stack.enter_context(disque_server(f"{count}-{n}", whole, CPUS)) for n in range(count)
        ]
        controls = [
            stack.enter_context(socket.create_connection((HOST, server.port), 60.0))
            for server in servers
        ]
        fleet = Fleet(servers, controls)
        fleet.join()
        yield fleet


def _measure(plan: Plan, way: Way, fleet: Fleet, round: int) -> Result:
    places = placed(way, len(fleet), CPUS)
    for server, (cpus, _) in zip(fleet.servers, places, strict=True):
        for task in Path(f"/proc/{server.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cpus)
    ports = [server.port for server in fleet.servers]
    if way.step == "across":
        return _across(plan, way, fleet, round)
    parts = split(way, ports, [cpus for _, cpus in places], plan)
    try:
        drive(parts, WARM_UP)
        before = fleet.usage()
        done = drive(parts, plan.seconds)
    except LoadError as failure:
        raise fleet.failure(failure) from failure
    usage = fleet.usage().since(before)
    fleet.settle(0)
    return Result(way, len(fleet), round, done.jobs, done.seconds, usage.cpu, done.own_cpu)


def _across(plan: Plan, way: Way, fleet: Fleet, round: int) -> Result:
    """First all jobs are added, then each node's are taken at the next one: what a job costs that
    moves. One generator does it."""
    bench = ClusterBench(fleet, plan.size)
    found = ReplicatedWay("cycle across", 1, False, way.pipeline, plan.clients)
    jobs = max(way.pipeline * plan.clients, round_to(plan.seconds * ACROSS_RATE, way.pipeline))
    own = time.process_time()
    result = bench.measure(found, jobs, round)
    own = time.process_time() - own
    return Result(way, len(fleet), round, jobs, result.seconds, result.usage.cpu, own)


def round_to(number: float, unit: int) -> int:
    """``number`` as a multiple of ``unit``."""
    return round(number / unit) * unit


def split(way: Way, ports: Sequence[int], cpus: Sequence[set[int]], plan: Plan) -> list[Part]:
    """The generators: as many as there are nodes, and as many for a single node, so that it is
    not for want of load that it is slower."""
    clients = max(1, plan.clients // plan.nodes)
    batched = way.step == "batch"
    return [
        Part(
            ports[number % len(ports)],
            frozenset(cpus[number % len(ports)]),
            clients,
            way.pipeline,
            batched,
            plan.size,
        )
        for number in range(plan.nodes)
    ]


# ---- tables --------------------------------------------------------------------------------


def describe(way: Way) -> str:
    """A way in words."""
    return f"{way.step} by {way.pipeline}, AOF {way.aof}{', pinned' if way.pinned else ''}"


def table(results: Sequence[Result]) -> str:
    """One row for each way: what several nodes gain beside one, round by round."""
    many = max(result.nodes for result in results)
    titles = ["a job's life", "in batches of", "AOF", "CPUs", "jobs/s, 1 node"]
    titles += [f"jobs/s, {many} nodes", "gain", "(range)", "node CPU us a job, 1 node"]
    titles += [f"{many} nodes", "generator CPU us a job", "gain with the generator elsewhere"]
    rows = []
    for way in dict.fromkeys(result.way for result in results):
        one = [r for r in results if r.way == way and r.nodes == 1]
        more = [r for r in results if r.way == way and r.nodes == many]
        gains = [b.rate / a.rate for a, b in zip(one, more, strict=True)]
        row = [way.step, str(way.pipeline), way.aof, "pinned" if way.pinned else "free"]
        row += [f"{median(r.rate for r in group):,.0f}" for group in (one, more)]
        row += [f"**{median(gains):.2f}**", f"{min(gains):.2f}-{max(gains):.2f}"]
        row += [f"{median(r.cpu_us for r in group):.1f}" for group in (one, more)]
        row += [f"{median(r.own_us for r in more):.1f}", f"{elsewhere(one, more):.2f}"]
        rows.append(row)
    return report.table(titles, rows)


def elsewhere(one: Sequence[Result], more: Sequence[Result]) -> float:
    """The gain where no generator takes anything of the nodes' CPUs: each node has a CPU, so it
    is the number of nodes, less what a job costs more CPU time."""
    return more[0].nodes * median(a.cpu_us / b.cpu_us for a, b in zip(one, more, strict=True))


# ---- the command line ----------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """Measures, and prints the table. Returns the exit status."""
    options = _parser().parse_args(arguments)
    quick = bool(options.quick)
    plan = Plan(
        command=shlex.split(options.server),
        ways=ways(options.pipelines or ((16,) if quick else (16, 64)), ("none", "everysec")),
        rounds=options.rounds or (1 if quick else 5),
        nodes=options.nodes,
        clients=options.clients,
        size=100,
        seconds=options.seconds or (0.2 if quick else 2.0),
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    if options.write_docs:
        # Not after minutes of work: is there a place for the table?
        report.replace_section(DOCS.read_text(), "cores", "")
    text = f"{report.heading(arguments, report.machine(), MODULE)}\n\n{table(measure(plan))}"
    print(text)
    if options.write_docs:
        DOCS.write_text(report.replace_section(DOCS.read_text(), "cores", text))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a few seconds' run, to see that everything works")
    add("--rounds", type=int, help="how often everything is measured (default 5)")
    add("--nodes", type=int, default=2, help="nodes beside the single one (default 2)")
    add("--clients", type=int, default=64, help="of all nodes together (default 64)")
    add(
        "--pipelines",
        type=lambda text: tuple(map(int, text.split(","))),
        metavar="N,N",
        help="jobs in a batch (default 16,64)",
    )
    add("--seconds", type=float, help="of each measurement (default 2)")
    add("--server", metavar="COMMAND", default=shlex.join(DISQUE_COMMAND), help="starts a node")
    add("--write-docs", action="store_true", help=f"replace the table in docs/{DOCS.name}")
    return parser


if __name__ == "__main__":
    run(main)
