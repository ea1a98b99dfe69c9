"""Driving a store of events from a test, whichever store it is."""

from typing import Protocol

from disque_trio.bananaq.core.embedded import EmbeddedStore
from disque_trio.bananaq.core.ops import (
    ACK,
    ADD,
    FLUSH,
    GET,
    LAST,
    NEXT,
    REDO,
    STATUS,
    WORKING,
    Event,
    Op,
    QueueStatus,
)

MS = 1000  # µs
MINUTE = 60_000 * MS
START = 1_700_000_000_000  # ms, where the moved clock begins


class Drive(Protocol):
    """A store, and its time.

    Attributes:
        available: what ``on_available`` was called with, in order.
    """

    available: list[tuple[bytes, bytes | None]]

    async def run(self, op: Op) -> Op:
        """Do ``op`` and wait until it is done."""
        ...

    async def advance(self, ms: int) -> None:
        """Let so much time pass, and what is due happen."""
        ...

    async def watch(self, queue: bytes, group: bytes) -> None:
        """Somebody waits from now on: what comes is in ``available``."""
        ...

    async def told(self, queue: bytes, group: bytes) -> bool:
        """Whether who waits for ``group`` is told of something soon, or was."""
        ...

    async def now(self) -> int:
        """The store's time, µs since the epoch."""
        ...


class EmbeddedDrive:
    """The embedded store with a clock that is moved by hand."""

    def __init__(self) -> None:
        self.store = EmbeddedStore()
        self.available: list[tuple[bytes, bytes | None]] = []
        self.store.on_available = lambda queue, group: self.available.append((queue, group))
        self.ms = START

    async def run(self, op: Op) -> Op:
        assert self.store.run(op, self.ms)
        return op

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
) -> Op:
    """ADD; ``expire`` in µs."""
    op = Op(ADD, queue, group)
    op.body = body
    op.expire = expire
    op.absolute = absolute
    op.front = front
    if own_id is not None:
        op.own_id = own_id
        op.by_own_id = True
    await drive.run(op)
    assert op.error == ""
    return op


async def add(drive: Drive, queue: bytes, body: bytes, expire: int = MINUTE) -> bytes:
    """ADD; gives the id."""
    op = await try_add(drive, queue, body, expire)
    assert not op.conflict
    return op.id


async def try_get(
    drive: Drive, queue: bytes, group: bytes, hold: int = MINUTE, hold_until: int = 0
) -> Op:
    """GET; times in µs."""
    op = Op(GET, queue, group)
    op.hold = hold
    op.hold_until = hold_until
    await drive.run(op)
    assert op.error == ""
    return op


async def get(drive: Drive, queue: bytes, group: bytes, hold: int = MINUTE) -> Event:
    """GET of an event that must be there."""
    op = await try_get(drive, queue, group, hold)
    assert op.event is not None
    return op.event


async def body(drive: Drive, queue: bytes, group: bytes, hold: int = MINUTE) -> bytes | None:
    """GET; gives the body, or None."""
    op = await try_get(drive, queue, group, hold)
    return None if op.event is None else op.event.body


async def _about(
    drive: Drive, kind: int, queue: bytes, group: bytes, id: bytes, own_id: bytes | None, hold: int
) -> int:
    op = Op(kind, queue, group)
    op.id = id
    op.hold = hold
    if own_id is not None:
        op.own_id = own_id
        op.by_own_id = True
    await drive.run(op)
    assert op.error == ""
    return op.count


async def ack(
    drive: Drive, queue: bytes, group: bytes, id: bytes = b"", own_id: bytes | None = None
) -> int:
    """ACK."""
    return await _about(drive, ACK, queue, group, id, own_id, 0)


async def working(
    drive: Drive,
    queue: bytes,
    group: bytes,
    id: bytes = b"",
    hold: int = MINUTE,
    own_id: bytes | None = None,
) -> int:
    """WORKING; ``hold`` in µs."""
    return await _about(drive, WORKING, queue, group, id, own_id, hold)


async def put_back(
    drive: Drive, queue: bytes, group: bytes, id: bytes = b"", own_id: bytes | None = None
) -> int:
    """REDO."""
    return await _about(drive, REDO, queue, group, id, own_id, 0)


async def peek(drive: Drive, kind: int, queue: bytes, group: bytes = b"") -> Event | None:
    """NEXT or LAST."""
    assert kind in (NEXT, LAST)
    op = Op(kind, queue, group)
    await drive.run(op)
    assert op.error == ""
    return op.event


async def flush(drive: Drive, queue: bytes) -> None:
    """FLUSH."""
    op = await drive.run(Op(FLUSH, queue))
    assert op.error == ""


async def status(
    drive: Drive, queues: list[bytes], groups: list[bytes] | None = None
) -> list[QueueStatus]:
    """STATUS."""
    op = Op(STATUS, b"")
    op.queues = queues
    op.groups = groups or []
    await drive.run(op)
    assert op.error == ""
    return op.status


async def counts(drive: Drive, queue: bytes, group: bytes) -> tuple[int, int, int, int, int]:
    """total, inprogress, redo, done, available of one group."""
    [found] = await status(drive, [queue], [group])
    [one] = found.groups
    assert found.total == one.total
    return one.total, one.inprogress, one.redo, one.done, one.available
