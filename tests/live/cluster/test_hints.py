"""Producers and consumers meet at the node that is best for their queue."""

from collections import Counter
from functools import partial

import anyio
import pytest

from disque_trio.client import Client, connect
from tests.support.harness import HANG_SECONDS, ClusterFactory, LiveNode, notice_deaths, wait_until
from tests.support.loops import on_both

MANY = 100


def at(node: LiveNode) -> list[str]:
    return [f"{node.host}:{node.port}"]


def owner_of(nodes: list[LiveNode], queue: str) -> LiveNode:
    """The one of ``nodes`` that is best for a queue, once they all say the same."""
    told: list[LiveNode] = []

    def agree() -> bool:
        ports = [int(node.ask("QOWNER", queue)[0][2]) for node in nodes]  # type: ignore[index]
        told[:] = [node for node in nodes if ports == [node.port] * len(nodes)]
        return told != []

    wait_until(agree)
    return told[0]


def queue_of(nodes: list[LiveNode], owner: LiveNode) -> str:
    """A queue for which this node is the best."""
    return next(
        name for name in map("queue-{}".format, range(1_000)) if owner_of(nodes, name) is owner
    )


def count(node: LiveNode, what: str) -> int:
    return int(node.info("stats")[f"total_jobs_{what}"])


def counts(nodes: list[LiveNode], what: str) -> list[int]:
    return [count(node, what) for node in nodes]


async def until(condition: partial[bool]) -> None:
    with anyio.fail_after(HANG_SECONDS):
        while not await anyio.to_thread.run_sync(condition):
            await anyio.sleep(0.02)


async def settle(client: Client, owner: LiveNode, queue: str) -> None:
    """Add jobs until the client adds them at this node."""
    before = count(owner, "added")
    with anyio.fail_after(HANG_SECONDS):
        while count(owner, "added") == before:
            await client.add(queue, "first", replicate=1)
            await anyio.sleep(0.01)


class Taker:
    """A worker, and the bodies of the jobs that it has had."""

    def __init__(self, *queues: str) -> None:
        self.queues = queues
        self.had: Counter[str] = Counter()

    async def run(self, client: Client) -> None:
        async for job in client.jobs(*self.queues):
            self.had[job.body.decode()] += 1

    def has(self, bodies: list[str]) -> bool:
        return set(bodies) <= set(self.had)


def consumes(node: LiveNode) -> bool:
    return int(node.info("clients")["consuming_clients"]) > 0


@on_both
async def test_clients_of_different_nodes_meet_at_the_best_one(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    queue = queue_of(nodes, nodes[2])
    taker = Taker(queue)
    async with connect(at(nodes[0])) as producer, connect(at(nodes[1])) as consumer:
        await settle(producer, nodes[2], queue)
        async with anyio.create_task_group() as group:
            group.start_soon(taker.run, consumer)
            await until(partial(consumes, nodes[2]))
            await until(partial(taker.has, ["first"]))
            added, delivered = counts(nodes, "added"), counts(nodes, "delivered")
            bodies = [str(number) for number in range(MANY)]
            for body in bodies:
                await producer.add(queue, body, replicate=1)
            await until(partial(taker.has, bodies))
            assert counts(nodes, "added") == [added[0], added[1], added[2] + MANY]
            # Early jobs may still be on their way from elsewhere.
            assert counts(nodes, "delivered")[2] >= delivered[2] + MANY
            group.cancel_scope.cancel()
        assert producer.address == at(nodes[0])[0]


@on_both
async def test_producers_go_on_when_the_best_node_is_killed_and_consumers_follow(
    cluster: ClusterFactory,
) -> None:
    nodes = cluster(3)
    notice_deaths(nodes)
    queue = queue_of(nodes, nodes[2])
    taker = Taker(queue)
    async with connect(at(nodes[0])) as producer, connect(at(nodes[1])) as consumer:
        await settle(producer, nodes[2], queue)
        async with anyio.create_task_group() as group:
            group.start_soon(taker.run, consumer)
            await until(partial(consumes, nodes[2]))
            nodes[2].kill()
            bodies = [str(number) for number in range(MANY)]
            for body in bodies:
                await producer.add(queue, body, replicate=1, retry_lost=True)
            await until(partial(taker.has, bodies))
            group.cancel_scope.cancel()
        owner = owner_of(nodes[:2], queue)
        await settle(producer, owner, queue)


async def test_a_node_whose_users_may_not_ask_works_as_ever(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    for node in nodes:
        assert node.ask("ACL", "SETUSER", "default", "-qowner") == b"OK"
    taker = Taker("q")
    async with (
        connect(at(nodes[0])) as producer,
        connect(at(nodes[1])) as consumer,
        anyio.create_task_group() as group,
    ):
        group.start_soon(taker.run, consumer)
        bodies = [str(number) for number in range(MANY)]
        await producer.add_many("q", bodies, replicate=1)
        await until(partial(taker.has, bodies))
        group.cancel_scope.cancel()
    assert counts(nodes, "added") == [MANY, 0, 0]


@pytest.mark.parametrize("hints", [True, False])
async def test_many_queues_spread_over_the_nodes(cluster: ClusterFactory, hints: bool) -> None:
    nodes = cluster(3)
    names = [f"queue-{number}" for number in range(60)]
    async with connect(at(nodes[0]), hints=hints) as client:
        for name in names:
            if hints:
                await settle(client, owner_of(nodes, name), name)
        added = counts(nodes, "added")
        for name in names:
            await client.add(name, "b", replicate=1)
        new = [now - before for now, before in zip(counts(nodes, "added"), added, strict=True)]
    assert sum(new) == 60
    if hints:
        assert min(new) > 8
    else:
        assert new == [60, 0, 0]


async def test_a_worker_of_several_queues_goes_where_most_of_them_are(
    cluster: ClusterFactory,
) -> None:
    nodes = cluster(3)
    first = queue_of(nodes, nodes[0])
    others = [name for n in range(200) if owner_of(nodes, name := f"other-{n}") is nodes[2]][:2]
    taker = Taker(first, *others)
    async with connect(at(nodes[1])) as client, anyio.create_task_group() as group:
        group.start_soon(taker.run, client)
        await until(partial(consumes, nodes[2]))
        for name in (first, *others):
            await client.add(name, name, replicate=1)
        await until(partial(taker.has, [first, *others]))  # the first comes over
        group.cancel_scope.cancel()
