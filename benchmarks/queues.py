"""The cost of taking a job from short and long queues.

Jobs are taken, acknowledged and added again, without a network, while the rest of the queue stays:
in a plain queue, in one whose jobs have priorities, and in queues with groups.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.queues_paths import COMMANDS, GROUP_JOBS, KINDS
from tools.bench.cli import COMPILED, Findings, option, say, table
from tools.bench.guard import count, run_there

PAGE = "performance-details.md"
SECTION = "queues"
PARTS = ("time", "instructions")
NAMES = {
    "plain": "no options",
    "priorities": "`PRIORITY` 0 to 7",
    "fair": f"`GROUPS fair`, groups of {GROUP_JOBS}",
    "fifo": f"`GROUPS fifo`, groups of {GROUP_JOBS}",
}
_PATHS = "benchmarks.queues_paths"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    parts: tuple[str, ...] = option(PARTS, "what", choices=PARTS, quick=("time",))
    kinds: tuple[str, ...] = option(tuple(KINDS), "of queues", choices=tuple(KINDS))
    jobs: tuple[int, ...] = option((10_000, 1_000_000), "in the queue", quick=(500, 5_000))
    rounds: int = option(9, "how often to measure the time", quick=2)
    compiled: str = option(str(COMPILED), "the Python that has the compiled build, if there is one")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a command with ``jobs`` jobs in a queue of a ``kind``: ns of CPU time, or None,
    and instructions."""

    kind: str
    jobs: int
    command: str
    time: float | None
    instructions: float | None


def run(plan: Plan) -> Findings:
    """Measures all parts. Raises CountError if that fails."""
    python = plan.compiled if Path(plan.compiled).exists() else sys.executable
    costs = measure(plan, python)
    form = "compiled" if python == plan.compiled else "pure Python"
    return Findings(costs_table(costs), costs, facts={"form": form})


def measure(plan: Plan, python: str) -> list[Cost]:
    """The costs of the commands in all kinds of queues."""
    what = (",".join(plan.kinds), *map(str, plan.jobs))
    times: dict[str, float] = {}
    instructions: dict[str, int] = {}
    if "time" in plan.parts:
        say("CPU time")
        times = json.loads(run_there(python, [], _PATHS, "main", "", str(plan.rounds), *what))
    if "instructions" in plan.parts:
        say("instructions")
        instructions = count(python, _PATHS, "1", *what)
    found = []
    for kind in plan.kinds:
        for command in COMMANDS:
            for jobs in plan.jobs:
                path = f"{kind}/{jobs}/{command}"
                found.append(Cost(kind, jobs, command, times.get(path), instructions.get(path)))
    return found


def costs_table(found: Sequence[Cost]) -> str:
    """A row for each command in each kind of queue; ratios are to the shortest queue."""
    levels = list(dict.fromkeys(one.jobs for one in found))
    titles = ["queue", "command"]
    columns: list[tuple[str, Callable[[Cost], float | None]]] = [
        ("CPU µs", lambda one: None if one.time is None else one.time / 1000),
        ("instructions", lambda one: one.instructions),
    ]
    columns = [one for one in columns if any(one[1](cost) is not None for cost in found)]
    for name, _ in columns:
        titles += [f"{name}, {level:,} jobs" for level in levels] + ["ratio"]
    rows = []
    for kind in dict.fromkeys(one.kind for one in found):
        for command in COMMANDS:
            mine = [one for one in found if (one.kind, one.command) == (kind, command)]
            row = [NAMES[kind], command]
            for name, value in columns:
                values = [value(one) for one in mine]
                digits = 2 if name == "CPU µs" else 0
                row += ["" if each is None else f"{each:,.{digits}f}" for each in values]
                first, last = values[0], values[-1]
                row.append(f"**{last / first:.2f}**" if first and last else "")
            rows.append(row)
    return table(titles, rows)
