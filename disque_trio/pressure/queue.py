"""``PressureQueue``: a bounded, synchronised, exclusive FIFO queue in a Redis, for Trio.

Owns a handle of a queue: its connections and tasks live as long as the ``async with`` block.
"""

# ruff: noqa: ASYNC109 - a timeout here ends with an error that says what was waited for

import warnings
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from operator import index
from typing import Any, Self, cast

import trio

from disque_trio.pressure import scripts, snippets
from disque_trio.pressure.client_id import client_id
from disque_trio.pressure.errors import (
    PressureConnectionError,
    QueueAlreadyExistsError,
    QueueBusyError,
)
from disque_trio.pressure.hold import Hold
from disque_trio.pressure.keys import CONSUMER, PRODUCER, Keys, text
from disque_trio.pressure.operations import Operations
from disque_trio.pressure.roles import (
    Consumer,
    Elements,
    Producer,
    element,
    elements,
    holding,
    wanted,
)
from disque_trio.pressure.settings import Client, resolve, servers
from disque_trio.pressure.stats import Stats
from disque_trio.pressure.waiting import Waits
from disque_trio.redis.connection import RedisConnection
from disque_trio.respclient.background import background
from disque_trio.respclient.concurrency import Nursery

SHORTEST_LEASE = 0.1
LONGEST_LEASE = 7 * 24 * 3600.0
"""Seconds; marks of who holds a role are kept for as long."""
MOST_BOUND = 1 << 53
"""Up to here numbers of Lua are exact."""


class PressureQueue:
    """A handle of the queue ``name``, for any number of tasks; a context manager.

    Args:
        name: of the queue; it need not exist yet.
        server, port, db, prefix: where it is. What is None comes from the environment
            (REDIS_SERVER, REDIS_PORT, REDIS_DB, PRESSURE_PREFIX) or is the protocol's default.
        client: what to connect to, instead: a ``Server`` or ``Sentinels`` of ``disque_trio.redis``,
            or a client of coredis: ``Redis``, one of a ``Sentinel``, or ``RedisCluster``. Of that
            no connections and retries are used, but its ways to log in.
        lease: seconds after which other clients of this kind may take a role from us if we died.
            From 0.1 to 7 days; a program that stops for longer than this loses its role too.
        uid: the id of this client in the queue; by default that of the calling task.

    Elements are bytes. Times are in seconds; ``timeout`` None waits for ever, 0 not at all. A Redis
    that does not reply ends an operation a second after its timeout, or after ten seconds.

    All operations may be cancelled: what they had taken is given back before they end, and an
    element is either got and returned, or still in the queue. Only if Redis does not reply within
    a second after the cancellation nobody knows. No command is sent twice.

    A get that has ended without a reply may be given its elements late. The handle keeps them, and
    its next get returns them; that one first waits for the reply, as long as it has time. When the
    handle is closed they are lost (RuntimeWarning).

    An operation may raise, besides what it says itself,

    - ``QueueDoesNotExistError``: also when the queue is deleted meanwhile,
    - ``PressureConnectionError``: Redis cannot be reached, or does not reply; the handle works
      again once it does,
    - ``WrongTypeError``: a key of the queue holds something else,
    - ``ServerRefusedError``: Redis refuses the command. It has to be 6.2 or later, or Valkey.

    Raises:
        InvalidNameError: the name is empty, or ends like a key of another queue.
        TypeError: the name is not text.
        ValueError: the lease is too short or too long, or a variable of the environment is not a
            number.
    """

    def __init__(
        self,
        name: str,
        *,
        server: str | None = None,
        port: int | None = None,
        db: int | None = None,
        prefix: str | None = None,
        client: Client | None = None,
        lease: float = 30.0,
        uid: str | None = None,
    ) -> None:
        if not SHORTEST_LEASE <= lease <= LONGEST_LEASE:
            raise ValueError(f"a lease is from {SHORTEST_LEASE} s to 7 days, not {lease!r}")
        settings = resolve(server, port, db, prefix)
        self.name = name
        self.keys = Keys(settings.prefix, name)
        self._uid = uid
        self._lease = lease
        self._open = servers(settings, client).connect
        self._stack = AsyncExitStack()
        self._nursery: Nursery | None = None
        self._ready: Operations | None = None

    @property
    def uid(self) -> str:
        """The id of the calling task as a client of the queue."""
        return self._uid if self._uid is not None else client_id()

    async def __aenter__(self) -> Self:
        nursery = self._nursery = await self._stack.enter_async_context(background())
        redis = RedisConnection(nursery, self._open)
        self._ready = Operations(self.keys, nursery, redis, Waits(nursery, self._open), self._lease)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            self._end()  # warns of lost elements, which may be an error
        finally:
            await self._stack.aclose()

    async def aclose(self) -> None:
        """Close the connections; nothing works after that. Operations that are under way end with
        PressureConnectionError."""
        self._end()
        await trio.lowlevel.checkpoint()

    def _end(self) -> None:
        engine, self._ready = self._ready, None
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        if engine is not None and len(engine.late):
            text = (
                f"queue {self.name!r}: {len(engine.late)} elements came late, and nobody got them"
            )
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    @property
    def engine(self) -> Operations:
        """What runs scripts over the connections of this handle; for modules of this package.

        Raises:
            PressureConnectionError: the handle is not open.
        """
        if self._ready is None:
            raise PressureConnectionError(
                self.name, f"queue {self.name!r}: this handle is not open (use `async with`)"
            )
        return self._ready

    # The queue as a whole

    async def create(
        self, bound: int | None = None, *, patience: float = 5.0, force: bool = False
    ) -> None:
        """Create the queue, for ``bound`` elements at most, or without a bound (None or 0).

        Args:
            patience: seconds to wait for somebody who is just deleting a queue of this name.
            force: remove what is left of one that was half deleted.

        Raises:
            QueueAlreadyExistsError
            QueueBusyError: keys of a queue of this name are there and do not go.
            ValueError: the bound is negative, or above 2**53.
            TypeError: it is no integer.
        """
        most = 0 if bound is None else index(bound)
        if not 0 <= most <= MOST_BOUND:
            raise ValueError(f"a bound is from 0 (none) to 2**53, not {bound}")
        reply = await self.engine.create(most, patience, force)
        if reply == 1:
            return
        code, *left = cast("list[Any]", reply)
        if code == snippets.EXISTS:
            raise QueueAlreadyExistsError(self.name)
        raise QueueBusyError(self.name, [text(key) for key in left])

    async def exists(self) -> bool:
        """Whether the queue exists."""
        return await self.engine.exists()

    async def length(self) -> int:
        """How many elements it has."""
        return (await self.stats()).length

    async def qsize(self) -> int:
        """The same as ``length``."""
        return await self.length()

    async def closed(self) -> bool:
        """Whether it is closed; once it is, it remains so."""
        return (await self.stats()).closed

    async def close(self, timeout: float | None = None) -> None:
        """Close it: nothing can be put any more, what is in it can still be got.

        Raises:
            QueueClosedError: it is closed already.
            QueueInUseError: there was a producer all the time.
        """
        await self.engine.close(Hold(PRODUCER, self.uid), timeout)

    async def delete(self, timeout: float | None = None) -> None:
        """Delete it with all its elements, as soon as nobody is producer or consumer.

        From the beginning nobody can put or get, and whoever waits to is woken. If the roles are
        not given back in time, or this is cancelled, it is a queue again as it was. If Redis is
        lost or we die meanwhile, it stays half deleted, and the next ``create`` finishes it.

        Raises:
            QueueInUseError: a role was not given back.
            QueueBusyError: somebody created it again at the same time.
        """
        await self.engine.delete(self.uid, timeout)

    async def stats(self) -> Stats:
        """Its numbers. Takes no role."""
        reply = cast("list[Any]", await self.engine.run(scripts.stats, self.keys.every))
        if reply[0] != 0:
            raise self.engine.error(reply)
        return Stats.of(reply)

    # Elements

    async def put(self, data: bytes, timeout: float | None = None) -> None:
        """Put an element at the end of the queue; waits while it is full or has a producer.

        Raises:
            QueueClosedError
            QueueFullError, QueueInUseError: for ``timeout`` seconds.
            TypeError: it is not bytes.
        """
        await self.engine.put(Hold(PRODUCER, self.uid), [element(data)], timeout)

    async def put_nowait(self, data: bytes) -> None:
        """``put`` that waits for nothing but the reply of Redis."""
        await self.put(data, 0)

    async def put_many(
        self,
        items: Iterable[bytes],
        timeout: float | None = None,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Put elements in order, nobody else's in between, and return their number.

        They go as there is room, many at once. After an error, the first ``done`` of them (an
        attribute of the error) are in the queue.

        Args:
            progress: is called with the number of elements that are in, each time it has grown.
                After a cancellation its last value is exact, if Redis replied: it may not raise.

        Raises:
            QueueClosedError
            QueueFullError, QueueInUseError: for ``timeout`` seconds in all.
            RoleLostError: we were stopped for longer than the lease, and somebody took the role.
            TypeError: one of them is not bytes; none was put.
        """
        return await self.engine.put(Hold(PRODUCER, self.uid), elements(items), timeout, progress)

    async def get(self, timeout: float | None = None) -> bytes:
        """Get the first element; waits while there is none, or there is a consumer.

        Raises:
            QueueClosedError: it is closed, and empty.
            QueueEmptyError, QueueInUseError: for ``timeout`` seconds.
        """
        return (await self.engine.get(Hold(CONSUMER, self.uid), 1, timeout))[0]

    async def get_nowait(self) -> bytes:
        """``get`` that waits for nothing but the reply of Redis."""
        return await self.get(0)

    async def get_many(self, count: int, timeout: float | None = None) -> list[bytes]:
        """Get the first elements: at least one, for which it waits, and at most ``count``.

        It may be fewer than there are: at most 1000, and no more after about a megabyte.

        Raises:
            QueueClosedError, QueueEmptyError, QueueInUseError: as ``get``.
            ValueError: ``count`` is below 1.
        """
        return await self.engine.get(Hold(CONSUMER, self.uid), wanted(count), timeout)

    def __aiter__(self) -> Elements:
        """The elements until the queue is closed and empty. The role is free in between."""
        return Elements(self.get)

    # Roles

    @asynccontextmanager
    async def producer(self, timeout: float | None = None) -> AsyncIterator[Producer]:
        """Be the producer for the whole block; waits while there is one.

        Raises:
            QueueClosedError
            QueueInUseError: for ``timeout`` seconds.
        """
        hold = Hold(PRODUCER, self.uid)
        async with holding(self.engine, hold, timeout):
            yield Producer(self.engine, hold)

    @asynccontextmanager
    async def consumer(self, timeout: float | None = None) -> AsyncIterator[Consumer]:
        """Be the consumer for the whole block; waits while there is one.

        Raises:
            QueueInUseError: for ``timeout`` seconds.
        """
        hold = Hold(CONSUMER, self.uid)
        async with holding(self.engine, hold, timeout):
            yield Consumer(self.engine, hold)

    # Looking and repairing

    async def inspect(self) -> dict[str, tuple[str, str, float | None]]:
        """The keys that exist, each with its type, value or length, and seconds to live (None: for
        ever). Works whatever state the queue is in."""
        return await self.engine.inspect()

    async def repair(self, role: str, user: str | None = None) -> str | None:
        """Give a role back that a dead client has, of whatever kind. Only you can know it is dead:
        a client that lives will disturb the next one.

        Args:
            role: "producer" or "consumer".
            user: do it only if the client with this id has the role.

        Returns:
            The id of the client that had it ("" if it has not given one); None if it was free.

        Raises:
            QueueInUseError: it is another client than ``user``.
            ValueError: there is no such role.
        """
        if role not in (PRODUCER, CONSUMER):
            raise ValueError(f"a role is {PRODUCER!r} or {CONSUMER!r}, not {role!r}")
        keys = self.keys.for_put if role == PRODUCER else self.keys.for_get
        given = "0" if user is None else "1"
        reply = await self.engine.run(scripts.repair, keys, user or "", given)
        if reply == 0:
            return None
        if isinstance(reply, bytes):
            return text(reply)
        raise self.engine.error(reply, Hold(role, self.uid))
