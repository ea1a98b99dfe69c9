"""The gain from using more cores of one machine.

Compares one node with a cluster of two, on this machine and under the same load. Each node has its
own generators, as each client has a node; jobs go through ADDJOB, GETJOB and ACKJOB in batches, or
from producers at one node to consumers at the other. The run measures jobs per second, the CPU time
of all nodes per job, and that of the generators. These share the same cores, so their requests are
prepared in advance and reused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle as endless
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

from tools.bench.cli import Findings, grouped, middle, option, ratio, say, size, table, words
from tools.bench.dialects import QUEUE, Batched, copied
from tools.bench.load import Exchange, LoadError, connections
from tools.bench.load import run as drive_load
from tools.bench.nodes import Cluster, cluster
from tools.bench.scripts import SERIAL_DIGITS, add_batches, bodies, cycle, drain, lives, send
from tools.bench.servers import CPUS, DISQUE_COMMAND, NO_REWRITE
from tools.bench.workers import worker

PAGE = "design.md"
SECTION = "cores"
PINNED = False
STEPS = ("one by one", "batch", "across")
AOF = {
    "none": (),
    "everysec": ("--appendonly", "yes", "--appendfsync", "everysec"),
}
WARM_UP = 0.3  # s
ACROSS_RATE = 50_000  # jobs per second of a measurement
PREPARED = 64  # batches to reuse


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: each way for ``seconds`` in each round, with ``clients`` in total."""

    rounds: int = option(5, "how often everything is measured", quick=1)
    nodes: int = option(2, "nodes to compare with a single one")
    clients: int = option(64, "clients of all nodes together")
    pipelines: tuple[int, ...] = option((16, 64), "jobs in a batch", quick=(16,))
    seconds: float = option(2.0, "of each measurement", quick=0.2)
    size: int = option(100, "bytes of a job's body", parse=size(SERIAL_DIGITS))
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Way:
    """How jobs go through their lives.

    ``step`` is one of STEPS: one job per command; GETJOB and ACKJOB for a batch; or the same with
    the producers at the first node and the consumers at the last. ``pinned``: each node shares a
    CPU with its generator, and the generator of a single node has its own; otherwise the kernel
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
        """Jobs per second."""
        return self.jobs / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of all nodes per job, in microseconds."""
        return self.cpu / self.jobs * 1e6

    @property
    def own_us(self) -> float:
        """CPU time of the generators per job, in microseconds."""
        return self.own_cpu / self.jobs * 1e6


def ways(pipelines: Sequence[int], levels: Sequence[str]) -> list[Way]:
    """All ways to measure."""
    found = [Way("one by one", 1, "none", False)]
    for pinned in (False, True):
        for aof in levels:
            found += [Way("batch", pipeline, aof, pinned) for pipeline in pipelines]
    found += [Way("one by one", pipeline, "none", False) for pipeline in pipelines if pipeline > 1]
    found += [Way("across", pipeline, "none", False) for pipeline in pipelines]
    return found


def run(plan: Plan) -> Findings:
    """Measures every way with one node and with several, in turn, in every round."""
    results: list[Result] = []
    for round in range(plan.rounds):
        for aof, found in grouped(ways(plan.pipelines, tuple(AOF)), lambda way: way.aof).items():
            command = (*plan.server, *NO_REWRITE, *AOF[aof])
            with ExitStack() as stack:
                groups = [
                    stack.enter_context(cluster([command] * count, CPUS, str(count)))
                    for count in (1, plan.nodes)
                ]
                for way in found:
                    say(f"round {round + 1}, {way}")
                    results += [_measure(plan, way, group, round) for group in groups]
    return Findings(gain_table(results), results)


def placed(way: Way, nodes: int, cpus: Sequence[int]) -> list[tuple[set[int], set[int]]]:
    """The CPUs on which each node and its generator may run."""
    if not way.pinned:
        return [(set(cpus), set(cpus))] * nodes
    if nodes == 1:
        # The best case for it: nothing else uses its CPU.
        return [({cpus[-1]}, set(cpus[:-1]) or {cpus[-1]})]
    return [({cpus[n % len(cpus)]}, {cpus[n % len(cpus)]}) for n in range(nodes)]


def _measure(plan: Plan, way: Way, group: Cluster, round: int) -> Result:
    places = placed(way, len(group), sorted(CPUS))
    for server, (cpus, _) in zip(group.servers, places, strict=True):
        for task in Path(f"/proc/{server.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cpus)
    if way.step == "across":
        return _across(plan, way, group, round)
    ports = [server.port for server in group.servers]
    parts = split(way, ports, [cpus for _, cpus in places], plan)
    try:
        drive(parts, min(WARM_UP, plan.seconds))
        before = group.usage()
        jobs, seconds, own_cpu = drive(parts, plan.seconds)
    except LoadError as failure:
        raise group.failure(failure) from failure
    usage = group.usage().since(before)
    group.settle(0)
    return Result(way, len(group), round, jobs, seconds, usage.cpu, own_cpu)


def _across(plan: Plan, way: Way, group: Cluster, round: int) -> Result:
    """Adds jobs at the first node while taking them at the last: the cost of a job that moves. One
    generator does both, until the last job has ended."""
    clients = max(1, plan.clients // 2)
    words = Batched(way.pipeline, plan.size)
    single = copied(plan.size, QUEUE, 1, False)
    jobs = max(clients, int(plan.seconds * ACROSS_RATE / way.pipeline)) * way.pipeline
    adds = iter(add_batches(single, bodies(plan.size), jobs, way.pipeline))
    left = [jobs]
    scripts = [*(send(adds) for _ in range(clients)), *(drain(words, left) for _ in range(clients))]
    first, last = group.servers[0], group.servers[-1]
    try:
        with connections(first.port, clients) as some, connections(last.port, clients) as others:
            before = group.usage()
            load = drive_load([*some, *others], scripts)
    except LoadError as failure:
        raise group.failure(failure) from failure
    usage = group.usage().since(before)
    group.settle(0)
    return Result(way, len(group), round, jobs, load.seconds, usage.cpu, load.own_cpu)


# ---- the generators ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """The work of one generator: port, CPUs, number of clients; jobs per batch (``pipeline``), with
    one GETJOB and ACKJOB for each batch (``batched``) or for each job; ``size`` of a body in
    bytes."""

    port: int
    cpus: frozenset[int]
    clients: int
    pipeline: int
    batched: bool
    size: int


def split(way: Way, ports: Sequence[int], cpus: Sequence[set[int]], plan: Plan) -> list[Part]:
    """The generators: one for each node, and the same number for a single node, so that it never
    lacks load."""
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


def drive(parts: Sequence[Part], seconds: float) -> tuple[int, float, float]:
    """Runs all parts at the same time, each in its own process. Returns the number of completed
    jobs, wall seconds, and CPU seconds of the generators. Raises LoadError on a wrong reply, or if
    a generator ends."""
    with ExitStack() as stack:
        generators = [stack.enter_context(worker("a generator", _generate, p)) for p in parts]
        for generator in generators:
            generator.hear()  # all clients are connected
        started = time.perf_counter()
        for generator in generators:
            generator.tell(started + seconds)
        found = [generator.hear(seconds) for generator in generators]
    jobs, finished, own_cpu = zip(*found, strict=True)
    return sum(jobs), max(finished) - started, sum(own_cpu)


def _generate(pipe: Connection, part: Part) -> None:
    """The main function of a generator's process."""
    os.sched_setaffinity(0, part.cpus)
    words = Batched(part.pipeline, part.size)
    single = copied(part.size, QUEUE, 1, False)
    batches = add_batches(single, bodies(part.size), part.pipeline * PREPARED, part.pipeline)
    given: list[int] = []
    with connections(part.port, part.clients) as socks:
        pipe.send("connected")
        adds = until(pipe.recv(), batches, given)
        scripts = [
            lives(words, adds) if part.batched else cycle(single, worker, adds)
            for worker in range(part.clients)
        ]
        load = drive_load(socks, scripts)
        pipe.send((sum(given), time.perf_counter(), load.own_cpu))


def until(deadline: float, batches: Sequence[Exchange], given: list[int]) -> Iterator[Exchange]:
    """Repeats the batches until the deadline (time.perf_counter); appends the number of commands of
    each to ``given``."""
    for batch in endless(batches):
        if time.perf_counter() > deadline:
            return
        given.append(batch.commands)
        yield batch


# ---- tables --------------------------------------------------------------------------------


def gain_table(results: Sequence[Result]) -> str:
    """One row for each way: the gain of several nodes over one, round by round."""
    many = max(result.nodes for result in results)
    titles = ["a job's life", "in batches of", "AOF", "CPUs", "jobs/s, 1 node"]
    titles += [f"jobs/s, {many} nodes", "gain", "(range)", "node CPU us a job, 1 node"]
    titles += [f"{many} nodes", "generator CPU us a job", "gain with the generator elsewhere"]
    rows = []
    for way, found in grouped(results, lambda result: result.way).items():
        one = [r for r in found if r.nodes == 1]
        more = [r for r in found if r.nodes == many]
        row = [way.step, str(way.pipeline), way.aof, "pinned" if way.pinned else "free"]
        row += [middle(group, lambda r: r.rate) for group in (one, more)]
        row += ratio(more, one, lambda r: r.rate)
        row += [middle(group, lambda r: r.cpu_us, 1) for group in (one, more)]
        row += [middle(more, lambda r: r.own_us, 1), f"{elsewhere(one, more):.2f}"]
        rows.append(row)
    return table(titles, rows)


def elsewhere(one: Sequence[Result], more: Sequence[Result]) -> float:
    """The gain without generators on the nodes' CPUs: the number of nodes, reduced by the extra CPU
    time per job."""
    return more[0].nodes * median(a.cpu_us / b.cpu_us for a, b in zip(one, more, strict=True))
