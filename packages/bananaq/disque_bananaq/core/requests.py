"""The requests that a store of events accepts: one class per operation.

A store in this process answers at once. A store in a Redis answers later, and any number of its
requests may be in progress. Requests from one connection about one queue are executed in the order
in which they were made. A request is a value: nothing changes it once it is made.

Times are in microseconds of the store's clock, since the epoch. An event's id is ``T_EXPIRE`` in
decimal: when it was added, unique and rising within its queue, and when it expires. If the group
had the event before, the number of the delivery is appended: ``T_EXPIRE_N``, with N from 2 on.
So a consumer that had it before can no longer acknowledge it.
"""

from typing import Final

_LONGEST: Final = 16  # digits of a number in an id
MAX_TIME: Final = (1 << 53) - 1  # µs; what a double in Redis holds exactly, the year 2255


Time = tuple[int, bool]
"""A time given by a client: µs, and whether they count from the epoch instead of from now."""


AT_ONCE: Final[Time] = (0, False)
"""As a hold: the event is acknowledged when it is delivered."""


def from_now(us: int) -> Time:
    """The time ``us`` µs after the request is executed; may be negative."""
    return us, False


def resolve(time: Time, now: int) -> int:
    """Return ``time`` in µs since the epoch, given the current time; 0 to ``MAX_TIME``."""
    us, absolute = time
    if not absolute:
        us += now
    if us > MAX_TIME:
        return MAX_TIME
    return us if us > 0 else 0


def is_event_id(id: bytes) -> bool:
    """Return whether ``id`` could be the id of an event, as consumers write it."""
    parts = id.split(b"_")
    if not 2 <= len(parts) <= 3:
        return False
    return all(part.isdigit() and len(part) <= _LONGEST for part in parts)


class Request:
    """A request to a store."""

    __slots__ = ()


class QueueRequest(Request):
    """A request about one queue.

    Attributes:
        queue: its name: any bytes, possibly empty. The same is true of names of groups.
    """

    __slots__ = ("queue",)

    def __init__(self, queue: bytes) -> None:
        self.queue = queue


class Add(QueueRequest):
    """Add an event. Result: its ``id``, or ``duplicate``.

    Attributes:
        body: any bytes.
        expire: when the event expires. If that is in the past, the event gets an id, but nobody
            ever sees it.
        group: for ``own_id`` and ``front``.
        own_id: the id that the producer chose (okq), or None. Refused if the queue has an event
            with this id that ``group`` has not acknowledged.
        front: ``group`` gets it next (okq's QRPUSH); other groups get it in the order of ids.
    """

    __slots__ = ("body", "expire", "front", "group", "own_id")

    def __init__(
        self,
        queue: bytes,
        body: bytes,
        expire: Time,
        group: bytes = b"",
        own_id: bytes | None = None,
        front: bool = False,
    ) -> None:
        self.queue = queue
        self.body = body
        self.expire = expire
        self.group = group
        self.own_id = own_id
        self.front = front


class Get(QueueRequest):
    """Take the next event for a group. Result: ``event``, or ``due`` and ``left``.

    Attributes:
        hold: until when the consumer has the event, not negative; or ``AT_ONCE``.
    """

    __slots__ = ("group", "hold")

    def __init__(self, queue: bytes, group: bytes, hold: Time) -> None:
        self.queue = queue
        self.group = group
        self.hold = hold


class Next(QueueRequest):
    """Look at what ``Get`` would take, without changing anything. The result is the same."""

    __slots__ = ("group",)

    def __init__(self, queue: bytes, group: bytes) -> None:
        self.queue = queue
        self.group = group


class Last(QueueRequest):
    """Look at the newest event. Result: ``event``."""

    __slots__ = ()


class DeliveryRequest(QueueRequest):
    """A request about an event that was delivered to a group. Result: ``count``, 1 or 0.

    Attributes:
        id: the id that the consumer has.
        own_id: if not None, this id of the producer identifies the event instead, whoever has it,
            even if it is to be delivered again (as in okq, where late acknowledgements count).
    """

    __slots__ = ("group", "id", "own_id")

    def __init__(
        self, queue: bytes, group: bytes, id: bytes = b"", own_id: bytes | None = None
    ) -> None:
        self.queue = queue
        self.group = group
        self.id = id
        self.own_id = own_id


class Ack(DeliveryRequest):
    """Acknowledge an event."""

    __slots__ = ()


class Redo(DeliveryRequest):
    """Put back an event that is in progress, as the next one to be delivered."""

    __slots__ = ()


class Working(DeliveryRequest):
    """Move the deadline of an event.

    Attributes:
        hold: until when the consumer has the event, from now on.
    """

    __slots__ = ("hold",)

    def __init__(
        self,
        queue: bytes,
        group: bytes,
        hold: Time,
        id: bytes = b"",
        own_id: bytes | None = None,
    ) -> None:
        self.queue = queue
        self.group = group
        self.hold = hold
        self.id = id
        self.own_id = own_id


class Flush(QueueRequest):
    """Remove all events of a queue."""

    __slots__ = ()


class Status(Request):
    """Count events. Result: ``queues``.

    Attributes:
        queues: the queues; empty: all queues.
        groups: the groups; empty: all groups of each queue.
    """

    __slots__ = ("groups", "queues")

    def __init__(self, queues: list[bytes], groups: list[bytes]) -> None:
        self.queues = queues
        self.groups = groups
