"""Driving the store in a Redis, and a Redis for it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from disque_trio.bananaq.core.requests import Request
from disque_trio.bananaq.core.results import Result
from disque_trio.bananaq.redis_store.store import RedisStore
from tests.support.pressure_helpers import RedisServer, hung, plain_client, until

__all__ = ["RedisDrive", "RedisServer", "hung", "plain_client", "running", "until"]

NEVER = 1e6  # s


class RedisDrive:
    """A store in a Redis. Time passes by itself there."""

    def __init__(self, port: int, **options: Any) -> None:
        self.store = RedisStore(port=port, on_news=self._take_answers, **options)
        self.port = port
        self.available = self.store.available
        self.ends = 0  # calls that came with answers
        self._done: dict[Request, trio.Event] = {}
        self._results: dict[Request, Result] = {}

    def _take_answers(self) -> None:
        answers = list(self.store.answers)
        self.store.answers.clear()
        self.ends += bool(answers)
        for request, result in answers:
            self._results[request] = result
            self._done.pop(request).set()

    async def run(self, request: Request) -> Result:
        [result] = await self.run_all([request])
        return result

    async def run_all(self, requests: Sequence[Request]) -> list[Result]:
        """Submit all at once."""
        events = []
        for request in requests:
            event = self._done[request] = trio.Event()
            result = self.store.run(request, 0)
            if result is None:
                events.append(event)
            else:
                del self._done[request]
                self._results[request] = result
        with trio.fail_after(30):
            for event in events:
                await event.wait()
        return [self._results.pop(request) for request in requests]

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
async def serving(store: RedisStore) -> AsyncIterator[None]:
    """The tasks of ``store`` run."""
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run_forever)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def running(port: int, **options: Any) -> AsyncIterator[RedisDrive]:
    """A store that works; nobody is told anything but what was heard, unless asked for."""
    options.setdefault("poll_seconds", NEVER)
    options.setdefault("probe_seconds", NEVER)
    drive = RedisDrive(port, **options)
    async with serving(drive.store):
        yield drive
