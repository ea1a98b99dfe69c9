"""What jobs take, in memory, on disk and at a start, with and without paging.

For each size of body, a new node with an append-only file is filled with jobs, once without a limit
of memory, and once with a low one and paging. Then it is killed, and another one loads the file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tools.bench.cli import Findings, option, say, table, words
from tools.bench.dialects import Disque
from tools.bench.filler import Filler
from tools.bench.load import info
from tools.bench.servers import DISQUE_COMMAND, NO_REWRITE, Server, disque_server

PAGE = "sizing.md"
SECTION = "sizing"
MB = 1_000_000
SIZES = (100, 1_000, 10_000, 100_000)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    megabytes: int = option(100, "MB of bodies of each size", quick=3)
    memory: str = option("48mb", "maxmemory with paging", quick="6mb")
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Taken:
    """What ``jobs`` jobs of ``size`` bytes take, in bytes, and CPU seconds of a start."""

    size: int
    jobs: int
    paging: bool
    on_disk: int
    counted: int
    resident: int
    file: int
    pages: int
    index: int
    start: float


def run(plan: Plan) -> Findings:
    """Measure."""
    found = [measure(plan, size, paging) for size in SIZES for paging in (False, True)]
    return Findings(taken_table(found), found)


def measure(plan: Plan, size: int, paging: bool) -> Taken:
    """Fill a node with jobs of ``size`` bytes, kill it, and start it again."""
    jobs = plan.megabytes * MB // size
    say(f"{jobs:,} jobs of {size:,} bytes{', paging' if paging else ''}")
    with tempfile.TemporaryDirectory(prefix="bench-sizing-") as name:
        directory = Path(name)
        with _node(plan, directory, paging) as server:
            filler = Filler(server, size)
            empty, none = filler.settled_rss(), _counted(server)
            filler.add(jobs, Disque(size))
            resident = filler.settled_rss() - empty
            counted = _counted(server) - none
            told = info(server.port, b"jobs")
            server.process.kill()
            server.process.wait()
        file = (directory / "disque.aof").stat().st_size
        with _node(plan, directory, paging) as server:
            port = server.port
            server.wait(lambda: info(port, b"persistence")["loading"] == "0", "it is not loaded")
            start = server.cpu_seconds()
    names = ("paging_jobs", "paging_bytes_disk", "paging_bytes_index")
    on_disk, pages, index = (int(told[name]) for name in names)
    return Taken(size, jobs, paging, on_disk, counted, resident, file, pages, index, start)


def _node(plan: Plan, directory: Path, paging: bool) -> AbstractContextManager[Server]:
    command = (*plan.server, "--appendonly", "yes", *NO_REWRITE)
    if not paging:
        command += ("--paging", "no")
    memory = plan.memory if paging else "0"
    return disque_server("disque", command, directory=directory, memory=memory)


def _counted(server: Server) -> int:
    """Bytes that the node counts against ``maxmemory``."""
    return int(info(server.port, b"memory")["used_memory"])


def taken_table(found: Sequence[Taken]) -> str:
    """One row for each size, with and without paging."""
    titles = ["body", "jobs", "on disk", "counted, MB", "resident, MB"]
    titles += ["append-only file, MB", "pages, MB", "index, B a job", "start, CPU s"]
    rows = []
    for one in found:
        kind = f"{one.size:,} B, {'paging' if one.paging else 'in memory'}"
        row = [kind, f"{one.jobs:,}", f"{one.on_disk:,}"]
        row += [f"{part / MB:,.0f}" for part in (one.counted, one.resident, one.file, one.pages)]
        each = f"{one.index / one.on_disk:,.0f}" if one.on_disk else "-"
        rows.append([*row, each, f"{one.start:.1f}"])
    return table(titles, rows)
