"""What bananaq costs beside Redis Streams: an event added, taken by a group, and acknowledged.

    python -m tools.bench.bananaq [--rounds N] [--events N] [--server COMMAND] [--write-docs]
    python -m tools.bench.bananaq --scenario held

Three servers do the same in turn: a Redis with XADD, XREADGROUP and XACK; bananaq with its own
store; and bananaq over that Redis. All have an append-only file that is synced every second. They
share a CPU, the generator has the other ones. Ratios are those of measurements next to each other
in time; shown is the median of the rounds and, in brackets, the range. Events stay in their queue
and stream after they were acknowledged, as they would for other groups.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

from tools.bench import report
from tools.bench.load import Exchange, Load, LoadError, Script, Shape, connections, percentile, run
from tools.bench.servers import (
    BANANAQ_COMMAND,
    GENERATOR_CPUS,
    Server,
    ServerError,
    bananaq_server,
    redis_server,
)
from tools.bench.workloads import CRLF, ConstantReply, bad_reply, bodies, encode, send

DOCS = Path(__file__).resolve().parents[2] / "docs" / "bananaq.md"
GROUP = b"bench"
CONSUMERS = (1, 10, 100)
PIPELINES = (1, 16)
HELD = (1_000, 10_000, 100_000, 1_000_000)
PRELOAD = 64  # events added at a time before a measurement
STREAMS, EMBEDDED, REDIS = "Redis Streams", "bananaq, embedded", "bananaq, redis"


class Lines(Shape):
    """Replies with ``lines`` line ends each, of any length; the first begins with ``head``."""

    def __init__(self, head: bytes, lines: int) -> None:
        self.head = head
        self.lines = lines

    def complete(self, reply: bytes, count: int) -> bool:
        if not reply.startswith(self.head[: len(reply)]):
            raise bad_reply(reply)
        found = reply.count(CRLF)
        if found > self.lines * count or b"\r\n-" in reply:
            raise bad_reply(reply)
        return found == self.lines * count and reply.endswith(CRLF)


class Words:
    """How one of the servers is asked. ``queue`` is new in each measurement."""

    def __init__(self, streams: bool, queue: bytes) -> None:
        self.queue = queue
        self.acked = ConstantReply(b":1\r\n")
        self.added = Lines(b"$", 2)
        if streams:
            # One stream, in it one entry, in it id and fields.
            self.taken, self._id = Lines(b"*1\r\n*2\r\n", 13), 7
            self.take = encode(
                b"XREADGROUP", b"GROUP", GROUP, b"c", b"COUNT", b"1", b"STREAMS", queue, b">"
            )
            self.start = encode(b"XGROUP", b"CREATE", queue, GROUP, b"0", b"MKSTREAM")
        else:
            self.taken, self._id = Lines(b"*2\r\n$", 5), 2
            self.take = encode(b"QGET", queue, GROUP, b"EX", b"600")
            self.start = encode(b"PING")
        self._streams = streams

    def add(self, body: bytes) -> bytes:
        if self._streams:
            return encode(b"XADD", self.queue, b"*", b"f", body)
        return encode(b"QADD", self.queue, b"3600", body)

    def ack(self, id: bytes) -> bytes:
        return encode(b"XACK" if self._streams else b"QACK", self.queue, GROUP, id)

    def ids(self, replies: bytes) -> list[bytes]:
        return replies.split(CRLF)[self._id : -1 : self.taken.lines]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured. servers: all whose CPU counts, the first is the one that is asked."""

    name: str
    servers: tuple[Server, ...]

    def cpu(self) -> float:
        """CPU seconds so far."""
        return sum(server.cpu_seconds() for server in self.servers)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of one step: rates are commands a second."""

    subject: str
    step: str
    consumers: int
    pipeline: int
    held: int
    rate: float
    p99: float
    cpu_per_100k: float


def measure(
    subject: Subject, consumers: int, pipeline: int, events: int, size: int, held: int = 0
) -> Iterator[Sample]:
    """Add ``events`` events beside ``held`` others, then take and acknowledge as many."""
    words = Words(subject.name == STREAMS, b"bench:%d" % next(_numbers))
    new = bodies(size)
    with connections(subject.servers[0].port, consumers) as socks:
        run(socks[:1], [send([Exchange(words.start, Lines(b"+", 1), 1)])])
        run(socks[:1], [send(_adds(words, new, held, PRELOAD))])
        steps: dict[str, Callable[[], Script]] = {}
        adds = iter(_adds(words, new, events, pipeline))
        turns = iter([pipeline] * (events // pipeline))
        steps["QADD"] = lambda: send(adds)
        steps["QGET+QACK"] = lambda: _consume(words, turns)
        for step, script in steps.items():
            before = subject.cpu()
            load = run(socks, [script() for _ in socks])
            yield _sample(subject, step, consumers, pipeline, held, load, subject.cpu() - before)


_numbers = count()


def _adds(words: Words, new: Iterator[bytes], events: int, pipeline: int) -> list[Exchange]:
    return [
        Exchange(b"".join([words.add(next(new)) for _ in range(pipeline)]), words.added, pipeline)
        for _ in range(events // pipeline)
    ]


def _consume(words: Words, turns: Iterable[int]) -> Script:
    """While there are turns takes as many events as each says, and acknowledges them."""
    for number in turns:
        replies = yield Exchange(words.take * number, words.taken, number)
        acks = b"".join([words.ack(id) for id in words.ids(replies)])
        yield Exchange(acks, words.acked, number)


def _sample(
    subject: Subject,
    step: str,
    consumers: int,
    pipeline: int,
    held: int,
    load: Load,
    cpu: float,
) -> Sample:
    return Sample(
        subject.name,
        step,
        consumers,
        pipeline,
        held,
        load.commands / load.seconds,
        percentile(load.latencies, 0.99),
        cpu * 100_000 / load.commands,
    )


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


def rates(command: Sequence[str], rounds: int, events: int, size: int) -> str:
    """The table of rates."""
    samples: list[Sample] = []
    with ExitStack() as stack:
        subjects = _subjects(stack, command)
        for number in range(rounds):
            for pipeline in PIPELINES:
                for consumers in CONSUMERS:
                    _say(f"round {number + 1}: {consumers} consumers, pipelined by {pipeline}")
                    wanted = events if pipeline > 1 else events // 4
                    for subject in subjects:
                        samples += measure(subject, consumers, pipeline, wanted, size)
    titles = ("", "consumers", "pipelined by", "commands/s", "rate beside Streams", "p99 ms")
    rows: list[list[str]] = []
    for step in ("QADD", "QGET+QACK"):
        for pipeline in PIPELINES:
            for consumers in CONSUMERS:
                for name in (STREAMS, EMBEDDED, REDIS):
                    here = _of(samples, name, step, consumers, pipeline)
                    base = _of(samples, STREAMS, step, consumers, pipeline)
                    rows.append(
                        [
                            f"{step}, {name}",
                            str(consumers),
                            str(pipeline),
                            f"{median(s.rate for s in here):,.0f}",
                            _ratio([a.rate / b.rate for a, b in zip(here, base, strict=True)]),
                            f"{median(s.p99 for s in here) * 1000:.2f}",
                            f"{median(s.cpu_per_100k for s in here):.2f}",
                            _ratio(
                                [
                                    a.cpu_per_100k / b.cpu_per_100k
                                    for a, b in zip(here, base, strict=True)
                                ]
                            ),
                        ]
                    )
    return report.table((*titles, "CPU s/100k", "CPU beside Streams"), rows)


def held(command: Sequence[str], rounds: int, events: int, size: int) -> str:
    """The table of what it costs with more and more events held."""
    samples: list[Sample] = []
    with ExitStack() as stack:
        subjects = _subjects(stack, command)
        for number in range(rounds):
            for level in HELD:
                _say(f"round {number + 1}: {level:,} events held")
                for subject in subjects:
                    samples += measure(subject, 10, 16, events, size, level)
    rows: list[list[str]] = []
    for step in ("QADD", "QGET+QACK"):
        for name in (STREAMS, EMBEDDED, REDIS):
            by_level = [
                [s for s in samples if (s.subject, s.step, s.held) == (name, step, level)]
                for level in HELD
            ]
            first = by_level[0]
            cells = [
                _ratio([a.cpu_per_100k / b.cpu_per_100k for a, b in zip(here, first, strict=True)])
                for here in by_level
            ]
            rows.append([f"{step}, {name}", *cells])
    return report.table(("CPU beside that with 1,000 held", *(f"{n:,}" for n in HELD)), rows)


def _of(samples: Sequence[Sample], name: str, step: str, consumers: int, pipe: int) -> list[Sample]:
    wanted = (name, step, consumers, pipe)
    return [s for s in samples if (s.subject, s.step, s.consumers, s.pipeline) == wanted]


def _ratio(values: Sequence[float]) -> str:
    if all(value == 1 for value in values):
        return "1.00"
    return f"**{median(values):.2f}** ({min(values):.2f}-{max(values):.2f})"


def main(arguments: Sequence[str]) -> int:
    """Runs the benchmark. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.bananaq",
        description="What bananaq costs beside Redis Streams.",
    )
    parser.add_argument("--scenario", choices=("rates", "held"), default="rates")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=40_000, help="a measurement, if pipelined")
    parser.add_argument("--size", type=int, default=100, help="bytes of an event's contents")
    parser.add_argument(
        "--server",
        default=shlex.join(BANANAQ_COMMAND),
        metavar="COMMAND",
        help="the command that starts bananaq",
    )
    parser.add_argument("--write-docs", action="store_true", help="into docs/bananaq.md")
    options = parser.parse_args(arguments)
    section = f"bananaq {options.scenario}"
    if options.write_docs:
        report.replace_section(DOCS.read_text(), section, "")  # is there a place for the table?
    os.sched_setaffinity(0, GENERATOR_CPUS)
    table = rates if options.scenario == "rates" else held
    body = table(shlex.split(options.server), options.rounds, options.events, options.size)
    heading = report.heading(arguments, report.machine(), "tools.bench.bananaq")
    text = f"{heading}\n\n{body}"
    print(text)
    if options.write_docs:
        DOCS.write_text(report.replace_section(DOCS.read_text(), section, text))
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ServerError, LoadError, report.DocsError) as error:
        sys.exit(f"bench: {error}")
