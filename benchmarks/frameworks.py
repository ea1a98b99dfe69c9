"""The cost of a message in a framework: Dramatiq on Disque and on Redis.

One program sends messages one after the other; then another runs them in a worker with Dramatiq's
default number of threads and an empty actor. Ratios compare measurements next to each other in
time; the table shows the median of the rounds, and the range.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from tools.bench.cli import Findings, grouped, middle, option, ratio, say, table, words
from tools.bench.servers import (
    DISQUE_COMMAND,
    HOST,
    Server,
    ServerError,
    disque_server,
    redis_server,
)

PAGE = "../packages/integrations/docs/dramatiq.md"
SECTION = "frameworks"
BASE = "RedisBroker"
BROKERS = {"disque": "DisqueBroker", "redis": BASE}
PARTS = ("send", "work")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much."""

    rounds: int = option(5, "how often everything is measured", quick=1)
    messages: int = option(10_000, "a measurement", quick=200)
    threads: int = option(8, "threads of the worker")
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: ``rate`` in messages per second; ``program`` and ``cpu``: CPU µs of the
    program and the server per message."""

    way: str
    part: str
    rate: float
    program: float
    cpu: float


def run(plan: Plan) -> Findings:
    """Measures both brokers in turn."""
    samples: list[Sample] = []
    with ExitStack() as stack:
        node = stack.enter_context(disque_server(command=plan.server))
        servers = [node, stack.enter_context(redis_server())]
        for number in range(plan.rounds):
            say(f"round {number + 1}")
            # Alternate the order, so that neither always follows the other.
            for server in servers if number % 2 else reversed(servers):
                samples += _measure(plan, server)
    return Findings("\n\n".join(report(samples, part) for part in PARTS), samples)


def _measure(plan: Plan, server: Server) -> Iterator[Sample]:
    for part in PARTS:
        before = server.cpu_seconds()
        options = [part, f"{server.kind}://{HOST}:{server.port}", plan.messages, plan.threads]
        command = [sys.executable, "-m", "benchmarks.dramatiq_load", *map(str, options)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ServerError(f"{part} failed: {done.stderr[-2000:]}")
        seconds, program = json.loads(done.stdout)
        cpu = server.cpu_seconds() - before
        each = 1e6 / plan.messages
        way = BROKERS[server.kind]
        yield Sample(way, part, plan.messages / seconds, program * each, cpu * each)


def report(samples: list[Sample], part: str) -> str:
    """The table for one part."""
    by_way = grouped([one for one in samples if one.part == part], lambda sample: sample.way)
    base = by_way[BASE]
    rows = [
        [
            way,
            middle(some, lambda sample: sample.rate),
            *ratio(some, base, lambda sample: sample.rate),
            middle(some, lambda sample: sample.program, 1),
            *ratio(some, base, lambda sample: sample.program),
            middle(some, lambda sample: sample.cpu, 1),
            *ratio(some, base, lambda sample: sample.cpu),
        ]
        for way, some in by_way.items()
    ]
    titles = [part, "messages/s", "ratio", "(range)"]
    titles += ["program CPU us a message", "ratio", "(range)"]
    titles += ["server CPU us a message", "ratio", "(range)"]
    return table(titles, rows)
