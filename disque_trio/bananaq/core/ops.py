"""What a store of events is asked to do, and what it answers.

One `Op` is one command's work on a store. The store that is in the process does it at once; the one
in a Redis answers later, and any number of operations are under way at once. Operations that one
connection asks for on one queue are done in the order in which they were asked for.

Times are in microseconds of the store's clock, which starts at the epoch. An event's id is
``T_EXPIRE`` in decimal: when it was added, unique and rising within its queue, and when it ends
to exist. To a consumer that gets an event which others of its group have had before, the id comes
with the number of the delivery behind it, ``T_EXPIRE_N`` with N from 2 on: whoever had it before
cannot acknowledge it any more.
"""

from typing import Final

ADD: Final = 1  # event `body` into `queue`; result: its id; conflict if `own_id` is there already
GET: Final = 2  # next event of `queue` for `group`; result: event or None
ACK: Final = 3  # `id` is done with; count 1 or 0
WORKING: Final = 4  # `group` has `id` for another `hold`; count 1 or 0
REDO: Final = 5  # `id`, in progress, is the next one to be given again; count 1 or 0
NEXT: Final = 6  # what GET would give; result: event or None; nothing changes
LAST: Final = 7  # the newest event of `queue`; nothing changes
FLUSH: Final = 8  # all of `queue`
STATUS: Final = 9  # of `queues` (empty: all there are) and `groups` (empty: all of each queue)

MAX_TIME: Final = (1 << 53) - 1  # µs; what a double of Redis holds exactly, the year 2255


class Event:
    """An event as a consumer gets it.

    Attributes:
        id: as above, with the number of the delivery if this is not the first to the group.
        own_id: the id that the producer chose (okq), or empty.
        body: its contents.
    """

    __slots__ = ("body", "id", "own_id")

    def __init__(self, id: bytes, own_id: bytes, body: bytes) -> None:
        self.id = id
        self.own_id = own_id
        self.body = body


class GroupStatus:
    """Counts of the events of a queue that have not ended to exist, for one group.

    Attributes:
        group: its name.
        total: in the queue. inprogress: given and not acknowledged in time yet. redo: to be given
            again. done: acknowledged. available: never given. total is the sum of the others.
        consumers: connections that wait or registered.
    """

    __slots__ = ("available", "consumers", "done", "group", "inprogress", "redo", "total")

    def __init__(
        self,
        group: bytes,
        total: int,
        inprogress: int,
        redo: int,
        available: int,
        consumers: int,
    ) -> None:
        self.group = group
        self.total = total
        self.inprogress = inprogress
        self.redo = redo
        self.available = available
        self.done = total - inprogress - redo - available
        self.consumers = consumers


class QueueStatus:
    """A queue and what its groups have done with it.

    Attributes:
        queue: its name. total: events that have not ended to exist. groups: in the order asked for,
            or by name.
    """

    __slots__ = ("groups", "queue", "total")

    def __init__(self, queue: bytes, total: int, groups: list[GroupStatus]) -> None:
        self.queue = queue
        self.total = total
        self.groups = groups


class Op:
    """One operation. What a kind does not need stays as it is.

    Attributes:
        kind: ADD ... STATUS.
        queue, group: names, any bytes, empty as well.
        id: ACK, WORKING, REDO: the id that the consumer has. ADD: the result.
        own_id: ADD: the id that the producer chose (okq); refused (`conflict`) while an event with
            it is in the queue, and not acknowledged by `group`. ACK, WORKING, REDO: if not empty,
            the event is meant by this id instead, whoever has it; also one that is to be given
            again (as okq, whose late acknowledgements count).
        by_own_id: whether `own_id` is meant; it may be empty.
        body: ADD: any bytes.
        expire: ADD: µs from now, or since the epoch with `absolute`; may be over already, or
            negative: the event then gets an id and is never seen. Cut to MAX_TIME.
        front: ADD: `group` gets it next (okq's QRPUSH); the other groups in the order of ids.
        hold: GET, WORKING: how long the consumer has it, µs; GET with 0: acknowledged at once.
            0 or more; with ``hold_until`` not 0: until that time since the epoch.
        queues, groups: STATUS.
        event: GET, NEXT, LAST: the result, None: there is none.
        due: GET, NEXT without an event: when one that is in progress in the group misses its
            deadline, µs; 0: none is. left: the time until then, µs.
        count: ACK, WORKING, REDO: the result.
        conflict: ADD: see `own_id`.
        status: STATUS: the result.
        error: text of an error reply (with its code, without the dash), or empty. Then nothing
            else is a result.
        unsure: with `error`: it may have happened all the same.
        tag: whose it is; the store does not look at it.
    """

    __slots__ = (
        "absolute",
        "body",
        "by_own_id",
        "conflict",
        "count",
        "due",
        "error",
        "event",
        "expire",
        "front",
        "group",
        "groups",
        "hold",
        "hold_until",
        "id",
        "kind",
        "left",
        "own_id",
        "queue",
        "queues",
        "status",
        "tag",
        "unsure",
    )

    def __init__(self, kind: int, queue: bytes, group: bytes = b"") -> None:
        self.kind = kind
        self.queue = queue
        self.group = group
        self.id = b""
        self.own_id = b""
        self.by_own_id = False
        self.body = b""
        self.expire = 0
        self.absolute = False
        self.front = False
        self.hold = 0
        self.hold_until = 0
        self.queues: list[bytes] = []
        self.groups: list[bytes] = []
        self.event: Event | None = None
        self.due = 0
        self.left = 0
        self.count = 0
        self.conflict = False
        self.status: list[QueueStatus] = []
        self.error = ""
        self.unsure = False
        self.tag: object = None
