"""Memory per job, and how long a node stops serving clients.

A node is filled with jobs of 100 bytes and its resident memory is read, alone and in a cluster of
two where each job has a copy; Redis holds as many for comparison. Then a million jobs are added and
removed in several ways, while the node is watched from outside (a client that sends PINGs
continuously) and from inside (how long its loop is busy between two looks at its sockets).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from tools.bench.cli import Findings, option, say, size, table, words
from tools.bench.dialects import QUEUE, Dialect, RedisList, RedisStream, copied, timed
from tools.bench.filler import SPARE, Filler
from tools.bench.load import connections
from tools.bench.measure import Bench, Setting
from tools.bench.nodes import Cluster, cluster
from tools.bench.scripts import SERIAL_DIGITS
from tools.bench.servers import DISQUE_COMMAND, WITH_DEBUG, disque_server, redis_server
from tools.bench.stops import Stops, Watch, pinger, watches

PAGE = "performance-tables.md"
SECTION = "memory of jobs"
PARTS = ("held", "stops", "growth")
MB = 1_000_000
MANY = 1_000  # ids per command
LATER = 15  # s until jobs expire or are due, enough to add them all
LATE = "it does not finish"
COLLECTED_JOBS = 10_000  # the collector only runs with up to this many jobs
COLLECT_SECONDS = 75.0  # it runs once a minute
ROUNDS = 4
CYCLE_CLIENTS = 8
CYCLE_PIPELINE = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure; all but ``size`` are numbers of jobs."""

    parts: tuple[str, ...] = option(PARTS, "what", choices=PARTS)
    jobs: tuple[int, ...] = option(
        (1_000_000, 10_000_000), "jobs in a single node", quick=(2_000, 5_000)
    )
    copies: tuple[int, ...] = option((1_000_000,), "jobs in a cluster of two", quick=(2_000,))
    stops: int = option(1_000_000, "jobs added and freed at a time", quick=5_000)
    lives: int = option(500_000, "jobs per round of the growth test", quick=2_000)
    size: int = option(100, "bytes of a job's body", parse=size(SERIAL_DIGITS))
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Held:
    """The memory of ``jobs`` jobs: resident bytes of the process without them, with them, and after
    them (None if not tried)."""

    who: str
    jobs: int
    empty: int
    full: int
    emptied: int | None = None

    @property
    def per_job(self) -> float:
        """Resident bytes per job."""
        return (self.full - self.empty) / self.jobs

    @property
    def kept(self) -> float | None:
        """The fraction that the process kept afterwards."""
        if self.emptied is None:
            return None
        return (self.emptied - self.empty) / (self.full - self.empty)


@dataclass(frozen=True, slots=True)
class Step:
    """How long one step made others wait."""

    what: str
    jobs: int
    stops: Stops


@dataclass(frozen=True, slots=True)
class Growth:
    """Resident bytes after each round in which ``lives`` jobs and ``clients`` clients come and go,
    except the first, in which the process allocates its permanent memory."""

    lives: int
    clients: int
    rss: Sequence[int]

    @property
    def per_round(self) -> float:
        """Bytes that each round adds."""
        return (self.rss[-1] - self.rss[0]) / (len(self.rss) - 1)


def run(plan: Plan) -> Findings:
    """Measures all parts."""
    texts: list[str] = []
    samples: list[Held | Step | Growth] = []
    clusters: list[Step] = []
    if "held" in plan.parts:
        copies, clusters = in_cluster(plan)
        held = [*alone(plan), *copies, *in_redis(plan)]
        samples += held
        texts.append(held_table(held))
    if "stops" in plan.parts:
        steps = [*in_steps(plan), *clusters]
        samples += steps
        texts.append(steps_table(steps))
    if "growth" in plan.parts:
        grown = growth(plan)
        samples.append(grown)
        texts.append(growth_text(grown))
    return Findings("\n\n".join(texts), samples)


# ---- what is held ----------------------------------------------------------------------------


def alone(plan: Plan) -> list[Held]:
    """Single nodes, one for each number of jobs."""
    found = []
    for jobs in plan.jobs:
        say(f"{jobs:,} jobs in a node")
        with disque_server(command=plan.server) as server:
            filler = Filler(server, plan.size)
            dialect = copied(plan.size, QUEUE, 1, False)
            filler.warm(dialect)
            empty = server.rss_bytes()
            keeps = jobs <= plan.stops  # many millions of ids would take as much memory here
            filler.add(jobs, dialect, keep=keeps)
            full = server.rss_bytes()
            filler.end(b"ACKJOB", 1)
            emptied = filler.settled_rss() if keeps else None
            found.append(Held("node alone", jobs, empty, full, emptied))
    return found


def in_redis(plan: Plan) -> list[Held]:
    """Redis with as many jobs as in the steps."""
    found = []
    dialects = (RedisList(plan.size), RedisStream(plan.size))
    for who, dialect in zip(("Redis list", "Redis stream"), dialects, strict=True):
        say(f"{plan.stops:,} jobs in a {who}")
        with redis_server() as server:
            filler = Filler(server, plan.size)
            filler.add(SPARE, dialect)
            empty = server.rss_bytes()
            filler.add(plan.stops, dialect)
            full = server.rss_bytes()
            filler.command(b"DEL", QUEUE)
            found.append(Held(who, plan.stops, empty, full, filler.settled_rss()))
    return found


def in_cluster(plan: Plan) -> tuple[list[Held], list[Step]]:
    """Clusters of two nodes that both hold each job, and how long the nodes stopped."""
    found: list[Held] = []
    steps: list[Step] = []
    for jobs in plan.copies:
        say(f"{jobs:,} jobs in each of two nodes")
        with ExitStack() as stack:
            seen = stack.enter_context(watches(2))
            commands = [watch.command(plan.server) for watch in seen]
            nodes = stack.enter_context(cluster(commands))
            fillers = [Filler(server, plan.size) for server in nodes.servers]
            fillers[1].command(b"CONFIG", b"SET", b"maxmemory", b"0")
            dialect = copied(plan.size, QUEUE, 2, False)
            fillers[0].warm(dialect)
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


def _rss(nodes: Cluster) -> list[int]:
    return [server.rss_bytes() for server in nodes.servers]


def _reset(seen: Iterable[Watch]) -> None:
    for watch in seen:
        watch.reset()


def _both(what: str, jobs: int, seen: Sequence[Watch]) -> list[Step]:
    who = ("first of two nodes", "replica")
    return [Step(f"{what}: {who[n]}", jobs, watch.read()) for n, watch in enumerate(seen)]


# ---- stops, and growth -----------------------------------------------------------------------


def in_steps(plan: Plan) -> list[Step]:
    """One node that gets many jobs and frees them in different ways."""
    found: list[Step] = []
    jobs = plan.stops
    command = (*plan.server, *WITH_DEBUG)
    with watches(1) as (watch,), disque_server(command=watch.command(command)) as server:
        filler = Filler(server, plan.size)
        plain = copied(plan.size, QUEUE, 1, False)
        filler.warm(plain)
        with pinger(server.port) as pings:
            pings.ask()  # it is connected

            def step(what: str, work: Callable[[], None]) -> None:
                say(what)
                pings.ask()
                watch.reset()
                work()
                found.append(Step(what, jobs, watch.read(pings.ask())))

            def add(dialect: Dialect = plain) -> None:
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
            filler.add(jobs, timed(plan.size, b"DELAY", later))
            step("all become due", lambda: server.wait(lambda: filler.queued() == jobs, LATE))
            _flush(filler)
            filler.add(jobs, timed(plan.size, b"TTL", later))
            step("all expire", lambda: server.wait(lambda: filler.held() == 0, LATE))
            filler.add(COLLECTED_JOBS, plain)
            step("the collector runs", lambda: _collection(watch))
    return found


def _flush(filler: Filler) -> None:
    filler.command(b"DEBUG", b"FLUSHALL")
    filler.settled_rss()  # includes memory that is freed later


def _collection(watch: Watch) -> None:
    deadline = time.monotonic() + COLLECT_SECONDS
    while watch.read().collections == 0 and time.monotonic() < deadline:
        time.sleep(1.0)


def growth(plan: Plan) -> Growth:
    """One node through which jobs and clients go."""
    rss = []
    clients = max(1, plan.lives // 100)
    with disque_server(command=plan.server) as server:
        bench = Bench(server, plan.size)
        for number in range(ROUNDS):
            say(f"{plan.lives:,} jobs and {clients:,} clients come and go, round {number + 1}")
            bench.cycles(Setting(number, CYCLE_PIPELINE, CYCLE_CLIENTS), plan.lives)
            for _ in range(0, clients, 100):
                with connections(server.port, 100):
                    pass
            rss.append(server.rss_bytes())
    return Growth(plan.lives, clients, rss[1:])


# ---- tables ----------------------------------------------------------------------------------


def held_table(found: Sequence[Held]) -> str:
    """The memory of jobs."""
    titles = ["who", "jobs", "bytes a job", "MB before", "MB with them", "MB after", "kept"]
    rows = []
    for held in found:
        emptied, kept = held.emptied, held.kept
        row = [held.who, f"{held.jobs:,}", f"**{held.per_job:,.0f}**"]
        row += [f"{held.empty / MB:,.0f}", f"{held.full / MB:,.0f}"]
        row.append("" if emptied is None else f"{emptied / MB:,.0f}")
        row.append("" if kept is None else f"{kept:.0%}")
        rows.append(row)
    return table(titles, rows)


def steps_table(found: Sequence[Step]) -> str:
    """How long the node stopped."""
    titles = ["step", "jobs", "longest wait of a PING, ms", "longest turn, ms", "its CPU time, ms"]
    titles += ["collections", "longest, ms", "objects freed by them"]
    rows = []
    for step in found:
        stops = step.stops
        row = [step.what, f"{step.jobs:,}", f"{stops.gap:.1f}" if stops.gap else ""]
        row += [f"{stops.wall:.1f}", f"**{stops.cpu:.1f}**", str(stops.collections)]
        row += [f"{stops.collector:.1f}", str(stops.freed)] if stops.collections else ["", ""]
        rows.append(row)
    return table(titles, rows)


def growth_text(grown: Growth) -> str:
    """The memory that remains after many jobs and clients."""
    sizes = ", ".join(f"{size / MB:.1f}" for size in grown.rss)
    return (
        f"{grown.lives:,} jobs and {grown.clients:,} clients come and go in each round, and after"
        f" the rounds the process has {sizes} MB: {grown.per_round / 1000:+,.0f} kB a round."
    )
