"""The program whose cost ``client`` measures: it uses the client in one way.

It reads lines such as ``add 100`` from its standard input, runs the operation that often, and
answers with its CPU time (s).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from disque_trio.client import Client, connect, sync

BODY: Final = b"x" * 100
QUEUE: Final = "bench"


def main(way: str, address: str) -> None:
    """Use the client in that way, with a node that nobody else uses."""
    WAYS[way](address)


def _trio(address: str) -> None:
    trio.run(_serve, address)


def _asyncio(address: str) -> None:
    asyncio.run(_serve(address))


async def _serve(address: str) -> None:
    async with connect([address]) as client:
        while line := sys.stdin.readline():
            name, times = line.split()
            started = time.process_time()
            await _STEPS[name](client, int(times))
            print(time.process_time() - started, flush=True)


async def _add(client: Client, times: int) -> None:
    for _ in range(times):
        await client.add(QUEUE, BODY)


async def _get(client: Client, times: int) -> None:
    for _ in range(times):
        [job] = await client.get(QUEUE)
        await client.ack(job.id)


async def _jobs(client: Client, times: int) -> None:
    done = 0
    jobs = client.jobs(QUEUE)
    async for _ in jobs:
        done += 1
        if done == times:
            await jobs.stop()


async def _qlen(client: Client, times: int) -> None:
    for _ in range(times):
        await client.qlen(QUEUE)


_STEPS: Final[dict[str, Callable[[Client, int], Awaitable[None]]]] = {
    "qlen": _qlen,
    "add": _add,
    "get": _get,
    "jobs": _jobs,
}


def _threads(address: str) -> None:
    with sync.connect([address]) as client:
        while line := sys.stdin.readline():
            name, times = line.split()
            started = time.process_time()
            _IN_THREAD[name](client, int(times))
            print(time.process_time() - started, flush=True)


def _add_in_thread(client: sync.Client, times: int) -> None:
    for _ in range(times):
        client.add(QUEUE, BODY)


def _get_in_thread(client: sync.Client, times: int) -> None:
    for _ in range(times):
        [job] = client.get(QUEUE)
        client.ack(job.id)


def _jobs_in_thread(client: sync.Client, times: int) -> None:
    for done, job in enumerate(client.jobs(QUEUE), 1):
        if done == times:
            job.ack()
            break


def _qlen_in_thread(client: sync.Client, times: int) -> None:
    for _ in range(times):
        client.qlen(QUEUE)


_IN_THREAD: Final[dict[str, Callable[[sync.Client, int], None]]] = {
    "qlen": _qlen_in_thread,
    "add": _add_in_thread,
    "get": _get_in_thread,
    "jobs": _jobs_in_thread,
}

WAYS: Final[dict[str, Callable[[str], None]]] = {
    "trio": _trio,
    "asyncio": _asyncio,
    "threads": _threads,
}
