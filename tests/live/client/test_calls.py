"""Calls over real nodes: who serves them, and what happens when a process dies."""

import random
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from disque_trio.client import CallError, HeldJob, ReplyError, TooSlowError, connect
from tests.support import ROOT
from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory
from tests.support.live_cluster import live_cluster
from tests.support.loops import on_both

SERVER = """
import sys, trio
from disque_trio.client import connect

async def handle(job):
    print(job.body.decode(), flush=True)
    await trio.sleep_forever()

async def main():
    async with connect([sys.argv[1]]) as client:
        await client.serve("q", handle)

trio.run(main)
"""


def at(node: LiveNode) -> list[str]:
    return [f"{node.host}:{node.port}"]


async def upper(job: HeldJob) -> bytes:
    if job.body == b"bad":
        raise ValueError("no such word")
    return job.body.upper()


@on_both
async def test_concurrent_calls_are_answered_over_one_connection_at_each_end(
    shared_node: LiveNode,
) -> None:
    async with connect(at(shared_node)) as server, connect(at(shared_node)) as caller:
        before = int((await caller.info("clients"))["connected_clients"])
        got: dict[str, bytes] = {}

        async def call(word: str) -> None:
            got[word] = await caller.call("q", word, timeout=HANG_SECONDS)

        async with anyio.create_task_group() as nursery:
            nursery.start_soon(lambda: server.serve("q", upper, concurrency=10))
            with anyio.fail_after(HANG_SECONDS):
                async with anyio.create_task_group() as callers:
                    for n in range(300):
                        callers.start_soon(call, f"word {n}")
                with pytest.raises(CallError, match="ValueError: no such word"):
                    await caller.call("q", "bad")
            after = int((await caller.info("clients"))["connected_clients"])
            nursery.cancel_scope.cancel()
        assert got == {f"word {n}": b"WORD %d" % n for n in range(300)}
        assert after == before + 2
        with anyio.fail_after(HANG_SECONDS):
            while [id async for id in caller.jscan()]:
                await anyio.sleep(0.02)


@on_both
async def test_a_call_that_nobody_serves_ends_in_time_and_leaves_nothing(
    shared_node: LiveNode,
) -> None:
    async with connect(at(shared_node)) as client:
        with pytest.raises(TooSlowError):
            await client.call("q", "body", timeout=0.2)
        with anyio.fail_after(HANG_SECONDS):
            while [id async for id in client.jscan()]:
                await anyio.sleep(0.02)


async def test_a_call_whose_server_is_killed_is_served_by_another(shared_node: LiveNode) -> None:
    async with connect(at(shared_node)) as client:
        streams = {"stdout": subprocess.PIPE}
        with start_command("python -c", SERVER, *at(shared_node), **streams) as server:

            async def die() -> None:
                assert server.stdout is not None
                assert await anyio.to_thread.run_sync(server.stdout.readline) == b"body\n"
                server.kill()
                await client.serve("q", upper)

            async with anyio.create_task_group() as nursery:
                nursery.start_soon(die)
                assert await client.call("q", "body", timeout=300) == b"BODY"
                nursery.cancel_scope.cancel()


@on_both
async def test_every_call_is_answered_while_connections_break_and_servers_come_and_go(
    shared_node: LiveNode,
) -> None:
    answered: list[str] = []
    patience, before = 0.3, 0

    def pause() -> float:
        """Some time, which is longer the more often this was called since the last answer, or a
        slow machine would never finish."""
        nonlocal patience, before
        patience = patience * 1.02 if len(answered) == before else 0.3
        before = len(answered)
        return random.uniform(0, patience)

    async with (
        connect(at(shared_node)) as server,
        connect(at(shared_node)) as caller,
        connect(at(shared_node)) as breaker,
        anyio.create_task_group() as nursery,
    ):

        async def serve() -> None:
            while True:
                with anyio.move_on_after(pause()):
                    await server.serve("q", upper, concurrency=5)

        async def cut() -> None:
            """Break connections on which jobs are pushed, from time to time."""
            while True:
                await anyio.sleep(pause())
                clients = await breaker.execute("CLIENT", "LIST")
                assert isinstance(clients, bytes)
                for id in re.findall(rb"^id=(\d+) .* resp=3", clients, re.MULTILINE):
                    if random.random() < 0.3:
                        with suppress(ReplyError):  # the connection has ended
                            await breaker.execute("CLIENT", "KILL", "ID", id)

        async def call(worker: int) -> None:
            for n in range(30):
                word = f"word {worker} {n}"
                assert await caller.call("q", word, timeout=HANG_SECONDS) == word.upper().encode()
                answered.append(word)

        for _ in range(2):
            nursery.start_soon(serve)
        nursery.start_soon(cut)
        async with anyio.create_task_group() as callers:
            for worker in range(10):
                callers.start_soon(call, worker)
        nursery.cancel_scope.cancel()
    assert len(answered) == 300


async def test_calls_cross_nodes_and_survive_the_node_of_the_caller(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3) as cluster:
        first, second, third = cluster
        everywhere = [f"{n.host}:{n.port}" for n in (first, third)]
        go_on = anyio.Event()
        begun = anyio.Event()

        async def slow(job: HeldJob) -> bytes:
            begun.set()
            await go_on.wait()
            return await upper(job)

        async with connect(at(second)) as server, connect(everywhere) as caller:
            [used] = [n for n in (first, third) if f"{n.host}:{n.port}" == caller.address]
            async with anyio.create_task_group() as nursery:
                nursery.start_soon(server.serve, "fast", upper)
                nursery.start_soon(lambda: server.serve("slow", slow, concurrency=2))
                assert await caller.call("fast", "one", timeout=HANG_SECONDS) == b"ONE"

                async def call() -> None:
                    assert await caller.call("slow", "two", timeout=HANG_SECONDS) == b"TWO"
                    nursery.cancel_scope.cancel()

                nursery.start_soon(call)
                with anyio.fail_after(HANG_SECONDS):
                    await begun.wait()
                await anyio.to_thread.run_sync(used.kill)
                go_on.set()
            assert caller.address not in (None, f"{used.host}:{used.port}")


async def test_the_example_runs(disque_server: NodeFactory, tmp_path: Path) -> None:
    node = disque_server()
    path = tmp_path / "calls.py"
    text = (ROOT / "examples" / "rpc" / "calls.py").read_text()
    path.write_text(text.replace("127.0.0.1:7711", at(node)[0]))
    with subprocess.Popen([sys.executable, path, "serve"]) as server:
        asked = await anyio.run_process([sys.executable, path, "call", "one", "and two", " "])
        server.kill()
    assert {*asked.stdout.decode().splitlines()} == {
        "one: 1",
        "and two: 2",
        " : CallError('ValueError: there are no words')",
    }
