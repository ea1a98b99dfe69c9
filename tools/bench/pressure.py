"""What a queue of pressure costs beside a bare list of the same Redis.

    python -m tools.bench.pressure [--rounds N] [--elements N] [--size BYTES] [--write-docs]

One process produces, another consumes, for each kind of queue in turn: a bare list (LPUSH and
BRPOP, which is not bounded, not exclusive and cannot be closed) and queues of pressure with several
bounds. All use the same client library on the same server in the same run: its connections, as
pressure does, and for one row its client, as programs do. Shown are the medians of the rounds; the
ratio is the median of the ratios to the bare list of the same round.

Both clients share what CPUs the server leaves (`servers.GENERATOR_CPUS`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any

import trio

from disque_trio.pressure import PressureQueue
from disque_trio.pressure.settings import connect, resolve
from disque_trio.pressure.tasks import background
from disque_trio.redis_link import Link, opener
from tools.bench import report
from tools.bench.load import percentile
from tools.bench.servers import GENERATOR_CPUS, Server, ServerError, redis_server

DOCS = Path(__file__).resolve().parents[2] / "docs" / "pressure.md"
MANY = 100
"""Elements of one put_many or get_many."""
MORE = 20
"""How many times more elements when they go by the hundred and there is room for them."""
NAME = "bench"
LIMIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to move elements.

    way: "list"; "client", a list by the client of the library; "queue", a role for each operation;
    "held", a role for all of them. bound: of the queue, None without. many: elements of one
    operation.
    """

    way: str
    bound: int | None
    many: int

    @property
    def title(self) -> str:
        """Its row in the table."""
        if self.way == "list":
            return "LPUSH, BRPOP" if self.many == 1 else f"LPUSH of {self.many}, BLMPOP"
        if self.way == "client":
            return "LPUSH, BRPOP, by coredis.Redis"
        if self.many == 1:
            return "put, get" + (", roles held" if self.way == "held" else "")
        return f"put_many, get_many of {self.many}"


KINDS = [
    Kind("list", None, 1),
    Kind("client", None, 1),
    *(Kind("queue", bound, 1) for bound in (1, 100, None)),
    *(Kind("held", bound, 1) for bound in (1, 100, None)),
    Kind("list", None, MANY),
    *(Kind("queue", bound, MANY) for bound in (1, 100, 1000, None)),
]


@dataclass(frozen=True, slots=True)
class Sample:
    """A kind measured once. Times in seconds; put99 and get99 are of one operation."""

    kind: Kind
    elements: int
    seconds: float
    server_cpu: float
    client_cpu: float
    put99: float
    get99: float

    @property
    def rate(self) -> float:
        """Elements that came through in a second."""
        return self.elements / self.seconds


def main(arguments: Sequence[str]) -> int:
    """Measures and prints. Returns the exit status."""
    if arguments and arguments[0] == "client":
        return _client(json.loads(arguments[1]))
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.pressure", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--elements", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of an element")
    parser.add_argument("--write-docs", action="store_true", help=f"into docs/{DOCS.name}")
    options = parser.parse_args(arguments)
    if options.write_docs:
        report.replace_section(DOCS.read_text(), "pressure", "")  # is there a place for it?
    os.sched_setaffinity(0, GENERATOR_CPUS)
    rounds: list[list[Sample]] = []
    with redis_server() as server:
        for number in range(options.rounds):
            rounds.append([])
            for kind in KINDS:
                slow = kind.many == 1 or kind.bound == 1
                elements = options.elements * (1 if slow else MORE)
                sample = _measure(server, kind, elements, options.size)
                rounds[-1].append(sample)
                _say(f"round {number + 1}: {kind.title}, bound {kind.bound}: {sample.rate:,.0f}/s")
    heading = report.heading(arguments, report.machine(), "tools.bench.pressure")
    text = f"{heading}\n\n{_table(rounds)}"
    print(text)
    if options.write_docs:
        DOCS.write_text(report.replace_section(DOCS.read_text(), "pressure", text))
    return 0


def _table(rounds: list[list[Sample]]) -> str:
    titles = [
        "one producer, one consumer",
        "bound",
        "elements/s",
        "beside LPUSH, BRPOP",
        f"beside LPUSH of {MANY}",
    ]
    titles += ["p99 ms put / get", "CPU s/100k clients", "beside", "server"]
    rows = []
    batched = next(at for at, kind in enumerate(KINDS) if kind.way == "list" and kind.many > 1)
    for at, kind in enumerate(KINDS):
        samples = [samples[at] for samples in rounds]
        ratios = [samples[at].rate / samples[0].rate for samples in rounds]
        many = [samples[at].rate / samples[batched].rate for samples in rounds]
        per = 100_000
        costs = [
            (samples[at].client_cpu / samples[at].elements)
            / (samples[0].client_cpu / samples[0].elements)
            for samples in rounds
        ]
        rows.append(
            [
                kind.title,
                "none" if kind.bound is None else str(kind.bound),
                f"{median(s.rate for s in samples):,.0f}",
                f"**{median(ratios):.2f}** ({min(ratios):.2f}-{max(ratios):.2f})",
                f"{median(many):.2f}" if kind.many > 1 else "",
                f"{median(s.put99 for s in samples) * 1000:.2f} /"
                f" {median(s.get99 for s in samples) * 1000:.2f}",
                f"{median(s.client_cpu / s.elements for s in samples) * per:.2f}",
                f"{median(costs):.2f}",
                f"{median(s.server_cpu / s.elements for s in samples) * per:.2f}",
            ]
        )
    return report.table(titles, rows)


def _measure(server: Server, kind: Kind, elements: int, size: int) -> Sample:
    trio.run(_prepare, server.port, kind)
    job = {
        "port": server.port,
        "way": kind.way,
        "bound": kind.bound,
        "many": kind.many,
        "elements": elements,
        "size": size,
    }
    clients = [_start({**job, "role": role}) for role in ("producer", "consumer")]
    try:
        for client in clients:
            _line(client.stdout)  # it is connected
        cpu = server.cpu_seconds()
        began = time.monotonic()
        for client in clients:
            assert client.stdin is not None
            client.stdin.write(b"go\n")
            client.stdin.flush()
        producer, consumer = (_line(client.stdout) for client in clients)
        seconds = max(producer["ended"], consumer["ended"]) - began
        cpu = server.cpu_seconds() - cpu
    finally:
        for client in clients:
            client.kill()
            client.communicate()
    if consumer["elements"] != elements:
        raise ServerError(f"{consumer['elements']} of {elements} elements came through")
    return Sample(
        kind,
        elements,
        seconds,
        cpu,
        producer["cpu"] + consumer["cpu"],
        producer["p99"],
        consumer["p99"],
    )


async def _prepare(port: int, kind: Kind) -> None:
    async with connect(resolve("127.0.0.1", port)) as client:
        await client.flushdb()
        if kind.way in ("queue", "held"):
            async with PressureQueue(NAME, client=client) as queue:
                await queue.create(kind.bound)


def _start(job: dict[str, Any]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tools.bench.pressure", "client", json.dumps(job)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _line(stream: IO[bytes] | None) -> Any:
    assert stream is not None
    line = stream.readline()
    if not line:
        raise ServerError("a client ended")
    return json.loads(line)


# What the two clients do


def _client(job: dict[str, Any]) -> int:
    print(json.dumps(trio.run(_work, job)), flush=True)
    sys.stdin.read()  # the other one still works
    return 0


async def _work(job: dict[str, Any]) -> dict[str, float]:
    settings = resolve("127.0.0.1", job["port"])
    async with (
        connect(settings) as client,
        background() as nursery,
        PressureQueue(NAME, client=client) as queue,
        AsyncExitStack() as stack,
    ):
        await client.ping()
        link = Link(nursery, opener(settings, None))
        await link.command(b"PING")
        produces = job["role"] == "producer"
        print("0", flush=True)
        sys.stdin.readline()
        before = time.process_time()
        target: Any = queue
        if job["way"] == "held":
            target = await stack.enter_async_context(
                queue.producer() if produces else queue.consumer()
            )
        call = _put(job, link, client, target) if produces else _get(job, link, client, target)
        took: list[float] = []
        done = 0
        with trio.fail_after(LIMIT_SECONDS):
            while done < job["elements"]:
                start = time.perf_counter()
                done += await call()
                took.append(time.perf_counter() - start)
        return {
            "ended": time.monotonic(),
            "cpu": time.process_time() - before,
            "p99": percentile(sorted(took), 0.99),
            "elements": done,
        }


def _put(job: dict[str, Any], link: Any, client: Any, queue: Any) -> Callable[[], Awaitable[int]]:
    many: int = job["many"]
    data = [b"x" * job["size"]] * many

    async def push() -> int:
        await link.command(b"LPUSH", NAME, *data)
        return many

    async def push_by_client() -> int:
        await client.lpush(NAME, data)
        return many

    async def put() -> int:
        await queue.put(data[0])
        return 1

    async def put_many() -> int:
        await queue.put_many(data)
        return many

    if job["way"] == "client":
        return push_by_client
    return push if job["way"] == "list" else put if many == 1 else put_many


def _get(job: dict[str, Any], link: Any, client: Any, queue: Any) -> Callable[[], Awaitable[int]]:
    many: int = job["many"]

    async def pop() -> int:
        while await link.command(b"BRPOP", NAME, 1) is None:
            pass
        return 1

    async def pop_by_client() -> int:
        while await client.brpop([NAME], 1) is None:
            pass
        return 1

    async def pop_many() -> int:
        words = (b"BLMPOP", 1, 1, NAME, b"RIGHT", b"COUNT", many)
        while (found := await link.command(*words)) is None:
            pass
        return len(found[1])

    async def get() -> int:
        await queue.get()
        return 1

    async def get_many() -> int:
        return len(await queue.get_many(many))

    if job["way"] == "client":
        return pop_by_client
    if job["way"] == "list":
        return pop if many == 1 else pop_many
    return get if many == 1 else get_many


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ServerError, report.DocsError) as error:
        sys.exit(f"bench: {error}")
