"""The cost of a command on a Disque node, compared with redis-server doing the same work.

Both servers are up at the same time and take turns in rounds, so that other load on the machine
affects both alike. Scenarios: matrix, every command by pipeline depth and number of clients; held,
the cost with growing numbers of jobs held; idle, the cost beside idle connections.
docs/performance-tables.md explains the figures.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median

from tools.bench.cli import Findings, grouped, middle, option, rates, ratio, say, size, table, words
from tools.bench.cli import milliseconds as ms
from tools.bench.measure import Bench, Sample, Setting
from tools.bench.scripts import SERIAL_DIGITS
from tools.bench.servers import (
    DISQUE_COMMAND,
    MAX_CLIENTS,
    ServerError,
    disque_server,
    redis_server,
)

PAGE = "performance-tables.md"
SECTION = "{scenario}"
STEPS = ("add", "take", "ack", "cycle")
SPARE_FILES = 200
WARM_UP_JOBS = 2_000
BUSY_CLIENTS = 50
HELD_PORTION = 1_000
PIPELINES = (1, 16)  # for held and idle
REST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much."""

    scenario: str = option("matrix", "what", choices=("matrix", "held", "idle"))
    rounds: int = option(3, "how often everything is measured", quick=1)
    pipelines: tuple[int, ...] = option((1, 16, 64), "pipeline depths", quick=(1, 16))
    clients: tuple[int, ...] = option((1, 50, 1000), "numbers of clients", quick=(1, 50))
    held: tuple[int, ...] = option(
        (1_000, 10_000, 100_000, 1_000_000), "jobs held", quick=(1_000, 10_000)
    )
    idle: int = option(10_000, "idle connections", quick=200)
    size: int = option(100, "bytes of a job's body", parse=size(SERIAL_DIGITS))
    work: float = option(1.0, "scales the number of commands measured", quick=0.02)
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)
    subject: str = option(
        "disque",
        "redis measures redis-server against itself, showing the noise of ratios on this machine",
        choices=("disque", "redis"),
    )

    def commands(self, pipeline: int, clients: int) -> int:
        """The commands in one step: a deeper pipeline makes each cheaper, so it takes more for a
        measurable time; every client gets some."""
        wanted = self.work * min(160_000, 30_000 + 6_000 * pipeline)
        return max(round(wanted / pipeline), 2 * clients) * pipeline


@dataclass(frozen=True, slots=True)
class Rest:
    """Server CPU seconds per second without commands, with ``idle`` idle connections."""

    server: str
    idle: int
    cpu: float


def run(plan: Plan) -> Findings:
    """Runs the scenario."""
    _raise_file_limit(max(*plan.clients, plan.idle if plan.scenario == "idle" else 0))
    if plan.scenario == "matrix":
        samples = matrix(plan)
        return Findings(matrix_table(samples), samples)
    if plan.scenario == "held":
        samples = held(plan)
        return Findings(level_table(samples, lambda s: s.setting.held, "held"), samples)
    samples, rests = idle(plan)
    text = level_table(samples, lambda s: s.setting.idle, "idle")
    return Findings(f"{text}\n\n{rest_table(rests)}", [*samples, *rests])


def matrix(plan: Plan) -> list[Sample]:
    """Every step with every pipeline depth and number of clients."""
    samples: list[Sample] = []
    with _started(plan) as benches:
        for pipeline in plan.pipelines:
            for clients in plan.clients:
                jobs = plan.commands(pipeline, clients)
                say(f"pipelined by {pipeline}, {clients} clients, {jobs} jobs")
                for number in range(plan.rounds):
                    setting = Setting(number, pipeline, clients)
                    for bench in benches:
                        samples += bench.steps(setting, jobs)
                        samples.append(bench.cycles(setting, jobs))
    return samples


def held(plan: Plan) -> list[Sample]:
    """The steps on queues that hold growing numbers of jobs, with one server for each number."""
    samples: list[Sample] = []
    with ExitStack() as stack:
        filled: list[tuple[int, Bench]] = []
        for jobs in plan.held:
            for bench in stack.enter_context(_started(plan)):
                say(f"filling {bench.server.name} with {jobs} jobs")
                bench.fill(jobs)
                filled.append((jobs, bench))
        for pipeline in PIPELINES:
            # The queue grows by at most a portion, so that it holds about the right number.
            commands = plan.commands(pipeline, BUSY_CLIENTS)
            for number in range(plan.rounds):
                say(f"pipelined by {pipeline}, round {number + 1}")
                for jobs, bench in filled:
                    setting = Setting(number, pipeline, BUSY_CLIENTS, held=jobs)
                    samples += bench.steps(setting, commands, HELD_PORTION)
    return samples


def idle(plan: Plan) -> tuple[list[Sample], list[Rest]]:
    """The steps, and a rest, without and with idle connections beside the busy ones.

    The idle ones are reopened in every round: holding them for more than one server at once would
    need more file descriptors than many machines allow per process.
    """
    samples: list[Sample] = []
    rests: list[Rest] = []
    with _started(plan) as benches:
        for number in range(plan.rounds):
            # Each level comes first in turn, so that warming up favours neither.
            levels = (0, plan.idle) if number % 2 == 0 else (plan.idle, 0)
            for bench in benches:
                for count in levels:
                    say(f"round {number + 1}, {bench.server.name}, {count} idle")
                    with bench.connected(count):
                        rests.append(_rest(bench, count))
                        for pipeline in PIPELINES:
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
    """Runs the servers, each warmed up with a few jobs."""
    with ExitStack() as stack:
        ours = (
            disque_server("disque", plan.server)
            if plan.subject == "disque"
            else redis_server("redis again")
        )
        starts = (ours, redis_server())
        benches = [Bench(stack.enter_context(start), plan.size) for start in starts]
        for bench in benches:
            bench.fill(WARM_UP_JOBS)
            bench.drain(WARM_UP_JOBS)
        yield benches


def _raise_file_limit(clients: int) -> None:
    """Raises the limit on open files for this process and its servers."""
    needed = clients + SPARE_FILES
    if needed > MAX_CLIENTS:
        raise ServerError(f"at most {MAX_CLIENTS - SPARE_FILES} connections")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ServerError(f"{needed} open files are needed, the limit is {hard} (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


# ---- tables --------------------------------------------------------------------------------


def _cost(sample: Sample) -> float:
    return sample.cpu_per_100k


def matrix_table(samples: Sequence[Sample]) -> str:
    """One row for each step, pipeline depth and number of clients. The samples are of two servers;
    the first one is the dividend of the ratios."""
    first, second = dict.fromkeys(sample.server for sample in samples)
    cells = grouped(samples, lambda s: (STEPS.index(s.step), s.setting.pipeline, s.setting.clients))
    titles = ["command", "pipelined", "clients", "CPU ratio", "(range)"]
    titles += [f"{name} CPU s/100k" for name in (first, second)]
    titles += ["rate ratio", *(f"{name} rate/s" for name in (first, second))]
    titles += [f"{name} p50 / p99 / p999 ms" for name in (first, second)]
    rows = []
    for (_, pipeline, clients), cell in sorted(cells.items()):
        a = [sample for sample in cell if sample.server == first]
        b = [sample for sample in cell if sample.server == second]
        command = " / ".join(dict.fromkeys(sample.command for sample in cell))
        row = [command, str(pipeline), str(clients), *ratio(a, b, _cost)]
        row += [middle(a, _cost, 3), middle(b, _cost, 3)]
        row += [f"{median(x.rate / y.rate for x, y in zip(a, b, strict=True)):.2f}"]
        row += [rates(a), rates(b)]
        row += [ms(each, lambda s: s.p50, lambda s: s.p99, lambda s: s.p999) for each in (a, b)]
        rows.append(row)
    return table(titles, rows)


def level_table(samples: Sequence[Sample], level: Callable[[Sample], int], what: str) -> str:
    """One row for each server, step and pipeline depth: the cost of a command at the lowest level
    (of jobs held, or idle connections), and its growth at the others."""
    levels = sorted({level(sample) for sample in samples})
    lowest, highest = levels[0], levels[-1]
    titles = ["command", "pipelined", f"CPU s/100k, {lowest:,} {what}"]
    titles += [f"CPU ratio, {number:,} {what}" for number in levels[1:]]
    titles += [f"p50 / p999 / worst ms, {number:,} {what}" for number in (lowest, highest)]
    rows = []
    for (server, command, pipeline), row_samples in grouped(
        samples, lambda s: (s.server, s.command, s.setting.pipeline)
    ).items():
        cells = grouped(row_samples, level)
        row = [f"{server} {command}", str(pipeline), middle(cells[lowest], _cost, 3)]
        for number in levels[1:]:
            found, span = ratio(cells[number], cells[lowest], _cost)
            row.append(f"{found} ({span})")
        row += [_worst(cells[lowest]), _worst(cells[highest])]
        rows.append(row)
    return table(titles, rows)


def rest_table(rests: Sequence[Rest]) -> str:
    """The cost of idle connections, in CPU milliseconds per second."""
    cells = grouped(rests, lambda rest: (rest.server, rest.idle))
    rows = [
        [server, f"{idle:,}", middle(cell, lambda rest: rest.cpu * 1000, 1)]
        for (server, idle), cell in cells.items()
    ]
    return table(["server at rest", "idle connections", "CPU ms/s"], rows)


def _worst(samples: Sequence[Sample]) -> str:
    worst = max(sample.worst for sample in samples)
    return ms(samples, lambda s: s.p50, lambda s: s.p999, lambda s: worst)
