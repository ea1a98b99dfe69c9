"""The bridge between Disque and pressure, with a real node and a real Redis."""

import contextlib
import re
import signal
import socket
from collections.abc import Iterator

import pytest
import trio

from disque_pressure import (
    QueueClosedError,
    QueueDoesNotExistError,
    QueueEmptyError,
    QueueFullError,
)
from disque_pressure.pipe import JobOptions, to_disque, to_pressure
from disque_trio.client import Client, DisqueError, connect
from packages.pressure.tests.support.pressure_helpers import Spot
from packages.pressure.tests.support.pressure_processes import (
    Redis,
    Running,
    create,
    pressure,
    wait_for_length,
)
from tests.support.harness import LiveNode, Wire, wait_until
from tests.support.redis_server import until


@pytest.fixture
def server(spot: Spot) -> Iterator[Redis]:
    wire = Wire(socket.create_connection(("127.0.0.1", spot.port)))
    yield Redis(spot.port, spot.prefix, wire)
    wire.close()


def disque(node: LiveNode) -> "contextlib.AbstractAsyncContextManager[Client]":
    return connect([f"{node.host}:{node.port}"])


def bodies(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def jobs_known(node: LiveNode) -> int:
    return int(node.info("jobs")["registered_jobs"])


def workings(node: LiveNode) -> int:
    """Return how many WORKING commands it has received."""
    found = re.match(r"calls=(\d+)", node.info("commandstats").get("cmdstat_working", ""))
    return int(found[1]) if found else 0


async def test_jobs_move_into_the_list_and_are_acknowledged(
    node: LiveNode, spot: Spot, server: Redis
) -> None:
    moved: list[int] = []
    async with disque(node) as client, spot.queue() as queue:
        await queue.create()
        await client.add_many("jobs", bodies(250), retry=60)
        await to_pressure(client, "jobs", queue, wait=False, moved=moved.append)
        assert sum(moved) == 250
    elements = server.elements("q")
    assert isinstance(elements, list)
    assert elements == bodies(250)
    assert jobs_known(node) == 0


async def test_no_more_jobs_are_taken_than_requested(node: LiveNode, spot: Spot) -> None:
    async with disque(node) as client, spot.queue() as queue:
        await queue.create()
        await client.add_many("jobs", bodies(150))
        await to_pressure(client, "jobs", queue, count=120)
        assert await queue.length() == 120
        assert await client.qlen("jobs") == 30


async def test_a_full_queue_keeps_jobs_in_the_node_until_there_is_space(
    node: LiveNode, spot: Spot
) -> None:
    async with disque(node) as client, spot.queue() as queue:
        await queue.create(2)
        # Without WORKING, they would be delivered again after three seconds.
        await client.add_many("jobs", bodies(5), retry=3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(to_pressure, client, "jobs", queue)
            await until(lambda: spot.raw.llen(spot.data) == 2)
            await until(lambda: workings(node) >= 2 * 5 + 1)  # more than a retry time
            assert await client.get("jobs", nohang=True) == []
            assert jobs_known(node) == 5
            assert [await queue.get() for _ in range(5)] == bodies(5)
            await until(lambda: jobs_known(node) == 0)
            nursery.cancel_scope.cancel()


async def test_a_cancelled_bridge_requeues_jobs_that_are_not_in_the_list(
    node: LiveNode, spot: Spot
) -> None:
    async with disque(node) as client, spot.queue() as queue:
        await queue.create(3)
        await client.add_many("jobs", bodies(5), retry=60)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(to_pressure, client, "jobs", queue)
            await until(lambda: spot.raw.llen(spot.data) == 3)
            nursery.cancel_scope.cancel()
        assert await client.qlen("jobs") == 2
        assert jobs_known(node) == 2
        left = await client.get("jobs", count=5)
        assert [job.body for job in left] == [b"3", b"4"]
        assert (await queue.stats()).producer_free


async def test_waiting_for_a_full_queue_has_a_limit(node: LiveNode, spot: Spot) -> None:
    async with disque(node) as client, spot.queue() as queue:
        await queue.create(1)
        await client.add_many("jobs", bodies(2), retry=60)
        with pytest.raises(QueueFullError):
            await to_pressure(client, "jobs", queue, timeout=0.1)
        assert jobs_known(node) == 1
        assert await client.qlen("jobs") == 1


async def test_jobs_are_requeued_when_the_queue_is_closed(node: LiveNode, spot: Spot) -> None:
    async with disque(node) as client, spot.queue() as queue:
        await queue.create()
        await client.add_many("jobs", bodies(3), retry=60)
        await queue.close()
        with pytest.raises(QueueClosedError):
            await to_pressure(client, "jobs", queue)
        assert await client.qlen("jobs") == 3


@pytest.mark.parametrize("problem", ["closed", "bound"])
async def test_a_queue_that_ends_in_the_middle_requeues_only_jobs_that_are_not_in_it(
    node: LiveNode, spot: Spot, problem: str
) -> None:
    async with disque(node) as client, spot.queue() as queue, trio.open_nursery() as nursery:
        await queue.create(3)
        await client.add_many("jobs", bodies(5), retry=60)

        async def move() -> None:
            with pytest.raises((QueueClosedError, QueueDoesNotExistError)):
                await to_pressure(client, "jobs", queue)

        nursery.start_soon(move)
        await until(lambda: spot.raw.llen(spot.data) == 3)
        # Like a foreign client that does not wait for the role.
        if problem == "closed":
            spot.raw.lpush(spot.key("closed"), 0, 0)
        else:
            spot.raw.delete(spot.key("bound"))
        spot.raw.lpush(spot.key("not_full"), 0)
        await until(lambda: jobs_known(node) == 2)
        left: list[bytes] = []
        while len(left) < 2:  # they are requeued one after the other
            left += [job.body for job in await client.get("jobs", count=5)]
        assert left == [b"3", b"4"]


async def test_elements_become_jobs_in_order_until_the_queue_is_closed(
    node: LiveNode, spot: Spot
) -> None:
    async with disque(node) as client, spot.queue() as queue:
        await queue.create()
        await queue.put_many(bodies(250))
        await queue.close()
        options = JobOptions(replicate=1, ttl=600, retry=7)
        await to_disque(queue, client, "jobs", options=options)
        found: list[bytes] = []
        while len(found) < 250:
            jobs = await client.get("jobs", count=100)
            found += [job.body for job in jobs]
        assert found == bodies(250)
        shown = await client.show(jobs[0].id)
        assert shown is not None
        assert 500 < int(str(shown["ttl"])) <= 600  # the remaining time
        assert shown["retry"] == 7
        assert (await queue.stats()).consumed_messages == 250
        assert (await queue.stats()).consumer_free


async def test_the_bridge_waits_for_later_elements(node: LiveNode, spot: Spot) -> None:
    async with disque(node) as client, spot.queue() as queue:
        await queue.create()
        async with trio.open_nursery() as nursery:

            async def put() -> None:
                await until(lambda: spot.raw.llen(spot.key("consumer_free")) == 0)
                await queue.put_many(bodies(3))

            nursery.start_soon(put)
            await to_disque(queue, client, "jobs", count=3)
        assert await client.qlen("jobs") == 3
        with pytest.raises(QueueEmptyError):
            await to_disque(queue, client, "jobs", timeout=0.05)
        await to_disque(queue, client, "jobs", wait=False)


async def test_an_element_stays_until_its_job_is_added(node: LiveNode, spot: Spot) -> None:
    async with disque(node) as client, spot.queue() as queue:
        await queue.create()
        await queue.put_many(bodies(3))
        await client.pause("jobs", "in")
        with pytest.raises(DisqueError):
            await to_disque(queue, client, "jobs")
        assert await queue.length() == 3
        assert (await queue.stats()).consumer_free
        await client.pause("jobs", "none")
        await to_disque(queue, client, "jobs", wait=False)
        assert await queue.length() == 0
        assert await client.qlen("jobs") == 3


# The command


def test_the_command_moves_both_ways(node: LiveNode, server: Redis) -> None:
    create(server, "in")
    create(server, "out")
    address = f"{node.host}:{node.port}"
    pressure(server, "put", "in", "--close", data=b"1\n2\n3\n")
    there = ("--from-pressure", "in", "--to-disque", "jobs", "--retry", "60")
    assert pressure(server, "pipe", *there, "--node", address) == (0, b"", "")
    back = ("--from-disque", "jobs", "--to-pressure", "out", "--no-wait", "--close")
    assert pressure(server, "pipe", *back, "--node", address) == (0, b"", "")
    assert server.elements("out") == [b"1", b"2", b"3"]
    assert server.ask("LLEN", server.key("out", ":closed")) == 2
    assert jobs_known(node) == 0
    status, _, error = pressure(server, "pipe", *back, "--node", address)
    assert (status, error) == (1, "pressure: queue 'out' is closed\n")


def test_a_signal_ends_the_command_and_requeues_everything(node: LiveNode, server: Redis) -> None:
    create(server, "q", 2)
    node.ask("ADDJOB", "jobs", "1", 0)
    node.ask("ADDJOB", "jobs", "2", 0)
    node.ask("ADDJOB", "jobs", "3", 0)
    pipe = Running(
        server,
        *("pipe", "--from-disque", "jobs", "--to-pressure", "q"),
        *("--node", f"{node.host}:{node.port}"),
    )
    try:
        wait_for_length(server, "q", 2)
        assert pipe.stop(signal.SIGTERM) == 143
    finally:
        pipe.close()
    assert server.free("q", "producer")
    assert node.ask("QLEN", "jobs") == 1
    assert jobs_known(node) == 1


@pytest.mark.parametrize("way", ["to pressure", "to Disque"])
def test_nothing_is_lost_when_the_bridge_is_killed(node: LiveNode, server: Redis, way: str) -> None:
    sent = bodies(3000)
    create(server, "q", 0)
    if way == "to pressure":
        names = ("--from-disque", "jobs", "--to-pressure", "q")
    else:
        names = ("--from-pressure", "q", "--to-disque", "jobs")
    command = ("pipe", *names, "--node", f"{node.host}:{node.port}")

    def add(some: list[bytes]) -> None:
        if way == "to pressure":
            for body in some:
                node.ask("ADDJOB", "jobs", body, 0, "RETRY", 5)
        else:
            server.ask("LPUSH", server.key("q"), *some)

    def left() -> int:
        count = server.ask("LLEN", server.key("q"))
        assert isinstance(count, int)
        return 1500 - count if way == "to pressure" else count

    add(sent[:1500])
    pipe = Running(server, *command)
    try:
        wait_until(lambda: left() < 1200)
        pipe.process.kill()
    finally:
        pipe.close()
    add(sent[1500:])
    # The role becomes free: its lease expires, or somebody reports it as dead.
    pressure(server, "doctor", "q", "--free", "producer")
    pressure(server, "doctor", "q", "--free", "consumer")
    second = Running(server, *command)
    try:
        if way == "to pressure":
            wait_until(lambda: jobs_known(node) == 0)
        else:
            wait_until(lambda: left() == 0)
        assert second.stop() == 143
    finally:
        second.close()
    if way == "to pressure":
        found = server.elements("q")
        assert isinstance(found, list)
    else:
        found = []
        while jobs := node.ask("GETJOB", "NOHANG", "COUNT", 1000, "FROM", "jobs"):
            assert isinstance(jobs, list)
            found += [job[2] for job in jobs]
    assert set(found) == set(sent)
    # Only jobs that were being moved during the kill may come twice.
    assert len(found) <= 3000 + 100
