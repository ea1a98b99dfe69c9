"""The worker loops over push, against real nodes: who gets which job, and when."""

import random
import subprocess
from pathlib import Path

import anyio
import pytest

from disque_trio.client import Client, HeldJob, Jobs, connect
from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS, LiveNode
from tests.support.live_cluster import live_cluster
from tests.support.loops import on_both

HOLDER = """
import sys, trio
from disque_trio.client import connect

async def main():
    async with connect([sys.argv[1]]) as client:
        async for job in client.jobs("q"):
            print(job.id, flush=True)
            await trio.sleep_forever()

trio.run(main)
"""


def at(node: LiveNode) -> list[str]:
    return [f"{node.host}:{node.port}"]


async def pushed(client: Client, *, consuming: int | None = None, in_hand: int) -> None:
    """Wait until the node counts this many consuming clients, and jobs that they have."""
    with anyio.fail_after(HANG_SECONDS):
        while True:
            info = await client.info("clients")
            clients = int(info["consuming_clients"])
            if int(info["jobs_pushed_in_hand"]) == in_hand and consuming in (None, clients):
                return
            await anyio.sleep(0.02)


async def test_the_job_of_a_killed_worker_is_delivered_to_another_at_once(
    shared_node: LiveNode,
) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", "b", retry=300)
        streams = {"stdout": subprocess.PIPE}
        with start_command("python -c", HOLDER, *at(shared_node), **streams) as worker:
            assert worker.stdout is not None
            assert (await anyio.to_thread.run_sync(worker.stdout.readline)).strip() == id.encode()
            worker.kill()
            with anyio.fail_after(HANG_SECONDS):
                async for job in client.jobs("q"):
                    assert (job.id, job.additional_deliveries, job.nacks) == (id, 1, 0)
                    await job.ack()
                    break
        assert await client.show(id) is None


@on_both
async def test_no_job_is_fetched_before_a_task_waits_for_it(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        await client.add_many("q", [b"%d" % n for n in range(20)])
        most = anyio.Semaphore(0)
        go_on = anyio.Event()
        done: list[bytes] = []

        async def handler(job: HeldJob) -> None:
            most.release()
            await go_on.wait()
            done.append(job.body)

        async with anyio.create_task_group() as nursery:
            nursery.start_soon(lambda: client.work(handler, "q", concurrency=3))
            with anyio.fail_after(HANG_SECONDS):
                for _ in range(3):
                    await most.acquire()
            await pushed(client, consuming=1, in_hand=3)
            assert await client.qlen("q") == 17
            go_on.set()
            await pushed(client, consuming=1, in_hand=0)
            nursery.cancel_scope.cancel()
        assert sorted(done, key=int) == [b"%d" % n for n in range(20)]
        await pushed(client, consuming=0, in_hand=0)


@pytest.mark.parametrize("how", ["break", "stop", "cancel", "raise"])
@on_both
async def test_a_closed_loop_takes_no_more_jobs(shared_node: LiveNode, how: str) -> None:
    async with connect(at(shared_node)) as client:
        ids = await client.add_many("q", ["b"] * 3, retry=300)

        async def leave() -> None:
            async with client.jobs("q") as jobs:
                async for job in jobs:
                    assert job.id == ids[0]
                    if how == "stop":
                        await jobs.stop()
                    elif how == "cancel":
                        scope.cancel()
                        await anyio.sleep_forever()
                    elif how == "raise":
                        raise KeyError
                    else:
                        break

        with anyio.CancelScope() as scope:
            if how == "raise":
                with pytest.raises(KeyError):
                    await leave()
            else:
                await leave()
        await pushed(client, consuming=0, in_hand=0)
        assert await client.qlen("q") == (2 if how == "stop" else 3)
        jobs = await client.get("q", count=3)
        assert {job.id: job.nacks for job in jobs} == (
            dict.fromkeys(ids[1:], 0) if how == "stop" else {ids[0]: 1, ids[1]: 0, ids[2]: 0}
        )


async def test_a_released_job_stays_with_its_holder(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as other:
        async with connect(at(shared_node)) as client:
            ids = await other.add_many("q", ["b"] * 3, retry=300)
            async for job in client.jobs("q"):
                job.release()
                if job.id == ids[-1]:
                    break
        await pushed(other, consuming=0, in_hand=0)
        assert await other.qlen("q") == 0
        assert await other.ack(*ids) == 3


async def test_no_job_is_lost_or_repeated_when_loops_are_cancelled_repeatedly(
    shared_node: LiveNode,
) -> None:
    total = 300
    got: list[str] = []
    async with connect(at(shared_node)) as client:

        async def impatient() -> None:
            async with client.jobs("q") as jobs:
                job: HeldJob | None = None
                patience = 0.01
                while len({*got}) < total:
                    with anyio.move_on_after(random.uniform(0, patience)) as scope:
                        job = await anext(jobs)
                        assert job.nacks == 0
                        got.append(job.id)
                        if random.random() < 0.3:
                            await job.ack()
                    # Otherwise, a slow machine would never finish.
                    patience *= 1.02 if scope.cancelled_caught else 0.98
                if job is not None:
                    await job.ack()

        async def produce() -> None:
            for _ in range(total):
                await client.add("q", "b", retry=3600)

        with anyio.fail_after(HANG_SECONDS):
            async with anyio.create_task_group() as nursery:
                nursery.start_soon(produce)
                for _ in range(4):
                    nursery.start_soon(impatient)
        assert len(got) == len({*got}) == total
        await pushed(client, consuming=0, in_hand=0)


async def test_a_held_job_is_kept_when_its_connection_breaks(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        id, other = await client.add_many("q", ["b"] * 2, retry=300)
        async with client.jobs("q") as jobs:
            job = await anext(jobs)
            for line in str(await client.execute("CLIENT", "LIST")).split("\\n"):
                if "cmd=consume" in line:
                    number = line.split("id=")[1].split()[0]
                    assert await client.execute("CLIENT", "KILL", "ID", number) == 1
            await pushed(client, consuming=0, in_hand=0)
            with anyio.fail_after(HANG_SECONDS):
                while (shown := await client.show(id)) and shown["state"] != "active":
                    await anyio.sleep(0.02)
            assert not job.lost
            assert (await anext(jobs)).id == other
            assert await client.show(id) is None


async def test_waiting_loops_move_to_another_node_when_theirs_leaves(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 2) as cluster:
        async with connect([f"{n.host}:{n.port}" for n in cluster]) as client:
            got: list[bytes] = []

            async def handler(job: HeldJob) -> None:
                got.append(job.body)

            async with anyio.create_task_group() as nursery:
                nursery.start_soon(lambda: client.work(handler, "q", concurrency=3))
                await pushed(client, consuming=1, in_hand=0)
                used = client.address
                [leaver] = [n for n in cluster if f"{n.host}:{n.port}" == used]
                [stays] = [n for n in cluster if n is not leaver]
                await anyio.to_thread.run_sync(leaver.ask, "CLUSTER", "LEAVING", "yes")
                async with connect(at(stays)) as producer:
                    await producer.add_many("q", [b"%d" % n for n in range(10)], replicate=1)
                    await pushed(producer, consuming=1, in_hand=0)
                    with anyio.fail_after(HANG_SECONDS):
                        while len(got) < 10:
                            await anyio.sleep(0.02)
                nursery.cancel_scope.cancel()
            assert client.address != used


async def test_a_loop_survives_the_death_of_its_node(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3) as cluster:
        async with connect([f"{n.host}:{n.port}" for n in cluster]) as client:
            [used] = [n for n in cluster if f"{n.host}:{n.port}" == client.address]
            got: set[bytes] = set()

            async def work() -> None:
                async for job in client.jobs("q"):
                    got.add(job.body)

            async with anyio.create_task_group() as nursery:
                nursery.start_soon(work)
                await pushed(client, consuming=1, in_hand=0)
                await anyio.to_thread.run_sync(used.kill)
                with anyio.fail_after(HANG_SECONDS):
                    await client.add("q", "b", replicate=2, unique=True)
                    while not got:
                        await anyio.sleep(0.02)
                nursery.cancel_scope.cancel()


async def test_a_requeued_job_reaches_another_worker_at_once_and_did_not_fail(
    shared_node: LiveNode,
) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", "b", retry=300)
        counts: list[tuple[int, int]] = []
        with anyio.fail_after(HANG_SECONDS):
            async with client.jobs("q") as jobs:
                async for job in jobs:
                    assert job.id == id
                    counts.append((job.nacks, job.additional_deliveries))
                    await (job.requeue() if len(counts) == 1 else job.ack())
                    if len(counts) == 2:
                        break
        assert counts == [(0, 0), (0, 1)]


async def test_loops_share_a_connection_and_each_has_its_own_job(
    shared_node: LiveNode,
) -> None:
    async with connect(at(shared_node)) as client:
        await client.add_many("q", [b"%d" % n for n in range(9)])
        loops = client.loops("q", count=3)
        taken: list[bytes] = []
        all_have_one = anyio.Event()

        async def run(jobs: Jobs) -> None:
            async for job in jobs:
                taken.append(job.body)
                if len(taken) == 3:
                    await pushed(client, consuming=1, in_hand=3)
                    all_have_one.set()
                await all_have_one.wait()
                if len(taken) == 9:
                    for other in loops:
                        nursery.start_soon(other.stop)

        with anyio.fail_after(HANG_SECONDS):
            async with anyio.create_task_group() as nursery:
                for jobs in loops:
                    nursery.start_soon(run, jobs)
        assert sorted(taken) == [b"%d" % n for n in range(9)]
        await pushed(client, in_hand=0)


async def test_with_goes_on_the_next_job_is_pushed_when_one_is_settled(
    shared_node: LiveNode,
) -> None:
    async with connect(at(shared_node)) as client:
        await client.add_many("q", ["0", "1", "2"])
        with anyio.fail_after(HANG_SECONDS):
            jobs = client.jobs("q")
            first = await anext(jobs)
            first.goes_on = True
            await first.ack()
            await pushed(client, in_hand=1)
            assert (await anext(jobs)).body == b"1"
            await jobs.aclose()
            await pushed(client, in_hand=0)
        assert await client.qlen("q") == 2


async def test_with_goes_on_the_pushed_job_is_requeued_when_the_loop_stops(
    shared_node: LiveNode,
) -> None:
    async with connect(at(shared_node)) as client:
        await client.add_many("q", ["0", "1"])
        with anyio.fail_after(HANG_SECONDS):
            jobs = client.jobs("q")
            first = await anext(jobs)
            first.goes_on = True
            await first.ack()
            await pushed(client, in_hand=1)
            await jobs.stop()
            await pushed(client, in_hand=0)
        assert await client.qlen("q") == 1
