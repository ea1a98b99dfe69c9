"""The store in the process: the rules of the operations, over what `Books` keeps.

Whatever is due is done before an operation, so it finds all as it has to be at its ``now``. There
is a limit to that, lest one operation waits for a million deadlines: behind it an operation looks
at the times of what it touches itself. Only the order can be other then: a new event may be given
before one whose deadline has just been missed.
"""

from collections.abc import Callable
from typing import Final

from disque_trio.bananaq.core import loading, records
from disque_trio.bananaq.core.dump import Dump
from disque_trio.bananaq.core.events import (
    Delivery,
    Group,
    Queue,
    StoredEvent,
)
from disque_trio.bananaq.core.finding import find
from disque_trio.bananaq.core.groups import Books
from disque_trio.bananaq.core.ops import (
    ACK,
    ADD,
    FLUSH,
    GET,
    LAST,
    MAX_TIME,
    NEXT,
    REDO,
    STATUS,
    WORKING,
    Event,
    Op,
)
from disque_trio.bananaq.core.status import queue_status

AT_ONCE: Final = 1000  # due things that an operation does first
A_TICK: Final = 10_000


def _ignore_answer(op: Op) -> None: ...


def _ignore_available(queue: bytes, group: bytes | None) -> None: ...


class EmbeddedStore(Books):
    """Keeps events in memory; see `store.Store` for what all stores do.

    Attributes:
        journaling: whether records of what is done go to ``journal``, which may be exchanged for
            another list at any time.
        added, given, acked, missed, expired: events that were, deliveries that were, in all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_answer: Callable[[Op], None] = _ignore_answer
        self.on_available: Callable[[bytes, bytes | None], None] = _ignore_available
        self.journaling = False
        self.journal: list[bytes] = []
        self.added = 0
        self.given = 0
        self.acked = 0
        self.missed = 0
        self.expired = 0
        self._now = 1  # ms
        self._loading = False
        self._available: list[tuple[bytes, bytes | None]] = []  # to be told
        self._consumers: dict[bytes, dict[bytes, int]] = {}
        self._dump: Dump | None = None

    # --- what a store does ---

    def run(self, op: Op, now: int) -> bool:
        """Do ``op`` at ``now`` (ms). Always done at once: True."""
        self._now = now
        if self._loading:
            self._loaded()
        if self.deadlines.is_due(now) or self.expiries.is_due(now):
            self._advance(AT_ONCE)
        kind = op.kind
        if kind == ADD:
            self._add(op, now * 1000)
        elif kind in (GET, NEXT):
            self._get(op, now * 1000, kind == GET)
        elif kind == ACK:
            self._ack(op, now * 1000)
        elif kind == WORKING:
            self._working(op, now * 1000)
        elif kind == REDO:
            self._put_back(op, now * 1000)
        elif kind == LAST:
            self._last(op, now * 1000)
        elif kind == FLUSH:
            self._flush(op)
        elif kind == STATUS:
            self._status(op)
        if self._available:
            self._tell()
        return True

    def watch(self, queue: bytes, group: bytes) -> None:
        """Nothing to do: all that happens, happens here."""

    def unwatch(self, queue: bytes, group: bytes) -> None:
        """Nothing to do."""

    def enter(self, queue: bytes, group: bytes, consumer: int) -> None:
        """One more consumer of ``group``."""
        groups = self._consumers.get(queue)
        if groups is None:
            groups = {}
            self._consumers[queue] = groups
        groups[group] = groups.get(group, 0) + 1

    def leave(self, queue: bytes, group: bytes, consumer: int) -> None:
        """One consumer of ``group`` less."""
        groups = self._consumers.get(queue)
        if groups is None or group not in groups:
            return
        groups[group] -= 1
        if groups[group] <= 0:
            del groups[group]
            if not groups:
                del self._consumers[queue]

    def tick(self, now: int) -> None:
        """Do what is due at ``now`` (ms), some thousands of things at most."""
        self._now = now
        if self._loading:
            self._loaded()
        self._advance(A_TICK)
        if self.graves:
            self.dismantle(A_TICK)
        if self._available:
            self._tell()

    def next_due(self) -> int:
        """When ``tick`` has to be called, ms; 0: not before something happens."""
        if self.graves:
            return self._now
        first = self.deadlines.next_due()
        other = self.expiries.next_due()
        if first == 0 or 0 < other < first:
            return other
        return first

    # --- the append-only file ---

    def load_record(self, args: list[bytes], now_us: int) -> int:
        """Do again what a record says, at the start. Returns 1 if an event was taken, else 0.

        Raises:
            ValueError: it is no record.
        """
        self._loading = True
        return loading.load(self, args, now_us)

    def start_dump(self) -> None:
        """Begin to write all that is there; see `Dump`."""
        self._dump = Dump(self)

    def dump_step(self, room: int) -> tuple[list[bytes], bool]:
        """The next records, of about ``room`` bytes, and whether these are the last."""
        if self._dump is None:
            return [], True
        found = self._dump.step(room)
        if found[1]:
            self._dump = None
        return found

    def _loaded(self) -> None:
        """Forget queues of which only pointers stand in the file."""
        self._loading = False
        for queue in [queue for queue in self.queues.values() if queue.log.count == 0]:
            self.drop(queue)

    # --- time ---

    def _advance(self, limit: int) -> None:
        """Do up to about ``limit`` things that are due."""
        now = self._now
        if self.expiries.is_due(now):
            for item in self.expiries.due(now, limit):
                assert isinstance(item, StoredEvent)
                if not item.queue.dead:
                    self._expire(item)
        if not self.deadlines.is_due(now):
            return
        told: dict[tuple[bytes, bytes], None] = {}
        for item in self.deadlines.due(now, limit):
            assert isinstance(item, Delivery)
            group = item.group
            if not group.queue.dead:
                self.put_back(item, 0)
                self.missed += 1
                told[(group.queue.name, group.name)] = None
        self._available.extend(told)

    def _expire(self, event: StoredEvent) -> None:
        self.expired += 1
        self.remove(event)

    def _is_due(self) -> bool:
        return self.deadlines.is_due(self._now) or self.expiries.is_due(self._now)

    def _tell(self) -> None:
        told = self._available
        self._available = []  # what is called may well ask for the event at once
        for queue, group in told:
            self.on_available(queue, group)

    # --- the operations ---

    def _add(self, op: Op, now: int) -> None:
        own_id = op.own_id if op.by_own_id or op.own_id else None
        queue = self.queues.get(op.queue)
        if own_id is not None and queue is not None:
            other = queue.own_ids.get(own_id)
            if other is not None and other.when > now:
                group = queue.groups.get(op.group)
                if group is None or not self.is_done(group, other):
                    op.conflict = True
                    return
        t = max(self.last_t + 1, now)
        self.last_t = t
        expire = min(max(op.expire if op.absolute else now + op.expire, 0), MAX_TIME)
        op.id = b"%d_%d" % (t, expire)
        self.added += 1
        if expire <= now:
            self.expired += 1
            if self.journaling:
                self.journal.append(records.last(t))
            return
        if queue is None:
            queue = self.queue(op.queue)
        event = StoredEvent(queue, t, expire, op.body, own_id)
        self.put(event)
        if self.journaling:
            self.journal.append(records.added(op.queue, t, expire, op.body, own_id))
        if op.front:
            group = self.group(queue, op.group)
            self._give_next(self.begin(group, event))
            self._available.append((op.queue, op.group))
        self._available.append((op.queue, None))

    def _give_next(self, entry: Delivery) -> None:
        """The group is given the event of ``entry`` before all others."""
        group = entry.group
        rank = group.rank + 1
        self.put_back(entry, rank)
        if self.journaling:
            self.journal.append(
                records.put_back(group.queue.name, group.name, entry.event.t, entry.number, rank)
            )

    def _get(self, op: Op, now: int, take: bool) -> None:
        """GET, or NEXT if not ``take``."""
        while True:
            queue = self.queues.get(op.queue)
            if queue is None:
                return
            group = queue.groups.get(op.group)
            entry = self._next_again(group, now) if group is not None else None
            if entry is not None:
                event = entry.event
                number = entry.number + 1
                if take:
                    self._give_again(op, now, entry, number)
                op.event = Event(event.id(number), event.own_id or b"", event.body)
                return
            fresh = self._next_new(queue, group, now)
            if fresh is not None:
                if take:
                    self._give_new(op, now, fresh)
                op.event = Event(fresh.id(1), fresh.own_id or b"", fresh.body)
                return
            if not self._is_due():
                break
            self._advance(AT_ONCE)
        if group is not None:
            op.due = self.next_deadline(group, now)
            op.left = max(op.due - now, 0)

    def _next_again(self, group: Group, now: int) -> Delivery | None:
        entry = self.next_redo(group)
        while entry is not None and entry.event.when <= now:
            self._expire(entry.event)
            entry = self.next_redo(group)
        return entry

    def _next_new(self, queue: Queue, group: Group | None, now: int) -> StoredEvent | None:
        event = queue.log.first() if group is None else self.next_new(group)
        while event is not None and event.when <= now:
            self._expire(event)
            event = queue.log.first() if group is None else self.next_new(group)
        return event

    def _deadline(self, op: Op, now: int) -> int:
        return min(op.hold_until if op.hold_until != 0 else now + op.hold, MAX_TIME)

    def _give_new(self, op: Op, now: int, event: StoredEvent) -> None:
        # Looked up again: what ended just now may have taken an idle group with it.
        group = self.group(event.queue, op.group)
        t = event.t
        group.pointer = t
        self.given += 1
        if op.hold == 0 and op.hold_until == 0:
            self.acked += 1
            if self.journaling:
                self.journal.append(records.pointer(op.queue, op.group, t))
            return
        deadline = self._deadline(op, now)
        self.give(self.begin(group, event), 1, deadline)
        if self.journaling:
            self.journal.append(records.given(op.queue, op.group, t, deadline))

    def _give_again(self, op: Op, now: int, entry: Delivery, number: int) -> None:
        self.given += 1
        t = entry.event.t
        if op.hold == 0 and op.hold_until == 0:
            self.acked += 1
            self.finish(entry)
            if self.journaling:
                self.journal.append(records.done(op.queue, op.group, t))
            return
        deadline = self._deadline(op, now)
        self.give(entry, number, deadline)
        if self.journaling:
            self.journal.append(records.given_again(op.queue, op.group, t, number, deadline))

    def _ack(self, op: Op, now: int) -> None:
        entry = find(self.queues.get(op.queue), op, now)
        if entry is None:
            return
        t = entry.event.t
        self.finish(entry)
        self.acked += 1
        op.count = 1
        if self.journaling:
            self.journal.append(records.done(op.queue, op.group, t))

    def _working(self, op: Op, now: int) -> None:
        entry = find(self.queues.get(op.queue), op, now)
        if entry is None or entry.number == 0:
            return
        deadline = self._deadline(op, now)
        number = entry.number
        self.give(entry, number, deadline)
        op.count = 1
        if self.journaling:
            self.journal.append(
                records.given_again(op.queue, op.group, entry.event.t, number, deadline)
            )

    def _put_back(self, op: Op, now: int) -> None:
        entry = find(self.queues.get(op.queue), op, now)
        if entry is None or entry.number == 0:
            return
        self._give_next(entry)
        op.count = 1
        self._available.append((op.queue, op.group))

    def _last(self, op: Op, now: int) -> None:
        queue = self.queues.get(op.queue)
        if queue is None:
            return
        event = queue.log.last()
        while event is not None and event.when <= now:
            self._expire(event)
            event = queue.log.last()
        if event is not None:
            op.event = Event(event.id(1), event.own_id or b"", event.body)

    def _flush(self, op: Op) -> None:
        queue = self.queues.get(op.queue)
        if queue is None:
            return
        self.flush(queue)
        if self.journaling:
            self.journal.append(records.dropped(op.queue))

    def _status(self, op: Op) -> None:
        while self._is_due():
            self._advance(A_TICK)
        names = op.queues
        if not names:
            names = sorted({*self.queues, *self._consumers})
        for name in names:
            consumers = self._consumers.get(name)
            if consumers is None:
                consumers = {}
            op.status.append(queue_status(name, self.queues.get(name), op.groups, consumers))
