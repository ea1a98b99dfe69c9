"""The store in a Redis Cluster of three nodes."""

import signal
from collections.abc import AsyncIterator, Iterator

import pytest
import trio
import trio.testing

from disque_bananaq.core.requests import Add, Get, from_now
from disque_bananaq.redis_store.keys import KeyNames
from packages.bananaq.tests.support.redis_drive import (
    NEVER,
    RedisDrive,
    RedisServer,
    plain_client,
    running,
    until,
)
from packages.bananaq.tests.support.store_semantics import (
    MINUTE,
    MS,
    ack,
    add,
    body,
    counts,
    flush,
    get,
    status,
)
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.live

QUEUES = [b"queue %d" % n for n in range(12)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    """Three nodes that share the slots and know each other."""
    servers = []
    for n in range(3):
        server = RedisServer(tmp_path_factory.mktemp(f"node{n}"), "--cluster-enabled", "yes")
        server.start()
        servers.append(server)
    for n, server in enumerate(servers):
        with plain_client(server.port) as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", n * 5462, min(n * 5462 + 5461, 16383))
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", n + 1)
            for other in servers[:n]:
                client.execute_command("CLUSTER MEET", "127.0.0.1", other.port)
    yield servers
    for server in servers:
        server.stop()


def is_well(server: RedisServer) -> bool:
    with plain_client(server.port) as client:
        info = str(client.execute_command("CLUSTER INFO"))
        rows = client.execute_command("CLUSTER SLOTS")
    return "cluster_state:ok" in info.replace("': '", ":") and len(rows) >= 3


@pytest.fixture
async def drive(nodes: list[RedisServer], prefix: str) -> AsyncIterator[RedisDrive]:
    """A store that knows one node at the start."""
    for server in nodes:
        await until(lambda server=server: is_well(server))
    async with running(nodes[1].port, prefix=prefix, pool_size=2, cluster=True) as it:
        yield it


async def test_queues_are_found_on_the_nodes_that_have_them(
    drive: RedisDrive, nodes: list[RedisServer]
) -> None:
    for n, queue in enumerate(QUEUES):
        await add(drive, queue, b"%d" % n)
    for n, queue in enumerate(QUEUES):
        event = await get(drive, queue, b"g")
        assert event.body == b"%d" % n
        assert await ack(drive, queue, b"g", event.id) == 1
        assert await counts(drive, queue, b"g") == (1, 0, 0, 1, 0)
    assert [found.queue for found in await status(drive, [])] == sorted(QUEUES)
    for server in nodes:
        with plain_client(server.port) as raw:
            assert raw.dbsize() > 0
    for queue in QUEUES:
        await flush(drive, queue)
    assert await status(drive, []) == []


async def test_two_daemons_share_a_cluster(
    drive: RedisDrive, nodes: list[RedisServer], prefix: str
) -> None:
    async with running(nodes[2].port, prefix=prefix, pool_size=3, cluster=True) as other:
        for queue in QUEUES:
            await drive.watch(queue, b"g")
            drive.available.clear()
            other.store.enter(queue, b"g", 1)
            await add(other, queue, b"1")
            assert await drive.told(queue, b"g")
            assert await body(drive, queue, b"g", 100 * MS) == b"1"
        [one] = await status(drive, [QUEUES[3]])
        assert [(group.group, group.consumers) for group in one.groups] == [(b"g", 1)]
        await drive.advance(150)
        for queue in QUEUES:
            assert (await get(other, queue, b"g")).id.endswith(b"_2")


async def test_a_hung_node_does_not_block_the_queues_of_others(
    nodes: list[RedisServer], prefix: str
) -> None:
    names = KeyNames(prefix)
    all = [b"hung %d" % n for n in range(300)]
    hung = next(queue for queue in all if names.slot(queue) < 5000)
    well = [queue for queue in all if names.slot(queue) > 12800]
    assert len(well) > 20
    for server in nodes:
        await until(lambda server=server: is_well(server))
    async with running(
        nodes[1].port, prefix=prefix, pool_size=9, cluster=True, reply_seconds=NEVER
    ) as drive:
        for queue in (hung, *well):
            await flush(drive, queue)
        process = nodes[0].process
        assert process is not None
        async with trio.open_nursery() as nursery:
            process.send_signal(signal.SIGSTOP)
            try:
                nursery.start_soon(add, drive, hung, b"late")
                await trio.testing.wait_all_tasks_blocked()
                with trio.fail_after(HANG_SECONDS):
                    for queue in well:
                        await add(drive, queue, b"1")
            finally:
                process.send_signal(signal.SIGCONT)
        assert await body(drive, hung, b"g") == b"late"


async def test_a_queue_may_move_to_another_node_while_it_is_used(
    drive: RedisDrive, nodes: list[RedisServer], prefix: str
) -> None:
    names = KeyNames(prefix)
    # A queue of the first node moves to the second one.
    queue = next(q for q in (b"moving %d" % n for n in range(100)) if names.slot(q) < 5000)
    slot = names.slot(queue)
    bodies: list[bytes] = []
    stop = False
    total = 0

    async def produce() -> None:
        nonlocal total
        while not stop:
            result = await drive.run(Add(queue, b"%d" % total, from_now(MINUTE)))
            assert result.error == ""
            total += 1

    async def consume() -> None:
        while not stop or len(bodies) < total:
            result = await drive.run(Get(queue, b"g", from_now(MINUTE)))
            assert result.error == ""
            if result.event is not None:
                bodies.append(result.event.body)
                assert await ack(drive, queue, b"g", result.event.id) == 1

    with plain_client(nodes[0].port) as source, plain_client(nodes[1].port) as target:
        ids = [c.execute_command("CLUSTER MYID").decode() for c in (source, target)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            nursery.start_soon(consume)
            await until(lambda: len(bodies) > 50)
            target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
            source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
            before = len(bodies)
            while True:
                # One key at a time, with operations in between: both nodes have some of the keys.
                keys = source.execute_command("CLUSTER GETKEYSINSLOT", slot, 1)
                if not keys:
                    break
                source.execute_command("MIGRATE", "127.0.0.1", nodes[1].port, keys[0], 0, 5000)
                await trio.sleep(0.01)
            for client in (target, source):
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[1])
            await until(lambda: len(bodies) > before + 50)
            stop = True
    assert bodies == [b"%d" % n for n in range(total)]
    assert await counts(drive, queue, b"g") == (total, 0, 0, total, 0)
