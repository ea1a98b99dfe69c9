"""Compares our node with other queues that do the same work in the same run.

The servers take turns, and each is restarted in every round. Those that are not installed are left
out. docs/performance-tables.md explains the figures.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import median

from benchmarks import records
from benchmarks.clients import Batches, Client
from benchmarks.peers import LEVELS, Level, Subject, all_subjects, dated
from benchmarks.records import Ratio, Record
from disque_trio import svg
from tools.bench import load
from tools.bench.cli import (
    Findings,
    Picture,
    grouped,
    machine,
    middle,
    milliseconds,
    option,
    rates,
    ratio,
    say,
    size,
    table,
    words,
)
from tools.bench.load import Load, LoadError, percentile
from tools.bench.scripts import SERIAL_DIGITS, bodies
from tools.bench.servers import (
    DISQUE_COMMAND,
    GENERATOR_CPUS,
    SERVER_CPUS,
    Server,
    ServerError,
    running,
)

PAGE = "performance-tables.md"
SECTION = "compare"
SUMMARY = ("performance.md", "compare summary")
KEYS = tuple(subject.key for subject in all_subjects())
README_PICTURE, README_LEVEL = "compare-short.svg", "everysec"
LEVEL_TITLES = {"none": "none", "everysec": "every second", "always": "every write"}
SETTLE_SECONDS = 30.0
POLL_SECONDS = 0.005
WARM_UP = 4
# Per client, on average. The first is not timed.
LEAST_BATCHES = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. A measurement ends after ``jobs`` jobs or ``seconds``, with whole batches,
    and at least two for each client."""

    subjects: tuple[str, ...] = option(KEYS, "what", choices=KEYS)
    durability: tuple[Level, ...] = option(LEVELS, "when files are synced", choices=LEVELS)
    pipelines: tuple[int, ...] = option((1, 16), "pipeline depths")
    clients: int = option(50, "connections", quick=4)
    rounds: int = option(3, "how often everything is measured", quick=1)
    jobs: int = option(100_000, "maximum jobs in a measurement", quick=128)
    seconds: float = option(3.0, "maximum time of a measurement")
    size: int = option(100, "bytes of a job's body", parse=size(SERIAL_DIGITS))
    record: str = option("", "keep the ratios under this name in benchmarks/records")
    dir: str = option("", "directory for the servers' files (default: $TMPDIR)")
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement. Times are in seconds: ``cpu`` is that of all processes of the server,
    ``own_cpu`` the generator's; percentiles are of the duration of a batch's life."""

    subject: str
    level: Level
    pipeline: int
    round: int
    jobs: int
    seconds: float
    cpu: float
    own_cpu: float
    p50: float
    p99: float
    p999: float

    @property
    def rate(self) -> float:
        """Jobs per second that completed their lives."""
        return self.jobs / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of the server per job, in microseconds."""
        return self.cpu / self.jobs * 1e6


def run(plan: Plan) -> Findings:
    """Measures every subject at every level that it supports. Raises ServerError if one fails, or
    none is installed."""
    subjects = [one for one in all_subjects(plan.server) if one.key in plan.subjects]
    present = [subject for subject in subjects if subject.missing() is None]
    notes = [note for subject in subjects if (note := subject.missing())]
    if not present:
        raise ServerError("\n".join(["there is nothing to measure", *notes]))
    for level in plan.durability:
        lacks = filter(None, (subject.lacks(level) for subject in present))
        notes += [f"Synced {LEVEL_TITLES[level]}: {lack}." for lack in lacks]
    for note in notes:
        say(note)
    results: list[Result] = []
    before = os.getloadavg()[0]
    for number in range(plan.rounds):
        for level in plan.durability:
            for subject in present:
                if subject.lacks(level) is None:
                    say(f"round {number + 1}, {level}: {subject.title}")
                    results += _measured(plan, subject, level, number)
    text = "\n\n".join([ratio_table(results), *(f"- {note}" for note in notes)])
    alt = "Jobs a second and CPU time a job of each server"
    facts = {s.package or s.title: dated(s.package, s.version()) for s in present}
    facts |= {
        "CPUs for the servers": str(len(SERVER_CPUS)),
        "for the generator": str(len(GENERATOR_CPUS)),
        "load average before": f"{before:.1f}",
        "files on": _file_system(Path(plan.dir or tempfile.gettempdir())),
    }
    pictures = [Picture("compare.svg", chart(results, alt), alt)]
    if short := [result for result in results if result.level == README_LEVEL]:
        pictures.append(Picture(README_PICTURE, chart(short, alt)))
    record = Record({**machine(), **facts}, medians(results))
    if plan.record:
        record.write(plan.record)
    kept = records.read()
    summary = records.summary(kept if plan.record else [*kept, record])
    return Findings(text, results, pictures, facts, summary)


def _file_system(path: Path) -> str:
    """The file system of a directory: syncing a tmpfs costs nothing."""
    path = path.resolve()
    best, kind = -1, "?"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, this_kind, *_ = line.split(" ")
        if path.is_relative_to(where) and len(where) > best:
            best, kind = len(where), this_kind
    return kind


def _measured(plan: Plan, subject: Subject, level: Level, number: int) -> Iterator[Result]:
    client = subject.client(plan.size, level)
    recipe = partial(subject.recipe, level=level)
    with running(
        subject.title, subject.key, recipe, client.prepare, base=plan.dir or None
    ) as server:
        for pipeline in plan.pipelines:
            try:
                least = plan.clients * pipeline * LEAST_BATCHES
                _work(plan, client, server, pipeline, least * WARM_UP)
                done, times, cpu = _work(plan, client, server, pipeline, max(least, plan.jobs))
            except (LoadError, OSError) as error:
                raise server.failure(f"{level}, pipelined by {pipeline}: {error}") from error
            jobs = len(times) * pipeline
            times = sorted(one for one in times if not math.isnan(one))
            points = [percentile(times, part) for part in (0.5, 0.99, 0.999)]
            setting = (subject.key, level, pipeline, number)
            yield Result(*setting, jobs, done.seconds, cpu, done.own_cpu, *points)


def _work(
    plan: Plan, client: Client, server: Server, pipeline: int, jobs: int
) -> tuple[Load, list[float], float]:
    """Takes ``jobs`` jobs through their lives and checks that none is left. Returns what the
    generator saw, the times of the batches and the CPU time of the server (s)."""
    new = bodies(plan.size)
    prepared = [list(islice(new, pipeline)) for _ in range(jobs // pipeline)]
    times: list[float] = []
    with ExitStack() as stack:
        socks = []
        for worker in range(plan.clients):
            socks.append(client.connect(server.port, worker, pipeline))
            stack.callback(client.close, socks[-1])
        before = server.family_cpu_seconds()
        least = plan.clients * LEAST_BATCHES
        batches = until(time.perf_counter() + plan.seconds, least, prepared)
        done = load.run(socks, [client.lives(n, batches, times) for n in range(plan.clients)])
        cpu = server.family_cpu_seconds() - before
    # Servers that do not confirm acknowledgements may not have seen all of them yet.
    deadline = time.monotonic() + SETTLE_SECONDS
    while left := client.unfinished(server.port):
        if time.monotonic() > deadline:
            raise LoadError(f"{left} jobs have not ended")
        time.sleep(POLL_SECONDS)
    return done, times, cpu


def until(deadline: float, least: int, prepared: Sequence[Sequence[bytes]]) -> Batches:
    """Batches until the deadline (time.perf_counter), but at least ``least``."""
    for number, batch in zip(count(), prepared, strict=False):
        if number >= least and time.perf_counter() > deadline:
            return
        yield batch


# ---- what is shown ---------------------------------------------------------------------------


def _settings(
    results: Sequence[Result],
) -> list[tuple[Level, int, list[tuple[str, list[Result]]]]]:
    """Level, pipeline depth, and the rounds of each server with its name, in order."""
    subjects = {subject.key: subject for subject in all_subjects()}
    found = []
    for (level, pipeline), cell in grouped(results, lambda r: (r.level, r.pipeline)).items():
        servers = []
        for key, mine in grouped(cell, lambda r: r.subject).items():
            differs = subjects[key].differs(level)
            title = subjects[key].title
            servers.append((f"{title} ({differs})" if differs else title, mine))
        found.append((level, pipeline, servers))
    return found


def ratio_table(results: Sequence[Result]) -> str:
    """One row for each server in each setting. Ratios are of the setting's first server to this
    one, within each round."""
    titles = ["synced", "pipelined", "server", "jobs/s", "rate ratio", "(range)"]
    titles += ["CPU µs a job", "CPU ratio", "(range)", "p50 / p99 ms"]
    rows = []
    for level, pipeline, servers in _settings(results):
        first = servers[0][1]
        for name, mine in servers:
            row = [LEVEL_TITLES[level], str(pipeline), name, rates(mine)]
            row += ratio(first, mine, lambda r: r.rate)
            row += [middle(mine, lambda r: r.cpu_us, 1), *ratio(first, mine, lambda r: r.cpu_us)]
            rows.append([*row, milliseconds(mine, lambda r: r.p50, lambda r: r.p99)])
    return table(titles, rows)


def medians(results: Sequence[Result]) -> list[Ratio]:
    """The ratios of the first server to each other one, for each setting."""
    found = []
    for level, pipeline, servers in _settings(results):
        setting = f"synced: {LEVEL_TITLES[level]}, pipelined by {pipeline}"
        first = servers[0][1]
        for name, mine in servers[1:]:
            pairs = list(zip(first, mine, strict=True))
            cpu = median(one.cpu_us / other.cpu_us for one, other in pairs)
            rate = median(one.rate / other.rate for one, other in pairs)
            found.append(Ratio(setting, name, round(cpu, 2), round(rate, 2)))
    return found


WIDTH = 960
MARGIN = 16
TITLE_HEIGHT = 56
PANEL_TITLE_HEIGHT = 26
BAR_HEIGHT = 16
BAR_STEP = 20
PANEL_GAP = 14
LABEL_WIDTH = 190
VALUE_WIDTH = 78
OURS, THEIRS = "#c2410c", "#94a3b8"
INK, FAINT = "#1e293b", "#64748b"


def chart(results: Sequence[Result], alt: str) -> str:
    """A bar chart: rates on the left, CPU time on the right, a row of two panels for each setting.
    The first server of a setting is highlighted."""
    half = (WIDTH - 2 * MARGIN) // 2
    note = "a job: added, taken, acknowledged; +: generator at its limit"
    heads = ("jobs a second (longer is better)", "CPU µs a job (shorter is better)")
    parts = [
        svg.text(MARGIN + half * place, 24, head, font_size=15, font_weight="bold")
        for place, head in enumerate(heads)
    ]
    parts.append(svg.text(MARGIN, 43, note, style=f"fill:{FAINT}", font_size=11))
    at = TITLE_HEIGHT
    for level, pipeline, servers in _settings(results):
        title = f"Synced: {LEVEL_TITLES[level]}. Pipelined by {pipeline}"
        parts.append(svg.text(MARGIN, at + 17, title, font_size=13, font_weight="bold"))
        at += PANEL_TITLE_HEIGHT
        throughput = [(name, median(r.rate for r in mine), rates(mine)) for name, mine in servers]
        costs = [
            (name, median(r.cpu_us for r in mine), middle(mine, lambda r: r.cpu_us, 1))
            for name, mine in servers
        ]
        parts += _bars(MARGIN, at, half, throughput) + _bars(MARGIN + half, at, half, costs)
        at += BAR_STEP * len(servers) + PANEL_GAP
    return svg.picture(WIDTH, at, alt, parts, style=f"text{{fill:{INK}}}", fill="#ffffff")


def _bars(left: int, top: int, width: int, bars: Sequence[tuple[str, float, str]]) -> list[str]:
    longest = max(value for _, value, _ in bars) or 1.0
    room = width - LABEL_WIDTH - VALUE_WIDTH
    x = left + LABEL_WIDTH
    parts = []
    for number, (name, value, label) in enumerate(bars):
        length = max(1.0, room * value / longest)
        y = top + number * BAR_STEP
        fill = THEIRS if number else OURS
        parts += svg.bar(x, y, length, BAR_HEIGHT, name, label, fill=fill)
    return parts
