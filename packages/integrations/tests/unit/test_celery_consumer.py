"""Taking the jobs for Celery's workers, against a scripted node."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from disque_integrations.celery.consumer import Consumer, refuse
from disque_trio.client import HeldJob, Job, connect
from tests.support.fake_disque import JOB_ID, FakeNode, array, bulk, fake_node, fake_nodes, job
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.trio


async def test_requests_during_connecting_open_no_second_connection() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        consumer = client.run_source(lambda *own: Consumer(*own, print, print))

        def consume(command: list[bytes]) -> bytes:
            if command[1:3] == [b"a", b"CREDIT"]:
                consumer.want(["a", "b"], 4)
            return b":0\r\n" if command[1] == b"STOP" else b"+OK\r\n"

        node.answers |= {"CONSUME": consume, "CREDIT": b"+OK\r\n"}
        consumer.want(["a"], 4)
        await node.wait_for(lambda: node.count("CONSUME") == 2)
        for times in range(1, 11):  # enough for a second one to appear
            consumer.want(["a", "b"], 4)
            await node.wait_for(lambda times=times: node.count("CREDIT") == times)
        consumer.retire()
        with trio.fail_after(HANG_SECONDS):
            await consumer.ended.wait()
        said = [command[1:3] for command in node.seen if command[0] == b"CONSUME"]
        assert said == [[b"a", b"CREDIT"], [b"a", b"b"], [b"STOP"]]
        assert len({on for on, name in node.seen_on if name == "CONSUME"}) == 1


@asynccontextmanager
async def consuming(node: FakeNode, *jobs: int) -> AsyncIterator[Consumer]:
    """A consumer that has got these jobs, which are pushed with the first reply to CONSUME."""
    pushes = [job(number).replace(b"*1\r\n*7\r\n", b">8\r\n$3\r\njob\r\n") for number in jobs]

    def consume(command: list[bytes]) -> bytes:
        pushed = b"".join(pushes)
        pushes.clear()
        return b":0\r\n" if command[1] == b"STOP" else b"+OK\r\n" + pushed

    once = dict.fromkeys(("ACKJOB", "NACK", "ENQUEUE"), b":1\r\n")
    node.answers |= {"CONSUME": consume, "WORKING": b":300\r\n", **once}
    got: list[Job] = []
    arrived = trio.Event()

    def take(job: Job) -> None:
        got.append(job)
        if len(got) == len(jobs):
            arrived.set()

    async with connect([node.address]) as client:
        consumer = client.run_source(lambda *own: Consumer(*own, take, print))
        consumer.want(["q"], 4)
        with trio.fail_after(HANG_SECONDS):
            await arrived.wait()
        yield consumer
        consumer.retire()
        with trio.fail_after(HANG_SECONDS):
            await consumer.ended.wait()


def settled(node: FakeNode) -> list[tuple[str, int]]:
    return [
        (command[0].decode(), int(command[1][11:35]))
        for command in node.seen
        if command[0] in (b"ACKJOB", b"NACK", b"ENQUEUE")
    ]


async def test_jobs_are_settled_on_the_connection_that_brought_them() -> None:
    async with fake_node() as node:
        async with consuming(node, 1, 2, 3) as consumer:
            consumer.settle(HeldJob.ack, [JOB_ID.format(1), JOB_ID.format(2)])
            node.answers["NACK"] = b"-NODEAD no queue for dead letters\r\n"
            consumer.settle(refuse, [JOB_ID.format(3)])
            await node.wait_for(lambda: node.count("ACKJOB") == 3)
        assert sorted(settled(node)) == [("ACKJOB", 1), ("ACKJOB", 2), ("ACKJOB", 3), ("NACK", 3)]
        on = {on for on, name in node.seen_on if name in ("CONSUME", "ACKJOB", "NACK")}
        assert len(on) == 1


async def test_jobs_in_hand_are_given_back_once_no_more_can_come() -> None:
    async with fake_node() as node:
        async with consuming(node, 1, 2):
            pass
        assert node.names()[-3:-2] == ["CONSUME"]
        assert sorted(settled(node)) == [("ENQUEUE", 1), ("ENQUEUE", 2)]


async def test_a_consumer_moves_to_the_best_node_and_settles_jobs_where_they_came_from() -> None:
    async with fake_nodes(2) as (home, owner):
        place = bulk(owner.id.encode(), b"127.0.0.1", b"%d" % owner.port)
        home.answers["QOWNER"] = array(place)
        owner.answers |= {"CONSUME": lambda c: b":0\r\n" if c[1] == b"STOP" else b"+OK\r\n"}
        async with consuming(home, 1) as consumer:
            await owner.wait_for(lambda: owner.count("CONSUME") == 1)
            consumer.settle(HeldJob.ack, [JOB_ID.format(1)])
            await home.wait_for(lambda: home.count("ACKJOB") == 1)
        assert owner.count("ACKJOB") == 0


async def test_a_job_outlives_its_connection() -> None:
    async with fake_node() as node:
        async with consuming(node, 1) as consumer:
            node.drop_all()
            await node.wait_for(lambda: node.count("WORKING") == 1 and node.count("CONSUME") == 2)
            consumer.settle(HeldJob.ack, [JOB_ID.format(1)])
            await node.wait_for(lambda: node.count("ACKJOB") == 1)
        assert settled(node) == [("ACKJOB", 1)]
