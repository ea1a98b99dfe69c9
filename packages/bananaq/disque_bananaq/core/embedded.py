"""The embedded store: applies the rules of the requests to the events in ``QueueIndex``.

Everything due is done before each request, so that the request finds the state of its ``now``. This
is limited, so that a request need not wait for a million deadlines. Beyond the limit, a request
checks the times of what it touches itself. Only the order may then differ: a new event may be
delivered before one that has just missed its deadline.
"""

from typing import TYPE_CHECKING, Final

from disque_bananaq.core import loading, records
from disque_bananaq.core.event_dump import EventDump
from disque_bananaq.core.events import (
    Delivery,
    Group,
    Queue,
    StoredEvent,
)
from disque_bananaq.core.queue_index import QueueIndex
from disque_bananaq.core.requests import (
    AT_ONCE,
    Ack,
    Add,
    Flush,
    Get,
    Last,
    Next,
    Redo,
    Request,
    Status,
    Time,
    Working,
    resolve,
)
from disque_bananaq.core.results import Event, Result
from disque_bananaq.core.status import ConsumerCounts, queue_status
from disque_bananaq.core.store import Sections, Store
from disque_trio.respserver.machine import Machine

if TYPE_CHECKING:
    from mypy_extensions import i64

MOST_DUE: Final = 1000  # due items that a request handles first
A_TICK: Final = 1_000

_DONE: Final = Result()
_COUNT_1: Final = Result(count=1)


class EmbeddedStore(Store):
    """Stores events in memory.

    Attributes:
        index: the index of queues and groups.
        consumers: the numbers of consumers.
        added, given, acked, missed, expired: total numbers of events and of deliveries.
    """

    def __init__(self) -> None:
        super().__init__()
        self.index = QueueIndex(self.memory)
        self.added = 0
        self.given = 0
        self.acked = 0
        self.missed = 0
        self.expired = 0
        self._machine: Machine | None = None
        self._watching = 0  # clients that wait, for any queue
        self._now = 1  # ms
        self._loading = False
        self.consumers = ConsumerCounts()
        self._dump: EventDump | None = None

    def run(self, request: Request, now: int) -> Result:
        """Do what ``request`` asks for at ``now`` (ms), always at once."""
        self._now = now
        if self._loading:
            self._loaded()
        if self.index.is_due(now):
            self._advance(MOST_DUE)
        us: i64 = now  # compiled, larger than what an int multiplies without a call
        us *= 1000
        if isinstance(request, Add):
            return self._add(request, us)
        if isinstance(request, Get):
            return self._get(request.queue, request.group, request.hold, us)
        if isinstance(request, Ack):
            return self._ack(request, us)
        if isinstance(request, Next):
            return self._get(request.queue, request.group, None, us)
        if isinstance(request, Working):
            return self._working(request, us)
        if isinstance(request, Redo):
            return self._redo(request, us)
        if isinstance(request, Last):
            return self._last(request, us)
        if isinstance(request, Flush):
            return self._flush(request)
        assert isinstance(request, Status)
        return self._status(request)

    def watch(self, queue: bytes, group: bytes) -> None:
        """Note events in ``available`` from now on."""
        self._watching += 1

    def unwatch(self, queue: bytes, group: bytes) -> None:
        """Undo ``watch``."""
        self._watching -= 1

    def enter(self, queue: bytes, group: bytes, consumer: int) -> None:
        """Count another consumer of ``group``."""
        self.consumers.add(queue, group, 1)

    def leave(self, queue: bytes, group: bytes, consumer: int) -> None:
        """Count one consumer of ``group`` fewer."""
        self.consumers.add(queue, group, -1)

    def tick(self, now: int) -> None:
        """Do the work due at ``now`` (ms), at most some thousand items."""
        self._now = now
        if self._loading:
            self._loaded()
        self._advance(A_TICK)
        if self.index.flushed:
            self.index.free(A_TICK)

    def next_due(self) -> int:
        """Return when to call ``tick``, in ms; 0: not before something happens."""
        return self._now if self.index.flushed else self.index.next_due()

    def held(self) -> int:
        """Return the number of events."""
        return self.index.count

    def sections(self) -> Sections:
        """Return the sections of INFO about the events."""
        return {
            "memory": {"maxmemory_policy": "noeviction"},
            "events": {"store": "embedded", "events": self.index.count},
            "stats": {
                "total_events_added": self.added,
                "total_events_given": self.given,
                "total_events_acked": self.acked,
                "total_events_missed": self.missed,
                "total_events_expired": self.expired,
            },
        }

    # --- the append-only file ---

    def attach(self, machine: Machine) -> None:
        """Record all changes in the journal of ``machine`` from now on."""
        self._machine = machine

    def _journal(self) -> list[bytes] | None:
        """Return the journal in which to record changes; None: do not record them."""
        machine = self._machine
        return machine.journal if machine is not None and machine.journaling else None

    def load_record(self, record: list[bytes], now: int) -> int:
        """Apply a record at ``now`` (µs), at the start. Returns 1 if it added an event, else 0.

        Raises:
            ValueError: this is not a valid record.
        """
        self._loading = True
        return loading.load(self.index, record, now)

    def start_dump(self) -> None:
        """Begin to dump everything; see ``EventDump``."""
        self._dump = EventDump(self.index)

    def dump_step(self, room: int) -> tuple[list[bytes], bool]:
        """Return the next records, about ``room`` bytes, and whether these are the last."""
        if self._dump is None:
            return [], True
        found = self._dump.step(room)
        if found[1]:
            self._dump = None
        return found

    def _loaded(self) -> None:
        """Drop queues for which the file has only pointers."""
        self._loading = False
        self.index.drop_empty()

    # --- time ---

    def _advance(self, limit: int) -> None:
        """Handle up to about ``limit`` due items."""
        now = self._now
        if self.index.expiries.is_due(now):
            for item in self.index.expiries.due(now, limit):
                assert isinstance(item, StoredEvent)
                if not item.queue.dead:
                    self._expire(item)
        if not self.index.deadlines.is_due(now):
            return
        told: dict[tuple[bytes, bytes], None] = {}
        for item in self.index.deadlines.due(now, limit):
            assert isinstance(item, Delivery)
            group = item.group
            if not group.queue.dead:
                self.index.put_back(item, 0)
                self.missed += 1
                told[(group.queue.name, group.name)] = None
        if self._watching:
            self.available.extend(told)

    def _expire(self, event: StoredEvent) -> None:
        self.expired += 1
        self.index.remove(event)

    # --- the operations ---

    def _add(self, add: Add, now: int) -> Result:
        own_id = add.own_id
        queue = self.index.queues.get(add.queue)
        if own_id is not None and queue is not None:
            other = queue.own_ids.get(own_id)
            if other is not None and other.when > now:
                group = queue.groups.get(add.group)
                if group is None or not self.index.is_done(group, other):
                    return Result(duplicate=own_id)
        t = max(self.index.last_t + 1, now)
        self.index.last_t = t
        expire = resolve(add.expire, now)
        self.added += 1
        if expire <= now:
            self.expired += 1
            journal = self._journal()
            if journal is not None:
                journal.append(records.last(t))
            return Result(b"%d_%d" % (t, expire))
        if queue is None:
            queue = self.index.queue(add.queue)
        event = StoredEvent(queue, t, expire, add.body, own_id)
        self.index.put(event)
        journal = self._journal()
        if journal is not None:
            journal.append(records.added(add.queue, t, expire, add.body, own_id))
        if add.front:
            group = self.index.group(queue, add.group)
            self._give_next(self.index.begin(group, event))
            if self._watching:
                self.available.append((add.queue, add.group))
        if self._watching:
            self.available.append((add.queue, None))
        return Result(event.id(1))

    def _give_next(self, entry: Delivery) -> None:
        """Make the event of ``entry`` the next one that is delivered to the group."""
        group = entry.group
        rank = group.rank + 1
        self.index.put_back(entry, rank)
        journal = self._journal()
        if journal is not None:
            journal.append(
                records.put_back(group.queue.name, group.name, entry.event.t, entry.number, rank)
            )

    def _get(self, queue_name: bytes, group_name: bytes, hold: Time | None, now: int) -> Result:
        """Return the next event; take it if there is a ``hold``."""
        while True:
            queue = self.index.queues.get(queue_name)
            if queue is None:
                return _DONE
            group = queue.groups.get(group_name)
            entry = self._next_again(group, now) if group is not None else None
            if entry is not None:
                event = entry.event
                number = entry.number + 1
                if hold is not None:
                    self._give_again(entry, number, hold, now)
                return _found(event, number)
            fresh = self._next_new(queue, group, now)
            if fresh is not None:
                if hold is not None:
                    # Look the group up again: an event that just ended may have removed it.
                    self._give_new(self.index.group(queue, group_name), fresh, hold, now)
                return _found(fresh, 1)
            if not self.index.is_due(self._now):
                break
            self._advance(MOST_DUE)
        due = self.index.next_deadline(group, now) if group is not None else 0
        return Result(due=due, left=max(due - now, 0))

    def _next_again(self, group: Group, now: int) -> Delivery | None:
        entry = self.index.next_redo(group)
        while entry is not None and entry.event.when <= now:
            self._expire(entry.event)
            entry = self.index.next_redo(group)
        return entry

    def _next_new(self, queue: Queue, group: Group | None, now: int) -> StoredEvent | None:
        event = queue.log.first() if group is None else self.index.next_new(group)
        while event is not None and event.when <= now:
            self._expire(event)
            event = queue.log.first() if group is None else self.index.next_new(group)
        return event

    def _give_new(self, group: Group, event: StoredEvent, hold: Time, now: int) -> None:
        t = event.t
        queue = event.queue.name
        group.pointer = t
        self.given += 1
        if hold == AT_ONCE:
            self.acked += 1
            journal = self._journal()
            if journal is not None:
                journal.append(records.pointer(queue, group.name, t))
            return
        deadline = resolve(hold, now)
        self.index.give(self.index.begin(group, event), 1, deadline)
        journal = self._journal()
        if journal is not None:
            journal.append(records.given(queue, group.name, t, deadline))

    def _give_again(self, entry: Delivery, number: int, hold: Time, now: int) -> None:
        self.given += 1
        if hold == AT_ONCE:
            self._finish(entry)
        else:
            self._hold(entry, number, resolve(hold, now))

    def _hold(self, entry: Delivery, number: int, deadline: int) -> None:
        """Put ``entry`` in progress, as delivery ``number``, until ``deadline`` (µs)."""
        self.index.give(entry, number, deadline)
        journal = self._journal()
        if journal is not None:
            event = entry.event
            journal.append(
                records.given_again(event.queue.name, entry.group.name, event.t, number, deadline)
            )

    def _finish(self, entry: Delivery) -> None:
        """Acknowledge ``entry``."""
        event = entry.event
        self.index.finish(entry)
        self.acked += 1
        journal = self._journal()
        if journal is not None:
            journal.append(records.done(event.queue.name, entry.group.name, event.t))

    def _ack(self, ack: Ack, now: int) -> Result:
        entry = self.index.find_delivery(ack, now)
        if entry is None:
            return _DONE
        self._finish(entry)
        return _COUNT_1

    def _working(self, working: Working, now: int) -> Result:
        entry = self.index.find_delivery(working, now)
        if entry is None or entry.number == 0:
            return _DONE
        self._hold(entry, entry.number, resolve(working.hold, now))
        return _COUNT_1

    def _redo(self, redo: Redo, now: int) -> Result:
        entry = self.index.find_delivery(redo, now)
        if entry is None or entry.number == 0:
            return _DONE
        self._give_next(entry)
        if self._watching:
            self.available.append((redo.queue, redo.group))
        return _COUNT_1

    def _last(self, last: Last, now: int) -> Result:
        queue = self.index.queues.get(last.queue)
        event = queue.log.last() if queue is not None else None
        while queue is not None and event is not None and event.when <= now:
            self._expire(event)
            event = queue.log.last()
        return _DONE if event is None else _found(event, 1)

    def _flush(self, flush: Flush) -> Result:
        queue = self.index.queues.get(flush.queue)
        if queue is not None:
            self.index.flush(queue)
            journal = self._journal()
            if journal is not None:
                journal.append(records.dropped(flush.queue))
        return _DONE

    def _status(self, status: Status) -> Result:
        while self.index.is_due(self._now):
            self._advance(A_TICK)
        queues = self.index.queues
        consumers = self.consumers
        return Result(
            queues=[
                queue_status(name, queues.get(name), status.groups, consumers.of(name))
                for name in self.queues_of(status)
            ]
        )

    def queues_of(self, status: Status) -> list[bytes]:
        """The queues that ``status`` is about."""
        return status.queues or sorted({*self.index.queues, *self.consumers.queues()})


def _found(event: StoredEvent, number: int) -> Result:
    return Result(b"", Event(event.id(number), event.own_id or b"", event.body))
