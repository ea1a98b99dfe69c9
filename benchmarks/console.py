"""The response time of the console's pages with many queues, jobs, schedules and clients.

A node is filled, ``disque-console`` connects to it, and each page is requested over HTTP. Wall time
is that of the whole request; CPU time is that of the console and the node during the request,
including their other work.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from hiredis import ReplyError

from disque_trio.respclient.blocking import BlockingConnection
from tools.bench.cli import Findings, option, say, table
from tools.bench.dialects import encode
from tools.bench.servers import HOST, Server, ServerError, cpu_seconds, disque_server
from tools.ports import free_port

PINNED = False
LIMIT: Final = 300.0  # ms
PIPELINE: Final = 500  # commands
SECONDS: Final = 600.0  # for the console to read everything
RARE: Final = 100_000  # one in this many jobs has a rare header
SORTS: Final = ("name", "length", "added", "oldest", "delayed", "in_hand", "dead", "blocked")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to create."""

    jobs: int = option(1_000_000, "jobs", quick=2_000)
    queues: int = option(10_000, "queues", quick=100)
    schedules: int = option(1_000, "schedules", quick=20)
    clients: int = option(300, "clients", quick=5)
    rounds: int = option(5, "how often each page is requested", quick=1)


@dataclass(frozen=True, slots=True)
class Sample:
    """The cost of a page: CPU time of the console and the node, and wall time, in ms."""

    page: str
    console: float
    node: float
    wall: float


class _Wire(BlockingConnection):
    """A connection that pipelines commands."""

    def each(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """The replies, none of which may be an error."""
        found: list[Any] = []
        for begin in range(0, len(commands), PIPELINE):
            part = commands[begin : begin + PIPELINE]
            self.sock.sendall(b"".join(encode(*words) for words in part))
            found += [self.read() for _ in part]
        if error := next((reply for reply in found if isinstance(reply, ReplyError)), None):
            raise ServerError(f"the node says {error}")
        return found


def _wire(port: int) -> _Wire:
    return _Wire(socket.create_connection((HOST, port)))


def _fill(port: int, plan: Plan) -> tuple[str, list[_Wire]]:
    """Fill the node. Returns the id of a job, and connections to keep open."""
    wire = _wire(port)
    wire.each([(b"QSET", b"queue-*", b"ATTEMPTS", b"3", b"DEAD", b"dead")])
    job = b""
    for begin in range(0, plan.jobs, PIPELINE):
        commands: list[tuple[bytes, ...]] = []
        for number in range(begin, min(begin + PIPELINE, plan.jobs)):
            name = b"queue-%05d" % (number % plan.queues)
            words: tuple[bytes, ...] = (
                b"ADDJOB",
                name,
                b"body %d" % number,
                b"0",
                b"RETRY",
                b"3600",
            )
            if number // plan.queues % 10 == 3:
                words += (b"DELAY", b"86000")
            elif number % min(RARE, plan.jobs) == 7:
                words += (b"HEADERS", b"1", b"kind", b"rare")
            commands.append(words)
        job = wire.each(commands)[-1]
    each = b"%d" % max(1, plan.jobs // plan.queues // 20)
    names = [b"queue-%05d" % number for number in range(plan.queues)]
    take = (b"GETJOB", b"NOHANG", b"COUNT", each, b"FROM")
    wire.each([(*take, name) for name in names])
    taken = wire.each([(*take, name) for name in names[::2]])
    ids = [job[1] for jobs in taken for job in jobs or ()]
    reasons = [b"broken %d" % (number % 7) for number in range(len(ids))]
    wire.each(
        [(b"NACK", id, b"REASON", why, b"DEAD") for id, why in zip(ids, reasons, strict=True)]
    )
    for number in range(plan.schedules):
        name = b"schedule-%05d" % number
        wire.each([(b"CRON", b"SET", name, b"0 4 1 1 *", b"queue-%05d" % (number % 9), b"body")])
    others = [_wire(port) for _ in range(plan.clients)]
    for number, other in enumerate(others):
        other.each([(b"CLIENT", b"SETNAME", b"client-%05d" % number)])
    return job.decode(), [wire, *others]


@contextmanager
def _console(node: int) -> Iterator[tuple[int, int]]:
    """The port and process of a console connected to the node."""
    port = free_port()
    command = [sys.executable, "-m", "disque_console.command"]
    command += ["--nodes", f"{HOST}:{node}", "--listen", f"{HOST}:{port}"]
    quiet = subprocess.DEVNULL
    with TemporaryDirectory() as state:
        command += ["--state-dir", state]
        with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
            try:
                yield port, process.pid
            finally:
                process.terminate()


def _get(port: int, path: str) -> str:
    connection = http.client.HTTPConnection(HOST, port, timeout=SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        raise ServerError(f"{path} returned {answer.status}")
    return text


def _wait(port: int, path: str, says: str) -> float:
    """Seconds until a page contains a text."""
    began = time.monotonic()
    while time.monotonic() - began < SECONDS:
        try:
            if says in unescape(_get(port, path)):
                return time.monotonic() - began
        except OSError:
            pass
        time.sleep(0.2)
    raise ServerError(f"{path} does not contain {says!r} after {SECONDS:g} s")


def pages(job: str) -> dict[str, str]:
    """The pages to request, by what they show."""
    found = {"overview": "/"}
    for sort in SORTS:
        found[f"queues by {sort}"] = f"/queues?sort={sort}&order=down"
    return found | {
        "queues, second page": "/queues?sort=dead&order=down&page=2",
        "queues, last page": "/queues?page=99999",
        "queues, searched": "/queues?search=999",
        "queues, by a pattern": "/queues?search=queue-*9&sort=in_hand",
        "overview, 24 hours": "/?range=24h",
        "a queue": "/queue?name=queue-00007",
        "a queue, 24 hours": "/queue?name=queue-00007&range=24h",
        "jobs": "/jobs",
        "jobs queued": "/jobs?state=queued",
        "jobs in hand": "/jobs?state=active",
        "jobs of a queue": "/jobs?queue=queue-00007",
        "jobs with a rare header": "/jobs?header=kind&value=rare",
        "jobs with a header that none has": "/jobs?header=kind&value=none",
        "jobs that came back": "/jobs?returns=1",
        "a job": f"/job?id={job}",
        "dead letters": "/dead",
        "dead letters of a queue": "/dead?queue=dead",
        "schedules": "/schedules",
        "schedules, second page": "/schedules?page=2",
        "schedules, searched": "/schedules?search=0001",
        "workers": "/workers",
        "workers, jobs in hand": "/workers?queue=queue-00007",
        "clients": "/clients",
        "clients by name": "/clients?sort=name&page=2",
        "clients, searched": "/clients?search=client-0001",
        "cluster": "/cluster",
        "slow log": "/slow",
        "settings": "/settings",
    }


def _measure(node: Server, plan: Plan) -> tuple[list[Sample], float]:
    began = time.monotonic()
    job, wires = _fill(node.port, plan)
    say(f"filled in {time.monotonic() - began:.0f} s")
    samples: list[Sample] = []
    try:
        with _console(node.port) as (port, pid):
            _wait(port, "/queues?sort=length", f"of {plan.queues + 1:,}")
            counted = _wait(port, "/queues", "They are ")
            say(f"all jobs were counted {counted:.0f} s after the first look")
            for round in range(plan.rounds):
                say(f"round {round + 1}")
                for name, path in pages(job).items():
                    before = cpu_seconds(pid), node.cpu_seconds(), time.perf_counter()
                    _get(port, path)
                    wall = time.perf_counter() - before[2]
                    console, server = cpu_seconds(pid) - before[0], node.cpu_seconds() - before[1]
                    samples.append(Sample(name, console * 1e3, server * 1e3, wall * 1e3))
    finally:
        for wire in wires:
            wire.close()
    return samples, counted


def _row(name: str, samples: Sequence[Sample]) -> list[str]:
    walls = [sample.wall for sample in samples]
    most = f"{max(walls):,.0f}"
    return [
        name,
        f"{median(sample.console for sample in samples):,.0f}",
        f"{median(sample.node for sample in samples):,.0f}",
        f"{median(walls):,.0f}",
        f"**{most}**, too long" if max(walls) > LIMIT else most,
    ]


def run(plan: Plan) -> Findings:
    """Fills a node, and requests all pages."""
    say(f"{plan.jobs:,} jobs in {plan.queues:,} queues")
    with disque_server() as node:
        samples, counted = _measure(node, plan)
    names = list(dict.fromkeys(sample.page for sample in samples))
    rows = [_row(name, [one for one in samples if one.page == name]) for name in names]
    titles = ["page", "console, CPU ms", "node, CPU ms", "wall ms", "at most"]
    return Findings(table(titles, rows), samples, facts={"counted after": f"{counted:.0f} s"})
