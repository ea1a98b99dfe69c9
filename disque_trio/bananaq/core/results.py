"""The results that a store of events returns."""

from collections.abc import Sequence
from typing import NamedTuple


class Event:
    """An event as a consumer receives it.

    Attributes:
        id: with the number of the delivery if this is not the first to the group; see ``requests``.
        own_id: the id that the producer chose (okq), or empty.
        body: its contents.
    """

    __slots__ = ("body", "id", "own_id")

    def __init__(self, id: bytes, own_id: bytes, body: bytes) -> None:
        self.id = id
        self.own_id = own_id
        self.body = body


class GroupStatus(NamedTuple):
    """Counts of a queue's unexpired events, for one group.

    Attributes:
        group: its name.
        total: in the queue. inprogress: given and not acknowledged in time yet. redo: to be given
            again. done: acknowledged. available: never given. total is the sum of the others.
        consumers: connections that wait or registered.
    """

    group: bytes
    total: int
    inprogress: int
    redo: int
    available: int
    consumers: int

    @property
    def done(self) -> int:
        return self.total - self.inprogress - self.redo - self.available


class QueueStatus(NamedTuple):
    """The status of a queue and of its groups.

    Attributes:
        queue: its name. total: events that have not expired. groups: in the order asked for,
            or by name.
    """

    queue: bytes
    total: int
    groups: list[GroupStatus]


class Result:
    """The result of a request. Fields that the request does not set are empty, 0 or None.

    Attributes:
        id: of the event that was added.
        duplicate: the ``own_id`` of an event that was not added, since there is one with it.
        event: the event that was asked for, None: there is none.
        due: without an event, when one that is in progress in the group misses its deadline, µs;
            0: none is. left: the time until then, µs.
        count: of events that were acknowledged, put back, kept.
        queues: the status of each.
        error: text of an error reply (with its code, without the dash), or empty. Then nothing
            else is a result.
        unsure: with ``error``: it may have happened all the same.
    """

    __slots__ = ("count", "due", "duplicate", "error", "event", "id", "left", "queues", "unsure")

    def __init__(
        self,
        id: bytes = b"",
        event: Event | None = None,
        count: int = 0,
        due: int = 0,
        left: int = 0,
        duplicate: bytes | None = None,
        queues: Sequence[QueueStatus] = (),
        error: str = "",
        unsure: bool = False,
    ) -> None:
        self.id = id
        self.event = event
        self.count = count
        self.due = due
        self.left = left
        self.duplicate = duplicate
        self.queues = queues
        self.error = error
        self.unsure = unsure
