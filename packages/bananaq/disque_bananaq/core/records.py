"""Makes the records of bananaq's append-only file: commands in RESP.

    QEVENT queue T expire body [own-id]      an event was added
    QGET queue group T deadline              a new event was delivered; the group's pointer is at T
    QGIVE queue group T number deadline      an event was delivered again, or its deadline was moved
    QREDO queue group T number rank          an event is to be delivered again; rank 0: in the order
                                             of T, otherwise before those, the highest rank first
    QDONE queue group T                      an event was acknowledged
    QPOINTER queue group T                   all events up to T were delivered
    QDROP queue                              a queue was flushed
    QLAST T                                  no new event may have this T or a lower one

What follows from time alone, an expiry or a missed deadline, has no record.
"""

from typing import Final

QEVENT: Final = b"QEVENT"
QGET: Final = b"QGET"
QGIVE: Final = b"QGIVE"
QREDO: Final = b"QREDO"
QDONE: Final = b"QDONE"
QPOINTER: Final = b"QPOINTER"
QDROP: Final = b"QDROP"
QLAST: Final = b"QLAST"


def added(queue: bytes, t: int, expire: int, body: bytes, own_id: bytes | None) -> bytes:
    """The record of an event; ``t`` and ``expire`` in µs."""
    when = b"%d" % t
    end = b"%d" % expire
    head = b"$6\r\nQEVENT\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        len(queue),
        queue,
        len(when),
        when,
        len(end),
        end,
        len(body),
        body,
    )
    if own_id is None:
        return b"*5\r\n" + head
    return b"*6\r\n%b$%d\r\n%b\r\n" % (head, len(own_id), own_id)


def given(queue: bytes, group: bytes, t: int, deadline: int) -> bytes:
    """The record of a new event's first delivery; times in µs."""
    when = b"%d" % t
    end = b"%d" % deadline
    return b"*5\r\n$4\r\nQGET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        len(queue),
        queue,
        len(group),
        group,
        len(when),
        when,
        len(end),
        end,
    )


def done(queue: bytes, group: bytes, t: int) -> bytes:
    """The record of an acknowledgement."""
    when = b"%d" % t
    return b"*4\r\n$5\r\nQDONE\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        len(queue),
        queue,
        len(group),
        group,
        len(when),
        when,
    )


def given_again(queue: bytes, group: bytes, t: int, number: int, deadline: int) -> bytes:
    """The record of a repeated delivery, or of a new deadline."""
    return _record([QGIVE, queue, group, b"%d" % t, b"%d" % number, b"%d" % deadline])


def put_back(queue: bytes, group: bytes, t: int, number: int, rank: int) -> bytes:
    """The record of an event to be delivered again."""
    return _record([QREDO, queue, group, b"%d" % t, b"%d" % number, b"%d" % rank])


def pointer(queue: bytes, group: bytes, t: int) -> bytes:
    """The record of a group's pointer."""
    return _record([QPOINTER, queue, group, b"%d" % t])


def dropped(queue: bytes) -> bytes:
    """The record of a flush."""
    return _record([QDROP, queue])


def last(t: int) -> bytes:
    """The record of the last T used."""
    return _record([QLAST, b"%d" % t])


def number(arg: bytes) -> int:
    """Parse a number in a record.

    Raises:
        ValueError: it is not a number.
    """
    if not arg.isdigit() or len(arg) > 20:
        raise ValueError(f"not a number in a record: {arg[:40]!r}")
    return int(arg)


def _record(args: list[bytes]) -> bytes:
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        parts.append(b"$%d\r\n%b\r\n" % (len(arg), arg))  # noqa: PERF401 (compiled)
    return b"".join(parts)
