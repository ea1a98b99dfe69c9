"""Compares what a backlog larger than memory costs here, in RabbitMQ and in NATS.

In each round each server is started again, filled with persistent jobs, whose adding it confirms,
and emptied again. Our node has little memory and ``paging``; the others have files, too, and as
much memory as they like. CPU time is that of all processes of the server, until it is at rest.
docs/performance-tables.md explains the figures.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median

from benchmarks.clients import Client, DialectClient
from benchmarks.peers import NatsSubject, RabbitSubject, Subject, all_subjects, dated
from tools.bench import load
from tools.bench.cli import Findings, grouped, middle, option, ratio, say, size, table, words
from tools.bench.dialects import Batched, Disque, encode
from tools.bench.load import LoadError, Script, ask_once, info
from tools.bench.scripts import SERIAL_DIGITS, bodies, drain, portions
from tools.bench.servers import DISQUE_COMMAND, Recipe, Server, ServerError, running

PAGE = "performance-tables.md"
SECTION = "backlog"
OURS = "disque"
THEIRS: tuple[Subject, ...] = (
    RabbitSubject("classic", "RabbitMQ, classic queue v2", queue_version=2),
    RabbitSubject("quorum", "RabbitMQ, quorum queue", queue_type="quorum"),
    NatsSubject(),
)
KEYS = (OURS, *(subject.key for subject in THEIRS))
MB = 1_000_000
REST_SECONDS = 1.0
AT_REST = 0.1  # CPU seconds in REST_SECONDS
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    subjects: tuple[str, ...] = option(KEYS, "what", choices=KEYS)
    jobs: int = option(1_000_000, "jobs in the backlog", quick=2_000)
    rounds: int = option(3, "how often everything is measured", quick=1)
    clients: int = option(50, "connections", quick=4)
    pipeline: int = option(16, "pipeline depth")
    memory: int = option(100 << 20, "maxmemory of our node", quick=2 << 20, parse=size(1 << 20))
    size: int = option(1_000, "bytes of a job's body", parse=size(SERIAL_DIGITS))
    dir: str = option("", "directory for the servers' files (default: $TMPDIR)")
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)

    @property
    def whole(self) -> int:
        """Jobs in whole batches, of which each client has one or more."""
        batches = max(-(-self.jobs // self.pipeline), self.clients)
        return batches * self.pipeline


@dataclass(frozen=True, slots=True)
class Backlog:
    """One server in one round. CPU times are in seconds, for all ``jobs``; memory and disk in
    bytes: resident memory without any job and with all, files with all. ``paged``: jobs that were
    only on disk, if it says so."""

    subject: str
    jobs: int
    adding: float
    taking: float
    empty: int
    resident: int
    disk: int
    paged: int


class Ours(DialectClient):
    """Our node with little memory. Jobs are taken as many at a time as others take."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(Disque(plan.size))
        self._plan = plan

    def prepare(self, port: int) -> None:
        memory = b"%d" % self._plan.memory
        if (reply := ask_once(port, encode(b"CONFIG", b"SET", b"maxmemory", memory))) != b"+OK":
            raise LoadError(f"CONFIG SET was answered with {reply!r}")

    def takers(self, workers: int, jobs: int, pipeline: int) -> list[Script]:
        left = [jobs]
        return [drain(Batched(pipeline, self._plan.size), left) for _ in range(workers)]


def subjects(command: Sequence[str]) -> list[Subject]:
    """All servers, first our node, which ``command`` starts."""
    ours = next(one for one in all_subjects((*command, "--paging", "yes")) if one.key == OURS)
    return [ours, *THEIRS]


def run(plan: Plan) -> Findings:
    """Measure. Raises ServerError if a server fails, or none is installed."""
    chosen = [one for one in subjects(plan.server) if one.key in plan.subjects]
    notes = list(dict.fromkeys(filter(None, (one.missing() for one in chosen))))
    present = [one for one in chosen if one.missing() is None]
    for note in notes:
        say(note)
    if not present:
        raise ServerError("there is nothing to measure")
    found = []
    for number in range(plan.rounds):
        for subject in reversed(present) if number % 2 else present:
            say(f"round {number + 1}: {subject.title}")
            found.append(measure(plan, subject))
    found.sort(key=lambda one: KEYS.index(one.subject))
    text = "\n\n".join([backlog_table(found), *(f"- {note}" for note in notes)])
    paged = max(one.paged for one in found)
    facts = {one.package or one.title: dated(one.package, one.version()) for one in present}
    facts |= {"jobs": f"{plan.whole:,} of {plan.size:,} bytes"}
    facts |= {"of them on disk": f"{paged:,} at the top"} if paged else {}
    return Findings(text, found, facts=facts)


def measure(plan: Plan, subject: Subject) -> Backlog:
    """Fill a server, and empty it."""
    ours = subject.key == OURS
    client = Ours(plan) if ours else subject.client(plan.size, "everysec")
    jobs = plan.whole
    places: list[Path] = []

    def recipe(directory: Path) -> Recipe:
        places.append(directory)
        return subject.recipe(directory, "everysec")

    name, key, base = subject.title, subject.key, plan.dir or None
    with running(name, key, recipe, client.prepare, base=base) as server:
        empty = at_rest(server)
        new = bodies(plan.size)
        batches = (list(islice(new, count)) for count in portions(jobs, plan.pipeline))
        adders = [client.adds(worker, batches) for worker in range(plan.clients)]
        adding = work(plan, client, server, adders)
        resident = server.rss_bytes()
        disk = disk_bytes(places[0])
        paged = int(info(server.port, b"jobs")["paging_jobs"]) if ours else 0
        takers = client.takers(plan.clients, jobs, plan.pipeline)
        taking = work(plan, client, server, takers)
        if left := client.unfinished(server.port):
            raise server.failure(f"{left} jobs have not ended")
    return Backlog(subject.key, jobs, adding, taking, empty, resident, disk, paged)


def work(plan: Plan, client: Client, server: Server, scripts: Sequence[Script]) -> float:
    """Let all clients work, and the server come to rest. Returns its CPU seconds."""
    before = server.family_cpu_seconds()
    with server.blamed(), ExitStack() as stack:
        socks = []
        for worker in range(plan.clients):
            socks.append(client.taker(server.port, worker, plan.pipeline))
            stack.callback(client.close, socks[-1])
        load.run(socks, scripts)
    at_rest(server)
    return server.family_cpu_seconds() - before


def at_rest(server: Server) -> int:
    """Wait until the server does no more work; returns its resident bytes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    spent = server.family_cpu_seconds()
    while True:
        time.sleep(REST_SECONDS)
        before, spent = spent, server.family_cpu_seconds()
        if spent - before < AT_REST:
            return server.rss_bytes()
        if time.monotonic() > deadline:
            raise server.failure("does not come to rest")


def disk_bytes(directory: Path) -> int:
    """What the files below a directory take on disk."""
    return sum(one.stat().st_blocks for one in directory.rglob("*") if one.is_file()) * 512


def ranged(values: Sequence[float], digits: int) -> tuple[str, str]:
    """The median and the range."""
    low, middle, high = (f"{one:,.{digits}f}" for one in (min(values), median(values), max(values)))
    return middle, f"{low}-{high}"


def backlog_table(found: Sequence[Backlog]) -> str:
    """One row for each server. Ratios are of ours to this one, within a round."""
    titles = ["server", "adding, CPU us a job", "(range)", "taking, CPU us a job", "(range)"]
    titles += ["CPU ratio", "(range)", "resident, MB", "(range)", "without jobs, MB", "disk, MB"]
    names = {one.key: one.title for one in subjects(DISQUE_COMMAND)}
    servers = grouped(found, lambda one: one.subject)
    first = next(iter(servers.values()))
    rows = []
    for key, mine in servers.items():
        row = [names[key]]
        row += ranged([one.adding / one.jobs * 1e6 for one in mine], 1)
        row += ranged([one.taking / one.jobs * 1e6 for one in mine], 1)
        row += ratio(first, mine, lambda one: one.adding + one.taking)
        row += ranged([one.resident / MB for one in mine], 0)
        row += [middle(mine, lambda one: one.empty / MB), middle(mine, lambda one: one.disk / MB)]
        rows.append(row)
    return table(titles, rows)
