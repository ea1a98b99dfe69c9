"""Records what happens to jobs for the event log, and passes it on to be counted.

``disque_trio.eventlog.schema`` defines the record. Events are noted only while ``noting`` is true.
Often the same thing happens to many jobs in a row, as with pipelined commands. It is then noted
once, followed by the ids of the jobs.
"""

from typing import Final

from disque_trio.eventlog import schema
from disque_trio.eventlog.schema import Event, Kind, Reason, TickKind
from disque_trio.node.core.jobs.counts import JobCounts
from disque_trio.node.core.jobs.job import FLAG_TRAILER, FLAGS_PRIORITY, Job, priority_of
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.protocol.trailer import CANCELLED, DEAD, Ending
from disque_trio.respserver.client import Client
from disque_trio.respserver.machine import Machine

# The fields that do not apply unless the job is new.
_NOT_NEW: Final[tuple[int | str | bytes, ...]] = (-1, -1, -1, -1, -1, -1, -1, 0, b"")
_RARE: Final = FLAGS_PRIORITY | FLAG_TRAILER  # flags of jobs with more to record


Tick = tuple[bytes, int, bytes]


class EventNotes:
    """Collects the events of one node's jobs.

    Args:
        machine: provides the time and the client of events.
        trailers: tell a job's group.

    Attributes:
        noting: whether events are recorded or counted.
        counts: counts events; None: nobody wants to know.
        events: the events since the driver last took them: it takes the list and leaves an empty
            one.
        peer: id of the node that this one reacts to; empty: none.
    """

    def __init__(self, machine: Machine, trailers: Trailers) -> None:
        self.noting = False
        self.counts: JobCounts | None = None
        self.events: list[Event] = []
        self._recording = False
        self.peer = b""
        self._machine = machine
        self._trailers = trailers
        # The event that was noted last, and its job. A job's own facts never change.
        self._last: Job | None = None
        self._time = 0
        self._event = ""
        self._queue = b""
        self._reason = ""
        self._label = ""
        self._peer = b""
        self._nacks = 0
        self._deliveries = 0
        self._size = 0
        self._holders: tuple[bytes, ...] | None = None
        self._rare = 0
        self._group = b""

    @property
    def eventing(self) -> bool:
        """Whether events are recorded."""
        return self._recording

    @eventing.setter
    def eventing(self, recording: bool) -> None:
        self._recording = recording
        self.noting = recording or self.counts is not None

    def count(self, counts: JobCounts) -> None:
        """Let ``counts`` count events from now on."""
        self.counts = counts
        self.noting = True

    @property
    def now(self) -> int:
        """The time of the node, in ms since the epoch."""
        return self._machine.now

    def note(self, event: Kind, job: Job, reason: Reason = "", new: bool = False) -> None:
        """Note that ``event`` happened to ``job``.

        Args:
            reason: why. An "added" with a reason stands for two events, as nearly every job has
                them: the job was also queued, for that reason.
            new: the job is new to this node.
        """
        counts = self.counts
        if counts is not None:
            counts.note(event, job, reason, self._machine.now)
            if not self._recording:
                return
        events = self.events
        if not events:
            self._event = self._label = ""  # the reader of the new list has not seen the last event
        machine = self._machine
        now = machine.now
        client = machine.client
        label = "" if client is None else client.label or self._name(client)
        last = self._last
        # Comparing field by field costs a compiled node next to nothing; equal values are usually
        # one object.
        if (
            event is not self._event
            or last is None
            or now != self._time
            or reason is not self._reason
            or self.peer is not self._peer
            or job.queue is not self._queue
            or int(job.nacks) != self._nacks
            or int(job.deliveries) != self._deliveries
            or (
                new
                and (
                    job.ctime != last.ctime + 1
                    or job.etime != last.etime
                    or job.retry != last.retry
                    or job.delay != last.delay
                    or job.repl != last.repl
                    or job.delivered is not self._holders
                    or len(job.body or b"") != self._size
                    or ((job.flags | self._rare) & _RARE and self._is_another(job))
                )
            )
        ):
            self._time = now
            peer = self._peer = self.peer
            self._event = event
            self._queue = job.queue
            self._reason = reason
            self._nacks = job.nacks
            self._deliveries = job.deliveries
            what: tuple[int | str | bytes, ...] = (
                now,
                event,
                job.queue,
                reason,
                peer,
                job.nacks,
                job.deliveries,
            )
            if new:
                size = self._size = len(job.body or b"")
                holders = self._holders = job.delivered
                copies = 1 if holders is None else len(holders)
                ttl = max(job.etime - now // 1000, 0)
                what += (size, job.repl, copies, job.retry, ttl, job.delay, job.ctime)
                rare = self._rare = job.flags & _RARE
                if rare:
                    group = self._group = self._trailers.group(job)
                    if group or rare & FLAGS_PRIORITY:
                        what += (priority_of(job), group)
            events.append(what)
        if label is not self._label:
            self._label = label
            events.append(label)
        self._last = job
        events.append(job.id)

    def note_pause(self, job: Job, reason: Reason) -> None:
        """Note that ``job`` is not queued again before its ``qtime``."""
        if self._recording:
            self._note_alone(schema.PAUSED, job, reason, (*_NOT_NEW, int(job.qtime)))

    def note_move(self, job: Job, reason: Reason, origin: bytes) -> None:
        """Note that ``job`` was changed, and was in the queue ``origin`` before."""
        counts = self.counts
        if counts is not None:
            counts.note(schema.UPDATED, job, reason, self._machine.now)
        if not self._recording:
            return
        holders = job.delivered
        facts: tuple[int | str | bytes, ...] = (
            len(job.body or b""),
            job.repl,
            1 if holders is None else len(holders),
            job.retry,
            max(job.etime - self._machine.now // 1000, 0),
            job.delay,
            job.ctime,
            priority_of(job),
            self._trailers.group(job),
            -1,
            origin,
        )
        self._note_alone(schema.UPDATED, job, reason, facts)

    def _note_alone(
        self, event: Kind, job: Job, reason: Reason, facts: tuple[int | str | bytes, ...]
    ) -> None:
        """Note an event that no other one is like, with all ``facts`` after those of each event."""
        events = self.events
        if not events:
            self._label = ""
        machine = self._machine
        client = machine.client
        label = "" if client is None else client.label or self._name(client)
        if label is not self._label:
            self._label = label
            events.append(label)
        what: tuple[int | str | bytes, ...] = (
            machine.now,
            event,
            job.queue,
            reason,
            self.peer,
            job.nacks,
            job.deliveries,
        )
        what += facts
        events.append(what)
        events.append(job.id)
        self._event = ""  # note the next one in full

    def note_policy(self, client: Client, queue: bytes, what: bytes) -> None:
        """Note that ``client`` has set the policy of ``queue``, with ``what`` words."""
        if self._recording:
            label = client.label or self._name(client)
            self.events.append((self._machine.now, schema.POLICY, queue, what, label))

    def note_tick(self, kind: TickKind, tick: Tick, reason: Reason, until: int, id: bytes) -> None:
        """Note what became of a tick of a schedule.

        Args:
            tick: the name of the schedule, the moment (ms), and the queue.
            until: all ticks before it (ms) were missed too; -1: just this one.
            id: of the job; empty: there is none.
        """
        if self._recording:
            name, at, queue = tick
            self.events.append((self._machine.now, kind, name, at, queue, reason, until, id))

    def _is_another(self, job: Job) -> bool:
        """Whether ``job`` has another priority or group than the job that was noted last."""
        return int(job.flags & _RARE) != self._rare or self._trailers.group(job) != self._group

    def _name(self, client: Client) -> str:
        """The name of ``client`` in the log: its own name, or the address it connected from."""
        name = client.name.decode("utf-8", "backslashreplace")
        client.label = name or self._machine.host.address(client)
        return client.label


def event_of(ending: Ending | None) -> Kind:
    """The event for a job that ends with ``ending``; None: it was acknowledged."""
    if ending is not None and ending.kind == DEAD:
        return schema.DEAD
    if ending is not None and ending.kind == CANCELLED:
        return schema.CANCELLED
    return schema.ACKED
