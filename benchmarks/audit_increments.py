"""The cost of auditing an hour of events, as the first hour and after many others."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.audit import LOOK_SECONDS, held_megabytes, opened
from disque_spark.audit.run import audit
from disque_spark.audit.store import Store
from packages.spark.tests.support.planted_hours import Hours
from tools.bench.cli import option, say
from tools.bench.servers import family, family_cpu_seconds, highest

PINNED = False


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to audit."""

    hours: int = option(100, "increments, each with an hour of events", quick=3)
    events: int = option(200_000, "events per hour", quick=5_000)
    engine: str = option("local", "where the work is done: local or spark")
    cores: int = option(2, "cores that the audit may use")
    memory: str = option("1g", "memory of the JVM")
    keep_days: int = option(0, "drop days older than this (0: keep all)")
    directory: str = option(
        "", "directory in which to keep the log and the tables (default: do not keep them)"
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a run: CPU seconds, and bytes read and written by all processes."""

    cpu: float
    seconds: float
    read: int
    written: int


def run(plan: Plan) -> int:
    """Repeatedly generate, audit and delete an hour of events; print the cost of some hours."""
    with ExitStack() as stack:
        directory = Path(
            plan.directory or stack.enter_context(tempfile.TemporaryDirectory(prefix="hours-"))
        )
        log, tables = directory / "log", directory / "tables"
        for old in (log, tables):
            shutil.rmtree(old, ignore_errors=True)
        hours = Hours(log, plan.events)
        engine = stack.enter_context(opened(plan.engine, plan.cores, plan.memory))
        most = stack.enter_context(highest(held_megabytes, LOOK_SECONDS))
        shown = {1, 2, 10, plan.hours // 2, plan.hours}
        events = found = 0
        costs: list[Cost] = []
        print(
            "| hour | events | CPU s | s | read MB | written MB | files of jobs | table MB |\n"
            "| --- | --- | --- | --- | --- | --- | --- | --- |"
        )
        for hour in range(1, plan.hours + 1):
            hours.write()
            before = _used(), _moved(), time.monotonic()
            result = audit(engine, [str(log)], tables, keep_days=plan.keep_days or None)
            read, written = (now - old for now, old in zip(_moved(), before[1], strict=True))
            costs.append(Cost(_used() - before[0], time.monotonic() - before[2], read, written))
            events += result.events
            found = sum(result.findings.values())
            for segment in log.iterdir():
                segment.unlink()
            if hour in shown or hour % 10 == 0:
                _print(hour, result.events, costs[-1], tables)
            say(f"hour {hour}: {costs[-1]}")
    tenths = max(plan.hours // 10, 1)
    first, last = costs[1 : tenths + 1] or costs, costs[-tenths:]
    print(
        f"{events:,} events in {plan.hours} runs; CPU s of a run: {_mean(first):.1f} in the first"
        f" tenth (without the first run, which warms up), {_mean(last):.1f} in the last;"
        f" {found} findings; most memory {most[0]:.0f} MB"
    )
    return 0


def _mean(costs: list[Cost]) -> float:
    return sum(cost.cpu for cost in costs) / len(costs)


def _print(hour: int, events: int, cost: Cost, tables: Path) -> None:
    files = Store(tables).paths("jobs")
    size = sum(path.size() for path in files) / 1e6
    print(
        f"| {hour} | {events:,} | {cost.cpu:.1f} | {cost.seconds:.1f} | {cost.read / 1e6:.0f} |"
        f" {cost.written / 1e6:.0f} | {len(files)} | {size:.0f} |",
        flush=True,
    )


def _used() -> float:
    return family_cpu_seconds([os.getpid()])


_ended: dict[int, tuple[int, int]] = {}


def _moved() -> tuple[int, int]:
    """Bytes read and written so far by this process and its descendants; for ended ones, as of the
    last call."""
    for pid in family([os.getpid()]):
        try:
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        except OSError:
            continue
        said = dict(line.split(": ") for line in lines)
        _ended[pid] = int(said["rchar"]), int(said["wchar"])
    read, written = (sum(column) for column in zip(*_ended.values(), strict=True))
    return read, written
