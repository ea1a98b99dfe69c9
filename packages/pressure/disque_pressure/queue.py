"""``PressureQueue``: a bounded, synchronised, exclusive FIFO queue in a Redis, for Trio.

Owns a handle of a queue: its connections and tasks live as long as the ``async with`` block.
"""

import warnings
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from operator import index
from typing import Any, Self, cast

import trio

from disque_pressure import scripts, snippets
from disque_pressure.client_id import client_id
from disque_pressure.errors import (
    PressureConnectionError,
    QueueAlreadyExistsError,
    QueueBusyError,
)
from disque_pressure.hold import Hold
from disque_pressure.keys import CONSUMER, PRODUCER, Keys, text
from disque_pressure.operations import Operations
from disque_pressure.roles import (
    Consumer,
    Elements,
    Producer,
    element,
    elements,
    holding,
    wanted,
)
from disque_pressure.settings import Client, resolve, servers
from disque_pressure.stats import Stats
from disque_pressure.waiting import Waits
from disque_trio.redis.connection import RedisConnection
from disque_trio.respclient.background import background
from disque_trio.respclient.concurrency import Nursery

SHORTEST_LEASE = 0.1
LONGEST_LEASE = 7 * 24 * 3600.0
"""Seconds. Marks that say who holds a role are kept for this long."""
MOST_BOUND = 1 << 53
"""Numbers in Lua are exact up to here."""


class PressureQueue:
    """A handle of the queue ``name``, for any number of tasks; an async context manager.

    Elements are bytes. Times are in seconds; a ``timeout`` of None waits forever, 0 does not wait.
    If Redis does not reply, an operation ends a second after its timeout; without one, after ten
    seconds.

    All operations can be cancelled: roles they took are given back before they end, and an element
    is either returned or still in the queue. This is uncertain only if Redis does not reply within
    a second of the cancellation. No command is sent twice.

    If a get ends without a reply, its elements may arrive late. The handle keeps them, and its next
    get returns them, after first waiting for the reply as long as its own timeout allows. Elements
    that are still kept when the handle is closed are lost (RuntimeWarning).

    Besides the errors it documents, any operation may raise:

    - ``QueueDoesNotExistError``: the queue does not exist, or is deleted meanwhile;
    - ``PressureConnectionError``: Redis cannot be reached, or does not reply. The handle works
      again once Redis does;
    - ``WrongTypeError``: a key of the queue does not hold what the protocol says;
    - ``ServerRefusedError``: Redis refuses the command. Redis 6.2 or later, or Valkey, is required.

    Args:
        name: the name of the queue, which need not exist yet.
        server, port, db, prefix: how to find it. None means the environment variable
            (REDIS_SERVER, REDIS_PORT, REDIS_DB, PRESSURE_PREFIX) or else the protocol's default.
        client: what to connect to instead: a ``Server`` or ``Sentinels`` of ``disque_trio.redis``,
            or a coredis client: ``Redis``, one from ``Sentinel``, or ``RedisCluster``. Only its
            address and login are used, not its connections and retries.
        lease: seconds after which other clients of this kind may take a role from this one, if it
            died: from 0.1 to 7 days. A program that is stopped for longer also loses its role.
        uid: the id of this client in the queue; by default that of the calling task.

    Raises:
        InvalidNameError: the name is empty, or ends like a key of another queue.
        TypeError: the name is not a str.
        ValueError: the lease is too short or too long, or an environment variable is not a number.
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
            raise ValueError(f"a lease must be from {SHORTEST_LEASE} s to 7 days, not {lease!r}")
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
        """The id of the calling task, as a client of the queue."""
        return self._uid if self._uid is not None else client_id()

    async def __aenter__(self) -> Self:
        nursery = self._nursery = await self._stack.enter_async_context(background())
        redis = RedisConnection(nursery, self._open)
        self._ready = Operations(self.keys, nursery, redis, Waits(nursery, self._open), self._lease)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            self._end()  # warns about lost elements, and warnings may be errors
        finally:
            await self._stack.aclose()

    async def aclose(self) -> None:
        """Close the connections. Operations in progress end with PressureConnectionError, and the
        handle cannot be used any more."""
        self._end()
        await trio.lowlevel.checkpoint()

    def _end(self) -> None:
        engine, self._ready = self._ready, None
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        if engine is not None and len(engine.late):
            text = f"queue {self.name!r}: {len(engine.late)} elements came late, and are lost"
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    @property
    def engine(self) -> Operations:
        """Runs scripts over the connections of this handle; for modules of this package.

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
        """Create the queue.

        Args:
            bound: the most elements it may hold; None or 0: no bound.
            patience: seconds to wait for a client that is deleting a queue of this name.
            force: remove the remains of a queue that was half deleted.

        Raises:
            QueueAlreadyExistsError: there is a queue of this name.
            QueueBusyError: keys of a queue of this name exist, and did not go away.
            ValueError: the bound is negative, or above 2**53.
            TypeError: the bound is not an integer.
        """
        most = 0 if bound is None else index(bound)
        if not 0 <= most <= MOST_BOUND:
            raise ValueError(f"a bound must be from 0 (none) to 2**53, not {bound}")
        reply = await self.engine.create(most, patience, force)
        if reply == 1:
            return
        code, *left = cast("list[Any]", reply)
        if code == snippets.EXISTS:
            raise QueueAlreadyExistsError(self.name)
        raise QueueBusyError(self.name, [text(key) for key in left])

    async def exists(self) -> bool:
        """Return whether the queue exists."""
        return await self.engine.exists()

    async def length(self) -> int:
        """Return the number of elements."""
        return (await self.stats()).length

    async def qsize(self) -> int:
        """Return the same as ``length``."""
        return await self.length()

    async def closed(self) -> bool:
        """Return whether the queue is closed. A closed queue remains closed."""
        return (await self.stats()).closed

    async def close(self, timeout: float | None = None) -> None:
        """Close the queue: nothing can be put any more, but remaining elements can be got.

        Raises:
            QueueClosedError: the queue is already closed.
            QueueInUseError: another client was the producer until the timeout.
        """
        await self.engine.close(Hold(PRODUCER, self.uid), timeout)

    async def delete(self, timeout: float | None = None) -> None:
        """Delete the queue with all its elements, as soon as nobody is producer or consumer.

        From the start of this call nobody can put or get, and whoever waits is woken. If the roles
        are not given back in time, or the call is cancelled, the queue is restored. If Redis is
        lost or this client dies meanwhile, the queue stays half deleted, and the next ``create``
        finishes the deletion.

        Raises:
            QueueInUseError: a role was not given back in time.
            QueueBusyError: another client created the queue again at the same time.
        """
        await self.engine.delete(self.uid, timeout)

    async def stats(self) -> Stats:
        """Return the queue's statistics. Takes no role."""
        reply = cast("list[Any]", await self.engine.run(scripts.stats, self.keys.every))
        if reply[0] != 0:
            raise self.engine.error(reply)
        return Stats.of(reply)

    # Elements

    async def put(self, data: bytes, timeout: float | None = None) -> None:
        """Put an element at the end of the queue. Waits while the queue is full or has a producer.

        Raises:
            QueueClosedError: the queue is closed.
            QueueFullError, QueueInUseError: the wait took longer than ``timeout``.
            TypeError: ``data`` is not bytes.
        """
        await self.engine.put(Hold(PRODUCER, self.uid), [element(data)], timeout)

    async def put_nowait(self, data: bytes) -> None:
        """Like ``put``, but wait only for Redis's reply."""
        await self.put(data, 0)

    async def put_many(
        self,
        items: Iterable[bytes],
        timeout: float | None = None,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Put elements in order, with nobody else's in between, and return their number.

        Elements are put as room permits, many at once. After an error, the first ``done`` of them
        (an attribute of the error) are in the queue.

        Args:
            progress: called with the number of elements that are in, each time that grows. It must
                not raise. After a cancellation its last value is exact, if Redis replied.

        Raises:
            QueueClosedError: the queue is closed.
            QueueFullError, QueueInUseError: the waits took longer than ``timeout`` in all.
            RoleLostError: this client was stopped for longer than the lease, and another one took
                the role.
            TypeError: an element is not bytes; none was put.
        """
        return await self.engine.put(Hold(PRODUCER, self.uid), elements(items), timeout, progress)

    async def get(self, timeout: float | None = None) -> bytes:
        """Get the first element. Waits while the queue is empty or has a consumer.

        Raises:
            QueueClosedError: the queue is closed and empty.
            QueueEmptyError, QueueInUseError: the wait took longer than ``timeout``.
        """
        return (await self.engine.get(Hold(CONSUMER, self.uid), 1, timeout))[0]

    async def get_nowait(self) -> bytes:
        """Like ``get``, but wait only for Redis's reply."""
        return await self.get(0)

    async def get_many(self, count: int, timeout: float | None = None) -> list[bytes]:
        """Get the first elements, at most ``count``. Waits for the first one only.

        May return fewer elements than there are: at most 1000, and about a megabyte.

        Raises:
            QueueClosedError, QueueEmptyError, QueueInUseError: as for ``get``.
            ValueError: ``count`` is less than 1.
        """
        return await self.engine.get(Hold(CONSUMER, self.uid), wanted(count), timeout)

    def __aiter__(self) -> Elements:
        """Iterate over elements until the queue is closed and empty. Between gets, the role is
        free."""
        return Elements(self.get)

    # Roles

    @asynccontextmanager
    async def producer(self, timeout: float | None = None) -> AsyncIterator[Producer]:
        """Be the producer for the whole block. Waits while there is another one.

        Raises:
            QueueClosedError: the queue is closed.
            QueueInUseError: the wait took longer than ``timeout``.
        """
        hold = Hold(PRODUCER, self.uid)
        async with holding(self.engine, hold, timeout):
            yield Producer(self.engine, hold)

    @asynccontextmanager
    async def consumer(self, timeout: float | None = None) -> AsyncIterator[Consumer]:
        """Be the consumer for the whole block. Waits while there is another one.

        Raises:
            QueueInUseError: the wait took longer than ``timeout``.
        """
        hold = Hold(CONSUMER, self.uid)
        async with holding(self.engine, hold, timeout):
            yield Consumer(self.engine, hold)

    # Inspection and repair

    async def inspect(self) -> dict[str, tuple[str, str, float | None]]:
        """Return the keys that exist, with type, value or length, and seconds to live (None:
        forever). Works whatever state the queue is in."""
        return await self.engine.inspect()

    async def repair(self, role: str, user: str | None = None) -> str | None:
        """Free the role of a dead client of any kind.

        Only you can know that it is dead: if it is alive, it will disturb the next client.

        Args:
            role: "producer" or "consumer".
            user: only free the role if the client with this id holds it.

        Returns:
            The id of the client that held the role ("" if it gave none); None if it was free.

        Raises:
            QueueInUseError: another client than ``user`` holds the role.
            ValueError: there is no such role.
        """
        if role not in (PRODUCER, CONSUMER):
            raise ValueError(f"a role must be {PRODUCER!r} or {CONSUMER!r}, not {role!r}")
        keys = self.keys.for_put if role == PRODUCER else self.keys.for_get
        given = "0" if user is None else "1"
        reply = await self.engine.run(scripts.repair, keys, user or "", given)
        if reply == 0:
            return None
        if isinstance(reply, bytes):
            return text(reply)
        raise self.engine.error(reply, Hold(role, self.uid))
