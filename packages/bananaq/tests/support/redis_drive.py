"""Drives the Redis store, and provides a Redis for it."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from disque_bananaq.core.requests import Request
from disque_bananaq.core.results import Result
from disque_bananaq.redis_store import pinned
from disque_bananaq.redis_store.store import RedisStore
from disque_trio.redis.script import Script
from tests.support.harness import HANG_SECONDS
from tests.support.redis_server import RedisServer, hung, plain_client, until

__all__ = [
    "MovedDrive",
    "RedisDrive",
    "RedisServer",
    "hung",
    "moved",
    "plain_client",
    "running",
    "until",
]

NEVER = 1e6  # s
# Far enough in the future for the keys not to expire during the test.
AHEAD = 50 * 365 * 86_400_000_000  # µs


class RedisDrive:
    """A store in Redis, where real time passes."""

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
        """Submit all requests at once."""
        events = []
        for request in requests:
            event = self._done[request] = trio.Event()
            result = self.store.run(request, 0)
            if result is None:
                events.append(event)
            else:
                del self._done[request]
                self._results[request] = result
        with trio.fail_after(HANG_SECONDS):
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


class MovedDrive(RedisDrive):
    """A store in Redis whose clock, µs in the key ``clock``, is moved by hand."""

    def __init__(self, port: int, clock: str, **options: Any) -> None:
        super().__init__(port, **options)
        self.time = time.time_ns() // 1000 + AHEAD
        self._clock = clock
        self.move(0)

    def move(self, ms: int) -> None:
        """Move the clock."""
        self.time += ms * 1000
        with plain_client(self.port) as raw:
            raw.set(self._clock, self.time)

    async def advance(self, ms: int) -> None:
        self.move(ms)

    async def now(self) -> int:
        return self.time


@asynccontextmanager
async def serving(store: RedisStore) -> AsyncIterator[None]:
    """Run the tasks of ``store``."""
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run_forever)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def running(port: int, **options: Any) -> AsyncIterator[RedisDrive]:
    """A running store."""
    options.setdefault("poll_seconds", NEVER)
    options.setdefault("probe_seconds", NEVER)
    drive = RedisDrive(port, **options)
    async with serving(drive.store):
        yield drive


@asynccontextmanager
async def moved(
    port: int, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MovedDrive]:
    """A running store whose clock is moved by hand."""
    clock = f"{prefix}:clock"
    source = pinned.OPERATIONS.source.decode()
    script = source.replace("call('TIME')", f"{{0, call('GET', '{clock}')}}")
    assert script != source
    monkeypatch.setattr(pinned, "OPERATIONS", Script(script))
    never = {"poll_seconds": NEVER, "probe_seconds": NEVER}
    drive = MovedDrive(port, clock, prefix=prefix, pool_size=2, **never)
    async with serving(drive.store):
        yield drive
