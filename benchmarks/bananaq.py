"""The cost of bananaq and Redis Streams: an event is added, taken by a group, and acknowledged.

Three servers do the same in turn: Redis with XADD, XREADGROUP and XACK; bananaq with its own store;
and bananaq on top of that Redis. All have an append-only file that is synced every second. They
share a CPU; the generator has the others. Ratios compare measurements next to each other in time;
the tables show the median of the rounds and the range in brackets. Acknowledged events stay in
their queue and stream, as they would for other groups. Scenarios: rates; held, the cost with
growing numbers of events held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count

from tools.bench import load
from tools.bench.cli import Findings, grouped, middle, option, ratio, say, size, table, words
from tools.bench.dialects import GROUP, Bananaq, Dialect, RedisStream, encode
from tools.bench.load import Script, ask_once, connections, percentile
from tools.bench.scripts import SERIAL_DIGITS, add_batches, bodies, consume, portions, send
from tools.bench.servers import BANANAQ_COMMAND, Server, bananaq_server, redis_server

PAGE = "../packages/bananaq/docs/bananaq.md"
SECTION = "bananaq {scenario}"
PRELOAD = 64  # events added at a time before a measurement
STREAMS, EMBEDDED, REDIS = "Redis Streams", "bananaq, embedded", "bananaq, redis"
STEPS = ("QADD", "QGET+QACK")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much."""

    scenario: str = option("rates", "what", choices=("rates", "held"))
    rounds: int = option(3, "how often everything is measured", quick=1)
    events: int = option(40_000, "events in a measurement, if pipelined", quick=640)
    consumers: tuple[int, ...] = option((1, 10, 100), "numbers of connections", quick=(1, 10))
    pipelines: tuple[int, ...] = option((1, 16), "pipeline depths")
    held: tuple[int, ...] = option(
        (1_000, 10_000, 100_000, 1_000_000), "events held", quick=(1_000, 2_000)
    )
    size: int = option(100, "bytes of an event's contents", parse=size(SERIAL_DIGITS))
    server: tuple[str, ...] = option(BANANAQ_COMMAND, "the command of bananaq", parse=words)


@dataclass(frozen=True, slots=True)
class Subject:
    """A system to measure. servers: those whose CPU time counts; the first gets the requests."""

    name: str
    servers: tuple[Server, ...]

    def cpu(self) -> float:
        """CPU seconds so far."""
        return sum(server.cpu_seconds() for server in self.servers)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of one step; rates are in commands per second."""

    subject: str
    step: str
    consumers: int
    pipeline: int
    held: int
    rate: float
    p99: float
    cpu_per_100k: float


def run(plan: Plan) -> Findings:
    """Runs the scenario."""
    samples: list[Sample] = []
    levels = plan.held if plan.scenario == "held" else (0,)
    settings = (
        [(16, 10)]
        if plan.scenario == "held"
        else [(pipeline, consumers) for pipeline in plan.pipelines for consumers in plan.consumers]
    )
    with ExitStack() as stack:
        subjects = _subjects(stack, plan.server)
        for number in range(plan.rounds):
            for held in levels:
                for pipeline, consumers in settings:
                    say(f"round {number + 1}: {consumers} consumers, by {pipeline}, {held:,} held")
                    events = plan.events if pipeline > 1 else plan.events // 4
                    for subject in subjects:
                        samples += measure(subject, consumers, pipeline, events, plan.size, held)
    text = held_table(samples) if plan.scenario == "held" else rates_table(samples)
    return Findings(text, samples)


def _subjects(stack: ExitStack, command: Sequence[str]) -> list[Subject]:
    redis = stack.enter_context(redis_server(appendonly="yes"))
    embedded = stack.enter_context(bananaq_server("embedded", command))
    over = ("--store", "redis", "--redis-addr", f"127.0.0.1:{redis.port}")
    remote = stack.enter_context(bananaq_server("over-redis", command, over))
    return [
        Subject(STREAMS, (redis,)),
        Subject(EMBEDDED, (embedded,)),
        Subject(REDIS, (remote, redis)),
    ]


def measure(
    subject: Subject, consumers: int, pipeline: int, events: int, size: int, held: int = 0
) -> Iterator[Sample]:
    """Add ``events`` events on top of ``held`` others, then take and acknowledge as many."""
    queue = b"bench:%d" % next(_numbers)
    new = bodies(size)
    port = subject.servers[0].port
    words: Dialect = Bananaq(queue)
    if subject.name == STREAMS:
        words = RedisStream(size, kept=True, queue=queue)
        ask_once(port, encode(b"XGROUP", b"CREATE", queue, GROUP, b"0", b"MKSTREAM"))
    with connections(port, consumers) as socks:
        load.run(socks[:1], [send(add_batches(words, new, held, PRELOAD))])
        adds = iter(add_batches(words, new, events, pipeline))
        counts = portions(events, pipeline)
        scripts: tuple[Callable[[int], Script], ...] = (
            lambda worker: send(adds),
            lambda worker: consume(words, worker, counts),
        )
        for step, script in zip(STEPS, scripts, strict=True):
            before = subject.cpu()
            done = load.run(socks, [script(worker) for worker in range(consumers)])
            cpu = subject.cpu() - before
            setting = (subject.name, step, consumers, pipeline, held)
            rate, p99 = done.commands / done.seconds, percentile(done.latencies, 0.99)
            yield Sample(*setting, rate, p99, cpu * 100_000 / done.commands)


_numbers = count()


def rates_table(samples: Sequence[Sample]) -> str:
    """A row for each step, setting and server."""
    titles = ("", "consumers", "pipelined by", "commands/s", "rate beside Streams", "p99 ms")
    rows: list[list[str]] = []
    cells = grouped(samples, lambda s: (STEPS.index(s.step), s.pipeline, s.consumers))
    for (step, pipeline, consumers), cell in sorted(cells.items()):
        by_subject = grouped(cell, lambda s: s.subject)
        base = by_subject[STREAMS]
        for name, here in by_subject.items():
            row = [f"{STEPS[step]}, {name}", str(consumers), str(pipeline)]
            row += [middle(here, lambda s: s.rate), _ratio(here, base, lambda s: s.rate)]
            row += [middle(here, lambda s: s.p99 * 1000, 2), middle(here, _cost, 2)]
            rows.append([*row, _ratio(here, base, _cost)])
    return table((*titles, "CPU s/100k", "CPU beside Streams"), rows)


def held_table(samples: Sequence[Sample]) -> str:
    """The cost with growing numbers of events held."""
    rows: list[list[str]] = []
    levels = list(dict.fromkeys(sample.held for sample in samples))
    for (step, name), found in sorted(
        grouped(samples, lambda s: (s.step, s.subject)).items(), key=lambda item: item[0][0]
    ):
        by_level = grouped(found, lambda s: s.held)
        first = by_level[levels[0]]
        cells = [_ratio(by_level[level], first, _cost) for level in levels]
        rows.append([f"{step}, {name}", *cells])
    titles = (f"CPU beside that with {levels[0]:,} held", *(f"{n:,}" for n in levels))
    return table(titles, rows)


def _cost(sample: Sample) -> float:
    return sample.cpu_per_100k


def _ratio(a: Sequence[Sample], b: Sequence[Sample], value: Callable[[Sample], float]) -> str:
    if [*map(value, a)] == [*map(value, b)]:
        return "1.00"
    found, span = ratio(a, b, value)
    return f"{found} ({span})"
