"""``Producer`` and ``Consumer``: roles held over many operations.

Owns the life of a hold: taking the role, renewing its lease, giving it back.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from operator import index
from typing import Self

import trio

from disque_pressure.errors import PressureError, QueueClosedError, RoleLostError
from disque_pressure.hold import Hold
from disque_pressure.operations import Operations


class Producer:
    """The producer of a queue, exclusive until the context ends. See ``PressureQueue``."""

    def __init__(self, engine: Operations, hold: Hold) -> None:
        self._engine = engine
        self._hold = hold

    async def put(self, data: bytes, timeout: float | None = None) -> None:
        """Like ``PressureQueue.put``. Also raises RoleLostError."""
        check(self._engine, self._hold)
        await self._engine.put(self._hold, [element(data)], timeout)

    async def put_many(
        self,
        items: Iterable[bytes],
        timeout: float | None = None,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Like ``PressureQueue.put_many``. Also raises RoleLostError."""
        check(self._engine, self._hold)
        return await self._engine.put(self._hold, elements(items), timeout, progress)

    async def close(self) -> None:
        """Like ``PressureQueue.close``. Also raises RoleLostError."""
        check(self._engine, self._hold)
        await self._engine.close(self._hold, None)  # we have the role, so there is no wait


class Consumer:
    """The consumer of a queue, exclusive until the context ends. See ``PressureQueue``."""

    def __init__(self, engine: Operations, hold: Hold) -> None:
        self._engine = engine
        self._hold = hold

    async def get(self, timeout: float | None = None) -> bytes:
        """Like ``PressureQueue.get``. Also raises RoleLostError."""
        check(self._engine, self._hold)
        return (await self._engine.get(self._hold, 1, timeout))[0]

    async def get_many(self, count: int, timeout: float | None = None) -> list[bytes]:
        """Like ``PressureQueue.get_many``. Also raises RoleLostError."""
        check(self._engine, self._hold)
        return await self._engine.get(self._hold, wanted(count), timeout)

    async def _remove(self, count: int) -> list[bytes]:
        """Like ``get_many``, but wait only for Redis's reply, and for that as long as it takes."""
        check(self._engine, self._hold)
        return await self._engine.get(self._hold, wanted(count), 0, patient=True)

    def __aiter__(self) -> "Elements":
        """Iterate over elements until the queue is closed and empty."""
        return Elements(self.get)


class Elements:
    """Iterates over the elements of a queue until it is closed and empty."""

    def __init__(self, get: Callable[[], Awaitable[bytes]]) -> None:
        self._get = get

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._get()
        except QueueClosedError:
            raise StopAsyncIteration from None


@asynccontextmanager
async def holding(engine: Operations, hold: Hold, timeout: float | None) -> AsyncIterator[None]:
    """Hold the role of ``hold`` within the block, renewing its lease in the background."""
    await engine.take(hold, timeout)
    scope = trio.CancelScope()
    engine.nursery.start_soon(_renew, engine, hold, scope)
    try:
        yield
    finally:
        scope.cancel()
        await engine.release(hold)


async def _renew(engine: Operations, hold: Hold, scope: trio.CancelScope) -> None:
    with scope:
        while True:
            await trio.sleep(engine.lease_ms / 3000)
            try:
                if not await engine.renew(hold):
                    return
            except PressureError:
                pass  # if the problem lasts, the next operation reports it


def check(engine: Operations, hold: Hold) -> None:
    """Raise RoleLostError if the role is known to be lost."""
    if hold.lost or not hold.held:
        raise RoleLostError(engine.name, hold.role)


def element(data: bytes) -> bytes:
    """Return ``data`` as bytes.

    Raises:
        TypeError: it is not bytes, a bytearray or a memoryview.
    """
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    if not isinstance(data, bytes):
        raise TypeError(f"an element of a queue must be bytes, not {type(data).__name__}")
    return data


def elements(items: Iterable[bytes]) -> list[bytes]:
    """Return the elements as a list. Raises TypeError if one, or all of ``items``, is not valid."""
    if isinstance(items, bytes | bytearray | memoryview | str):
        raise TypeError("put_many takes several elements; use put for one")
    return [element(data) for data in items]


def wanted(count: int) -> int:
    """Return ``count``. Raises ValueError if it is less than 1, TypeError if not an integer."""
    if index(count) < 1:
        raise ValueError(f"the number of elements to get must be 1 or more, not {count}")
    return count
