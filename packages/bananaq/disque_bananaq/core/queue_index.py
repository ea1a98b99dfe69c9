"""The index of all queues and groups, with the state changes of their events.

``QueueIndex`` keeps the counts (events, bytes) up to date, and creates and removes queues and
groups. A queue exists while it has events. A group exists while it has deliveries, or an event is
left that its pointer has passed. Knows neither the time nor the rules of the commands.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from disque_bananaq.core.deadlines import Deadlines
from disque_bananaq.core.events import (
    AGAIN,
    BLOCK,
    DELIVERY_BYTES,
    DONE,
    GROUP_BYTES,
    IN_PROGRESS,
    QUEUE_BYTES,
    Delivery,
    Group,
    Queue,
    StoredEvent,
)
from disque_bananaq.core.requests import DeliveryRequest
from disque_trio.respserver.memory import Memory

_MAX_ID: Final = 64  # bytes; longer than any id


class QueueIndex:
    """All queues and groups, and their timers.

    Args:
        memory: counts the bytes that events, and everything about them, take.

    Attributes:
        queues: the queues, by name.
        expiries: timers of all events.
        deadlines: timers of all deliveries in progress.
        count: the number of events.
        flushed: queues whose memory ``free`` still has to free.
        last_t: the highest T ever used, in µs.
    """

    def __init__(self, memory: Memory) -> None:
        self.queues: dict[bytes, Queue] = {}
        self.expiries = Deadlines()
        self.deadlines = Deadlines()
        self.count = 0
        self.flushed: list[Queue] = []
        self.last_t = 0
        self._memory = memory
        self._bytes = memory.used

    def _count_bytes(self, more: int) -> None:
        """Count that everything takes ``more`` bytes, or less."""
        # Compiled, ``memory`` belongs to another library: reading it would cost more.
        self._bytes += more
        self._memory.used = self._bytes

    def is_due(self, now: int) -> bool:
        """Return whether a deadline has passed or an event has expired at ``now`` (ms)."""
        return self.deadlines.is_due(now) or self.expiries.is_due(now)

    def next_due(self) -> int:
        """Return when something is due, in ms; 0: not before something happens."""
        first = self.deadlines.next_due()
        other = self.expiries.next_due()
        return other if first == 0 or 0 < other < first else first

    def queue(self, name: bytes) -> Queue:
        """Return the queue ``name``; make it if necessary."""
        queue = self.queues.get(name)
        if queue is None:
            queue = Queue(name)
            self.queues[name] = queue
            self._count_bytes(QUEUE_BYTES + len(name))
        return queue

    def group(self, queue: Queue, name: bytes) -> Group:
        """Return the group ``name``; make it if necessary, with nothing delivered to it yet."""
        group = queue.groups.get(name)
        if group is None:
            group = Group(queue, name)
            queue.groups[name] = group
            self._count_bytes(GROUP_BYTES + len(name))
        return group

    def put(self, event: StoredEvent) -> None:
        """Put a new event into its queue."""
        queue = event.queue
        queue.log.add(event)
        self.expiries.add(event)
        self.count += 1
        self._count_bytes(event.size())
        own_id = event.own_id
        if own_id is not None:
            other = queue.own_ids.get(own_id)
            if other is None or other.t < event.t:
                queue.own_ids[own_id] = event

    def remove(self, event: StoredEvent) -> None:
        """Remove ``event``, which must be in its queue, and then the queue if it is empty."""
        queue = event.queue
        while event.held is not None:
            self.unlink(event.held)
        queue.log.remove(event)
        self.expiries.remove(event)
        self.count -= 1
        self._count_bytes(-event.size())
        own_id = event.own_id
        if own_id is not None and queue.own_ids.get(own_id) is event:
            del queue.own_ids[own_id]
        if queue.log.count == 0:
            self.drop(queue)
            return
        queue.left += 1
        if queue.left >= BLOCK and queue.left >= len(queue.groups) >> 2:
            self._sweep(queue)

    def _sweep(self, queue: Queue) -> None:
        """Drop groups without any state."""
        queue.left = 0
        first = queue.log.first()
        assert first is not None
        gone = [
            group
            for group in queue.groups.values()
            if group.pointer < first.t and not group.entries
        ]
        for group in gone:
            del queue.groups[group.name]
            self._count_bytes(-(GROUP_BYTES + len(group.name)))

    def drop(self, queue: Queue) -> None:
        """Drop a queue without events."""
        del self.queues[queue.name]
        self._forget(queue)

    def _forget(self, queue: Queue) -> None:
        self._count_bytes(-(QUEUE_BYTES + len(queue.name)))
        for name in queue.groups:
            self._count_bytes(-(GROUP_BYTES + len(name)))
        queue.groups.clear()
        queue.own_ids.clear()

    def drop_empty(self) -> None:
        """Drop all queues without events."""
        for queue in [queue for queue in self.queues.values() if queue.log.count == 0]:
            self.drop(queue)

    def flush(self, queue: Queue) -> None:
        """Drop a queue with all its events; ``free`` frees the memory."""
        del self.queues[queue.name]
        self.count -= queue.log.count
        queue.dead = True
        self.flushed.append(queue)

    def free(self, limit: int) -> None:
        """Free the memory of about ``limit`` flushed events."""
        did = 0
        while self.flushed and did < limit:
            queue = self.flushed[-1]
            if queue.log.count == 0:
                self.flushed.pop()
                self._forget(queue)
                continue
            for event in queue.log.pop_block():
                did += 1
                while event.held is not None:
                    self.unlink(event.held)
                self.expiries.remove(event)
                self._count_bytes(-event.size())

    def find_delivery(self, request: DeliveryRequest, now: int) -> Delivery | None:
        """Return the delivery that ``request`` is about at ``now`` (µs); None if it is gone."""
        queue = self.queues.get(request.queue)
        if queue is None:
            return None
        group = queue.groups.get(request.group)
        if group is None:
            return None
        if request.own_id is not None:
            event = queue.own_ids.get(request.own_id)
            if event is None or event.when <= now:
                return None
            entry = group.entries.get(event.t)
            return entry if entry is not None and entry.state != DONE else None
        id = request.id
        if len(id) > _MAX_ID:
            return None
        try:
            entry = group.entries.get(int(id.partition(b"_")[0]))
        except ValueError:
            return None
        if (
            entry is None
            or entry.state != IN_PROGRESS
            or entry.when <= now
            or entry.event.when <= now
            or entry.event.id(entry.number) != id
        ):
            return None
        return entry

    def begin(self, group: Group, event: StoredEvent) -> Delivery:
        """Make a delivery of ``event`` to ``group``, which has none, as yet without a state."""
        entry = Delivery(group, event)
        group.entries[event.t] = entry
        if event.t > group.pointer:
            group.ahead += 1
        self._count_bytes(DELIVERY_BYTES)
        return entry

    def unlink(self, entry: Delivery) -> None:
        """Remove ``entry``. Its event counts as done unless it is ahead of the pointer."""
        group = entry.group
        event = entry.event
        self.halt(entry)
        del group.entries[event.t]
        if event.t > group.pointer:
            group.ahead -= 1
        if entry.before is not None:
            entry.before.behind = entry.behind
        else:
            event.held = entry.behind
        if entry.behind is not None:
            entry.behind.before = entry.before
        entry.before = None
        entry.behind = None
        self._count_bytes(-DELIVERY_BYTES)

    def halt(self, entry: Delivery) -> None:
        """Take ``entry`` out of its current state."""
        if entry.state == IN_PROGRESS:
            entry.group.inprogress -= 1
            self.deadlines.remove(entry)
        elif entry.state == AGAIN:
            entry.group.redo -= 1
        entry.state = 0
        entry.rank = 0

    def give(self, entry: Delivery, number: int, deadline: int) -> None:
        """Put ``entry`` in progress until ``deadline`` (µs)."""
        self.halt(entry)
        group = entry.group
        entry.state = IN_PROGRESS
        entry.number = number
        entry.when = deadline
        if group.inprogress == 0 or deadline < group.due:
            group.due = deadline
        group.inprogress += 1
        self.deadlines.add(entry)

    def put_back(self, entry: Delivery, rank: int) -> None:
        """Mark ``entry`` to be delivered again, with the ``rank`` described in ``Delivery``."""
        self.halt(entry)
        group = entry.group
        entry.state = AGAIN
        entry.rank = rank
        if rank > group.rank:
            group.rank = rank
        group.redo += 1
        order = group.redo_order
        if len(order) > 2 * group.redo + 64:
            # Most entries were acknowledged late or expired.
            order = [_place(e) for e in group.entries.values() if e.state == AGAIN]
            heapify(order)
            group.redo_order = order
        else:
            heappush(order, _place(entry))

    def finish(self, entry: Delivery) -> None:
        """Mark ``entry`` as acknowledged."""
        if entry.event.t > entry.group.pointer:
            self.halt(entry)
            entry.state = DONE
        else:
            self.unlink(entry)

    def move_pointer(self, group: Group, t: int) -> None:
        """Note that all events up to ``t`` were delivered to ``group``. Never moves backwards."""
        if group.ahead > 0:
            event = group.queue.log.after(group.pointer)
            while event is not None and event.t <= t and group.ahead > 0:
                entry = group.entries.get(event.t)
                if entry is not None:
                    self._pass(group, entry)
                event = group.queue.log.after(event.t)
        if t > group.pointer:
            group.pointer = t

    def _pass(self, group: Group, entry: Delivery) -> None:
        """Move the pointer past an event that was delivered before its turn."""
        if entry.state == DONE:
            self.unlink(entry)
        else:
            group.ahead -= 1
        group.pointer = entry.event.t

    def next_redo(self, group: Group) -> Delivery | None:
        """Return the next delivery to be repeated."""
        if group.redo == 0:
            if group.redo_order:
                group.redo_order = []
            return None
        order = group.redo_order
        while order:
            place = order[0]
            entry = group.entries.get(place[1])
            if entry is not None and entry.state == AGAIN and _place(entry) == place:
                return entry
            heappop(order)
        return None

    def next_new(self, group: Group) -> StoredEvent | None:
        """Return the first event that was never delivered, moving the pointer past events that were
        delivered before their turn."""
        log = group.queue.log
        event = log.after(group.pointer)
        while event is not None and group.ahead > 0:
            entry = group.entries.get(event.t)
            if entry is None:
                break
            self._pass(group, entry)
            event = log.after(group.pointer)
        return event

    def is_done(self, group: Group, event: StoredEvent) -> bool:
        """Return whether ``group`` acknowledged ``event``."""
        entry = group.entries.get(event.t)
        if entry is None:
            return event.t <= group.pointer
        return entry.state == DONE

    def next_deadline(self, group: Group, now: int) -> int:
        """Return the next deadline of a delivery in progress of ``group`` after ``now``, in µs; 0
        if it has none in progress. May be too early, if the delivery has been acknowledged."""
        if group.inprogress == 0:
            return 0
        if group.due <= now:
            # Rare: the delivery with that deadline has been acknowledged.
            due = 0
            for entry in group.entries.values():
                if entry.state == IN_PROGRESS and (due == 0 or entry.when < due):
                    due = entry.when
            group.due = due
        return group.due


def _place(entry: Delivery) -> tuple[int, int]:
    return (-entry.rank if entry.rank else entry.event.t, entry.event.t)
