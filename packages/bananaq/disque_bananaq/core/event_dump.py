"""Dumps all events and groups as records, in steps, while the store continues to work.

Events come in order, each with the deliveries that groups have of it at that moment; the events of
a queue are followed by its groups' pointers. Changes meanwhile are in the journal, which goes into
the same file between the steps. So events that were added since the dump began are left out.
"""

from disque_bananaq.core import records
from disque_bananaq.core.events import AGAIN, IN_PROGRESS, Queue, StoredEvent
from disque_bananaq.core.queue_index import QueueIndex


class EventDump:
    """One pass over everything in ``index``."""

    def __init__(self, index: QueueIndex) -> None:
        self._index = index
        self._last = index.last_t
        self._queues = list(index.queues)  # still to be dumped; the last one is next
        self._at = 0  # in that queue, everything up to this T is written
        self._groups: list[bytes] | None = None  # its groups whose pointers are still to be written
        self._first = True

    def step(self, room: int) -> tuple[list[bytes], bool]:
        """Return the next records, about ``room`` bytes, and whether these are the last."""
        found: list[bytes] = []
        left = room
        if self._first:
            self._first = False
            found.append(records.last(self._last))
        while self._queues and left > 0:
            # Look it up by name: it may have been flushed and made again.
            queue = self._index.queues.get(self._queues[-1])
            if queue is not None:
                if self._groups is None:
                    left = self._write_events(queue, found, left)
                if self._groups is not None:
                    left = self._write_pointers(queue, self._groups, found, left)
                if left <= 0:
                    break
            self._queues.pop()
            self._at = 0
            self._groups = None
        return found, not self._queues

    def _write_events(self, queue: Queue, found: list[bytes], left: int) -> int:
        event = queue.log.after(self._at)
        while event is not None and event.t <= self._last:
            if left <= 0:
                return 0
            left -= self._write_event(event, found)
            self._at = event.t
            event = queue.log.after(event.t)
        self._groups = list(queue.groups)
        return left

    def _write_event(self, event: StoredEvent, found: list[bytes]) -> int:
        queue = event.queue.name
        t = event.t
        record = records.added(queue, t, event.when, event.body, event.own_id)
        found.append(record)
        size = len(record)
        entry = event.held
        while entry is not None:
            group = entry.group.name
            if entry.state == IN_PROGRESS:
                record = records.given_again(queue, group, t, entry.number, entry.when)
            elif entry.state == AGAIN:
                record = records.put_back(queue, group, t, entry.number, entry.rank)
            else:
                record = records.done(queue, group, t)
            found.append(record)
            size += len(record)
            entry = entry.behind
        return size

    def _write_pointers(
        self, queue: Queue, names: list[bytes], found: list[bytes], left: int
    ) -> int:
        while names:
            if left <= 0:
                return 0
            group = queue.groups.get(names.pop())
            if group is not None and group.pointer > 0:
                record = records.pointer(queue.name, group.name, group.pointer)
                found.append(record)
                left -= len(record)
        return left
