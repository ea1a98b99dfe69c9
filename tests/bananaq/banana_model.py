"""A plain and slow model of what a store of events has to do, to compare any store with.

For each queue it has a list of events, and for each group of it a dictionary of what was ever given
to it: what is not in there is available. It does not choose ids: it takes those that the store
gave, when they are as they have to be.
"""

from dataclasses import dataclass, field

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
    Op,
    QueueStatus,
)


@dataclass
class ModelEvent:
    t: int
    expire: int
    body: bytes
    own_id: bytes | None


@dataclass
class Held:
    """What a group has of an event: state is progress, redo or done."""

    state: str
    number: int = 0
    deadline: int = 0
    rank: int = 0  # of those that are next: the highest first


@dataclass
class ModelQueue:
    events: list[ModelEvent] = field(default_factory=list)
    groups: dict[bytes, dict[int, Held]] = field(default_factory=dict)


class Model:
    """Compares a store's answers with its own.

    Attributes:
        told: (queue, group) for which ``on_available`` has to be called; emptied by the user.
    """

    def __init__(self) -> None:
        self.queues: dict[bytes, ModelQueue] = {}
        self.consumers: list[tuple[bytes, bytes]] = []
        self.told: set[tuple[bytes, bytes | None]] = set()
        self._last = 0
        self._rank = 0

    def pass_time(self, now: int) -> None:
        """It is ``now`` (µs): events end, deadlines are missed."""
        for name, queue in list(self.queues.items()):
            queue.events = [event for event in queue.events if event.expire > now]
            live = {event.t for event in queue.events}
            for group, given in list(queue.groups.items()):
                for t, held in list(given.items()):
                    if t not in live:
                        del given[t]
                    elif held.state == "progress" and held.deadline <= now:
                        given[t] = Held("redo", held.number)
                        self.told.add((name, group))
                if not given:
                    del queue.groups[group]
            if not queue.events:
                del self.queues[name]

    def check(self, op: Op, now: int) -> None:
        """``op`` was done by a store at ``now`` (µs of its clock), and answered as it says."""
        self.pass_time(now)
        assert op.error == ""
        if op.kind == ADD:
            self._add(op, now)
        elif op.kind in (GET, NEXT):
            self._get(op, now)
        elif op.kind in (ACK, WORKING, REDO):
            self._about(op, now)
        elif op.kind == LAST:
            queue = self.queues.get(op.queue)
            expected = queue.events[-1] if queue else None
            self._is_event(op, expected, 1)
        elif op.kind == FLUSH:
            self.queues.pop(op.queue, None)
        elif op.kind == STATUS:
            self._status(op)

    def _add(self, op: Op, now: int) -> None:
        own_id = op.own_id if op.own_id or op.by_own_id else None
        queue = self.queues.get(op.queue, ModelQueue())
        given = queue.groups.get(op.group, {})
        conflict = own_id is not None and any(
            event.own_id == own_id and (event.t not in given or given[event.t].state != "done")
            for event in queue.events
        )
        assert op.conflict == conflict
        if conflict:
            assert op.id == b""
            return
        t, expire = (int(part) for part in op.id.split(b"_"))
        assert t > self._last
        assert t >= now
        assert expire == min(max(op.expire if op.absolute else now + op.expire, 0), MAX_TIME)
        self._last = t
        if expire <= now:
            return
        self.queues[op.queue] = queue
        queue.events.append(ModelEvent(t, expire, op.body, own_id))
        self.told.add((op.queue, None))
        if op.front:
            self._rank += 1
            held = Held("redo", rank=self._rank)
            queue.groups.setdefault(op.group, {})[t] = held
            self.told.add((op.queue, op.group))

    def _hold(self, op: Op, now: int) -> int:
        return min(op.hold_until or now + op.hold, MAX_TIME)

    def _get(self, op: Op, now: int) -> None:
        queue = self.queues.get(op.queue)
        given = queue.groups.get(op.group, {}) if queue else {}
        events = {event.t: event for event in queue.events} if queue else {}
        again = [(-held.rank or t, t) for t, held in given.items() if held.state == "redo"]
        fresh = [t for t in events if t not in given]
        if again:
            t = min(again)[1]
        elif fresh:
            t = min(fresh)
        else:
            self._is_event(op, None, 0)
            deadlines = [held.deadline for held in given.values() if held.state == "progress"]
            if deadlines:
                assert now < op.due <= min(deadlines)
            else:
                assert op.due == 0
            return
        number = given[t].number + 1 if t in given else 1
        self._is_event(op, events[t], number)
        if op.kind == NEXT:
            return
        assert queue is not None
        given = queue.groups.setdefault(op.group, {})
        if op.hold == 0 and op.hold_until == 0:
            given[t] = Held("done")
        else:
            given[t] = Held("progress", number, self._hold(op, now))

    def _is_event(self, op: Op, expected: ModelEvent | None, number: int) -> None:
        if expected is None:
            assert op.event is None
            return
        assert op.event is not None
        id = b"%d_%d" % (expected.t, expected.expire)
        if number > 1:
            id += b"_%d" % number
        assert op.event.id == id
        assert op.event.body == expected.body
        assert op.event.own_id == (expected.own_id or b"")

    def _find(self, op: Op) -> tuple[int, Held] | None:
        queue = self.queues.get(op.queue)
        given = queue.groups.get(op.group, {}) if queue else {}
        assert queue is not None or not given
        for event in reversed(queue.events if queue else []):
            held = given.get(event.t)
            if op.own_id or op.by_own_id:
                if event.own_id == op.own_id:
                    return (event.t, held) if held and held.state != "done" else None
            elif held is not None and held.state == "progress":
                id = b"%d_%d" % (event.t, event.expire)
                if held.number > 1:
                    id += b"_%d" % held.number
                if id == op.id:
                    return event.t, held
        return None

    def _about(self, op: Op, now: int) -> None:
        found = self._find(op)
        if found is None or (op.kind != ACK and found[1].number == 0):
            assert op.count == 0
            return
        assert op.count == 1
        t, held = found
        given = self.queues[op.queue].groups[op.group]
        if op.kind == ACK:
            given[t] = Held("done")
        elif op.kind == WORKING:
            given[t] = Held("progress", held.number, self._hold(op, now))
        else:
            self._rank += 1
            given[t] = Held("redo", held.number, rank=self._rank)
            self.told.add((op.queue, op.group))

    def _status(self, op: Op) -> None:
        with_consumers = {queue for queue, _ in self.consumers}
        names = op.queues or sorted({*self.queues, *with_consumers})
        assert [found.queue for found in op.status] == names
        for found in op.status:
            self._queue_status(op, found)

    def _queue_status(self, op: Op, found: QueueStatus) -> None:
        queue = self.queues.get(found.queue, ModelQueue())
        consumers = [group for name, group in self.consumers if name == found.queue]
        total = len(queue.events)
        assert found.total == total
        names = op.groups or sorted({*queue.groups, *consumers})
        assert [one.group for one in found.groups] == names
        for one in found.groups:
            held = list(queue.groups.get(one.group, {}).values())
            assert one.total == total
            assert one.inprogress == sum(h.state == "progress" for h in held)
            assert one.redo == sum(h.state == "redo" for h in held)
            assert one.done == sum(h.state == "done" for h in held)
            assert one.available == total - len(held)
            assert one.consumers == consumers.count(one.group)
