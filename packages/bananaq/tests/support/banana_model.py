"""A simple, slow model of an event store, to compare real stores with.

For each queue it has a list of events, and for each of its groups a dictionary of all events ever
delivered to it: all others are available. It does not choose ids: it accepts those of the store if
they are valid.
"""

from dataclasses import dataclass, field

from disque_bananaq.core.requests import (
    MAX_TIME,
    Ack,
    Add,
    DeliveryRequest,
    Flush,
    Get,
    Last,
    Next,
    Request,
    Status,
    Time,
    Working,
)
from disque_bananaq.core.results import QueueStatus, Result


@dataclass
class ModelEvent:
    t: int
    expire: int
    body: bytes
    own_id: bytes | None


@dataclass
class Held:
    """A group's state of an event: progress, redo or done."""

    state: str
    number: int = 0
    deadline: int = 0
    rank: int = 0  # of prioritized events: the highest first


@dataclass
class ModelQueue:
    events: list[ModelEvent] = field(default_factory=list)
    groups: dict[bytes, dict[int, Held]] = field(default_factory=dict)


class Model:
    """Compares a store's results with its own.

    Attributes:
        told: pairs (queue, group) that must be in ``available``; the user clears it.
    """

    def __init__(self) -> None:
        self.queues: dict[bytes, ModelQueue] = {}
        self.consumers: list[tuple[bytes, bytes]] = []
        self.told: set[tuple[bytes, bytes | None]] = set()
        self._last = 0
        self._rank = 0

    def pass_time(self, now: int) -> None:
        """Set the time to ``now`` (µs): events expire, deadlines are missed."""
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

    def check(self, request: Request, result: Result, now: int) -> None:
        """Check the result of a store's ``request`` at ``now`` (µs of its clock)."""
        self.pass_time(now)
        assert result.error == ""
        if isinstance(request, Add):
            self._add(request, result, now)
        elif isinstance(request, Get):
            self._get(request, request.hold, result, now)
        elif isinstance(request, Next):
            self._get(request, None, result, now)
        elif isinstance(request, DeliveryRequest):
            self._about(request, result, now)
        elif isinstance(request, Last):
            queue = self.queues.get(request.queue)
            expected = queue.events[-1] if queue else None
            self._is_event(result, expected, 1)
        elif isinstance(request, Flush):
            self.queues.pop(request.queue, None)
        elif isinstance(request, Status):
            self._status(request, result)

    def _add(self, add: Add, result: Result, now: int) -> None:
        own_id = add.own_id
        queue = self.queues.get(add.queue, ModelQueue())
        given = queue.groups.get(add.group, {})
        conflict = own_id is not None and any(
            event.own_id == own_id and (event.t not in given or given[event.t].state != "done")
            for event in queue.events
        )
        assert (result.duplicate is not None) == conflict
        if conflict:
            assert result.duplicate == own_id
            assert result.id == b""
            return
        t, expire = (int(part) for part in result.id.split(b"_"))
        assert t > self._last
        assert t >= now
        assert expire == self._until(add.expire, now)
        self._last = t
        if expire <= now:
            return
        self.queues[add.queue] = queue
        queue.events.append(ModelEvent(t, expire, add.body, own_id))
        self.told.add((add.queue, None))
        if add.front:
            self._rank += 1
            held = Held("redo", rank=self._rank)
            queue.groups.setdefault(add.group, {})[t] = held
            self.told.add((add.queue, add.group))

    def _until(self, time: Time, now: int) -> int:
        return min(max(time[0] if time[1] else now + time[0], 0), MAX_TIME)

    def _get(self, request: Get | Next, hold: Time | None, result: Result, now: int) -> None:
        queue = self.queues.get(request.queue)
        given = queue.groups.get(request.group, {}) if queue else {}
        events = {event.t: event for event in queue.events} if queue else {}
        again = [(-held.rank or t, t) for t, held in given.items() if held.state == "redo"]
        fresh = [t for t in events if t not in given]
        if again:
            t = min(again)[1]
        elif fresh:
            t = min(fresh)
        else:
            self._is_event(result, None, 0)
            deadlines = [held.deadline for held in given.values() if held.state == "progress"]
            if deadlines:
                assert now < result.due <= min(deadlines)
            else:
                assert result.due == 0
            return
        number = given[t].number + 1 if t in given else 1
        self._is_event(result, events[t], number)
        if hold is None:
            return
        assert queue is not None
        given = queue.groups.setdefault(request.group, {})
        if hold == (0, False):
            given[t] = Held("done")
        else:
            given[t] = Held("progress", number, self._until(hold, now))

    def _is_event(self, result: Result, expected: ModelEvent | None, number: int) -> None:
        if expected is None:
            assert result.event is None
            return
        assert result.event is not None
        id = b"%d_%d" % (expected.t, expected.expire)
        if number > 1:
            id += b"_%d" % number
        assert result.event.id == id
        assert result.event.body == expected.body
        assert result.event.own_id == (expected.own_id or b"")

    def _find(self, request: DeliveryRequest) -> tuple[int, Held] | None:
        queue = self.queues.get(request.queue)
        given = queue.groups.get(request.group, {}) if queue else {}
        assert queue is not None or not given
        for event in reversed(queue.events if queue else []):
            held = given.get(event.t)
            if request.own_id is not None:
                if event.own_id == request.own_id:
                    return (event.t, held) if held and held.state != "done" else None
            elif held is not None and held.state == "progress":
                id = b"%d_%d" % (event.t, event.expire)
                if held.number > 1:
                    id += b"_%d" % held.number
                if id == request.id:
                    return event.t, held
        return None

    def _about(self, request: DeliveryRequest, result: Result, now: int) -> None:
        found = self._find(request)
        if found is None or (not isinstance(request, Ack) and found[1].number == 0):
            assert result.count == 0
            return
        assert result.count == 1
        t, held = found
        given = self.queues[request.queue].groups[request.group]
        if isinstance(request, Ack):
            given[t] = Held("done")
        elif isinstance(request, Working):
            given[t] = Held("progress", held.number, self._until(request.hold, now))
        else:
            self._rank += 1
            given[t] = Held("redo", held.number, rank=self._rank)
            self.told.add((request.queue, request.group))

    def _status(self, request: Status, result: Result) -> None:
        with_consumers = {queue for queue, _ in self.consumers}
        names = request.queues or sorted({*self.queues, *with_consumers})
        assert [found.queue for found in result.queues] == names
        for found in result.queues:
            self._queue_status(request, found)

    def _queue_status(self, request: Status, found: QueueStatus) -> None:
        queue = self.queues.get(found.queue, ModelQueue())
        consumers = [group for name, group in self.consumers if name == found.queue]
        total = len(queue.events)
        assert found.total == total
        names = request.groups or sorted({*queue.groups, *consumers})
        assert [one.group for one in found.groups] == names
        for one in found.groups:
            held = list(queue.groups.get(one.group, {}).values())
            assert one.total == total
            assert one.inprogress == sum(h.state == "progress" for h in held)
            assert one.redo == sum(h.state == "redo" for h in held)
            assert one.done == sum(h.state == "done" for h in held)
            assert one.available == total - len(held)
            assert one.consumers == consumers.count(one.group)
