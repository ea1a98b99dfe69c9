"""The cost of a queue that lies on disk, beside one in memory.

Two nodes with an append-only file are up at the same time and take turns in rounds. One has so
little memory that nearly all jobs go to disk. In each round jobs are added, some of them are
acknowledged in random order, and the others are taken and acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tools.bench.cli import Findings, grouped, middle, option, ratio, say, size, table, words
from tools.bench.dialects import QUEUE, copied, encode
from tools.bench.filler import ends, ids_in
from tools.bench.load import Script, ask_once, connections, info
from tools.bench.load import run as run_load
from tools.bench.scripts import SERIAL_DIGITS, add_batches, bodies, consume, portions, send
from tools.bench.servers import DISQUE_COMMAND, NO_REWRITE, Server, disque_server
from tools.bench.stops import Watch, watches

PAGE = "performance-details.md"
SECTION = "paging"
CLIENTS = 50
IDS = 100  # per ACKJOB in random order
FILE = ("--appendonly", "yes", *NO_REWRITE)
STEPS = ("ADDJOB", "ACKJOB in random order", "GETJOB and ACKJOB")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much."""

    jobs: int = option(300_000, "jobs in a round", quick=20_000)
    rounds: int = option(5, "how often everything is measured", quick=1)
    pipeline: int = option(16, "pipeline depth")
    memory: int = option(
        48 << 20, "maxmemory of the node whose jobs go to disk", quick=4 << 20, parse=size(1 << 20)
    )
    size: int = option(100, "bytes of a job's body", parse=size(SERIAL_DIGITS))
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Sample:
    """One step in one round. ``cpu``: seconds of the node, for all ``jobs``; ``turn``: CPU time of
    its longest turn in ms; ``paged``: jobs that were on disk at the end of ADDJOB."""

    paged_node: bool
    step: str
    jobs: int
    cpu: float
    turn: float
    paged: int

    @property
    def each(self) -> float:
        """Microseconds of CPU a job."""
        return self.cpu / self.jobs * 1e6


class Side:
    """One of the two nodes."""

    def __init__(self, server: Server, watch: Watch, plan: Plan, paged: bool) -> None:
        self.server = server
        self._watch = watch
        self._plan = plan
        self._paged = paged
        self._dialect = copied(plan.size, QUEUE, 1, False)
        self._bodies = bodies(plan.size)
        if paged:
            words = (b"CONFIG", b"SET", b"maxmemory", b"%d" % plan.memory)
            ask_once(server.port, encode(*words))

    def round(self, jobs: int, seed: int) -> list[Sample]:
        """Add jobs, and end them all."""
        plan = self._plan
        dialect = self._dialect
        batches = add_batches(dialect, self._bodies, jobs, plan.pipeline)
        replies: list[bytes] = []
        shared = iter(batches)
        found = [self._step(0, jobs, lambda _: send(shared, replies), 0)]
        paged = int(info(self.server.port, b"jobs").get("paging_jobs", 0))
        found[0] = replace(found[0], paged=paged)
        ids = ids_in(replies)
        picked = random.Random(seed).sample(ids[jobs // 4 : -jobs // 4], jobs // 4)
        acks = iter(ends(b"ACKJOB", picked, IDS, 1))
        found.append(self._step(1, len(picked), lambda _: send(acks), paged))
        rest = jobs - len(picked)
        counts = portions(rest, plan.pipeline)
        found.append(self._step(2, rest, lambda n: consume(dialect, n, counts), paged))
        if dialect.unfinished(self.server.port):
            raise self.server.failure("has jobs left")
        return found

    def _step(self, number: int, jobs: int, script: Callable[[int], Script], paged: int) -> Sample:
        server = self.server
        with server.blamed(), connections(server.port, CLIENTS) as socks:
            self._watch.reset()
            before = server.cpu_seconds()
            run_load(socks, [script(worker) for worker in range(CLIENTS)])
            cpu = server.cpu_seconds() - before
            turn = self._watch.read().cpu
        return Sample(self._paged, STEPS[number], jobs, cpu, turn, paged)


def run_rounds(plan: Plan) -> list[Sample]:
    """All rounds, after one to warm up."""
    samples: list[Sample] = []
    with ExitStack() as stack:
        seen = stack.enter_context(watches(2))
        sides = []
        for paged, watch in zip((True, False), seen, strict=True):
            more = () if paged else ("--paging", "no")
            command = watch.command((*plan.server, *FILE, *more))
            server = stack.enter_context(disque_server("paged" if paged else "plain", command))
            sides.append(Side(server, watch, plan, paged))
        for side in sides:
            side.round(max(plan.jobs // 10, 1_000), 0)
        for number in range(plan.rounds):
            say(f"round {number + 1}")
            for side in sides if number % 2 else reversed(sides):
                samples += side.round(plan.jobs, number)
    return samples


def text_of(samples: Sequence[Sample]) -> str:
    """One row for each step."""
    titles = ["step", "CPU ratio", "(range)", "us a job on disk", "us in memory"]
    titles += ["jobs on disk", "jobs a CPU second", "longest turn, CPU ms", "in memory"]
    rows = []
    for step, found in grouped(samples, lambda one: one.step).items():
        paged = [one for one in found if one.paged_node]
        plain = [one for one in found if not one.paged_node]
        row = [step, *ratio(paged, plain, lambda one: one.each)]
        row += [middle(side, lambda one: one.each, 2) for side in (paged, plain)]
        row += [middle(paged, lambda one: one.paged)]
        row += [middle(paged, lambda one: 1e6 / one.each)]
        row += [f"{max(one.turn for one in side):.1f}" for side in (paged, plain)]
        rows.append(row)
    return table(titles, rows)


def run(plan: Plan) -> Findings:
    """Measure."""
    samples = run_rounds(plan)
    return Findings(text_of(samples), samples)
