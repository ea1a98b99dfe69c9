"""The cost of the append-only file: latency and memory during rewrites, and loading speed.

The node writes its file with ``appendfsync everysec``, without a CPU of its own. ADDJOBs are sent
at half its maximum rate, at fixed times regardless of replies (an open loop); a latency counts from
when the request was due, so that every request sees a pause of the node. Then the node is killed
and loads the file.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tools.bench.cli import Findings, option, say, words
from tools.bench.latency_stage import Measurement, Stage
from tools.bench.load import info, percentile
from tools.bench.servers import CPUS, DISQUE_COMMAND, NO_REWRITE, Server, disque_server, highest

PINNED = False
MIB = 1 << 20
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure; times in s."""

    jobs: int = option(1_000_000, "jobs to hold and to load", quick=5_000)
    size: int = option(100, "bytes of a job")
    seconds: float = option(15.0, "seconds of load without rewrites, and with them", quick=1.0)
    peak_seconds: float = option(2.0, "seconds for measuring the peak rate", quick=0.3)
    clients: int = option(50, "connections")
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


def run(plan: Plan) -> Findings:
    """Fills a node, rewrites its file under load, kills it, and loads the file in another node."""
    with tempfile.TemporaryDirectory(prefix="bench-aof-") as name:
        directory = Path(name)
        with _node(plan, directory) as server:
            text = during_rewrites(plan, server)
            server.process.kill()
            server.process.wait()
        with _node(plan, directory) as server:
            jobs, seconds = loaded(server)
        size = sum(file.stat().st_size for file in directory.glob("*.aof")) / 1e6
    rate = jobs / seconds
    text += f"loading: {jobs} jobs, {size:.0f} MB, {seconds:.1f} s, {rate:.0f} jobs/s"
    return Findings(text)


def _node(plan: Plan, directory: Path) -> AbstractContextManager[Server]:
    file = ("--appendonly", "yes", "--appendfsync", "everysec", *NO_REWRITE)
    command = (*plan.server, *file)
    return disque_server("disque", command, CPUS, directory, level="notice")


def during_rewrites(plan: Plan, server: Server) -> str:
    """Latency and memory without and during rewrites."""
    stage = Stage(server, server, plan.clients, plan.size, whole=False)
    stage.fill(plan.jobs)
    rate = stage.peak(plan.peak_seconds) / 2
    say(f"{plan.jobs:,} jobs held, {rate:,.0f} ADDJOBs a second")
    base = stage.measure(rate, plan.seconds)
    before = high_water(server.process.pid)

    def rewriting() -> float:
        return max(map(high_water, rewriters(server.process.pid)), default=0)

    with (
        highest(rewriting, POLL_SECONDS) as most,
        stage.rewriting() as took,
        stage.measuring(rate, plan.seconds) as busy,
    ):
        pass
    after = high_water(server.process.pid)
    mean = sum(took) / max(1, len(took))
    return (
        f"{plan.jobs} jobs of {plan.size} bytes held; load: {rate:.0f} ADDJOBs a second, half of"
        f" what it can  \n{_line('without a rewrite', base)}  \n"
        f"{_line(f'during {len(took)} rewrites of {mean:.1f} s', busy[0])}  \n"
        f"peak memory: node {before / MIB:.0f} MiB before the rewrites, {after / MIB:.0f} MiB after"
        f" them, the process that rewrites {most[0] / MIB:.0f} MiB  \n"
    )


def _line(what: str, found: Measurement) -> str:
    times: Sequence[float] = found.load.cycles
    points = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("worst", 1.0))
    texts = [f"{name} {percentile(times, point) * 1000:.2f} ms" for name, point in points]
    return f"{what}: {len(times)} ADDJOBs, {', '.join(texts)}"


def loaded(server: Server) -> tuple[int, float]:
    """The number of jobs that a node loads from its file, and the duration (s), from its log."""
    port = server.port
    server.wait(lambda: info(port, b"persistence")["loading"] == "0", "its file is not loaded")
    events = {}
    for line in server.log.read_text().splitlines():
        entry = json.loads(line) if line.startswith("{") else {}
        events[str(entry.get("event")).partition(",")[0]] = entry
    start, end = (
        next(entry for event, entry in events.items() if event.startswith(begin))
        for begin in ("ready to accept", "loaded")
    )
    seconds = datetime.fromisoformat(end["time"]) - datetime.fromisoformat(start["time"])
    return int(end["jobs"]), seconds.total_seconds()


def rewriters(pid: int) -> list[int]:
    """The node's processes that compact its file."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    # A new one still counts the memory of the node as its own.
    return [int(child) for child in children if _compacts(child)]


def _compacts(pid: str) -> bool:
    try:
        return b"aof.compact" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False  # it has ended


def high_water(pid: int) -> int:
    """The peak memory of a process (bytes); 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
