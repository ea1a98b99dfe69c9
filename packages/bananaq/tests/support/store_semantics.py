"""Drives an event store of any kind from a test."""

from typing import Protocol

from disque_bananaq.core.embedded import EmbeddedStore
from disque_bananaq.core.requests import (
    Ack,
    Add,
    Flush,
    Get,
    Last,
    Next,
    Redo,
    Request,
    Status,
    Working,
    from_now,
)
from disque_bananaq.core.results import Event, QueueStatus, Result

MS = 1000  # µs
MINUTE = 60_000 * MS
START = 1_700_000_000_000  # ms, where the moved clock begins


class Drive(Protocol):
    """A store and its clock.

    Attributes:
        available: the store's calls of ``available``, in order.
    """

    available: list[tuple[bytes, bytes | None]]

    async def run(self, request: Request) -> Result:
        """Do ``request`` and wait until it is done."""
        ...

    async def advance(self, ms: int) -> None:
        """Let ``ms`` pass, and due work happen."""
        ...

    async def watch(self, queue: bytes, group: bytes) -> None:
        """Start waiting: notifications go to ``available``."""
        ...

    async def told(self, queue: bytes, group: bytes) -> bool:
        """Whether a waiter for ``group`` was notified, or is soon."""
        ...

    async def now(self) -> int:
        """The store's time, µs since the epoch."""
        ...


class EmbeddedDrive:
    """The embedded store with a clock that is moved by hand."""

    def __init__(self) -> None:
        self.store = EmbeddedStore()
        self.available = self.store.available
        self.ms = START

    async def run(self, request: Request) -> Result:
        return self.store.run(request, self.ms)

    async def advance(self, ms: int) -> None:
        self.ms += ms
        while 0 < self.store.next_due() <= self.ms:
            self.store.tick(self.ms)

    async def watch(self, queue: bytes, group: bytes) -> None:
        self.store.watch(queue, group)

    async def told(self, queue: bytes, group: bytes) -> bool:
        return (queue, group) in self.available or (queue, None) in self.available

    async def now(self) -> int:
        return self.ms * 1000


async def try_add(
    drive: Drive,
    queue: bytes,
    body: bytes,
    expire: int = MINUTE,
    *,
    own_id: bytes | None = None,
    group: bytes = b"",
    front: bool = False,
    absolute: bool = False,
) -> Result:
    """ADD; ``expire`` in µs."""
    request = Add(queue, body, (expire, absolute), group, own_id, front)
    result = await drive.run(request)
    assert result.error == ""
    return result


async def add(drive: Drive, queue: bytes, body: bytes, expire: int = MINUTE) -> bytes:
    """ADD; returns the id."""
    result = await try_add(drive, queue, body, expire)
    assert result.duplicate is None
    return result.id


async def try_get(
    drive: Drive, queue: bytes, group: bytes, hold: int = MINUTE, hold_until: int = 0
) -> Result:
    """GET; times in µs."""
    time = (hold_until, True) if hold_until else from_now(hold)
    result = await drive.run(Get(queue, group, time))
    assert result.error == ""
    return result


async def get(drive: Drive, queue: bytes, group: bytes, hold: int = MINUTE) -> Event:
    """GET an event that must exist."""
    result = await try_get(drive, queue, group, hold)
    assert result.event is not None
    return result.event


async def body(drive: Drive, queue: bytes, group: bytes, hold: int = MINUTE) -> bytes | None:
    """GET; returns the body, or None."""
    result = await try_get(drive, queue, group, hold)
    return None if result.event is None else result.event.body


async def _count(drive: Drive, request: Request) -> int:
    result = await drive.run(request)
    assert result.error == ""
    return result.count


async def ack(
    drive: Drive, queue: bytes, group: bytes, id: bytes = b"", own_id: bytes | None = None
) -> int:
    """ACK."""
    return await _count(drive, Ack(queue, group, id, own_id))


async def working(
    drive: Drive,
    queue: bytes,
    group: bytes,
    id: bytes = b"",
    hold: int = MINUTE,
    own_id: bytes | None = None,
) -> int:
    """WORKING; ``hold`` in µs."""
    return await _count(drive, Working(queue, group, from_now(hold), id, own_id))


async def put_back(
    drive: Drive, queue: bytes, group: bytes, id: bytes = b"", own_id: bytes | None = None
) -> int:
    """REDO."""
    return await _count(drive, Redo(queue, group, id, own_id))


async def peek(drive: Drive, request: Next | Last) -> Event | None:
    """NEXT or LAST."""
    result = await drive.run(request)
    assert result.error == ""
    return result.event


async def flush(drive: Drive, queue: bytes) -> None:
    """FLUSH."""
    result = await drive.run(Flush(queue))
    assert result.error == ""


async def status(
    drive: Drive, queues: list[bytes], groups: list[bytes] | None = None
) -> list[QueueStatus]:
    """STATUS."""
    result = await drive.run(Status(queues, groups or []))
    assert result.error == ""
    return list(result.queues)


async def counts(drive: Drive, queue: bytes, group: bytes) -> tuple[int, int, int, int, int]:
    """total, inprogress, redo, done, available of one group."""
    [found] = await status(drive, [queue], [group])
    [one] = found.groups
    assert found.total == one.total
    return one.total, one.inprogress, one.redo, one.done, one.available
