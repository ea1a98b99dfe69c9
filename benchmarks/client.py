"""The cost of an operation of the Python client for its program, on Trio, on asyncio and in a
thread.

Each way runs in its own process with one task and one connection, to a node of its own.
Instructions are those of the program's threads in user space (callgrind); CPU time includes the
kernel. Ratios compare measurements next to each other in time; the table shows the median of the
rounds.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.client_ways import WAYS
from tools.bench.callgrind import Counted
from tools.bench.cli import Findings, child, option, say, table
from tools.bench.servers import HOST, Server, disque_server

PAGE = "performance-details.md"
SECTION = "client"
STEPS: Final = {
    "qlen": "qlen",
    "add": "add",
    "get": "get, then ack",
    "jobs": "a turn of the loop over jobs",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much."""

    ways: tuple[str, ...] = option(tuple(WAYS), "how the client is used", choices=tuple(WAYS))
    counted: int = option(300, "operations whose instructions are counted", quick=20)
    times: int = option(3000, "operations whose CPU time is measured", quick=50)
    rounds: int = option(5, "how often CPU time is measured", quick=1)


@dataclass(frozen=True, slots=True)
class Sample:
    """The cost of one operation: instructions, or s of CPU time."""

    way: str
    step: str
    measure: str
    value: float


class _Program:
    """A running program; ``do`` lets it run a step, and returns its CPU time in s."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process

    def do(self, step: str, times: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{step} {times}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


@contextmanager
def _program(command: Sequence[str]) -> Iterator[_Program]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _Program(process)
        finally:
            process.communicate()


def run(plan: Plan) -> Findings:
    """Measure all ways in turn."""
    samples: list[Sample] = []
    with disque_server() as server, server.blamed():
        for way in plan.ways:
            say(f"instructions on {way}")
            samples += _count(way, server, plan.counted)
        for number in range(plan.rounds):
            say(f"round {number + 1}")
            for way in plan.ways:
                with _program(_command(way, server)) as program:
                    samples += _measure(way, "CPU", plan.times, program.do)
    return Findings(report(plan, samples), samples)


def _command(way: str, server: Server) -> Sequence[str]:
    return child("benchmarks.client_ways", way, f"{HOST}:{server.port}")


def _count(way: str, server: Server, times: int) -> list[Sample]:
    with tempfile.TemporaryDirectory() as directory:
        counted = Counted(_command(way, server), Path(directory))
        with _program(counted.command) as program:
            program.do("qlen", times)
            counted.begin(program.pid)

            def do(step: str, times: int) -> float:
                before = counted.total(program.pid)
                program.do(step, times)
                return counted.total(program.pid) - before

            return _measure(way, "instructions", times, do)


def _measure(way: str, measure: str, times: int, do: Callable[[str, int], float]) -> list[Sample]:
    """Let it run each step, the first time only to warm up."""
    for warm in (True, False):
        adds = do("add", times)
        values = {"qlen": do("qlen", times), "get": do("get", times)}
        do("add", times)
        values |= {"add": adds, "jobs": do("jobs", times)}
        if not warm:
            return [Sample(way, step, measure, values[step] / times) for step in STEPS]
    raise AssertionError


def report(plan: Plan, samples: list[Sample]) -> str:
    """The table."""

    def values(way: str, step: str, measure: str) -> list[float]:
        key = (way, step, measure)
        return [one.value for one in samples if (one.way, one.step, one.measure) == key]

    first = plan.ways[0]
    rows = []
    for step, name in STEPS.items():
        for way in plan.ways:
            row = [f"{name}, {way}"]
            for measure, scale in (("instructions", 1.0), ("CPU", 1e6)):
                mine, base = values(way, step, measure), values(first, step, measure)
                ratio = median(x / y for x, y in zip(mine, base, strict=True))
                row += [f"{median(mine) * scale:,.0f}", f"{ratio:.2f}"]
            rows.append(row)
    titles = ["", "instructions", "ratio", "CPU us", "ratio"]
    return table(titles, rows)
