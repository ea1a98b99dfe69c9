"""The consumer helper against a real bananaq, with each store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import trio

from disque_bananaq.client import BananaClient, connect, consumer
from packages.bananaq.tests.support.banana_daemons import Daemon
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support import PYTHONPATH
from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.live


@pytest.fixture
async def client(bananaq: Daemon) -> AsyncIterator[BananaClient]:
    async with connect(port=bananaq.port) as client:
        yield client


async def until(client: BananaClient, queue: str, group: str, **wanted: int) -> None:
    """Wait for these counts."""
    with trio.fail_after(HANG_SECONDS):
        while True:
            counts = (await client.status(queue, groups=[group]))[queue][group]
            if all(counts[name] == value for name, value in wanted.items()):
                return
            await trio.sleep(0.01)


async def test_every_group_gets_every_event_once(
    bananaq: Daemon, client: BananaClient, queue: str
) -> None:
    seen: dict[str, Counter[bytes]] = {"mail": Counter(), "audit": Counter()}
    wanted = Counter({b"%d" % n: 1 for n in range(200)})

    async def consume(group: str, *queues: str) -> None:
        async with consumer(*queues, group=group, port=bananaq.port) as events:
            async for event in events:
                seen[group][event.body] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(consume, "mail", queue)
            nursery.start_soon(consume, "audit", queue, "other")
        for n in range(200):
            await client.add(queue, str(n), expire=60)
        for group in seen:
            await until(client, queue, group, done=200)
        nursery.cancel_scope.cancel()
    assert seen == {"mail": wanted, "audit": wanted}


async def test_an_event_is_kept_beyond_its_deadline(
    bananaq: Daemon, client: BananaClient, queue: str
) -> None:
    await client.add(queue, "x", expire=60)
    async with consumer(queue, group="g", port=bananaq.port, hold=3) as events:
        async for event in events:
            assert await client.get(queue, "g", wait=4) is None
            assert await event.ack()
            await events.stop()
    await until(client, queue, "g", done=1)


async def test_a_requeued_event_is_delivered_again_at_once(
    bananaq: Daemon, client: BananaClient, queue: str
) -> None:
    await client.add(queue, "x", expire=60)
    deliveries = []
    async with consumer(queue, group="g", port=bananaq.port) as events:
        async for event in events:
            deliveries.append(event.delivery)
            if len(deliveries) == 3:
                await events.stop()
            else:
                await event.give_back()
    assert deliveries == [1, 2, 3]
    await until(client, queue, "g", done=1)


@pytest.mark.parametrize("several", [False, True])
async def test_cancelling_a_waiting_consumer_loses_nothing(
    bananaq: Daemon, client: BananaClient, queue: str, several: bool
) -> None:
    queues = (queue, "other") if several else (queue,)
    for n in range(30):
        async with trio.open_nursery() as nursery:

            async def consume() -> None:
                async with consumer(*queues, group="g", port=bananaq.port) as events:
                    async for _ in events:
                        pass

            nursery.start_soon(consume)
            await until(client, queue, "g", consumers=1)
            await client.add(queue, str(n), expire=60)
            nursery.cancel_scope.cancel()
    async with consumer(*queues, group="g", port=bananaq.port) as events:
        with trio.move_on_after(10) as limit:
            while (await client.status(queue, groups=["g"]))[queue]["g"]["done"] < 30:
                event = await events.__anext__()
                await event.ack()
        assert not limit.cancelled_caught


async def test_a_consumer_survives_the_death_of_the_server(
    run_bananaq: DaemonFactory, kind: str, queue: str
) -> None:
    daemon = run_bananaq(kind, "--appendfsync", "always")
    seen = Counter[bytes]()
    async with connect(port=daemon.port) as client:
        for n in range(20):
            await client.add(queue, str(n), expire=60)
        async with consumer(queue, group="g", port=daemon.port) as events:
            async for event in events:
                seen[event.body] += 1
                if len(seen) == 10:
                    daemon.kill()
                    await trio.to_thread.run_sync(daemon.restart)
                if len(seen) == 20:
                    await events.stop()
        assert seen == Counter({b"%d" % n: 1 for n in range(20)})
        await until(client, queue, "g", done=20)


async def test_the_event_of_a_dead_consumer_goes_to_another_one(
    bananaq: Daemon, client: BananaClient, queue: str
) -> None:
    program = (
        "import sys, trio\n"
        "from disque_bananaq.client import consumer\n"
        "async def main(port, queue):\n"
        "    async for event in consumer(queue, group='g', port=int(port), hold=0.6):\n"
        "        print(event.id, flush=True)\n"
        "        await trio.sleep_forever()\n"
        "trio.run(main, *sys.argv[1:])\n"
    )
    id = await client.add(queue, "x", expire=60)
    streams = {"stdout": subprocess.PIPE}
    with start_command("python -c", program, str(bananaq.port), queue, **streams) as other:
        assert other.stdout is not None
        line = await trio.to_thread.run_sync(other.stdout.readline)
        assert line.decode().strip() == id
        other.kill()
    async with consumer(queue, group="g", port=bananaq.port) as events:
        with trio.fail_after(HANG_SECONDS):
            event = await events.__anext__()
        assert (event.id, event.delivery) == (f"{id}_2", 2)
        assert not await client.ack(queue, "g", id)
        assert await event.ack()


async def test_a_worker_that_is_told_to_end_finishes_its_work(
    bananaq: Daemon, client: BananaClient, queue: str
) -> None:
    program = (
        "import sys, trio\n"
        "from disque_bananaq.client import work\n"
        "async def handle(event):\n"
        "    print('begin', flush=True)\n"
        "    await trio.to_thread.run_sync(sys.stdin.readline)\n"
        "    print('end', flush=True)\n"
        "trio.run(lambda: work(sys.argv[2], 'g', handle, port=int(sys.argv[1])))\n"
    )
    for body in ("x", "y"):
        await client.add(queue, body, expire=60)
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with start_command("python -c", program, str(bananaq.port), queue, **streams) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert await trio.to_thread.run_sync(worker.stdout.readline) == b"begin\n"
        worker.send_signal(signal.SIGTERM)
        worker.stdin.write(b"\n")
        worker.stdin.flush()
        with trio.fail_after(HANG_SECONDS):
            rest = await trio.to_thread.run_sync(worker.stdout.read)
        assert (rest, worker.wait()) == (b"end\n", 0)
    await until(client, queue, "g", done=1, available=1, inprogress=0)


async def test_the_methods_match_the_commands(client: BananaClient, queue: str) -> None:
    name = queue.encode() + b"\xff"
    text = queue + "\udcff"
    id = await client.add(name, b"\0\r\n", expire=60)
    assert await client.notify("g", name, "none", wait=1) == text
    event = await client.get(name, "g")
    assert event is not None
    assert (event.id, event.queue, event.body) == (id, text, b"\0\r\n")
    assert await client.working(event.queue, "g", id, hold=5)
    assert await client.give_back(event.queue, "g", id)
    again = await client.get(event.queue, "g")
    assert again is not None
    assert again.delivery == 2
    assert await client.ack(event.queue, "g", again.id)
    assert not await client.ack(event.queue, "g", again.id)
    assert not await client.working(event.queue, "g", again.id)
    assert (await client.status())[text]["g"]["done"] == 1
    assert len(await client.info(name)) == 1
    await client.flush(event.queue)
    assert text not in await client.status()
    await client.add_noblock(queue, "x", expire=60)
    got = await client.get(queue, "g", hold=0, wait=5)
    assert got is not None
    assert await client.notify("g", queue) is None


def test_the_helper_needs_neither_the_server_nor_a_redis_library() -> None:
    program = (
        "import sys, disque_bananaq.client\n"
        "parts = ('server', 'core', 'commands', 'config', 'aof', 'cli')\n"
        "names = ['coredis', 'disque_bananaq.core', *('disque_trio.' + part for part in parts)]\n"
        "print([name for name in names if name in sys.modules])\n"
    )
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True
    )
    assert done.stdout == b"[]\n"
