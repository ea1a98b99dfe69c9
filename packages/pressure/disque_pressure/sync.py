"""``PressureQueueSync``: the queue for programs without Trio. Its methods block the calling thread.

Only translates: a Trio loop in a background thread does the work (``thread_loop``), with the same
``PressureQueue`` that Trio programs use. ``blocking`` derives most methods from those of the
asynchronous class; only those that differ are written out.
"""

import itertools
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Self, TypeVar

from disque_pressure.client_id import client_id
from disque_pressure.errors import PressureError, QueueClosedError
from disque_pressure.queue import PressureQueue
from disque_pressure.roles import Consumer, Producer, elements, wanted
from disque_pressure.settings import Client
from disque_trio.respclient.thread_loop import Blocking, Loop, LoopEnded, blocking

__all__ = ["ConsumerSync", "PressureQueueSync", "ProducerSync"]

A_co = TypeVar("A_co", covariant=True)
T = TypeVar("T")
_handles = itertools.count(1)


class _Calls:
    """Runs calls in the loop of a queue, and keeps elements that arrived for a get that was
    interrupted."""

    def __init__(self, name: str, loop: Loop[PressureQueue]) -> None:
        self._name = name
        self._loop = loop
        self._arrived: list[bytes] = []
        self._lock = threading.Lock()

    def run(
        self, function: Callable[[], Awaitable[T]], keep: Callable[[T], None] = lambda _: None
    ) -> T:
        """Like ``Loop.run``. Raises PressureError if the loop has ended."""
        try:
            return self._loop.run(function, keep)
        except LoopEnded as ended:
            raise self._ended(ended) from None

    @contextmanager
    def hold(self, context: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
        """Keep a context of the loop entered within the block. Raises as ``run``."""
        try:
            held = self._loop.hold(context)
        except LoopEnded as ended:
            raise self._ended(ended) from None
        try:
            yield held.value
        finally:
            try:
                held.leave()
            except LoopEnded:
                pass  # closed meanwhile, which gave the role back

    def take(self, count: int, get_many: Callable[[], Awaitable[list[bytes]]]) -> list[bytes]:
        """Return up to ``count`` elements that were kept, or else those from ``get_many``."""
        wanted(count)
        with self._lock:
            kept, self._arrived = self._arrived[:count], self._arrived[count:]
        return kept or self.run(get_many, self._keep)

    def _keep(self, elements: list[bytes]) -> None:
        with self._lock:
            self._arrived += elements

    def _ended(self, ended: LoopEnded) -> PressureError:
        return PressureError(self._name, f"queue {self._name!r} can no longer be used: {ended}")


class _Blocking(Blocking[A_co]):
    """The blocking methods of an asynchronous object, ``target``."""

    def __init__(self, calls: _Calls, target: A_co) -> None:
        self._calls = calls
        self._target = target

    def _run(self, call: Callable[[A_co], Awaitable[T]]) -> T:
        return self._calls.run(lambda: call(self._target))


def _until_closed(get: Callable[[], bytes]) -> Iterator[bytes]:
    while True:
        try:
            data = get()
        except QueueClosedError:
            return
        yield data


class PressureQueueSync(_Blocking[PressureQueue]):
    """A queue in Redis, for threads and scripts.

        with PressureQueueSync("lines") as queue:
            queue.put(b"one")

    Any number of threads may share one. In the queue they are one client, ``uid``, by default named
    after host, process, the thread that opens it, and a number. Arguments and errors are those of
    ``PressureQueue``.

    Ctrl-C (or another exception from a signal handler) ends every wait: the role is given back
    first, and an element that had already arrived is kept for the next ``get`` of this object.

    Close it with ``disconnect`` or a ``with`` block. Otherwise it is closed, and its roles are
    given back, when the program exits. A forked child must open its own.
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
        """Open the handle; the queue in Redis need not exist yet.

        Raises:
            InvalidNameError, ValueError: the name or a setting is invalid.
            PressureConnectionError: Redis cannot be reached.
        """
        self.name = name
        # Each call is a task of its own, so the task's number would be different each time.
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
            ),
            "pressure",
        )
        super().__init__(_Calls(name, self._loop), self._loop.value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Give back all roles, end waits in other threads with PressureError, and disconnect.

        The queue in Redis is not changed; ``close`` closes the queue.
        """
        self._loop.close()

    create = blocking(PressureQueue.create)
    exists = blocking(PressureQueue.exists)
    length = qsize = blocking(PressureQueue.length)
    closed = blocking(PressureQueue.closed)
    stats = blocking(PressureQueue.stats)
    inspect = blocking(PressureQueue.inspect)
    put = blocking(PressureQueue.put)
    put_nowait = blocking(PressureQueue.put_nowait)
    close = blocking(PressureQueue.close)
    delete = blocking(PressureQueue.delete)
    repair = blocking(PressureQueue.repair)

    def put_many(
        self,
        items: Iterable[bytes],
        timeout: float | None = None,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Put elements in order, and return their number.

        ``progress`` is called with the number of elements that are in, each time that grows. It is
        called in another thread, must not raise, and holds everything up while it runs. However
        this call ends, the last value given to ``progress`` is exact.
        """
        every = elements(items)  # in this thread, since the iterator may block
        return self._calls.run(lambda: self._target.put_many(every, timeout, progress=progress))

    def get(self, timeout: float | None = None) -> bytes:
        """Take the oldest element. Waits for the role and an element, at most ``timeout`` s."""
        return self.get_many(1, timeout)[0]

    def get_nowait(self) -> bytes:
        """Take the oldest element if the role is free and there is an element."""
        return self.get(0)

    def get_many(self, count: int, timeout: float | None = None) -> list[bytes]:
        """Take 1 to ``count`` elements. Waits only for the first one."""
        return self._calls.take(count, lambda: self._target.get_many(count, timeout))

    def __iter__(self) -> Iterator[bytes]:
        """Take elements until the queue is closed and empty. Between them, the role is free."""
        return _until_closed(self.get)

    @contextmanager
    def producer(self, timeout: float | None = None) -> Iterator["ProducerSync"]:
        """Be the producer within the block: nobody else can put in between."""
        with self._calls.hold(lambda: self._target.producer(timeout)) as role:
            yield ProducerSync(self._calls, role)

    @contextmanager
    def consumer(self, timeout: float | None = None) -> Iterator["ConsumerSync"]:
        """Be the consumer within the block."""
        with self._calls.hold(lambda: self._target.consumer(timeout)) as role:
            yield ConsumerSync(self._calls, role)


class ProducerSync(_Blocking[Producer]):
    """The producer of a queue, from ``PressureQueueSync.producer``."""

    put = blocking(Producer.put)
    close = blocking(Producer.close)

    def put_many(
        self,
        items: Iterable[bytes],
        timeout: float | None = None,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Like ``PressureQueueSync.put_many``."""
        every = elements(items)
        return self._calls.run(lambda: self._target.put_many(every, timeout, progress=progress))


class ConsumerSync(_Blocking[Consumer]):
    """The consumer of a queue, from ``PressureQueueSync.consumer``."""

    def get(self, timeout: float | None = None) -> bytes:
        """Take the oldest element. Waits for one, at most ``timeout`` seconds."""
        return self.get_many(1, timeout)[0]

    def get_many(self, count: int, timeout: float | None = None) -> list[bytes]:
        """Take 1 to ``count`` elements. Waits only for the first one."""
        return self._calls.take(count, lambda: self._target.get_many(count, timeout))

    def __iter__(self) -> Iterator[bytes]:
        """Take elements, one by one, until the queue is closed and empty."""
        return _until_closed(self.get)
