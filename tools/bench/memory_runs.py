"""The runs of ``tools.bench.memory``: nodes are filled with jobs, emptied in several ways, and
watched meanwhile."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from tools.bench.fleet import HOST, NODE_CPUS, Fleet
from tools.bench.load import connections
from tools.bench.measure import Bench, Setting
from tools.bench.memory_load import QUEUE, Filler, Stream, Timed
from tools.bench.replicated import Copied
from tools.bench.servers import disque_server, redis_server
from tools.bench.stops import Stops, Watch, pinger, watches
from tools.bench.workloads import Redis

MANY = 1_000  # ids in one command
SPARE = 2_000  # jobs that make a server used to its work
LATER = 15  # s until jobs expire or are due; all of them have to be added before
COLLECTED_JOBS = 10_000  # up to so many jobs held the collector runs at all
COLLECT_SECONDS = 75.0  # it runs once in a minute
ROUNDS = 4
CYCLE_CLIENTS = 8
CYCLE_PIPELINE = 64


@dataclass(frozen=True, slots=True)
class Held:
    """What ``jobs`` jobs take of a process: its resident bytes without them, with them, and when
    they were done with (None: that was not tried)."""

    who: str
    jobs: int
    empty: int
    full: int
    emptied: int | None = None

    @property
    def per_job(self) -> float:
        """Resident bytes that one job adds."""
        return (self.full - self.empty) / self.jobs

    @property
    def kept(self) -> float | None:
        """Which part of that the process kept afterwards."""
        if self.emptied is None:
            return None
        return (self.emptied - self.empty) / (self.full - self.empty)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did to those who wait."""

    what: str
    jobs: int
    stops: Stops


@dataclass(frozen=True, slots=True)
class Growth:
    """Resident bytes after each round of ``lives`` jobs and ``clients`` clients that came and
    went, the first one left out, in which the process takes what it needs for good."""

    lives: int
    clients: int
    rss: Sequence[int]

    @property
    def per_round(self) -> float:
        """Bytes that a round adds."""
        return (self.rss[-1] - self.rss[0]) / (len(self.rss) - 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: ``jobs`` of the node alone, ``copies`` of a cluster of two, each a list of
    numbers of jobs; ``stops`` is the number of jobs of the steps, ``lives`` that of a round."""

    command: Sequence[str]
    jobs: Sequence[int]
    copies: Sequence[int]
    stops: int
    lives: int
    size: int
    say: Callable[[str], None]


def alone(plan: Plan) -> list[Held]:
    """Nodes that are alone, one for each number of jobs."""
    found = []
    for jobs in plan.jobs:
        plan.say(f"{jobs:,} jobs in a node")
        with disque_server(command=plan.command) as server:
            filler = Filler(server, plan.size)
            dialect = Copied(plan.size, QUEUE, 1, False)
            _warm(filler, dialect)
            empty = server.rss_bytes()
            keeps = jobs <= plan.stops  # the ids of many millions would take as much here
            filler.add(jobs, dialect, keep=keeps)
            full = server.rss_bytes()
            filler.end(b"ACKJOB", 1)
            emptied = filler.settled_rss() if keeps else None
            found.append(Held("node alone", jobs, empty, full, emptied))
    return found


def _warm(filler: Filler, dialect: Copied) -> None:
    filler.command(b"CONFIG", b"SET", b"maxmemory", b"0")
    filler.add(SPARE, dialect, keep=True)
    filler.end(b"ACKJOB", 1)


def redis(plan: Plan) -> list[Held]:
    """Redis with as many jobs as the steps have."""
    found = []
    for who, dialect in (("Redis list", Redis(plan.size)), ("Redis stream", Stream(plan.size))):
        plan.say(f"{plan.stops:,} jobs in a {who}")
        with redis_server() as server:
            filler = Filler(server, plan.size)
            filler.add(SPARE, dialect)
            empty = server.rss_bytes()
            filler.add(plan.stops, dialect)
            full = server.rss_bytes()
            filler.command(b"DEL", QUEUE, b"stream")
            found.append(Held(who, plan.stops, empty, full, filler.settled_rss()))
    return found


def copied(plan: Plan) -> tuple[list[Held], list[Step]]:
    """Clusters of two nodes that both hold each job, and how long the nodes stopped."""
    found: list[Held] = []
    steps: list[Step] = []
    for jobs in plan.copies:
        plan.say(f"{jobs:,} jobs in each of two nodes")
        with watches(2) as seen, _pair(plan, seen) as nodes:
            fillers = [Filler(server, plan.size) for server in nodes.servers]
            fillers[1].command(b"CONFIG", b"SET", b"maxmemory", b"0")
            dialect = Copied(plan.size, QUEUE, 2, False)
            _warm(fillers[0], dialect)
            nodes.settle(0)
            empty = _rss(nodes)
            keeps = jobs <= plan.stops
            _reset(seen)
            fillers[0].add(jobs, dialect, keep=keeps)
            nodes.settle(2 * jobs)
            steps += _both("ADDJOB with a copy", jobs, seen)
            full = _rss(nodes)
            emptied: list[int | None] = [None, None]
            if keeps:
                _reset(seen)
                fillers[0].end(b"ACKJOB", 1)
                nodes.settle(0)
                steps += _both("ACKJOB", jobs, seen)
                emptied = [filler.settled_rss() for filler in fillers]
            for number, who in enumerate(("node with a replica", "the replica")):
                found.append(Held(who, jobs, empty[number], full[number], emptied[number]))
    return found, steps


@contextmanager
def _pair(plan: Plan, seen: Sequence[Watch]) -> Iterator[Fleet]:
    with ExitStack() as stack:
        servers = [
            stack.enter_context(disque_server(f"node-{n}", watch.command(plan.command), NODE_CPUS))
            for n, watch in enumerate(seen)
        ]
        controls = [
            stack.enter_context(socket.create_connection((HOST, server.port), 60.0))
            for server in servers
        ]
        nodes = Fleet(servers, controls)
        nodes.join()
        yield nodes


def _rss(nodes: Fleet) -> list[int]:
    return [server.rss_bytes() for server in nodes.servers]


def _reset(seen: Iterable[Watch]) -> None:
    for watch in seen:
        watch.reset()


def _both(what: str, jobs: int, seen: Sequence[Watch]) -> list[Step]:
    who = ("first of two nodes", "replica")
    return [Step(f"{what}: {who[n]}", jobs, watch.read()) for n, watch in enumerate(seen)]


def steps(plan: Plan) -> list[Step]:
    """One node that gets many jobs and frees them, each time in another way."""
    found: list[Step] = []
    jobs = plan.stops
    with watches(1) as (watch,), disque_server(command=watch.command(plan.command)) as server:
        filler = Filler(server, plan.size)
        plain = Copied(plan.size, QUEUE, 1, False)
        _warm(filler, plain)
        with pinger(server.port) as pings:

            def step(what: str, work: Callable[[], None]) -> None:
                plan.say(what)
                pings.longest()
                watch.reset()
                work()
                found.append(Step(what, jobs, watch.read(pings.longest())))

            def add(dialect: Copied | Timed = plain) -> None:
                filler.add(jobs, dialect, keep=True)

            step("ADDJOB", add)
            step("ACKJOB, one id each", lambda: filler.end(b"ACKJOB", 1))
            for word in (b"ACKJOB", b"FASTACK", b"DELJOB"):
                add()
                step(f"{word.decode()}, {MANY:,} ids each", partial(filler.end, word, MANY))
            add()
            filler.ids.clear()
            step("DEBUG FLUSHALL", lambda: _flush(filler))
            later = b"%d" % LATER
            filler.add(jobs, Timed(plan.size, (b"DELAY", later)))
            step("all become due", lambda: filler.wait(lambda: filler.queued() == jobs))
            _flush(filler)
            filler.add(jobs, Timed(plan.size, (b"TTL", later)))
            step("all expire", lambda: filler.wait(lambda: filler.held() == 0))
            filler.add(COLLECTED_JOBS, plain)
            step("the collector runs", lambda: _collection(watch))
    return found


def _flush(filler: Filler) -> None:
    filler.command(b"DEBUG", b"FLUSHALL")
    filler.settled_rss()  # what is freed later is part of it


def _collection(watch: Watch) -> None:
    deadline = time.monotonic() + COLLECT_SECONDS
    while watch.read().collections == 0 and time.monotonic() < deadline:
        time.sleep(1.0)


def growth(plan: Plan) -> Growth:
    """One node through which jobs and clients go."""
    rss = []
    clients = max(1, plan.lives // 100)
    with disque_server(command=plan.command) as server:
        bench = Bench(server, plan.size)
        for number in range(ROUNDS):
            plan.say(f"{plan.lives:,} jobs and {clients:,} clients come and go, round {number + 1}")
            bench.cycles(Setting(number, CYCLE_PIPELINE, CYCLE_CLIENTS), plan.lives)
            for _ in range(0, clients, 100):
                with connections(server.port, 100):
                    pass
            rss.append(server.rss_bytes())
    return Growth(plan.lives, clients, rss[1:])
