"""The client against a real node: whole cycles, keeping jobs alive, losing the node."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from disque_trio.client import (
    AuthError,
    BadIdError,
    Client,
    ConnectionLost,
    HeldJob,
    LeavingError,
    MaxLenError,
    NoJobError,
    NoReplError,
    PausedError,
    ReplyError,
    connect,
)
from tests.support import ROOT
from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory
from tests.support.loops import on_both

EXAMPLES = ROOT / "examples" / "greetings"


def at(node: LiveNode) -> list[str]:
    return [f"{node.host}:{node.port}"]


async def until(client: Client, queue: str, length: int) -> None:
    """Wait until the queue has this many jobs."""
    with anyio.fail_after(HANG_SECONDS):
        while await client.qlen(queue) != length:
            await anyio.sleep(0.02)


@on_both
async def test_a_job_is_added_fetched_and_acknowledged(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", b"\x00body\r\n", ttl=60, retry=10)
        assert await client.qlen("q") == 1
        assert [job.id for job in await client.qpeek("q", 5)] == [id]
        [job] = await client.get("q", timeout=HANG_SECONDS)
        assert (job.id, job.queue, job.body) == (id, "q", b"\x00body\r\n")
        assert (job.nacks, job.additional_deliveries) == (0, 0)
        shown = await client.show(id)
        assert shown is not None
        assert (shown["state"], shown["retry"], shown["body"]) == ("active", 10, b"\x00body\r\n")
        assert await client.working(id) == 10
        assert await client.ack(id) == 1
        assert await client.ack(id) == 0
        assert await client.show(id) is None


async def test_headers_travel_with_a_job(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", "body", headers={"content-type": "text/plain", "n": b"\xff"})
        shown = await client.show(id)
        assert shown is not None
        assert shown["headers"] == ["content-type", "text/plain", "n", "\udcff"]
        assert [job.body for job in await client.qpeek("q", 5)] == [b"body"]
        [job] = await client.get("q", withheaders=True)
        assert job.headers == {"content-type": b"text/plain", "n": b"\xff"}
        await client.ack(id)


async def test_names_may_be_any_bytes(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        await client.add(b"\xff\x00 q", "é")
        [job] = await client.get(b"\xff\x00 q", nohang=True)
        assert job.body == "é".encode()
        assert await client.qlen(job.queue) == 0
        assert job.queue.encode("utf-8", "surrogateescape") == b"\xff\x00 q"


async def test_many_jobs_go_through_one_pipeline(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        ids = await client.add_many("q", [b"%d" % n for n in range(3000)])
        assert len(set(ids)) == 3000
        jobs = await client.get("q", count=3000)
        assert [job.id for job in jobs] == ids
        assert await client.ack(*ids) == 3000


@on_both
async def test_get_waits_for_a_job_until_its_timeout(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        assert await client.get("q", nohang=True) == []
        assert await client.get("q", timeout=0.05) == []
        async with anyio.create_task_group() as nursery:

            @nursery.start_soon
            async def consume() -> None:
                [job] = await client.get("other", "q", timeout=HANG_SECONDS)
                assert job.queue == "q"

            await client.add("q", "late")


async def test_counters_and_states_follow_the_job(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", "b")
        assert await client.dequeue(id) == 1
        assert await client.qlen("q") == 0
        assert await client.enqueue(id) == 1
        await client.get("q")
        assert await client.nack(id) == 1
        [job] = await client.get("q")
        assert job.nacks == 1
        assert await client.fastack(id) == 1
        id = await client.add("q", "b")
        assert await client.deljob(id) == 1


async def test_an_error_reply_raises_the_exception_for_its_code(shared_node: LiveNode) -> None:
    unknown = "D-00000000-" + "0" * 24 + "-05a1"
    async with connect(at(shared_node)) as client:
        await client.add("q", "b")
        with pytest.raises(MaxLenError):
            await client.add("q", "b", maxlen=1)
        with pytest.raises(NoReplError):
            await client.add("q", "b", replicate=2, timeout=0.1)
        with pytest.raises(NoJobError):
            await client.working(unknown)
        with pytest.raises(BadIdError):
            await client.ack("x")
        with pytest.raises(ReplyError, match="unknown command"):
            await client.execute("NOPE")
        assert await client.pause("q", "in") == "in"
        with pytest.raises(PausedError):
            await client.add("q", "b")
        assert await client.pause("q", "none") == "none"


@on_both
async def test_scans_find_every_queue_and_job(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        ids = set()
        for n in range(50):
            ids |= set(await client.add_many(f"q{n}", ["b"] * 5))
        assert {name async for name in client.qscan(count=7)} == {f"q{n}" for n in range(50)}
        assert {id async for id in client.jscan(count=7)} == ids
        assert len({id async for id in client.jscan(queue="q3", states=["queued"])}) == 5
        fulls = [fields async for fields in client.jscan_full(queue="q3")]
        assert {fields["queue"] for fields in fulls} == {"q3"}
        assert all(fields["body"] == b"b" for fields in fulls)
        stat = await client.qstat("q3")
        assert stat is not None
        assert (stat["name"], stat["len"]) == ("q3", 5)
        assert (await client.info("jobs"))["registered_jobs"] == "250"
        hello = await client.hello()
        assert hello.node_id in {node.id for node in hello.nodes}


@on_both
async def test_a_password_is_needed_and_sent(disque_server: NodeFactory) -> None:
    node = disque_server("--requirepass", "secret")
    async with connect(at(node), password="secret") as client:
        await client.add("q", "b")
        assert len(await client.get("q")) == 1
    for password in ("wrong", None):
        with pytest.raises((AuthError, ConnectionLost), match=r"password|NOAUTH|Authentication"):
            async with connect(at(node), password=password, retry_for=0) as client:
                await client.qlen("q")


@on_both
async def test_a_unix_socket_works(disque_server: NodeFactory, tmp_path: Path) -> None:
    disque_server("--unixsocket", str(tmp_path / "d.sock"))
    async with connect([f"unix:{tmp_path}/d.sock"]) as client:
        assert client.address == f"unix:{tmp_path}/d.sock"
        await client.add("q", "b")
        assert len(await client.get("q")) == 1


@pytest.mark.load  # a starved process does not renew it in time
@on_both
async def test_a_slow_handler_keeps_its_job_beyond_the_retry_time(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", "slow", retry=3)
        async with client.jobs("q") as jobs:
            async for held in jobs:
                # Another consumer waits for longer than the retry time without getting it.
                assert await client.get("q", timeout=4) == []
                assert not held.lost
                assert held.additional_deliveries == 0
                await held.ack()
                break
        assert await client.show(id) is None


async def test_a_job_whose_worker_does_nothing_is_delivered_again(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", "b", retry=1)
        await client.get("q")
        [again] = await client.get("q", timeout=HANG_SECONDS)
        assert (again.id, again.additional_deliveries) == (id, 1)


async def test_a_job_that_is_deleted_during_its_processing_is_lost(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        await client.add("q", "b", retry=1)
        async with client.jobs("q") as jobs:
            held = await anext(jobs)
            await client.deljob(held.id)
            with anyio.fail_after(HANG_SECONDS):
                while not held.lost:
                    await anyio.sleep(0.02)


@on_both
async def test_a_body_that_fails_requeues_its_job_at_once(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        id = await client.add("q", "b", retry=300)
        with pytest.raises(KeyError):  # noqa: PT012
            async for _ in client.jobs("q"):
                raise KeyError
        [again] = await client.get("q", timeout=HANG_SECONDS)
        assert (again.id, again.nacks) == (id, 1)


@on_both
async def test_work_acknowledges_finished_jobs_and_requeues_the_rest(
    shared_node: LiveNode,
) -> None:
    handled: list[bytes] = []
    async with connect(at(shared_node)) as client:
        await client.add_many("q", [b"%d" % n for n in range(40)])

        async def handler(held: HeldJob) -> None:
            if int(held.body) % 4 == 0 and held.nacks < 2:
                raise ValueError(held.body)
            handled.append(held.body)

        async with anyio.create_task_group() as nursery:
            nursery.start_soon(lambda: client.work(handler, "q", concurrency=5))
            with anyio.fail_after(HANG_SECONDS):
                while [id async for id in client.jscan()]:
                    await anyio.sleep(0.02)
            nursery.cancel_scope.cancel()
    assert sorted(handled, key=int) == [b"%d" % n for n in range(40)]


@on_both
async def test_no_job_is_lost_when_waiting_consumers_are_cancelled_repeatedly(
    shared_node: LiveNode,
) -> None:
    total = 300
    got: set[str] = set()
    async with connect(at(shared_node)) as client:

        async def impatient() -> None:
            patience = 0.01
            while len(got) < total:
                with anyio.move_on_after(random.uniform(0, patience)) as scope:
                    got.update(job.id for job in await client.get("q"))
                # Otherwise, a slow machine would never finish.
                patience *= 1.02 if scope.cancelled_caught else 0.98

        async def produce() -> None:
            for _ in range(total):
                await client.add("q", "b", retry=3600)

        with anyio.fail_after(HANG_SECONDS):
            async with anyio.create_task_group() as nursery:
                nursery.start_soon(produce)
                for _ in range(4):
                    nursery.start_soon(impatient)
        assert len(got) == total


@on_both
async def test_the_client_survives_a_restart_of_the_node(disque_server: NodeFactory) -> None:
    node = disque_server()
    async with connect(at(node), retry_for=20) as client:
        await client.add("q", "before")
        seen: list[bytes] = []

        async def worker() -> None:
            async for held in client.jobs("q"):
                seen.append(held.body)  # noqa: PERF401

        async with anyio.create_task_group() as nursery:
            nursery.start_soon(worker)
            with anyio.fail_after(HANG_SECONDS):
                await until(client, "q", 0)
                await anyio.to_thread.run_sync(node.kill)
                again = await anyio.to_thread.run_sync(_restart, node)
                try:
                    while True:
                        try:
                            await client.add("q", "after")
                            break
                        except ConnectionLost:
                            pass  # it was sent on the dying connection
                    while b"after" not in seen:
                        await anyio.sleep(0.02)
                finally:
                    nursery.cancel_scope.cancel()
                    again.terminate()
                    again.wait(HANG_SECONDS)


def _restart(node: LiveNode) -> "subprocess.Popen[bytes]":
    words = ["--port", str(node.port), "--bind", node.host]
    return start_command("disque-server", *words, cwd=node.log.parent, stdout=subprocess.DEVNULL)


@on_both
async def test_a_waiting_consumer_raises_when_the_node_is_gone(
    disque_server: NodeFactory,
) -> None:
    node = disque_server()
    async with connect(at(node), retry_for=0.3) as client, anyio.create_task_group() as nursery:

        @nursery.start_soon
        async def consume() -> None:
            with pytest.raises(ConnectionLost, match="refused"):
                await client.get("q")

        with anyio.fail_after(HANG_SECONDS):
            while (await client.info("clients"))["blocked_clients"] != "1":
                await anyio.sleep(0.02)
            await anyio.to_thread.run_sync(node.kill)


async def test_leaving_of_the_only_node_is_reported(disque_server: NodeFactory) -> None:
    node = disque_server()
    async with connect(at(node), retry_for=0.3) as client:
        await client.execute("CLUSTER", "LEAVING", "yes")
        with anyio.fail_after(HANG_SECONDS), pytest.raises(LeavingError):
            await client.get("q")


@on_both
async def test_a_cancelled_client_leaves_no_connection_at_the_node(
    shared_node: LiveNode,
) -> None:
    with anyio.move_on_after(0.3):
        async with connect(at(shared_node)) as client, anyio.create_task_group() as nursery:
            for _ in range(10):
                nursery.start_soon(client.get, "q")
    async with connect(at(shared_node)) as client:
        with anyio.fail_after(HANG_SECONDS):
            while (await client.info("clients"))["blocked_clients"] != "0":
                await anyio.sleep(0.02)


async def test_the_examples_run(disque_server: NodeFactory, tmp_path: Path) -> None:
    node = disque_server()
    for name in ("worker.py", "producer.py"):
        text = (EXAMPLES / name).read_text()
        (tmp_path / name).write_text(text.replace("127.0.0.1:7711", at(node)[0]))
    producer = await anyio.run_process([sys.executable, tmp_path / "producer.py", "anna", "bert"])
    assert len(producer.stdout.split()) == 2
    worker = subprocess.Popen([sys.executable, tmp_path / "worker.py"], stdout=subprocess.PIPE)
    with worker:
        assert worker.stdout is not None
        lines = [await anyio.to_thread.run_sync(worker.stdout.readline) for _ in range(2)]
        assert lines == [b"hello anna\n", b"hello bert\n"]
        async with connect(at(node)) as client:
            with anyio.fail_after(HANG_SECONDS):
                while [id async for id in client.jscan()]:
                    await anyio.sleep(0.02)
        os.kill(worker.pid, signal.SIGKILL)
