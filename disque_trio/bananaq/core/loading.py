"""Loading: what a record of the append-only file does to the `Books`.

A file that was rewritten while work went on has records about events whose own record comes later;
that one then says all there is to say, so records about unknown events are passed over. What they
say of a group's pointer counts all the same.
"""

from disque_trio.bananaq.core import records
from disque_trio.bananaq.core.events import Delivery, Group, StoredEvent
from disque_trio.bananaq.core.groups import Books


def load(books: Books, args: list[bytes], now: int) -> int:
    """Do what the record ``args`` says, at ``now`` (µs). Returns 1 if an event was taken, else 0.

    Raises:
        ValueError: it is no record.
    """
    name = args[0]
    count = len(args)
    if name == records.QEVENT and 5 <= count <= 6:
        return _event(books, args, now)
    if name == records.QGET and count == 5:
        t = records.number(args[3])
        deadline = records.number(args[4])
        group = _reach(books, args[1], args[2], t)
        entry = _entry(books, group, t)
        if entry is not None:
            books.give(entry, 1, deadline)
    elif name == records.QGIVE and count == 6:
        number = records.number(args[4])
        deadline = records.number(args[5])
        entry = _known(books, args)
        if entry is not None:
            books.give(entry, number, deadline)
    elif name == records.QREDO and count == 6:
        number = records.number(args[4])
        rank = records.number(args[5])
        entry = _known(books, args)
        if entry is not None:
            entry.number = number
            books.put_back(entry, rank)
    elif name == records.QDONE and count == 4:
        entry = _known(books, args)
        if entry is not None:
            books.finish(entry)
    elif name == records.QPOINTER and count == 4:
        _reach(books, args[1], args[2], records.number(args[3]))
    elif name == records.QDROP and count == 2:
        queue = books.queues.get(args[1])
        if queue is not None:
            books.flush(queue)
    elif name == records.QLAST and count == 2:
        books.last_t = max(books.last_t, records.number(args[1]))
    else:
        raise ValueError(f"not a command of bananaq's append-only file: {name[:40]!r}")
    return 0


def _event(books: Books, args: list[bytes], now: int) -> int:
    t = records.number(args[2])
    expire = records.number(args[3])
    books.last_t = max(books.last_t, t)
    if expire <= now:
        return 0
    queue = books.queue(args[1])
    if queue.log.find(t) is not None:
        return 0
    books.put(StoredEvent(queue, t, expire, args[4], args[5] if len(args) == 6 else None))
    return 1


def _reach(books: Books, queue: bytes, group: bytes, t: int) -> Group:
    """The group, which was given all up to ``t``."""
    books.last_t = max(books.last_t, t)
    found = books.group(books.queue(queue), group)
    books.move_pointer(found, t)
    return found


def _entry(books: Books, group: Group, t: int) -> Delivery | None:
    """What ``group`` has of the event with ``t``; None: the event is unknown."""
    entry = group.entries.get(t)
    if entry is None:
        event = group.queue.log.find(t)
        if event is not None:
            entry = books.begin(group, event)
    return entry


def _known(books: Books, args: list[bytes]) -> Delivery | None:
    """The same for the group and the event of a record, which may both be unknown."""
    t = records.number(args[3])
    queue = books.queues.get(args[1])
    if queue is None or queue.log.find(t) is None:
        return None
    return _entry(books, books.group(queue, args[2]), t)
