"""The cost of a pressure queue, compared with a bare list in the same Redis.

One process produces and another consumes, for each kind of queue in turn: a bare list (LPUSH and
BRPOP, which is not bounded, not exclusive and cannot be closed) and pressure queues with several
bounds. All use the same client library on the same server in the same run: its connections, like
pressure, and in one row its client, like other programs. The table shows medians of the rounds; the
ratio is the median of the ratios to the bare list in the same round.

Both clients share the CPUs not used by the server (``servers.GENERATOR_CPUS``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, NamedTuple, cast

import coredis
import trio
from coredis.retry import NoRetryPolicy

from disque_pressure import PressureQueue
from disque_pressure.settings import resolve, servers
from disque_trio.redis.connection import RedisConnection
from disque_trio.respclient.background import background
from tools.bench.cli import Findings, middle, milliseconds, option, ratio, say, table
from tools.bench.load import percentile
from tools.bench.servers import Server, ServerError, redis_server
from tools.bench.workers import worker

PAGE = "../packages/pressure/docs/pressure.md"
SECTION = "pressure"
MANY = 100
"""Elements per put_many or get_many."""
MORE = 20
"""The factor for the number of elements when they move in hundreds and there is space for them."""
NAME = "bench"
LIMIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    rounds: int = option(3, "how often everything is measured", quick=1)
    elements: int = option(20_000, "elements in a measurement, if moved one by one", quick=100)
    size: int = option(100, "bytes of an element")


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to move elements.

    way: "list"; "client", a list with the library's client; "queue", taking a role for each
    operation; "held", one role for all. bound: of the queue, or None. many: elements per operation.
    """

    way: str
    bound: int | None
    many: int

    @property
    def title(self) -> str:
        """Its title in the table."""
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
    """One measurement of a kind. Times are in seconds; put99 and get99 are per operation."""

    kind: Kind
    elements: int
    seconds: float
    server_cpu: float
    client_cpu: float
    put99: float
    get99: float

    @property
    def rate(self) -> float:
        """Elements per second."""
        return self.elements / self.seconds

    @property
    def cost(self) -> float:
        """CPU seconds of both clients per 100,000 elements."""
        return self.client_cpu / self.elements * 100_000


def run(plan: Plan) -> Findings:
    """Measures each kind in every round."""
    rounds: list[list[Sample]] = []
    with redis_server() as server:
        for number in range(plan.rounds):
            rounds.append([])
            for kind in KINDS:
                slow = kind.many == 1 or kind.bound == 1
                # Use whole operations; otherwise one client would wait for the rest of the other's.
                operations = -(-plan.elements * (1 if slow else MORE) // kind.many)
                elements = operations * kind.many
                sample = _measure(server, kind, elements, plan.size)
                rounds[-1].append(sample)
                say(f"round {number + 1}: {kind.title}, bound {kind.bound}: {sample.rate:,.0f}/s")
    return Findings(rates_table(rounds), [sample for samples in rounds for sample in samples])


def rates_table(rounds: Sequence[Sequence[Sample]]) -> str:
    """One row for each kind."""
    titles = ["one producer, one consumer", "bound", "elements/s", "beside LPUSH, BRPOP"]
    titles += [f"beside LPUSH of {MANY}", "p99 ms put / get", "CPU s/100k clients", "beside"]
    titles += ["server"]
    columns = list(zip(*rounds, strict=True))
    batched = next(at for at, kind in enumerate(KINDS) if kind.way == "list" and kind.many > 1)
    rows = []
    for kind, samples in zip(KINDS, columns, strict=True):
        many = [a.rate / b.rate for a, b in zip(samples, columns[batched], strict=True)]
        costs = [a.cost / b.cost for a, b in zip(samples, columns[0], strict=True)]
        row = [kind.title, "none" if kind.bound is None else str(kind.bound)]
        rates, span = ratio(samples, columns[0], lambda s: s.rate)
        row += [middle(samples, lambda s: s.rate), f"{rates} ({span})"]
        row.append(f"{median(many):.2f}" if kind.many > 1 else "")
        row += [milliseconds(samples, lambda s: s.put99, lambda s: s.get99)]
        row += [middle(samples, lambda s: s.cost, 2), f"{median(costs):.2f}"]
        rows.append([*row, middle(samples, lambda s: s.server_cpu / s.elements * 100_000, 2)])
    return table(titles, rows)


def _measure(server: Server, kind: Kind, elements: int, size: int) -> Sample:
    trio.run(_prepare, server.port, kind)
    job = _Job(server.port, kind, elements, size)
    with (
        worker("the producer", _client, job, True) as producer,
        worker("the consumer", _client, job, False) as consumer,
    ):
        for client in (producer, consumer):
            client.hear()  # connected
        cpu = server.cpu_seconds()
        began = time.monotonic()
        for client in (producer, consumer):
            client.tell()
        put, got = (client.hear(LIMIT_SECONDS) for client in (producer, consumer))
        seconds = max(put["ended"], got["ended"]) - began
        cpu = server.cpu_seconds() - cpu
    if got["elements"] != elements:
        raise ServerError(f"{got['elements']} of {elements} elements came through")
    clients = put["cpu"] + got["cpu"]
    return Sample(kind, elements, seconds, cpu, clients, put["p99"], got["p99"])


async def _prepare(port: int, kind: Kind) -> None:
    async with coredis_client(port) as client:
        await client.flushdb()
        if kind.way in ("queue", "held"):
            async with PressureQueue(NAME, client=client) as queue:
                await queue.create(kind.bound)


# The two clients


class _Job(NamedTuple):
    """The work: move ``elements`` elements of ``size`` bytes in one way."""

    port: int
    kind: Kind
    elements: int
    size: int


def _client(pipe: Connection, job: _Job, produces: bool) -> None:
    pipe.send(trio.run(_work, pipe, job, produces))
    pipe.recv()  # the other one is still working


def coredis_client(port: int) -> coredis.Redis[bytes]:
    """A coredis client that does not retry; a context manager."""
    return coredis.Redis(port=port, connect_timeout=5.0, retry_policy=NoRetryPolicy())


async def _work(pipe: Connection, job: _Job, produces: bool) -> dict[str, float]:
    settings = resolve("127.0.0.1", job.port)
    async with (
        coredis_client(job.port) as client,
        background() as nursery,
        PressureQueue(NAME, client=client) as queue,
        AsyncExitStack() as stack,
    ):
        await client.ping()
        redis = RedisConnection(nursery, servers(settings, None).connect)
        await redis.command(b"PING")
        pipe.send("connected")
        pipe.recv()
        before = time.process_time()
        target: Any = queue
        if job.kind.way == "held":
            target = await stack.enter_async_context(
                queue.producer() if produces else queue.consumer()
            )
        data = [b"x" * job.size] * job.kind.many
        operate = partial(_put, data=data) if produces else _get
        took: list[float] = []
        done = 0
        with trio.fail_after(LIMIT_SECONDS):
            while done < job.elements:
                start = time.perf_counter()
                done += await operate(job.kind, redis, client, target)
                took.append(time.perf_counter() - start)
        return {
            "ended": time.monotonic(),
            "cpu": time.process_time() - before,
            "p99": percentile(sorted(took), 0.99),
            "elements": done,
        }


async def _put(
    kind: Kind, redis: RedisConnection, client: Any, queue: Any, data: list[bytes]
) -> int:
    """One operation of the producer; returns its number of elements."""
    if kind.way == "list":
        await redis.command(b"LPUSH", NAME, *data)
    elif kind.way == "client":
        await client.lpush(NAME, data)
    elif kind.many == 1:
        await queue.put(data[0])
    else:
        await queue.put_many(data)
    return kind.many


async def _get(kind: Kind, redis: RedisConnection, client: Any, queue: Any) -> int:
    """One operation of the consumer; returns its number of elements."""
    if kind.way == "client":
        while await client.brpop([NAME], 1) is None:
            pass
    elif kind.way == "list" and kind.many == 1:
        while await redis.command(b"BRPOP", NAME, 1) is None:
            pass
    elif kind.way == "list":
        words = (b"BLMPOP", 1, 1, NAME, b"RIGHT", b"COUNT", kind.many)
        while (found := await redis.command(*words)) is None:
            pass
        return len(cast("list[list[bytes]]", found)[1])
    elif kind.many == 1:
        await queue.get()
    else:
        return len(await queue.get_many(kind.many))
    return 1
