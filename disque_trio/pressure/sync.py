"""`PressureQueueSync`: the queue for programs without Trio. Its methods block the calling thread.

Owns the translation only: a Trio loop in a background thread does the work (`thread_loop`), with
the same `PressureQueue` that Trio programs use.
"""

import itertools
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from coredis.client import Client

from disque_trio.pressure.client_id import client_id
from disque_trio.pressure.errors import PressureError, QueueClosedError
from disque_trio.pressure.queue import PressureQueue
from disque_trio.pressure.roles import Consumer, Producer, elements, wanted
from disque_trio.pressure.stats import Stats
from disque_trio.pressure.thread_loop import Held, Loop, LoopEnded

T = TypeVar("T")
_handles = itertools.count(1)


class PressureQueueSync:
    """A queue of Redis for threads and scripts.

        with PressureQueueSync("lines") as queue:
            queue.put(b"one")

    Any number of threads may share one; in the queue they are one client, `uid`, by default named
    after host, process, the thread that opens it, and a number. Errors and arguments are those of
    `PressureQueue`.
    Ctrl-C (or another exception that a signal handler raises) ends every wait: the role is given
    back first, and an element that had arrived already is kept for the next `get` of this object.

    Close it with `disconnect`, the end of a `with` block, or not at all: what is forgotten
    is closed at the exit of the program, roles given back. A child made by fork has to open its
    own.
    """

    def __init__(
        self,
        name: str,
        *,
        server: str | None = None,
        port: int | None = None,
        db: int | None = None,
        prefix: str | None = None,
        client: "Client[Any] | None" = None,
        lease: float = 30.0,
        uid: str | None = None,
    ) -> None:
        """Open it; the queue in Redis need not exist yet.

        Raises:
            InvalidNameError, ValueError: the name or a setting cannot be one.
            PressureConnectionError: Redis cannot be reached.
        """
        self.name = name
        self._arrived: list[bytes] = []
        self._lock = threading.Lock()
        # Each call is a task of its own, so its number would be another one each time.
        me = f"{client_id()}_handle{next(_handles)}" if uid is None else uid
        self._loop = Loop(
            lambda: PressureQueue(
                name,
                server=server,
                port=port,
                db=db,
                prefix=prefix,
                client=client,
                lease=lease,
                uid=me,
            )
        )
        self._queue = self._loop.value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Give back all roles, end waits in other threads with PressureError, and disconnect.

        The queue in Redis stays as it is. (`close` closes that.)
        """
        self._loop.close()

    def create(
        self, bound: int | None = None, *, patience: float = 5.0, force: bool = False
    ) -> None:
        """Create the queue; see `PressureQueue.create`."""
        self._run(lambda: self._queue.create(bound, patience=patience, force=force))

    def exists(self) -> bool:
        """Whether there is such a queue."""
        return self._run(self._queue.exists)

    def length(self) -> int:
        """How many elements are in it."""
        return self._run(self._queue.length)

    qsize = length

    def closed(self) -> bool:
        """Whether it was closed."""
        return self._run(self._queue.closed)

    def stats(self) -> Stats:
        """Its numbers at this moment."""
        return self._run(self._queue.stats)

    def inspect(self) -> dict[str, tuple[str, str, float | None]]:
        """The keys that exist; see `PressureQueue.inspect`."""
        return self._run(self._queue.inspect)

    def put(self, data: bytes, timeout: float | None = None) -> None:
        """Put an element in; waits for the role and for room, `timeout` seconds at most."""
        self._run(lambda: self._queue.put(data, timeout))

    def put_nowait(self, data: bytes) -> None:
        """Put an element in if the role and room are there now."""
        self._run(lambda: self._queue.put_nowait(data))

    def put_many(
        self,
        items: Iterable[bytes],
        timeout: float | None = None,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Put elements in, in order, and return how many.

        `progress` is called with the number of elements that are in, each time it has grown, in
        another thread; it may not raise, and holds everything up while it runs. When this ends, by
        whatever exception, its last value is exact.
        """
        every = elements(items)  # in this thread: the iterator may block
        return self._run(lambda: self._queue.put_many(every, timeout, progress=progress))

    def get(self, timeout: float | None = None) -> bytes:
        """Take the oldest element; waits for the role and an element, `timeout` seconds at most."""
        kept = self._kept(1)
        return kept[0] if kept else self._run(lambda: self._queue.get(timeout), self._keep)

    def get_nowait(self) -> bytes:
        """Take the oldest element if the role and an element are there now."""
        kept = self._kept(1)
        return kept[0] if kept else self._run(self._queue.get_nowait, self._keep)

    def get_many(self, count: int, timeout: float | None = None) -> list[bytes]:
        """Take 1 to `count` elements; waits only for the first."""
        kept = self._kept(wanted(count))
        return kept or self._run(lambda: self._queue.get_many(count, timeout), self._keep_all)

    def close(self, timeout: float | None = None) -> None:
        """Close the queue for good: no more puts; gets go on until it is empty."""
        self._run(lambda: self._queue.close(timeout))

    def delete(self, timeout: float | None = None) -> None:
        """Delete the queue and all that is in it."""
        self._run(lambda: self._queue.delete(timeout))

    def repair(self, role: str, user: str | None = None) -> str | None:
        """Free a role that a dead client holds; see `PressureQueue.repair`."""
        return self._run(lambda: self._queue.repair(role, user))

    def __iter__(self) -> Iterator[bytes]:
        """Take elements until the queue is closed and empty. The role is free in between."""
        while True:
            try:
                data = self.get()
            except QueueClosedError:
                return
            yield data

    @contextmanager
    def producer(self, timeout: float | None = None) -> Iterator["ProducerSync"]:
        """Be the producer for as long as the block takes: nobody else can put in between."""
        with self._hold(lambda: self._queue.producer(timeout)) as role:
            yield ProducerSync(self, role)

    @contextmanager
    def consumer(self, timeout: float | None = None) -> Iterator["ConsumerSync"]:
        """Be the consumer for as long as the block takes."""
        with self._hold(lambda: self._queue.consumer(timeout)) as role:
            yield ConsumerSync(self, role)

    @contextmanager
    def _hold(self, context: Callable[[], Any]) -> Iterator[Any]:
        try:
            held: Held[Any] = self._loop.hold(context)
        except LoopEnded as ended:
            raise self._ended(ended) from None
        try:
            yield held.value
        finally:
            try:
                held.leave()
            except LoopEnded:
                pass  # closed meanwhile, which gave the role back

    def _run(
        self, function: Callable[[], Awaitable[T]], keep: Callable[[T], None] = lambda _: None
    ) -> T:
        try:
            return self._loop.run(function, keep)
        except LoopEnded as ended:
            raise self._ended(ended) from None

    def _ended(self, ended: LoopEnded) -> PressureError:
        return PressureError(self.name, f"queue {self.name!r} cannot be used any more: {ended}")

    def _kept(self, count: int) -> list[bytes]:
        if not self._arrived:
            return []
        with self._lock:
            kept, self._arrived = self._arrived[:count], self._arrived[count:]
            return kept

    def _keep(self, data: bytes) -> None:
        self._keep_all([data])

    def _keep_all(self, elements: list[bytes]) -> None:
        with self._lock:
            self._arrived += elements


class ProducerSync:
    """The producer of a queue, from `PressureQueueSync.producer`."""

    def __init__(self, queue: PressureQueueSync, role: Producer) -> None:
        self._outer = queue
        self._role = role

    def put(self, data: bytes, timeout: float | None = None) -> None:
        """Put an element in; waits for room, `timeout` seconds at most."""
        self._outer._run(lambda: self._role.put(data, timeout))

    def put_many(
        self,
        items: Iterable[bytes],
        timeout: float | None = None,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """As `PressureQueueSync.put_many`."""
        every = elements(items)  # in this thread: the iterator may block
        return self._outer._run(lambda: self._role.put_many(every, timeout, progress=progress))

    def close(self) -> None:
        """Close the queue for good."""
        self._outer._run(self._role.close)


class ConsumerSync:
    """The consumer of a queue, from `PressureQueueSync.consumer`."""

    def __init__(self, queue: PressureQueueSync, role: Consumer) -> None:
        self._outer = queue
        self._role = role

    def get(self, timeout: float | None = None) -> bytes:
        """Take the oldest element; waits for one, `timeout` seconds at most."""
        kept = self._outer._kept(1)
        if kept:
            return kept[0]
        return self._outer._run(lambda: self._role.get(timeout), self._outer._keep)

    def get_many(self, count: int, timeout: float | None = None) -> list[bytes]:
        """Take 1 to `count` elements; waits only for the first."""
        kept = self._outer._kept(wanted(count))
        if kept:
            return kept
        return self._outer._run(lambda: self._role.get_many(count, timeout), self._outer._keep_all)

    def __iter__(self) -> Iterator[bytes]:
        """Take elements, one by one, until the queue is closed and empty."""
        while True:
            try:
                data = self.get()
            except QueueClosedError:
                return
            yield data
