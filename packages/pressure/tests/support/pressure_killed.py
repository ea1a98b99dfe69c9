"""Runs operations in processes that kill themselves at a given command.

It forks one for each line of its input, ``scenario point n prefix``, so that they start fast, and
writes ``prefix status`` when it has ended. The points are "before" the n-th command, when it was
"sent", and "after" its reply.
"""

import os
import select
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from disque_pressure import (
    PressureQueue,
    QueueEmptyError,
    QueueFullError,
    QueueInUseError,
)
from disque_trio.redis.connection import RedisConnection

LEASE = 0.2
WAIT = 0.3


async def create(q: PressureQueue, _: PressureQueue) -> None:
    await q.create(3)


async def put(q: PressureQueue, _: PressureQueue) -> None:
    await q.put(b"a")


async def put_with_timeout(q: PressureQueue, _: PressureQueue) -> None:
    await q.put(b"a", WAIT)


async def put_when_there_is_room(q: PressureQueue, other: PressureQueue) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(q.put, b"a")
        while (await other.stats()).producer_free:
            pass
        await other.get_nowait()


async def put_many(q: PressureQueue, _: PressureQueue) -> None:
    await q.put_many([b"a", b"b", b"c", b"d"], WAIT)


async def get(q: PressureQueue, _: PressureQueue) -> None:
    await q.get()


async def get_with_timeout(q: PressureQueue, _: PressureQueue) -> None:
    await q.get(WAIT)


async def get_when_it_comes(q: PressureQueue, other: PressureQueue) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(q.get)
        while (await other.stats()).consumer_free:
            pass
        await other.put_nowait(b"a")


async def get_many(q: PressureQueue, _: PressureQueue) -> None:
    await q.get_many(2)


async def produce(q: PressureQueue, _: PressureQueue) -> None:
    async with q.producer() as producer:
        await producer.put(b"a")
        await trio.sleep(LEASE * 0.7)  # its lease is renewed
        await producer.put_many([b"b", b"c"], WAIT)


async def produce_and_close(q: PressureQueue, _: PressureQueue) -> None:
    async with q.producer() as producer:
        await producer.put(b"a")
        await producer.close()


async def consume(q: PressureQueue, _: PressureQueue) -> None:
    async with q.consumer() as consumer:
        await consumer.get()
        await trio.sleep(LEASE * 0.7)
        await consumer.get_many(2)


async def close(q: PressureQueue, _: PressureQueue) -> None:
    await q.close()


async def delete(q: PressureQueue, _: PressureQueue) -> None:
    await q.delete()


async def delete_with_timeout(q: PressureQueue, _: PressureQueue) -> None:
    await q.delete(WAIT)


OPERATIONS: dict[str, Callable[[PressureQueue, PressureQueue], Awaitable[None]]] = {
    function.__name__: function
    for function in (
        create,
        put,
        put_with_timeout,
        put_when_there_is_room,
        put_many,
        get,
        get_with_timeout,
        get_when_it_comes,
        get_many,
        produce,
        produce_and_close,
        consume,
        close,
        delete,
        delete_with_timeout,
    )
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DiesWhenSent:
    """A stream that sends once."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    async def send_all(self, data: bytes) -> None:
        await self.stream.send_all(data)
        die()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def die_at(point: str, n: int, handle: PressureQueue) -> None:
    """Make this process die at the n-th command of a handle from now, on any connection."""
    post, reply = RedisConnection.post, RedisConnection._reply
    at = 0
    last: Any = None

    def posting(self: RedisConnection, connection: Any, *words: Any, **options: Any) -> Any:
        nonlocal at, last
        if self._open != handle._open:
            return post(self, connection, *words, **options)
        mine = at == n
        at += 1
        if mine and point == "before":
            die()
        if mine and point == "sent":
            connection._stream = DiesWhenSent(connection._stream)
        request = post(self, connection, *words, **options)
        if mine and point == "after":
            last = request
        return request

    async def replying(self: RedisConnection, request: Any) -> Any:
        try:
            return await reply(self, request)
        finally:
            if request is last:
                die()

    RedisConnection.post = posting  # type: ignore[method-assign]
    RedisConnection._reply = replying  # type: ignore[method-assign]


async def main(port: int, operation: str, point: str, n: int, prefix: str) -> None:
    async with (
        PressureQueue("q", port=port, prefix=prefix, lease=LEASE) as q,
        PressureQueue("q", port=port, prefix=prefix) as other,
    ):
        die_at(point, n, q)
        try:
            await OPERATIONS[operation](q, other)
        except (QueueEmptyError, QueueFullError, QueueInUseError):
            pass


def serve(port: int) -> None:
    """Fork for each line of input, and report how the child ended."""
    running: dict[int, str] = {}
    text = b""
    while True:
        for found in select.select([0, *running], [], [])[0]:
            if found:
                _, status = os.waitpid(int(running[found].split()[1]), 0)
                print(running.pop(found).split()[0], os.waitstatus_to_exitcode(status), flush=True)
                os.close(found)
                continue
            data = os.read(0, 4096)
            if not data:
                return
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                operation, point, number, prefix = line.decode().split()
                pid = os.fork()
                if pid == 0:
                    status = 1
                    try:
                        trio.run(main, port, operation, point, int(number), prefix)
                        status = 0
                    except BaseException:
                        traceback.print_exc()
                    finally:
                        os._exit(status)
                running[os.pidfd_open(pid)] = f"{prefix} {pid}"


if __name__ == "__main__":
    serve(int(sys.argv[1]))
