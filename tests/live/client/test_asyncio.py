"""The client under asyncio against a real node: the behaviour that is specific to asyncio."""

import asyncio
import gc
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from disque_trio.client import Client, connect
from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory
from tests.support.live_helpers import info_value
from tests.support.loops import on_asyncio, run_asyncio

WORKER = """
import asyncio, sys
from disque_trio.client import connect

async def main():
    async with connect([sys.argv[1]]) as client:
        async for job in client.jobs("q"):
            print(job.id, flush=True)
            await asyncio.sleep(3600)

asyncio.run(main(), debug=True)
"""

LEFT = """
import asyncio, sys
from disque_trio.client import connect

async def work():
    async with connect([sys.argv[1]]) as client:
        async for job in client.jobs("q"):
            print(job.id, flush=True)
            taken.set()
            await asyncio.sleep(3600)

async def main():
    global task, taken
    taken = asyncio.Event()
    task = asyncio.create_task(work())
    await taken.wait()

asyncio.run(main(), debug=True)
"""


def at(node: LiveNode) -> list[str]:
    return [f"{node.host}:{node.port}"]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not await condition():
            await asyncio.sleep(0.01)


async def blocked(client: Client, count: int) -> None:
    """Wait until this many clients wait for a job at the node."""

    async def so() -> bool:
        return (await client.info("clients"))["blocked_clients"] == str(count)

    await until(so)


async def consuming(client: Client, count: int, in_hand: int) -> None:
    """Wait until the node pushes to this many clients, and they have this many jobs."""

    async def so() -> bool:
        info = await client.info("clients")
        return (info["consuming_clients"], info["jobs_pushed_in_hand"]) == (
            str(count),
            str(in_hand),
        )

    await until(so)


async def cancelled(task: "asyncio.Task[object]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@on_asyncio
async def test_a_task_that_waits_for_a_job_can_be_cancelled(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        task = asyncio.create_task(client.get("q"))
        await blocked(client, 1)
        await cancelled(task)
        await blocked(client, 0)
        id = await client.add("q", "b")
        assert [job.id for job in await client.get("q", timeout=HANG_SECONDS)] == [id]


@on_asyncio
async def test_no_job_is_lost_when_tasks_are_cancelled_repeatedly(
    shared_node: LiveNode,
) -> None:
    """At any moment, even if the reply has arrived and the task is about to take it."""
    total = 300
    got: set[str] = set()

    async with connect(at(shared_node)) as client:

        async def fetch() -> None:
            got.update(job.id for job in await client.get("q"))

        async def loop() -> None:
            async for job in client.jobs("q"):
                got.add(job.id)

        async def impatient(take: Callable[[], Awaitable[None]], patience: float) -> None:
            while len(got) < total:
                task = asyncio.ensure_future(take())
                await asyncio.wait([task], timeout=random.uniform(0, patience))
                # Otherwise, a slow machine would never finish.
                patience *= 0.98 if task.done() else 1.02
                task.cancel()
                await asyncio.wait([task])

        async with asyncio.timeout(HANG_SECONDS), asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(impatient(fetch, 0.02))
                group.create_task(impatient(loop, 0.1))
            for _ in range(total):
                await client.add("q", "b", retry=3600)
        assert len(got) == total
        await consuming(client, 0, 0)


@on_asyncio
async def test_a_cancelled_loop_requeues_its_job(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", "b", retry=300)
        taken = asyncio.Event()

        async def work() -> None:
            async with client.jobs("q") as jobs:
                async for _ in jobs:
                    taken.set()
                    await asyncio.sleep(HANG_SECONDS)

        task = asyncio.create_task(work())
        await taken.wait()
        await cancelled(task)
        await consuming(client, 0, 0)
        [again] = await client.get("q", timeout=HANG_SECONDS)
        assert (again.id, again.nacks) == (id, 1)


@pytest.mark.parametrize("with_handlers", [False, True])
@on_asyncio
async def test_a_task_that_is_cancelled_repeatedly_still_requeues_its_jobs(
    shared_node: LiveNode, with_handlers: bool
) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", "b", retry=300)
        taken = asyncio.Event()

        async def handler(_: object) -> None:
            taken.set()
            await asyncio.sleep(HANG_SECONDS)

        async def loop() -> None:
            async with client.jobs("q") as jobs:
                async for job in jobs:
                    await handler(job)

        work = client.work(handler, "q") if with_handlers else loop()
        task = asyncio.create_task(work)
        await taken.wait()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        [again] = await client.get("q", timeout=HANG_SECONDS)
        assert (again.id, again.nacks) == (id, 1)
        await client.ack(id)
        await consuming(client, 0, 0)


@on_asyncio
async def test_a_timeout_of_asyncio_ends_waiting_calls(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("other", "b")

        async def called() -> bool:
            return await client.qlen("calls") == 1

        async def loop() -> None:
            async with client.jobs("q") as jobs:
                await anext(jobs)

        async def handler(_: object) -> None:
            """Never called."""

        async def timed_out(wait: Awaitable[object], waiting: Awaitable[None]) -> None:
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:

                async def end() -> None:
                    await waiting
                    limit.reschedule(0)

                group.create_task(end())
                await wait

        for wait, waiting in (
            (client.get("q"), blocked(client, 1)),
            (client.wait(id, timeout=HANG_SECONDS), blocked(client, 1)),
            (loop(), consuming(client, 1, 0)),
            (client.work(handler, "q"), consuming(client, 1, 0)),
        ):
            with pytest.raises(TimeoutError):
                await timed_out(wait, waiting)
            task = asyncio.current_task()
            assert task is not None
            assert not task.cancelling()
            await consuming(client, 0, 0)
            await blocked(client, 0)
        with pytest.raises(TimeoutError):
            await timed_out(client.call("calls", "b", timeout=HANG_SECONDS), until(called))
        await client.cancel(id)

        async def nothing_left() -> bool:
            return not [id async for id in client.jscan(states=["queued", "active"])]

        await until(nothing_left)


@on_asyncio
async def test_a_group_with_a_failed_task_requeues_the_jobs_of_the_others(
    shared_node: LiveNode,
) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", "b", retry=300)
        taken = asyncio.Event()

        async def work() -> None:
            async with client.jobs("q") as jobs:
                async for _ in jobs:
                    taken.set()
                    await asyncio.sleep(HANG_SECONDS)

        async def fail() -> None:
            await taken.wait()
            raise KeyError

        with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
            async with asyncio.TaskGroup() as group:
                group.create_task(work())
                group.create_task(fail())
        assert isinstance(caught.value.exceptions[0], KeyError)
        assert [job.id for job in await client.get("q", timeout=HANG_SECONDS)] == [id]


@on_asyncio
async def test_a_cancelled_block_requeues_its_jobs_and_leaves_no_connection(
    shared_node: LiveNode,
) -> None:
    taken = asyncio.Event()

    async def work() -> None:
        async with connect(at(shared_node)) as client:
            async for _ in client.jobs("q"):
                taken.set()
                await asyncio.sleep(HANG_SECONDS)

    async with connect(at(shared_node)) as client:
        id = await client.add("q", "b", retry=300)
        assert await client.get("none", nohang=True) == []
        before = (await client.info("clients"))["connected_clients"]
        task = asyncio.create_task(work())
        await taken.wait()
        await cancelled(task)
        [again] = await client.get("q", timeout=HANG_SECONDS)
        assert (again.id, again.nacks) == (id, 1)

        async def alone() -> bool:
            return (await client.info("clients"))["connected_clients"] == before

        await until(alone)


@on_asyncio
async def test_connecting_can_be_cancelled() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), connect([f"{host}:{port}"]):
                raise AssertionError


@on_asyncio
async def test_a_closed_loop_requeues_its_job(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", "b", retry=300)
        async for _ in client.jobs("q"):
            break
        gc.collect()
        [again] = await client.get("q", timeout=HANG_SECONDS)
        assert (again.id, again.nacks) == (id, 1)


@pytest.mark.parametrize("program", [WORKER, LEFT], ids=["interrupted", "left"])
def test_a_program_that_ends_requeues_its_job(shared_node: LiveNode, program: str) -> None:
    """By Ctrl-C, or while a task runs that nobody waits for."""
    wire = shared_node.wire()
    id = wire("ADDJOB", "q", "b", 0, "RETRY", 300)
    assert isinstance(id, bytes)
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", program, *at(shared_node)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == id.decode()
        if program == WORKER:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=HANG_SECONDS)
    for complaint in ("never retrieved", "Exception ignored", "was destroyed", "ResourceWarning"):
        assert complaint not in said
    if program == WORKER:
        assert said.strip().endswith("KeyboardInterrupt")
    else:
        assert process.returncode == 0
    reply = wire("GETJOB", "TIMEOUT", 15000, "FROM", "q")
    assert isinstance(reply, list)
    assert reply[0][1] == id


def test_the_example_runs(disque_server: NodeFactory, tmp_path: Path) -> None:
    node = disque_server()
    path = tmp_path / "program.py"
    text = (ROOT / "examples" / "greetings" / "asyncio_worker.py").read_text()
    assert text in (ROOT / "docs" / "client.md").read_text()
    path.write_text(text.replace("127.0.0.1:7711", at(node)[0]))
    done = subprocess.run(
        [sys.executable, "-X", "dev", path], capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert "no answer: not done within 0.5 s" in done.stdout
    assert {"hello anna", "hello bert"} <= {*done.stdout.splitlines()}
    assert done.returncode == 0
    assert info_value(node, "jobs", "registered_jobs") == 0


def test_uvloop_works(shared_node: LiveNode) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        async with connect(at(shared_node)) as client:
            await client.add_many("q", ["a", "b", "c"])
            bodies = []
            async for job in (jobs := client.jobs("q")):
                bodies.append(job.body)
                if len(bodies) == 3:
                    await jobs.stop()
            assert bodies == [b"a", b"b", b"c"]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.get("q")
            assert (await client.call("words", "b", timeout=0.05)) if False else True

    run_asyncio(main, uvloop.new_event_loop)
