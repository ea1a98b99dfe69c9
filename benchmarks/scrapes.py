"""The cost of a scrape of a node with many queues, and how long clients wait for it.

The metrics are collected and written as for Prometheus, in slices, between which a node serves its
clients. The CPU time of each slice is measured: clients wait for up to the longest.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from disque_trio.form import form
from disque_trio.metrics.formats import Formats
from disque_trio.metrics.scrapes import SLICE, Body, Collection, write_page
from disque_trio.metrics.sheet import Sheet
from disque_trio.node.core.jobs.counts import JobCounts
from disque_trio.node.metrics import JobFigures
from disque_trio.respserver.client import Client
from tools.bench.cli import Findings, child, environment_of, option, say, table
from tools.bench.inprocess import START, make_node

PAGE = "monitoring.md"
SECTION = "scrapes"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    queues: int = option(10_000, "queues, all with their own metrics", quick=50)
    jobs: int = option(100_000, "jobs, all in the hands of clients", quick=500)
    python: str = option(sys.executable, "the Python that has the build to measure")


@dataclass(frozen=True, slots=True)
class Part:
    """The cost of one part of a scrape: slices, ms of the longest and of all, and MB of output."""

    what: str
    slices: int
    longest: float
    total: float
    megabytes: float


def _in_slices(what: str, steps: Iterator[None], made: list[bytes]) -> Part:
    slices = [0.0]
    began = time.thread_time()
    for _ in steps:
        slices[-1] = time.thread_time() - began
        if slices[-1] >= SLICE:
            slices.append(0.0)
            began = time.thread_time()
    size = sum(map(len, made)) / 1e6
    return Part(what, len(slices), max(slices) * 1e3, sum(slices) * 1e3, size)


def _measure(plan: Plan) -> list[Part]:
    node = make_node()
    counts = JobCounts(plan.queues)
    node.notes.count(counts)
    client = Client(1)

    def command(*words: bytes) -> None:
        node.command(client, list(words), START)
        client.out.clear()

    for number in range(max(plan.jobs, plan.queues)):
        name = b"queue-%d" % (number % plan.queues)
        command(b"ADDJOB", name, b"body", b"0")
        command(b"GETJOB", b"FROM", name)
    for queue in counts.by_queue:  # so that all lines exist
        command(b"ADDJOB", queue, b"body", b"0")
        command(b"GETJOB", b"FROM", queue)
        command(b"ADDJOB", queue, b"body", b"0")
    for job in list(node.store.jobs.values())[: plan.queues]:
        command(b"ACKJOB", job.id)
    figures, formats = JobFigures(node, counts), Formats()
    gc.collect()
    gc.freeze()
    gc.disable()
    parts: list[Part] = []
    for _ in range(2):  # the first has nothing to forget
        sheet = Sheet()
        parts.append(_in_slices("collecting", figures.collect(sheet), []))
    collection = Collection(sheet, 0, 0, 0)
    for accept, zipped in (("", False), (OPENMETRICS, False), ("", True)):
        body = collection.bodies[accept, zipped] = Body(zipped)
        steps = write_page(sheet, formats.of(accept), body.add)
        what = f"{'OpenMetrics' if accept else 'text'}{', compressed' if zipped else ''}"
        parts.append(_in_slices(what, steps, body.chunks))
    del body, sheet
    parts.append(_in_slices("forgetting it", collection.free(), []))
    return parts[1:]


def measure(queues: str, jobs: str) -> None:
    """Prints the results of this process: its build, and the parts."""
    parts = _measure(Plan(int(queues), int(jobs)))
    json.dump([form(), [asdict(part) for part in parts]], sys.stdout)


def run(plan: Plan) -> Findings:
    """Measures with the plan's Python."""
    say(f"{plan.queues:,} queues, {plan.jobs:,} jobs")
    numbers = (str(plan.queues), str(plan.jobs))
    with environment_of(plan.python) as environment:
        command = child(__name__, *numbers, function="measure", python=plan.python)
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
    its_form, rows = json.loads(done.stdout)
    found = [Part(**row) for row in rows]
    lines = [
        [one.what, f"{one.slices:,}", f"**{one.longest:.2f}**", f"{one.total:,.0f}",
         f"{one.megabytes:.1f}"]
        for one in found
    ]  # fmt: skip
    titles = ["part of a scrape", "slices", "longest, ms", "all, ms", "MB"]
    return Findings(table(titles, lines), found, facts={"form": its_form})
