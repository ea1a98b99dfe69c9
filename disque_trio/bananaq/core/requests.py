"""The requests that a store of events accepts: one class per operation.

The store that is in the process answers at once; the one in a Redis answers later, and any number
of requests are under way at once. Requests that one connection makes about one queue are done in
the order in which they were made. A request is a value: nothing changes it once it is made.

Times are in microseconds of the store's clock, which starts at the epoch. An event's id is
``T_EXPIRE`` in decimal: when it was added, unique and rising within its queue, and when it
expires. To a consumer that gets an event which others of its group have had before, the id comes
with the number of the delivery behind it, ``T_EXPIRE_N`` with N from 2 on: whoever had it before
cannot acknowledge it any more.
"""

from typing import Final

_LONGEST: Final = 16  # digits of a number in an id
MAX_TIME: Final = (1 << 53) - 1  # µs; what a double of Redis holds exactly, the year 2255


Time = tuple[int, bool]
"""A time that a client names: µs, and whether these are since the epoch, else from now on."""


AT_ONCE: Final[Time] = (0, False)
"""Of a hold: the event is acknowledged when it is given."""


def from_now(us: int) -> Time:
    """The time ``us`` µs after the request is done; may be negative."""
    return us, False


def since_epoch(us: int) -> Time:
    """The time ``us`` µs after the epoch."""
    return us, True


def resolve(time: Time, now: int) -> int:
    """When ``time`` is if it is ``now``, µs since the epoch; between 0 and ``MAX_TIME``."""
    us, absolute = time
    if not absolute:
        us += now
    if us > MAX_TIME:
        return MAX_TIME
    return us if us > 0 else 0


def is_event_id(id: bytes) -> bool:
    """Whether ``id`` could be that of an event, as consumers write it."""
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
        queue: its name, any bytes, empty as well; so are names of groups.
    """

    __slots__ = ("queue",)

    def __init__(self, queue: bytes) -> None:
        self.queue = queue


class Add(QueueRequest):
    """Add an event. Result: its ``id``, or ``duplicate``.

    Attributes:
        body: any bytes.
        expire: when the event expires. May be in the past: the event then gets an id and is
            never seen.
        group: for ``own_id`` and ``front``.
        own_id: the id that the producer chose (okq), or None; refused while an event with it is
            in the queue, and not acknowledged by ``group``.
        front: ``group`` gets it next (okq's QRPUSH); the other groups in the order of ids.
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
        hold: until when the consumer has it, not negative; or ``AT_ONCE``.
    """

    __slots__ = ("group", "hold")

    def __init__(self, queue: bytes, group: bytes, hold: Time) -> None:
        self.queue = queue
        self.group = group
        self.hold = hold


class Next(QueueRequest):
    """Look at what ``Get`` would take; nothing changes. The same result."""

    __slots__ = ("group",)

    def __init__(self, queue: bytes, group: bytes) -> None:
        self.queue = queue
        self.group = group


class Last(QueueRequest):
    """Look at the newest event. Result: ``event``."""

    __slots__ = ()


class DeliveryRequest(QueueRequest):
    """A request about an event that a group was given. Result: ``count``, 1 or 0.

    Attributes:
        id: the id that the consumer has.
        own_id: if it is not None, the event is meant by this id of its producer instead, whoever
            has it; also one that is to be given again (as okq, whose late acknowledgements count).
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
    """Put back an event that is in progress: it is the next one to be given."""

    __slots__ = ()


class Working(DeliveryRequest):
    """Move the deadline of an event.

    Attributes:
        hold: until when the consumer has it from now on.
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
    """Remove all of a queue."""

    __slots__ = ()


class Status(Request):
    """Count events. Result: ``queues``.

    Attributes:
        queues: empty: all there are. groups: empty: all of each queue.
    """

    __slots__ = ("groups", "queues")

    def __init__(self, queues: list[bytes], groups: list[bytes]) -> None:
        self.queues = queues
        self.groups = groups
