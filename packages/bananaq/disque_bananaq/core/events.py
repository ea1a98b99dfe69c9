"""The events of a queue, in order, and the deliveries of each group.

``QueueLog`` keeps events in blocks of a few hundred, so that adding, finding by T, removing and
counting take the same time however many there are. A group is a pointer into it: all events up to
its T were delivered. Besides the pointer, it only knows events that are in progress or to be
delivered again. Each of them has a ``Delivery``, which is in the group's ``entries`` and in a list
at the event. So it is removed with the event, without looking at groups that have no delivery of
it.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from disque_bananaq.core.deadlines import Timed

BLOCK: Final = 512

IN_PROGRESS: Final = 1
AGAIN: Final = 2
DONE: Final = 3  # acknowledged, but ahead of the pointer: it was pushed in front of older events

_COMPILED: Final = not __file__.endswith(".py")

# The memory that each takes besides its bytes, measured in both builds with CPython 3.11.
EVENT_BYTES: Final = 170 if _COMPILED else 260
DELIVERY_BYTES: Final = 215 if _COMPILED else 240
GROUP_BYTES: Final = 300
QUEUE_BYTES: Final = 700 if _COMPILED else 680


class StoredEvent(Timed):
    """An event. ``when`` is its expiry.

    Attributes:
        t: its place in the order, which is when it was added, in µs.
        own_id: the id that its producer chose, or None.
        queue: its queue.
        held: the first in the list of its deliveries.
    """

    __slots__ = ("body", "held", "own_id", "queue", "t")

    def __init__(
        self, queue: "Queue", t: int, expire: int, body: bytes, own_id: bytes | None
    ) -> None:
        super().__init__(expire)
        self.queue = queue
        self.t = t
        self.body = body
        self.own_id = own_id
        self.held: Delivery | None = None

    def id(self, number: int) -> bytes:
        """Return the id that the consumer gets with delivery ``number``."""
        if number > 1:
            return b"%d_%d_%d" % (self.t, self.when, number)
        return b"%d_%d" % (self.t, self.when)

    def size(self) -> int:
        """Return its bytes in memory, without deliveries."""
        own_id = self.own_id
        if own_id is None:
            return EVENT_BYTES + len(self.body)
        return EVENT_BYTES + len(self.body) + 2 * len(own_id)


class Delivery(Timed):
    """The delivery of an event to a group. ``when`` is the deadline (µs) if it is in progress.

    Attributes:
        number: how often the event was delivered to the group.
        state: IN_PROGRESS, AGAIN or DONE.
        rank: in the state AGAIN, 0: deliver it in the order of T; otherwise before those, the
            highest rank first.
        before, behind: its neighbours in the event's list.
    """

    __slots__ = ("before", "behind", "event", "group", "number", "rank", "state")

    def __init__(self, group: "Group", event: StoredEvent) -> None:
        super().__init__(0)
        self.group = group
        self.event = event
        self.number = 0
        self.state = 0
        self.rank = 0
        self.before: Delivery | None = None
        first = event.held
        self.behind: Delivery | None = first
        if first is not None:
            first.before = self
        event.held = self


class Group:
    """A group of consumers of one queue.

    Attributes:
        pointer: the T up to which everything was delivered.
        entries: deliveries, by T.
        inprogress, redo: how many of them are in progress, or to be delivered again.
        ahead: how many of them have a T above the pointer, because they were pushed in front.
        redo_order: a heap of (-rank or T, T) of events to be delivered again. May contain stale
            entries.
        rank: the highest rank used.
        due: no delivery in progress has its deadline before this, in µs.
    """

    __slots__ = (
        "ahead",
        "due",
        "entries",
        "inprogress",
        "name",
        "pointer",
        "queue",
        "rank",
        "redo",
        "redo_order",
    )

    def __init__(self, queue: "Queue", name: bytes) -> None:
        self.queue = queue
        self.name = name
        self.pointer = 0
        self.entries: dict[int, Delivery] = {}
        self.inprogress = 0
        self.redo = 0
        self.ahead = 0
        self.redo_order: list[tuple[int, int]] = []
        self.rank = 0
        self.due = 0


class Queue:
    """A queue with at least one event.

    Attributes:
        log: its events.
        groups: its groups, by name.
        own_ids: for each producer's id, the newest event that has it.
        left: how many events were removed since the groups were last swept.
        dead: whether it was flushed; remaining references to it are about to go.
    """

    __slots__ = ("dead", "groups", "left", "log", "name", "own_ids")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.log = QueueLog()
        self.groups: dict[bytes, Group] = {}
        self.own_ids: dict[bytes, StoredEvent] = {}
        self.left = 0
        self.dead = False


class Block:
    """Some events in order; never empty while in a log. ``found``: where one was found last."""

    __slots__ = ("events", "found", "times")

    def __init__(self, times: "array[int]", events: list[StoredEvent]) -> None:
        self.times = times
        self.events = events
        self.found = 0


class QueueLog:
    """The events of a queue, ordered by T.

    Attributes:
        count: the number of events.
        blocks: all blocks. Read-only.
    """

    __slots__ = ("_firsts", "blocks", "count")

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._firsts: list[int] = []  # for each block a T: at most its first, above all before it
        self.count = 0

    def add(self, event: StoredEvent) -> None:
        """Insert ``event`` at its T, which no other event may have."""
        t = event.t
        blocks = self.blocks
        self.count += 1
        if blocks:
            block = blocks[-1]
            if t > block.times[-1]:
                if len(block.events) < BLOCK:
                    block.times.append(t)
                    block.events.append(event)
                    return
            else:
                self._insert(event)
                return
        blocks.append(Block(array("q", (t,)), [event]))
        self._firsts.append(t)

    def _insert(self, event: StoredEvent) -> None:
        t = event.t
        number = bisect_right(self._firsts, t) - 1
        if number < 0:
            number = 0
            self._firsts[0] = t
        block = self.blocks[number]
        at = bisect_left(block.times, t)
        block.times.insert(at, t)
        block.events.insert(at, event)
        if len(block.events) > 2 * BLOCK:
            upper = Block(block.times[BLOCK:], block.events[BLOCK:])
            del block.times[BLOCK:]
            del block.events[BLOCK:]
            self.blocks.insert(number + 1, upper)
            self._firsts.insert(number + 1, upper.times[0])

    def find(self, t: int) -> StoredEvent | None:
        """Return the event with T ``t``, or None."""
        number = bisect_right(self._firsts, t) - 1
        if number < 0:
            return None
        block = self.blocks[number]
        at = bisect_left(block.times, t)
        if at < len(block.events):
            event = block.events[at]
            if event.t == t:
                return event
        return None

    def after(self, t: int) -> StoredEvent | None:
        """Return the first event with a T above ``t``."""
        blocks = self.blocks
        if not blocks:
            return None
        number = bisect_right(self._firsts, t) - 1
        if number < 0:
            return blocks[0].events[0]
        block = blocks[number]
        events = block.events
        at = block.found
        # Events are mostly taken one after the other.
        if at < len(events) and events[at].t == t:
            at += 1
        else:
            at = bisect_right(block.times, t)
        if at < len(events):
            block.found = at
            return events[at]
        number += 1
        if number < len(blocks):
            return blocks[number].events[0]
        return None

    def first(self) -> StoredEvent | None:
        """Return the oldest event."""
        return self.blocks[0].events[0] if self.blocks else None

    def last(self) -> StoredEvent | None:
        """Return the newest event."""
        return self.blocks[-1].events[-1] if self.blocks else None

    def remove(self, event: StoredEvent) -> None:
        """Remove ``event``, which must be in the log."""
        t = event.t
        blocks = self.blocks
        number = bisect_right(self._firsts, t) - 1
        block = blocks[number]
        at = bisect_left(block.times, t)
        del block.times[at]
        del block.events[at]
        self.count -= 1
        size = len(block.events)
        if size == 0:
            del blocks[number]
            del self._firsts[number]
        elif size < BLOCK // 4:
            # Otherwise, few long-lived events among many short-lived ones would keep a block each.
            if number + 1 < len(blocks) and len(blocks[number + 1].events) < BLOCK // 2:
                self._merge(number)
            elif number > 0 and len(blocks[number - 1].events) < BLOCK // 2:
                self._merge(number - 1)

    def _merge(self, number: int) -> None:
        """Merge the block ``number`` with the next one."""
        block = self.blocks[number]
        upper = self.blocks[number + 1]
        block.times.extend(upper.times)
        block.events.extend(upper.events)
        del self.blocks[number + 1]
        del self._firsts[number + 1]

    def pop_block(self) -> list[StoredEvent]:
        """Remove and return the events of the last block."""
        events = self.blocks.pop().events
        self._firsts.pop()
        self.count -= len(events)
        return events

    def counts_from(self) -> list[int]:
        """Return, for each block, the number of events in it and after it, for ``count_after``."""
        counts: list[int] = []
        sum = 0
        for block in reversed(self.blocks):
            sum += len(block.events)
            counts.append(sum)
        counts.reverse()
        return counts

    def count_after(self, t: int, counts: list[int]) -> int:
        """Count the events with a T above ``t``. ``counts`` is the result of ``counts_from``."""
        number = bisect_right(self._firsts, t) - 1
        if number < 0:
            return self.count
        return counts[number] - bisect_right(self.blocks[number].times, t)
