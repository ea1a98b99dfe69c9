"""Compares our node with C Disque, which has the same protocol and files, in the same run.

Both take turns in short rounds, with alternating order, after a warm-up round. CPU time is the
kernel's figure for the servers' processes. User-space instructions are counted by valgrind's
callgrind in the whole process of each server under the same load, minus those of the same time at
rest. Both servers take the same options, and the code treats them alike.
docs/performance-details.md says how to build C Disque.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median, quantiles
from typing import Final, NamedTuple, TypeVar

from tools.bench import beside_parts as parts
from tools.bench.callgrind import CountError
from tools.bench.cli import Findings, grouped, option, say, table, words
from tools.bench.measure import Bench
from tools.bench.nodes import ClusterBench, cluster
from tools.bench.servers import (
    DISQUE_COMMAND,
    NO_REWRITE,
    Server,
    ServerError,
    disque_server,
    version_of,
)

PAGE = "performance-details.md"
SECTION = "beside-c"
PARTS = ("instructions", "commands", "cluster", "waking", "idle", "loading", "start")
NAMES: Final = ("C Disque", "disque-trio")
HOW_TO_GET_C = (
    "git clone https://github.com/antirez/disque; "
    'make -C disque MALLOC=libc OPTIMIZATION=-O2 CFLAGS="-fcommon"'
)

T = TypeVar("T")


class Row(NamedTuple):
    """A row of the table: the ``title`` and ``unit`` of its values, which have ``digits`` decimals.
    A ``cost`` counts towards the mean of all ratios."""

    title: str
    unit: str
    digits: int = 1
    cost: bool = True


COMMAND, JOB = "CPU µs a command", "CPU µs a job, all nodes"
ROWS: Final[Mapping[str, Row]] = {
    "ping": Row("PING", COMMAND),
    "add": Row("ADDJOB", COMMAND),
    "add16": Row("ADDJOB, pipelined by 16", COMMAND),
    "take": Row("GETJOB", COMMAND),
    "take16": Row("GETJOB, pipelined by 16", COMMAND),
    "ack": Row("ACKJOB", COMMAND),
    "ack16": Row("ACKJOB, pipelined by 16", COMMAND),
    "cycle": Row("cycle", "CPU µs a job"),
    "cycle16": Row("cycle, pipelined by 16", "CPU µs a job"),
    "nodes cycle": Row("cycle on three nodes, REPLICATE 3", JOB),
    "nodes add16": Row("ADDJOB REPLICATE 3, pipelined by 16", JOB),
    "nodes rate": Row("the same", "jobs/s (more is better)", 0, False),
    "wake": Row("wake of a blocked GETJOB, p50", "ms", 3, False),
    "idle": Row("a node at rest", "CPU ms/s", 2, False),
    "load": Row("loading an append-only file", "jobs a CPU second (more is better)", 0, False),
    "start": Row("start until PING", "CPU ms", 0, False),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much."""

    c: str = option("", f"the disque-server of C Disque ({HOW_TO_GET_C})")
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)
    parts: tuple[str, ...] = option(PARTS, "what", choices=PARTS, quick=PARTS[1:])
    rounds: int = option(11, "how often everything is measured", quick=1)
    clients: int = option(50, "connections", quick=4)
    work: float = option(1.0, "scales the number of commands measured", quick=0.01)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement of a row (see ROWS). ``server`` is one of NAMES."""

    row: str
    server: str
    round: int
    value: float


@dataclass(frozen=True, slots=True)
class Count:
    """User-space instructions per command, or per job for rows about jobs."""

    row: str
    server: str
    instructions: float


def run(plan: Plan) -> Findings:
    """Measures all parts. Raises ServerError if C Disque is missing."""
    commands = ((_program(plan.c),), plan.server)
    counts: list[Count] = []
    figures: list[Figure] = []
    for part in plan.parts:
        say(part)
        if part == "instructions":
            counts = _count(plan, commands)
        else:
            figures += _MEASURED[part](plan, commands)
    facts = dict(zip(NAMES, (version_of(command) for command in commands), strict=True))
    return Findings(beside_table(figures, counts), [*counts, *figures], facts=facts)


def _program(path: str) -> str:
    """The absolute path of C Disque."""
    if not path:
        raise ServerError(f"beside-c needs --c PATH, a disque-server of C Disque ({HOW_TO_GET_C})")
    found = shutil.which(path)
    if found is None:
        raise ServerError(f"--c {path}: no such program ({HOW_TO_GET_C})")
    return str(Path(found).resolve())


# ---- rounds --------------------------------------------------------------------------------

Commands = Sequence[Sequence[str]]
"""The commands that start the two servers."""


def in_rounds(
    rounds: int, pair: Sequence[T], units: Sequence[Callable[[T], Mapping[str, float]]]
) -> list[Figure]:
    """Calls each of ``units``, which return values of rows, with each server in every round. The
    results of a warm-up round are discarded."""
    found: list[Figure] = []
    for number in range(-1, rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for unit in units:
            for which in order:
                values = unit(pair[which])
                if number >= 0:
                    found += [Figure(row, NAMES[which], number, v) for row, v in values.items()]
    return found


def _both(stack: ExitStack, commands: Commands) -> list[Server]:
    return [
        stack.enter_context(disque_server(name, command))
        for name, command in zip(NAMES, commands, strict=True)
    ]


def _commands(plan: Plan, commands: Commands) -> list[Figure]:
    with ExitStack() as stack:
        benches = [Bench(server, parts.SIZE) for server in _both(stack, commands)]
        return in_rounds(plan.rounds, benches, parts.of_commands(plan.clients, plan.work))


def _cluster(plan: Plan, commands: Commands) -> list[Figure]:
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(cluster([command] * parts.NODES, name=f"{name}, node"))
            for name, command in zip(NAMES, commands, strict=True)
        ]
        benches = [ClusterBench(nodes, parts.SIZE) for nodes in clusters]
        return in_rounds(plan.rounds, benches, parts.of_clusters(plan.clients, plan.work))


def _waking(plan: Plan, commands: Commands) -> list[Figure]:
    with ExitStack() as stack:
        times = parts.count(parts.WAKES, plan.work)
        servers = _both(stack, commands)
        return in_rounds(plan.rounds, servers, [partial(parts.wake, times=times)])


def _idle(plan: Plan, commands: Commands) -> list[Figure]:
    with ExitStack() as stack:
        servers = _both(stack, commands)
        parts.settle(servers, parts.count(parts.SETTLED, plan.work))
        # They get no requests, so both can rest at the same time.
        found = [parts.at_rest(servers) for _ in range(plan.rounds)]
        return [
            Figure("idle", name, number, cpu)
            for number, used in enumerate(found)
            for name, cpu in zip(NAMES, used, strict=True)
        ]


def _loading(plan: Plan, commands: Commands) -> list[Figure]:
    jobs = parts.count(parts.LOADED, plan.work)
    options = ("--appendonly", "yes", "--appendfsync", "everysec", *NO_REWRITE)
    with ExitStack() as stack:
        files = []
        for name, command in zip(NAMES, commands, strict=True):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-aof-")))
            file = parts.File(name, (*command, *options), directory, jobs)
            with disque_server(name, file.command, directory=directory) as server:
                Bench(server, parts.SIZE).fill(jobs)
            files.append(file)
        return in_rounds(plan.rounds, files, [parts.load])


def _start(plan: Plan, commands: Commands) -> list[Figure]:
    starts = list(zip(NAMES, commands, strict=True))
    return in_rounds(plan.rounds, starts, [lambda start: parts.start(*start)])


_MEASURED: Final = {
    "commands": _commands,
    "cluster": _cluster,
    "waking": _waking,
    "idle": _idle,
    "loading": _loading,
    "start": _start,
}


def _count(plan: Plan, commands: Commands) -> list[Count]:
    """Instructions, if they can be counted here."""
    found: list[Count] = []
    try:
        for name, command in zip(NAMES, commands, strict=True):
            counted = parts.instructions(name, command, plan.clients, plan.work)
            found += [Count(row, name, value) for row, value in counted.items()]
    except CountError as problem:
        say(f"not counting instructions: {problem}")
        return []
    return found


# ---- the table -----------------------------------------------------------------------------


def beside_table(figures: Sequence[Figure], counts: Sequence[Count]) -> str:
    """The rows that were measured. Ratios are ours to C's within a round; the mean below covers
    those that are costs."""
    theirs, ours = NAMES
    titles = ["what", "measured in", theirs, ours, "ratio", "(quartiles)"]
    titles += [f"instructions, {theirs}", ours, "ratio"]
    rows = []
    means: dict[str, list[float]] = {"CPU time": [], "instructions": []}
    values = grouped(figures, lambda f: (f.row, f.server))
    counted = {(count.row, count.server): count.instructions for count in counts}
    for key, row in ROWS.items():
        cells = [row.title, row.unit]
        pair = [[f.value for f in values.get((key, name), ())] for name in NAMES]
        both = [counted[key, name] for name in NAMES if (key, name) in counted]
        if all(pair):
            cells += [f"{median(each):,.{row.digits}f}" for each in pair]
            # The CPU clock of another process may lag by some ms, so short work may seem to cost
            # nothing.
            ratios = [a / b for a, b in zip(pair[1], pair[0], strict=True) if a > 0 and b > 0]
            cells += [f"**{median(ratios):.2f}**", quartiles(ratios)] if ratios else ["", ""]
            if row.cost and ratios:
                means["CPU time"].append(median(ratios))
        else:
            cells += [""] * 4
        if len(both) == len(NAMES):
            cells += [f"{each:,.0f}" for each in both] + [f"**{both[1] / both[0]:.2f}**"]
            means["instructions"].append(both[1] / both[0])
        else:
            cells += [""] * 3
        if any(cells[2:]):
            rows.append(cells)
    text = table(titles, rows)
    for what, ratios in means.items():
        if ratios:
            mean = geometric_mean(ratios)
            text += f"\n\nGeometric mean of the {len(ratios)} ratios of {what}: **{mean:.2f}**."
    return text


def quartiles(values: Sequence[float]) -> str:
    """The first and the third quartile."""
    if len(values) == 1:
        return f"{values[0]:.2f}-{values[0]:.2f}"
    first, _, third = quantiles(values, n=4, method="inclusive")
    return f"{first:.2f}-{third:.2f}"
