"""The scenarios: which servers run, in which order they are measured, with how much work.

A scenario keeps all of its servers up together and gives them their turns in rounds (first,
second, first, second ...), so that whatever else the machine does meanwhile falls on all of
them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from tools.bench.measure import Bench, Sample, Setting
from tools.bench.servers import Server

WARM_UP_JOBS = 2_000
BUSY_CLIENTS = 50
HELD_PORTION = 1_000
HELD_PIPELINES = (1, 16)
IDLE_PIPELINES = (1, 16)
REST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured and how much of it.

    ``starts`` run the two servers under comparison; ``work`` scales the number of commands of
    every run; ``size`` is a job's body in bytes; ``held`` are the numbers of jobs of the
    scenario "held", ``idle`` the connections of "idle".
    """

    starts: Sequence[Callable[[], AbstractContextManager[Server]]]
    rounds: int = 3
    pipelines: Sequence[int] = (1, 16, 64)
    clients: Sequence[int] = (1, 50, 1000)
    held: Sequence[int] = (1_000, 10_000, 100_000, 1_000_000)
    idle: int = 10_000
    size: int = 100
    work: float = 1.0
    say: Callable[[str], None] = print

    def commands(self, pipeline: int, clients: int) -> int:
        """The commands of one step: the deeper the pipeline the cheaper each is, so the more
        it takes for a time worth measuring; and every client gets some."""
        wanted = self.work * min(160_000, 30_000 + 6_000 * pipeline)
        return max(round(wanted / pipeline), 2 * clients) * pipeline


@dataclass(frozen=True, slots=True)
class Rest:
    """Server CPU seconds in a second without a command, with so many idle connections."""

    server: str
    idle: int
    cpu: float


def matrix(plan: Plan) -> list[Sample]:
    """Every step with every pipeline depth and number of clients."""
    samples: list[Sample] = []
    with _started(plan) as benches:
        for pipeline in plan.pipelines:
            for clients in plan.clients:
                jobs = plan.commands(pipeline, clients)
                plan.say(f"pipelined by {pipeline}, {clients} clients, {jobs} jobs")
                for number in range(plan.rounds):
                    setting = Setting(number, pipeline, clients)
                    for bench in benches:
                        samples += bench.steps(setting, jobs)
                        samples.append(bench.cycles(setting, jobs))
    return samples


def held(plan: Plan) -> list[Sample]:
    """The steps on queues that hold more and more jobs, one server for each number."""
    samples: list[Sample] = []
    with ExitStack() as stack:
        filled: list[tuple[int, Bench]] = []
        for jobs in plan.held:
            for bench in stack.enter_context(_started(plan)):
                plan.say(f"filling {bench.server.name} with {jobs} jobs")
                bench.fill(jobs)
                filled.append((jobs, bench))
        for pipeline in HELD_PIPELINES:
            # The queue grows by a portion at most, so that it holds about what it should.
            commands = plan.commands(pipeline, BUSY_CLIENTS)
            for number in range(plan.rounds):
                plan.say(f"pipelined by {pipeline}, round {number + 1}")
                for jobs, bench in filled:
                    setting = Setting(number, pipeline, BUSY_CLIENTS, held=jobs)
                    samples += bench.steps(setting, commands, HELD_PORTION)
    return samples


def idle(plan: Plan) -> tuple[list[Sample], list[Rest]]:
    """The steps, and a rest, without and with idle connections beside the busy ones.

    The idle ones are opened anew in every round: more of them at once than for one server
    would need more file descriptors than many machines allow a process.
    """
    samples: list[Sample] = []
    rests: list[Rest] = []
    with _started(plan) as benches:
        for number in range(plan.rounds):
            # Each level comes first in turn, so that growing warm is no advantage of either.
            levels = (0, plan.idle) if number % 2 == 0 else (plan.idle, 0)
            for bench in benches:
                for count in levels:
                    plan.say(f"round {number + 1}, {bench.server.name}, {count} idle")
                    with bench.connected(count):
                        rests.append(_rest(bench, count))
                        for pipeline in IDLE_PIPELINES:
                            setting = Setting(number, pipeline, BUSY_CLIENTS, idle=count)
                            commands = plan.commands(pipeline, BUSY_CLIENTS)
                            samples += bench.steps(setting, commands)
    return samples, rests


def _rest(bench: Bench, idle: int) -> Rest:
    before = bench.server.cpu_seconds()
    time.sleep(REST_SECONDS)
    cpu = bench.server.cpu_seconds() - before
    return Rest(bench.server.name, idle, cpu / REST_SECONDS)


@contextmanager
def _started(plan: Plan) -> Iterator[list[Bench]]:
    """Runs the servers, each warmed up by a few jobs."""
    with ExitStack() as stack:
        benches = [Bench(stack.enter_context(start()), plan.size) for start in plan.starts]
        for bench in benches:
            bench.fill(WARM_UP_JOBS)
            bench.drain(WARM_UP_JOBS)
        yield benches
