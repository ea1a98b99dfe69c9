"""Garbage collection of acknowledged jobs: tells every node that may hold a copy, and keeps the job
here until all of them have confirmed.

When a client acknowledges a job (ACKJOB), its node marks the job and tells all nodes that may hold
a copy (SETACK). Each confirms (GOTACK). When all have, the node tells them to forget the job
(DELJOB), and forgets it itself. Until then it keeps the job and repeats SETACK to the others, at
growing intervals, and at once to a holder to which there is a new connection. If two nodes share a
job and agree that nobody else holds it, the receiver of SETACK forgets it at once, and the sender
on the confirmation: no DELJOB is needed.

Nodes may know of different holders. SETACK and DELJOB, and GOTACK in reply to such a SETACK, carry
a 16-bit mark of the holders that the sender knows of. A node that knows of others keeps the job and
goes on by itself until these have confirmed too. C nodes only say how many holders they know of,
and forget the job everywhere when these have confirmed; so a node that knows of more does not
confirm to them before it has collected the job itself.

A job may end in another way: cancelled, as a dead letter, or with a result. Nodes with extensions
then get ENDJOB instead of SETACK; the rest is the same.

If that other node knows SETTLED, the sender forgets the job at once, and keeps no more than its id
until the receiver has confirmed the packet (see ``settlements``). If it does not do that within a
second, or the connection breaks, the job is acknowledged as above after all.

An acknowledgement of a job that this node does not hold is kept as a dummy: a job without a body
and without holders. All nodes are told until one says that it knows the job, and so takes over.
"""

from collections import deque
from functools import partial
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.jobs.events import event_of
from disque_trio.node.core.jobs.job import (
    ACKED,
    ACTIVE,
    FLAG_END_UNKNOWN,
    FLAG_TRAILER,
    FLAGS_OF_ENDS,
    QUEUED,
    WAIT_REPL,
    Job,
    id_minutes,
)
from disque_trio.node.core.lifecycle.successors import Successors
from disque_trio.node.core.queues.core import Core
from disque_trio.protocol import bus
from disque_trio.protocol.bus import JobMessage, PacketError
from disque_trio.protocol.endjob import EndJob, unpack_endjob
from disque_trio.protocol.fields import Field, FieldsError
from disque_trio.protocol.settled import Settled
from disque_trio.protocol.trailer import ACKED as ENDED_ACKED
from disque_trio.protocol.trailer import CANCELLED, Ending

RING_MASK: Final = 16_383  # as in ``Outcomes``; importing it would cost a look-up
FIRST_GAP: Final = 1_000  # ms between attempts to collect a job, doubled each time
MAX_GAP: Final = 180_000
MAX_ATTEMPTS: Final = 10
LOOKED_AT: Final = 1_000  # jobs to look at per turn that a node which is back may not know of
_SPREAD: Final = 500  # ms; half of it to either side


class AckGc:
    """Garbage collection of acknowledged jobs across all nodes that hold them.

    Args:
        successors: makes the jobs that follow ended ones.
    """

    def __init__(self, core: Core, successors: Successors) -> None:
        store = core.store
        self._store = store
        self._machine = store.machine
        self._notes = store.notes
        self._replicas = store.replicas
        self._trailers = store.trailers
        self._aof_codec = core.aof_codec
        self._paging = core.paging
        self._successors = successors
        self._packets = core.packets
        self._tombstones = core.tombstones
        self._notices = core.notices
        self._settlements = core.settlements
        self._peers = core.peers
        self._random = core.rng.random
        self._spread_at = 0
        self._spread = 0
        self._partner = b""  # who holds the jobs of ``_pair`` besides this node, at ``_paired_at``
        self._pair: tuple[bytes, ...] = ()
        self._paired_at = 0
        # Jobs that were forgotten here, and of which another node has not confirmed the end.
        self._unconfirmed: deque[tuple[bytes, list[bytes]]] = deque()
        self._back: dict[bytes, None] = {}  # nodes to tell again
        self._to_look_at: list[bytes] = []  # ids of the jobs that they may not know of

    # ---- from clients -----------------------------------------------------------------------

    def acknowledge(self, job: Job) -> bool:
        """Mark ``job`` as processed. Return False if it was acknowledged already."""
        store = self._store
        state = job.state
        news = state != ACKED
        if news and self._notes.noting:
            self._notes.note(schema.ACKED, job, schema.BY_CLIENT)
        if job.delivered is None and state in (ACTIVE, QUEUED):
            store.count_acked(job)
            outcomes = store.outcomes
            if job.flags & FLAGS_OF_ENDS:
                outcomes.acked(job)
            else:  # nearly always; what ``acked`` does, without a call
                outcomes.ring[outcomes.at] = job.id
                outcomes.at = (outcomes.at + 1) & RING_MASK
            store.delete(job)  # the only copy
            return True
        if news and state in (ACTIVE, QUEUED) and self._settle(job):
            return True
        if news:
            store.count_acked(job)
            store.mark_acked(job)
        self.collect(job)
        return news

    def _settle(self, job: Job) -> bool:
        """Forget the acknowledged ``job`` if one other node holds it, and can be told at the end of
        the turn; otherwise return False."""
        holders = job.delivered
        if job.flags & (FLAG_TRAILER | FLAG_END_UNKNOWN) or not self._machine.may_confirm:
            return False
        if holders is not self._pair or self._machine.now != self._paired_at:
            self._pair = holders or ()
            self._paired_at = self._machine.now
            self._partner = self._partner_of(holders)
        if not self._partner:
            return False
        store = self._store
        store.count_acked(job)
        store.outcomes.acked(job)
        self._tombstones.ended.add(job.id)
        self._settlements.acked(self._partner, job.id)
        store.delete(job)
        return True

    def _partner_of(self, holders: tuple[bytes, ...] | None) -> bytes:
        """The only other one of ``holders``, if it can be told now, once for all; otherwise empty.
        The event log says when each job is forgotten."""
        own = self._replicas.own
        if holders is None or len(holders) != 2 or own not in holders or self._notes.eventing:
            return b""
        other = holders[1] if holders[0] == own else holders[0]
        return other if self._peers.settles(other) and self._peers.linked(other) else b""

    def end(self, job: Job, ending: Ending, reason: schema.Reason) -> bool:
        """End ``job`` as ``ending`` says; ``reason`` is for the event log. Return False if it had
        ended already."""
        if job.state == ACKED:
            return False
        store = self._store
        if self._notes.noting:
            self._notes.note(event_of(ending), job, reason)
        if ending.kind == CANCELLED:
            store.outcomes.total_cancelled += 1
        elif ending.kind == ENDED_ACKED:
            store.count_acked(job)
        self._trailers.set_ending(job, ending)
        if job.delivered is None and job.state in (ACTIVE, QUEUED):
            store.outcomes.acked(job)
            store.delete(job)  # the only copy
            return True
        store.mark_acked(job)
        self._note_ending(job)
        self.collect(job)
        return True

    def _note_ending(self, job: Job) -> None:
        """Record in the file how ``job`` ended, so that others are told after a restart, too."""
        if self._machine.journaling and self._peers.extended:
            self._aof_codec.note(job)

    def remember_ack(self, id: bytes, ending: Ending | None = None) -> None:
        """Remember, for the nodes that hold it, that a client acknowledged the job ``id``, or ended
        it as ``ending`` says; this node does not hold it. Does nothing on a node that is alone or
        leaving, nor for the acknowledgement of an at-most-once job."""
        minutes = id_minutes(id)
        if (
            minutes < 0
            or self._peers.size == 1
            or self._peers.leaving
            or not (minutes & 1 or ending)
        ):
            return
        job = self._dummy(id, minutes, ())
        if ending is not None:
            self._trailers.set_ending(job, ending)
            self._note_ending(job)
        if self._notes.noting:
            self._notes.note(event_of(ending), job, schema.BY_CLIENT)
        self.collect(job)

    def _dummy(self, id: bytes, minutes: int, holders: tuple[bytes, ...]) -> Job:
        """Hold in memory that the job ``id``, which lives for that many ``minutes``, was
        acknowledged."""
        store = self._store
        now = self._machine.now
        # The id has whole minutes, rounded down.
        etime = now // 1000 + (minutes + 1) * 60
        job = Job(id, b"", None, 0, now * 1_000_000, etime, 0, 0, store.dump_number)
        job.state = ACKED
        job.delivered = holders
        store.register(job)
        store.evictable[id] = job
        return job

    # ---- collecting -------------------------------------------------------------------------

    def collect(self, job: Job) -> None:
        """Tell every node that may hold the acknowledged ``job`` and has not confirmed; forget the
        job once all have."""
        missing = self._not_confirmed(job)
        if not missing and self._machine.may_confirm:
            self._finish(job)
            return
        if job.gc_retry:
            for id in missing:
                self._notices.reads_one(id)
            if job.gc_retry == 1 and job.flags & FLAG_TRAILER:
                self._successors.look_after(job)
        self._tell(job, missing)
        self._collect_later(job)

    def _tell(self, job: Job, nodes: list[bytes]) -> None:
        """Tell ``nodes`` that ``job`` has ended."""
        holders = self._replicas.of(job)
        # A mark says that it is in the file here.
        mark = self._replicas.sets.mark(holders) if holders and self._machine.may_confirm else 0
        told: bytes | None = None
        if job.flags & (FLAG_TRAILER | FLAG_END_UNKNOWN):
            told = self._endjob(job, len(holders), mark)
        for id in nodes:
            if told is not None and self._peers.understands(id):
                self._notices.fields.append((id, told))
            else:
                self._notices.add(id, bus.SETACK, job.id, len(holders), mark)

    def linked_to(self, nodes: list[bytes]) -> None:
        """Tell ``nodes``, to which connections are new, again which jobs have ended."""
        self._back.update(dict.fromkeys(nodes))
        self._to_look_at = list(self._store.evictable)  # all that have ended are among them
        for id in nodes:
            self._unconfirmed.append((id, self._settlements.untold(id)))
            if self._peers.understands(id):
                self._notices.reads_many(id)

    @property
    def due(self) -> int:
        """Return when to look at more jobs, in ms; 0: there are none."""
        if self._to_look_at or self._unconfirmed:
            return self._machine.now + 1
        return self._settlements.due

    def go_on(self) -> None:
        """Look at some of the jobs that nodes which are back may not know of, or of which they have
        not confirmed the end."""
        now = self._machine.now
        if self._settlements.due and self._settlements.due <= now:
            self._unconfirmed.extend(self._settlements.overdue(now).items())
        left = LOOKED_AT
        while self._unconfirmed and left > 0:
            node, unconfirmed = self._unconfirmed[0]
            some = unconfirmed[-left:]
            del unconfirmed[-left:]
            left -= len(some)
            for id in some:
                self._acknowledge_again(node, id)
            if not unconfirmed:
                self._unconfirmed.popleft()
        ids = self._to_look_at[-LOOKED_AT:]
        del self._to_look_at[-LOOKED_AT:]
        for id in ids:
            job = self._store.evictable.get(id)
            if job is not None and job.state == ACKED and job.gc_retry:
                missing = [node for node in self._not_confirmed(job) if node in self._back]
                if missing:
                    self._tell(job, missing)
                    job.gc_retry = 0  # if that gets lost, it is told again as if it were new
                    self._collect_later(job)
        if not (self._to_look_at or self._unconfirmed):
            self._back.clear()

    def _acknowledge_again(self, node: bytes, id: bytes) -> None:
        """Tell ``node``, which also holds it, in another way that the job ``id`` was acknowledged,
        and keep it until that is confirmed."""
        job = self._store.jobs.get(id)
        if job is None:
            holders = self._replicas.sets.of((self._replicas.own, node))
            job = self._dummy(id, max(id_minutes(id), 0), holders)
        elif job.state != ACKED:
            self._replicas.add(job, node)
            self._ended_elsewhere(job)
        job.gc_retry = 0 if node in self._back else 1
        self.collect(job)

    def roll_back(self) -> None:
        """Keep what was acknowledged in this turn: that is not in the file."""
        for node, ids in self._settlements.drop().items():
            self._back[node] = None
            for id in ids:
                self._acknowledge_again(node, id)

    def flush(self) -> None:
        """Start over: all jobs have been forgotten."""
        self._to_look_at.clear()
        self._unconfirmed.clear()
        self._settlements.flush()

    def _endjob(self, job: Job, holders: int, mark: int) -> bytes | None:
        """The packet that says how ``job`` ended; None: it was acknowledged, which SETACK says."""
        ending = self._trailers.ending(job)
        if ending is None:
            if not job.flags & FLAG_END_UNKNOWN:
                return None
            return self._packets.about_job(bus.SETACK, job.id, holders, bus.UNKNOWN_END, mark)
        return self._packets.fields(bus.ENDJOB, EndJob(job.id, holders, mark, ending).pack())

    def _collect_later(self, job: Job) -> None:
        """Schedule the next attempt to collect ``job``, later each time. Whatever was heard before
        the time of that attempt does not delay it."""
        if job.gc_retry and job.awake:
            return
        now = self._machine.now
        # Nearly all are gone by the second attempt, so jobs that are told together share one time.
        # A job that remains may have been in a packet that a node could not read.
        if now != self._spread_at or job.gc_retry:
            self._spread_at = now
            self._spread = int(self._random() * _SPREAD) - _SPREAD // 2
        gap = min(FIRST_GAP << int(job.gc_retry), MAX_GAP)
        if job.gc_retry < MAX_ATTEMPTS:
            job.gc_retry += 1
        self._store.timers.move(job, min(now + gap + self._spread, job.etime * 1000 + 1000))

    def _not_confirmed(self, job: Job) -> list[bytes]:
        """The nodes that may still bring ``job`` back, except those that have left the cluster for
        good."""
        peers = self._peers
        confirmed = job.confirmed or []
        if job.delivered == ():
            return [id for id in peers.everyone() if id not in confirmed]
        holders = job.delivered or ()
        return [id for id in holders if peers.knows(id) and id not in confirmed]

    def _is_confirmed(self, job: Job) -> bool:
        """Whether ``_not_confirmed`` would be empty."""
        confirmed = job.confirmed or []
        if job.delivered:
            for id in job.delivered:  # noqa: SIM110 - a generator is slower
                if id not in confirmed and self._peers.knows(id):
                    return False
            return True
        return not self._not_confirmed(job)

    def _finish(self, job: Job) -> None:
        """Forget ``job`` on all nodes: none can bring it back."""
        if job.delivered:
            mark = self._replicas.sets.mark(job.delivered)
            for id in job.delivered:
                if id != self._replicas.own:
                    self._notices.add(id, bus.DELJOB, job.id, 0, mark)
        self._end(job)

    def _end(self, job: Job) -> None:
        """Forget the acknowledged ``job``, but remember for a while that it ended."""
        self._tombstones.ended.add(job.id)
        if self._notes.noting:
            self._notes.note(schema.DELETED, job, schema.BY_COLLECTION)
        self._store.delete(job)

    # ---- from other nodes -------------------------------------------------------------------

    def on_endjob(self, sender: bytes, fields: list[Field]) -> None:
        """Handle ENDJOB: another node knows how the job ended. Raises ``PacketError``."""
        try:
            message = unpack_endjob(fields)
        except FieldsError as problem:
            raise PacketError(f"malformed ENDJOB: {problem}") from problem
        ending = message.ending
        job = self._store.jobs.get(message.id)
        if job is None:
            if self._paging.bring(message.id, partial(self.on_endjob, sender, fields)):
                return
            job = self._store.jobs.get(message.id)
        if job is None or job.delivered == ():
            if message.holders and ending.kind == CANCELLED:
                # A copy may be on its way here.
                self._store.outcomes.cancelled_elsewhere(message.id)
            if job is None and self._successors.lacks(message.id, ending):
                # A confirmation would leave the successor of that job without a copy here. The
                # sender asks again.
                return
        elif job.state != ACKED:
            if ending.letter is not None and job.body is not None and job.state != WAIT_REPL:
                self._successors.make(job, ending, False)
            self._trailers.set_ending(job, ending)
        live = job if job is not None and job.state != ACKED else None
        self.on_setack(sender, JobMessage(message.id, message.holders, 0, message.mark))
        if live is not None and live.state == ACKED and ending.kind == CANCELLED:
            self._note_ending(live)  # the sender may rely on this node from now on

    def on_settled(self, sender: bytes, message: Settled) -> None:
        """Handle that ``sender``, the only other holder that it knows of, has forgotten jobs that
        were acknowledged there. Those that lie on disk are left to SETACK."""
        if not self._machine.may_confirm:
            return
        store = self._store
        outcomes = store.outcomes
        ended = self._tombstones.ended
        sets = self._replicas.sets
        own = self._replicas.own
        pair = sets.of((own, sender))
        same = sets.of((sender, own))
        mark = sets.mark(pair)
        whole = message.number > 0
        for id in message.ids:
            job = store.jobs.get(id)
            if job is None:
                if self._paging.pages.jobs and self._paging.knows(id):
                    whole = False
                else:
                    ended.add(id)  # a copy of it may be on its way here
                continue
            if (job.delivered is not pair and job.delivered is not same) or job.state == WAIT_REPL:
                self.on_setack(sender, JobMessage(id, 2, 0, mark))
                continue
            if job.state != ACKED:
                if self._notes.noting:
                    self._notes.note(schema.ACKED, job, schema.BY_PEER)
                if job.flags & FLAGS_OF_ENDS:
                    outcomes.acked(job)
                else:
                    outcomes.ring[outcomes.at] = id
                    outcomes.at = (outcomes.at + 1) & RING_MASK
            self._end(job)
        if whole:
            self._settlements.heard(sender, message.number)

    def on_setack(self, sender: bytes, message: JobMessage) -> None:
        """Handle SETACK: another node knows that the job was processed."""
        store = self._store
        replicas = self._replicas
        id = message.id
        holders_known = message.aux
        job = store.jobs.get(id)
        if job is None:
            if holders_known:
                # A copy may be on its way here, or follow from the end of another job.
                self._tombstones.ended.add(id)
            if self._machine.may_confirm:
                self._notices.add(sender, bus.GOTACK, id, 0, message.mark)
            return
        news = job.state != ACKED
        if news and message.flags & bus.UNKNOWN_END:
            job.flags |= FLAG_END_UNKNOWN
        if job.state == WAIT_REPL:
            self._ended_elsewhere(job)  # replies to its producer, even if the job ends at once
        if message.mark and job.delivered != ():
            replicas.add(job, sender)
            if self._is_shared_by_two(job, sender, message.mark):
                # Both know of it now; the sender ends it when it hears that.
                if job.state != ACKED:
                    if self._notes.noting:
                        self._notes.note(event_of(self._trailers.ending(job)), job, schema.BY_PEER)
                    store.outcomes.acked(job)
                self._notices.add(sender, bus.GOTACK, id, 1, message.mark)
                self._end(job)
                return
        if job.state != ACKED:
            self._ended_elsewhere(job)
        if job.delivered == ():
            # A dummy here as well: no copy. If the sender knows more, it takes over.
            self._notices.add(sender, bus.GOTACK, id, 0, message.mark)
            if holders_known:
                store.delete(job)
            return
        self._confirm(job, sender, message, news)

    def _confirm(self, job: Job, sender: bytes, message: JobMessage, news: bool) -> None:
        """Answer the SETACK of ``sender`` for ``job``, and tell the other holders if need be.
        ``news``: this node did not know that the job has ended."""
        replicas = self._replicas
        holders_known = message.aux
        if holders_known:
            replicas.add(job, sender)
        holders = replicas.of(job)
        mark = 0
        if message.mark:
            mark = replicas.sets.mark(holders)
            confirm = True
            collect = message.mark != mark
        else:
            # A dummy of the sender; or the sender is a C node, which forgets the job everywhere
            # once all holders that it knows of have confirmed.
            confirm = len(holders) <= holders_known or holders_known == 0
            collect = len(holders) > holders_known
        # Not before it is on disk, or a crash would bring the job back. The sender asks again.
        if confirm and self._machine.may_confirm:
            self._notices.add(sender, bus.GOTACK, job.id, 1, mark)
        if collect:
            if holders_known:
                self._note_confirmed(job, sender)
            if news or holders_known == 0 or not confirm:
                self.collect(job)
        elif news:
            self._collect_later(job)

    def on_deljob(self, sender: bytes, message: JobMessage) -> None:
        """Handle DELJOB: all holders that ``sender`` knows of have confirmed."""
        job = self._store.jobs.get(message.id)
        if job is None:
            return
        if job.state == ACKED and job.delivered and message.mark:
            if message.mark == self._replicas.sets.mark(job.delivered):
                self._end(job)
                return
            # There may be holders that the sender never heard of.
            self._note_confirmed(job, sender)
            if self._is_confirmed(job):
                self._finish(job)
            return
        if self._notes.noting:
            self._notes.note(schema.DELETED, job, schema.BY_PEER)
        self._store.delete(job)

    def on_gotack(self, sender: bytes, message: JobMessage) -> None:
        """Handle GOTACK: a node confirms the acknowledgement."""
        known = message.aux
        if message.mark:
            self._notices.reads_many(sender)
        job = self._store.jobs.get(message.id)
        if job is None:
            return
        if job.state != ACKED:
            # This node told the others how, but had to forget it, or was restarted since.
            job.flags |= FLAG_END_UNKNOWN
            self._ended_elsewhere(job)
        if job.delivered == () and known:
            self._store.delete(job)  # the sender knows the job, and takes over
            return
        if known and sender not in (job.delivered or ()):
            self._replicas.add(job, sender)
        if not known and job.flags & FLAG_TRAILER:
            self._successors.not_made_by(sender, job)
        if message.mark and self._is_shared_by_two(job, sender, message.mark):
            self._end(job)  # the other node has ended it too, or never had it
            return
        self._note_confirmed(job, sender)
        if self._machine.may_confirm and self._is_confirmed(job):
            self._finish(job)
        elif not job.awake:
            self._collect_later(job)

    def _is_shared_by_two(self, job: Job, other: bytes, mark: int) -> bool:
        """Whether the acknowledged ``job`` may end here, because only this node and ``other`` may
        hold it and ``mark`` says that ``other`` agrees."""
        holders = job.delivered
        return (
            holders is not None
            and len(holders) == 2
            and other in holders
            and self._replicas.own in holders
            and mark == self._replicas.sets.mark(holders)
            and self._machine.may_confirm
        )

    def _ended_elsewhere(self, job: Job) -> None:
        """Mark ``job`` acknowledged: another node says so, which is news here."""
        if self._notes.noting:
            self._notes.note(event_of(self._trailers.ending(job)), job, schema.BY_PEER)
        self._store.mark_acked(job)

    def _note_confirmed(self, job: Job, id: bytes) -> None:
        """Record that the node ``id`` knows that ``job`` was acknowledged."""
        if job.confirmed is None:
            job.confirmed = [id]
        elif id not in job.confirmed:
            job.confirmed.append(id)
