"""The longest turn of commands that look at many jobs or queues.

A node's state machine is driven turn by turn in a process, and the CPU time of each turn is
measured. Other clients wait for up to the longest.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from disque_trio.form import form
from disque_trio.respserver.client import Client
from disque_trio.respserver.slices import do_slice
from tools.bench.cli import Findings, child, environment_of, option, say, table
from tools.bench.inprocess import START, make_node

PAGE = "performance-details.md"
SECTION = "longest turns"
MS = 1_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    jobs: int = option(1_000_000, "jobs, and queues with one job each", quick=2_000)
    python: str = option(sys.executable, "the Python that has the build to measure")


@dataclass(frozen=True, slots=True)
class Turns:
    """The cost of one command: its number of turns, and CPU time in ms of the longest and of
    all."""

    what: str
    turns: int
    longest: float
    total: float


class Stage:
    """A node whose turns are measured."""

    def __init__(self) -> None:
        self.node = make_node()
        self.now = START
        self._clients = 0
        self.client = self.connect()
        self.found: list[Turns] = []
        self._took: list[float] = []

    def connect(self) -> Client:
        """A new client."""
        self._clients += 1
        return Client(self._clients)

    def add(self, queue: str, *options: str) -> str:
        """Add a job without measuring; returns its id."""
        words = [queue.encode(), b"body", b"0", *[option.encode() for option in options]]
        self.node.command(self.client, [b"ADDJOB", *words], self.now)
        self.node.commit()
        return self._replied().decode()[1:].strip()

    def _replied(self) -> bytes:
        reply = b"".join(self.client.out)
        self.client.out.clear()
        return reply

    def serve(self, client: Client, *words: str) -> None:
        """Serve one request."""
        request = [word.encode() for word in words]
        self.turn(lambda: self.node.command(client, request, self.now))

    def command(self, client: Client, *words: str) -> None:
        """Serve one request, and the work that it leaves for later turns."""
        self.serve(client, *words)
        self.ticks()

    def ticks(self) -> None:
        """Run turns until there is nothing left to do now."""
        while self.node.batches.waiting or 0 < self.node.next_wake() <= self.now:
            self.turn(self._tick)

    def _tick(self) -> None:
        self.node.tick(self.now)
        if self.node.batches.waiting:
            do_slice(self.node, self.now)

    def turn(self, work: Callable[[], object]) -> None:
        """Measure one turn."""
        started = time.thread_time()
        work()
        self.node.commit()
        self._took.append((time.thread_time() - started) * MS)

    def ask(self, what: str, *words: str) -> bytes:
        """Measure one command, called ``what``; returns the reply."""
        self.command(self.client, *words)
        self.told(what)
        return self._replied()

    def scan(self, what: str, name: str, *options: str) -> None:
        """Measure a whole walk with the largest steps."""
        cursor = "0"
        while True:
            self.command(self.client, name, cursor, "COUNT", "1000000", *options)
            cursor = self._replied().split(b"\r\n", 3)[2].decode()
            if cursor == "0":
                break
        self.told(what)

    def told(self, what: str) -> None:
        """Attribute all turns since the last call to ``what``."""
        took, self._took = self._took, []
        self.found.append(Turns(what, len(took), max(took), sum(took)))


def look_at_jobs(jobs: int) -> Stage:
    """Measure commands about jobs, with ``jobs`` jobs in three queues."""
    stage = Stage()
    for i in range(jobs):
        group = ("GROUP", f"g{i % 1000}") if i % 10 == 0 else ()
        headers = ("HEADERS", "1", "h", "v") if i % 20 == 0 else ()
        stage.add(f"q{i % 3}", *headers, *group)
    several = ("QUEUE", "q0", "QUEUE", "q1", "STATE", "queued", "MINAGE", "0", "MAXAGE", "100")
    stage.scan("JSCAN", "JSCAN")
    stage.scan("JSCAN of two queues, by state and age", "JSCAN", *several)
    stage.scan("JSCAN MINRETURNS", "JSCAN", "MINRETURNS", "1")
    stage.scan("JSCAN GROUP", "JSCAN", "GROUP", "g10")
    stage.scan("JSCAN HEADER", "JSCAN", "HEADER", "h", "v")
    stage.scan("JSCAN REPLY all", "JSCAN", "REPLY", "all")
    stage.ask("QSTAT", "QSTAT", "q0")
    stage.ask("QSTAT FULL", "QSTAT", "q0", "FULL")
    stage.ask("QMOVE of a third", "QMOVE", "q0", "q9")
    stage.ask("QPURGE of a third", "QPURGE", "q1")
    delayed = [stage.add("d", "DELAY", "1000") for _ in range(min(jobs, 10_000))]
    stage.ask("PROMOTE of 10,000", "PROMOTE", *delayed)
    return stage


def look_at_queues(queues: int) -> Stage:
    """Measure commands about queues, with ``queues`` queues of one job each."""
    stage = Stage()
    for i in range(queues):
        stage.add(f"q.{i}")
    asking = ("GETJOB", "NOHANG", "PATTERN")
    many = [f"z{i}.*" for i in range(1_000)]
    stage.scan("QSCAN MATCH", "QSCAN", "MATCH", "q.*7?")
    stage.ask("GETJOB PATTERN, first", *asking, "FROM", "q.*")
    stage.ask("GETJOB PATTERN, later", *asking, "FROM", "q.*")
    stage.ask("GETJOB PATTERN, COUNT 1000", *asking, "COUNT", "1000", "FROM", "q.*")
    stage.ask("GETJOB PATTERN, no queue matches", *asking, "FROM", "nothing.*")
    stage.ask("GETJOB PATTERN, 1,000 patterns, first", *asking, "FROM", *many)
    stage.ask("GETJOB PATTERN, 1,000 patterns, later", *asking, "FROM", *many)
    clients = [stage.connect() for _ in range(10_000)]
    for i, client in enumerate(clients):
        stage.serve(client, "GETJOB", "PATTERN", "FROM", f"c{i % 2_000}.*", "c.*")
    stage.ticks()
    stage.told("10,000 clients begin to wait by 2,001 patterns")
    for i in range(1_000):
        stage.command(stage.client, "ADDJOB", f"c{i}.new", "body", "0")
    stage.told("ADDJOB to one of them, in a new queue")
    for i in range(1_000):
        stage.command(stage.client, "ADDJOB", f"n{i}.new", "body", "0")
    stage.told("ADDJOB to a new queue that none of them wants")
    for client in clients:
        stage.turn(lambda client=client: stage.node.forget_client(client))  # type: ignore[misc]
    stage.ticks()
    stage.told("they go")
    stage.now += 200_000
    stage.ticks()
    stage.told("the patterns are forgotten")
    return stage


def measure(jobs: str) -> None:
    """Prints the results of this process: its build, and the turns."""
    gc.disable()
    stages: Iterator[Stage] = (look(int(jobs)) for look in (look_at_jobs, look_at_queues))
    json.dump([form(), [asdict(turns) for stage in stages for turns in stage.found]], sys.stdout)


def run(plan: Plan) -> Findings:
    """Measures with the plan's Python."""
    say(f"{plan.jobs:,} jobs")
    with environment_of(plan.python) as environment:
        command = child(__name__, str(plan.jobs), function="measure", python=plan.python)
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
    its_form, rows = json.loads(done.stdout)
    found = [Turns(**row) for row in rows]
    return Findings(turns_table(found), found, facts={"form": its_form})


def turns_table(found: list[Turns]) -> str:
    """The turns of each command."""
    rows = [
        [one.what, f"{one.turns:,}", f"**{one.longest:.1f}**", f"{one.total:,.0f}"] for one in found
    ]
    return table(["command", "turns", "longest, ms", "all, ms"], rows)
