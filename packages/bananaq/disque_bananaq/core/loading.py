"""Applies the records of an append-only file to the ``QueueIndex``.

A file that was rewritten during operation has records about events whose own record comes later.
That record then contains everything, so records about unknown events are skipped, except for what
they say about a group's pointer.
"""

from disque_bananaq.core import records
from disque_bananaq.core.events import Delivery, Group, StoredEvent
from disque_bananaq.core.queue_index import QueueIndex


def load(index: QueueIndex, args: list[bytes], now: int) -> int:
    """Apply the record ``args`` at ``now`` (µs). Returns 1 if it added an event, else 0.

    Raises:
        ValueError: this is not a valid record.
    """
    name = args[0]
    count = len(args)
    if name == records.QEVENT and 5 <= count <= 6:
        return _event(index, args, now)
    if name == records.QGET and count == 5:
        t = records.number(args[3])
        deadline = records.number(args[4])
        group = _reach(index, args[1], args[2], t)
        entry = _entry(index, group, t)
        if entry is not None:
            index.give(entry, 1, deadline)
    elif name == records.QGIVE and count == 6:
        number = records.number(args[4])
        deadline = records.number(args[5])
        entry = _known(index, args)
        if entry is not None:
            index.give(entry, number, deadline)
    elif name == records.QREDO and count == 6:
        number = records.number(args[4])
        rank = records.number(args[5])
        entry = _known(index, args)
        if entry is not None:
            entry.number = number
            index.put_back(entry, rank)
    elif name == records.QDONE and count == 4:
        entry = _known(index, args)
        if entry is not None:
            index.finish(entry)
    elif name == records.QPOINTER and count == 4:
        _reach(index, args[1], args[2], records.number(args[3]))
    elif name == records.QDROP and count == 2:
        queue = index.queues.get(args[1])
        if queue is not None:
            index.flush(queue)
    elif name == records.QLAST and count == 2:
        index.last_t = max(index.last_t, records.number(args[1]))
    else:
        raise ValueError(f"not a command of bananaq's append-only file: {name[:40]!r}")
    return 0


def _event(index: QueueIndex, args: list[bytes], now: int) -> int:
    t = records.number(args[2])
    expire = records.number(args[3])
    index.last_t = max(index.last_t, t)
    if expire <= now:
        return 0
    queue = index.queue(args[1])
    if queue.log.find(t) is not None:
        return 0
    index.put(StoredEvent(queue, t, expire, args[4], args[5] if len(args) == 6 else None))
    return 1


def _reach(index: QueueIndex, queue: bytes, group: bytes, t: int) -> Group:
    """Return the group, to which everything up to ``t`` was delivered."""
    index.last_t = max(index.last_t, t)
    found = index.group(index.queue(queue), group)
    index.move_pointer(found, t)
    return found


def _entry(index: QueueIndex, group: Group, t: int) -> Delivery | None:
    """Return the delivery of the event with T ``t`` to ``group``; None if the event is unknown."""
    entry = group.entries.get(t)
    if entry is None:
        event = group.queue.log.find(t)
        if event is not None:
            entry = index.begin(group, event)
    return entry


def _known(index: QueueIndex, args: list[bytes]) -> Delivery | None:
    """Return the delivery that a record is about; its group and event may both be unknown."""
    t = records.number(args[3])
    queue = index.queues.get(args[1])
    if queue is None or queue.log.find(t) is None:
        return None
    return _entry(index, index.group(queue, args[2]), t)
