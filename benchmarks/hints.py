"""The cost of a job for all nodes, if its producer and its consumer use different ones.

Each queue has a producer and a consumer, which are Python clients that start at different nodes:
clients that go to the best node for the queue (QOWNER), and clients that stay where they are; and,
for comparison, as many nodes that are no cluster, each with some of the queues. Jobs have no
copies. A measurement begins when all clients have found their nodes. What the nodes use in
this time when nothing happens is subtracted. Ratios compare measurements next to each other in
time; the table shows the median of the rounds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import trio

from disque_trio.client import Client, HeldJob, connect
from tools.bench.cli import Findings, grouped, middle, option, ratio, say, size, table, words
from tools.bench.nodes import Cluster, Usage, cluster
from tools.bench.scripts import SERIAL_DIGITS
from tools.bench.servers import DISQUE_COMMAND, HOST

PAGE = "performance-details.md"
SECTION = "hints"
BATCH = 16  # jobs of an add_many
IN_HAND = 16  # jobs of a consumer
LIMIT = 600.0  # s
IDLE = 3.0  # s to find out what nodes use when nothing happens
AWARE, STAYS, APART = "go to the best node", "stay where they are", "no cluster"
WAYS = (APART, AWARE, STAYS)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much."""

    rounds: int = option(5, "how often everything is measured", quick=1)
    nodes: tuple[int, ...] = option((2, 3), "numbers of nodes beside one")
    jobs: int = option(2_000, "jobs of each queue", quick=64)
    queues: int = option(12, "queues", quick=4)
    size: int = option(100, "bytes of a job's body", parse=size(SERIAL_DIGITS))
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: CPU of all nodes in µs a job, and packets between nodes a job."""

    nodes: int
    clients: str
    cpu: float
    packets: float


def run(plan: Plan) -> Findings:
    """Measures all numbers of nodes in turn."""
    samples: list[Sample] = []
    for number in range(plan.rounds):
        say(f"round {number + 1}")
        for nodes, clients in [(1, APART), *[(n, way) for n in plan.nodes for way in WAYS]]:
            with _nodes(plan, nodes, clients) as running:
                usage = trio.run(_load, plan, running, clients)
            count = plan.jobs * plan.queues
            packets = usage.packets / count
            samples.append(Sample(nodes, clients, 1e6 * usage.cpu / count, packets))
    return Findings(report(samples), samples)


@contextmanager
def _nodes(plan: Plan, nodes: int, clients: str) -> Iterator[Cluster]:
    with ExitStack() as stack:
        sizes = [1] * nodes if clients == APART else [nodes]
        parts = [
            stack.enter_context(cluster([plan.server] * size, name=f"part-{number}"))
            for number, size in enumerate(sizes)
        ]
        yield Cluster([server for part in parts for server in part.servers])


async def _load(plan: Plan, running: Cluster, clients: str) -> Usage:
    """Send the jobs through the cluster, and return what that cost the nodes."""
    done: list[int] = [0]

    async def work(job: HeldJob) -> None:
        done[0] += 1

    async with AsyncExitStack() as stack:
        ports = itertools.cycle([server.port for server in running.servers])
        pairs: list[tuple[Client, Client]] = []
        for here, next_one in itertools.pairwise(itertools.islice(ports, plan.queues + 1)):
            there = here if clients == APART else next_one
            producer, consumer = [
                await stack.enter_async_context(connect(f"{HOST}:{port}", hints=clients == AWARE))
                for port in (here, there)
            ]
            pairs.append((producer, consumer))
        producers = [producer for producer, _ in pairs]
        nursery = await stack.enter_async_context(trio.open_nursery())
        for number, (_, consumer) in enumerate(pairs):
            nursery.start_soon(partial(consumer.work, concurrency=IN_HAND), work, _name(number))
        for _ in range(3):  # so that all have found their nodes
            await _add(plan, producers, BATCH)
            await trio.sleep(1)
        resting = running.usage()
        await trio.sleep(IDLE)
        before, already = running.usage(), done[0]
        idle = before.since(resting)
        started = time.monotonic()
        await _add(plan, producers, plan.jobs)
        while done[0] < already + plan.jobs * plan.queues:
            if time.monotonic() - started > LIMIT:
                raise running.failure(f"only {done[0] - already} jobs were done")
            await trio.sleep(0.01)
        usage = running.usage().since(before)
        share = (time.monotonic() - started) / IDLE
        nursery.cancel_scope.cancel()
    return Usage(usage.cpu - share * idle.cpu, usage.packets - round(share * idle.packets), None)


async def _add(plan: Plan, producers: Sequence[Client], jobs: int) -> None:
    async def add(number: int, client: Client) -> None:
        for start in range(0, jobs, BATCH):
            bodies = [b"x" * plan.size] * (min(start + BATCH, jobs) - start)
            await client.add_many(_name(number), bodies, replicate=1)

    async with trio.open_nursery() as nursery:
        for number, client in enumerate(producers):
            nursery.start_soon(add, number, client)


def _name(number: int) -> str:
    return f"queue-{number}"


def report(samples: list[Sample]) -> str:
    """The table."""
    by_way = grouped(samples, lambda sample: (sample.nodes, sample.clients))
    one = by_way[1, APART]
    rows = [
        [
            str(nodes),
            clients if nodes > 1 else "",
            middle(some, lambda sample: sample.cpu, 1),
            *ratio(some, one, lambda sample: sample.cpu),
            middle(some, lambda sample: sample.packets, 2),
        ]
        for (nodes, clients), some in by_way.items()
    ]
    titles = ["nodes", "clients", "CPU us a job", "beside one node", "(range)", "packets a job"]
    return table(titles, rows)
