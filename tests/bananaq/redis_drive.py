"""Driving the store in a Redis, and a Redis for it."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

sys.path.insert(0, str(Path(__file__).parent.parent / "pressure"))

from pressure_helpers import RedisServer, plain_client, until

from disque_trio.bananaq.core.ops import Op
from disque_trio.bananaq.redis_store import RedisStore

__all__ = ["RedisDrive", "RedisServer", "plain_client", "running", "until"]

NEVER = 1e6  # s


class RedisDrive:
    """A store in a Redis. Time passes by itself there."""

    def __init__(self, store: RedisStore, port: int) -> None:
        self.store = store
        self.port = port
        self.available: list[tuple[bytes, bytes | None]] = []
        self.ends = 0
        self._done: dict[int, trio.Event] = {}
        store.on_available = lambda queue, group: self.available.append((queue, group))
        store.on_answer = lambda op: self._done.pop(id(op)).set()
        store.on_answers_end = self._ended

    def _ended(self) -> None:
        self.ends += 1

    async def run(self, op: Op) -> Op:
        await self.run_all([op])
        return op

    async def run_all(self, ops: list[Op]) -> None:
        """Submit all at once."""
        events = []
        for op in ops:
            event = self._done[id(op)] = trio.Event()
            if self.store.run(op, 0):
                del self._done[id(op)]
            else:
                events.append(event)
        with trio.fail_after(30):
            for event in events:
                await event.wait()

    async def advance(self, ms: int) -> None:
        await trio.sleep(ms / 1000)

    async def watch(self, queue: bytes, group: bytes) -> None:
        self.store.watch(queue, group)
        assert await self.told(queue, group)

    async def told(self, queue: bytes, group: bytes) -> bool:
        await until(lambda: {(queue, group), (queue, None)} & set(self.available))
        return True

    async def now(self) -> int:
        with plain_client(self.port) as client:
            seconds, micros = client.time()
        return int(seconds) * 1_000_000 + int(micros)


@asynccontextmanager
async def running(port: int, **options: Any) -> AsyncIterator[RedisDrive]:
    """A store that works; nobody is told anything but what was heard, unless asked for."""
    options.setdefault("look_seconds", NEVER)
    store = RedisStore(port=port, **options)
    async with store.running():
        yield RedisDrive(store, port)
