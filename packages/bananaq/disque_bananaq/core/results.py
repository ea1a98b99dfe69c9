"""The results that a store of events returns."""

from collections.abc import Sequence
from typing import NamedTuple


class Event:
    """An event as a consumer receives it.

    Attributes:
        id: ends in the number of the delivery unless this is the group's first; see ``requests``.
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
        group: the name of the group.
        total: the events in the queue; the sum of the next four.
        inprogress: delivered, and the deadline has not passed.
        redo: to be delivered again.
        done: acknowledged.
        available: never delivered.
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
        queue: the name of the queue.
        total: the number of events that have not expired.
        groups: in the order requested, or by name.
    """

    queue: bytes
    total: int
    groups: list[GroupStatus]


class Result:
    """The result of a request. Fields that the request does not set are empty, 0 or None.

    Attributes:
        id: the id of the event that was added.
        duplicate: the ``own_id`` of an event that was not added, since another one has it.
        event: the event that was asked for; None: there is none.
        due: without an event, when the next delivery in progress of the group misses its deadline,
            in µs; 0: none is in progress.
        left: the time until ``due``, in µs.
        count: how many events were acknowledged, put back or kept.
        queues: the status of each queue.
        error: the text of an error reply (with its code, without the dash), or empty. With an
            error, the other fields but ``unsure`` mean nothing.
        unsure: with ``error``: the request may have been executed all the same.
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
