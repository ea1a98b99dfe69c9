"""Makes the jobs that follow others: dead letters, and jobs that are made of them again.

Every node that holds the ending job makes the new one from its own copy, so no body travels. The
new id is derived from the old one: holders that cannot see each other make the same job, so there
is only one when they meet again.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.copies.copies import Copies
from disque_trio.node.core.federation.exports import Exports
from disque_trio.node.core.jobs.job import (
    ACKED,
    ACTIVE,
    DEFAULT_RETRY,
    FLAG_QUEUED_BEFORE,
    FLAGS_PRIORITY,
    QUEUED,
    UINT32_MAX,
    Job,
)
from disque_trio.node.core.queues.core import Core
from disque_trio.protocol import bus
from disque_trio.protocol.endjob import EndJob
from disque_trio.protocol.successor import SALTS, successor_id
from disque_trio.protocol.trailer import BY_EXPIRY, DEAD, REDRIVEN, Ending, Letter, Trailer

_MAX_PREDECESSORS: Final = 100  # jobs; no queue is expected to bury and redrive a job as often
_LOOKED_FOR: Final = 4  # jobs that follow each other, while a node that holds the first is away


def predecessor_ids(first: bytes, id: bytes) -> list[bytes]:
    """The ids of the jobs that led to the job ``id``, each the successor of the one before.

    Only ``first`` is known if a letter died, or was redriven twice in a row.

    Args:
        first: the id of the job before it died for the first time.
    """
    ids = [first]
    kind = DEAD
    while ids[-1] != id:
        if len(ids) == _MAX_PREDECESSORS:
            return [first]
        ids.append(successor_id(ids[-1], kind))
        kind = DEAD if kind == REDRIVEN else REDRIVEN
    return ids[:-1]


class Successors:
    """Makes the successors of one node's jobs.

    Args:
        exports: gives jobs to nodes that want them.
        copies: sees to it that they have theirs, though holders are away.
    """

    def __init__(self, core: Core, exports: Exports, copies: Copies) -> None:
        store = core.store
        self._store = store
        self._machine = store.machine
        self._notes = store.notes
        self._trailers = store.trailers
        self._policies = core.policies
        self._aof_codec = core.aof_codec
        self._codec = core.bus_codec
        self._exports = exports
        self._paging = core.paging
        self._copies = copies
        self._tombstones = core.tombstones
        core.tombstones.tell_followed = self.tell_followed
        self._notices = core.notices
        self._packets = core.packets

    def make(self, job: Job, ending: Ending, queue_it: bool) -> None:
        """Make the successor of ``job``, unless it exists or has ended already. This node holds
        ``job`` with its body, and it is about to end as ``ending`` says. Call ``announce``, or
        ``offer`` if there is nothing to announce, when the other holders have been told.

        Args:
            queue_it: whether this node queues it; otherwise it is a copy, which another node
                queues.
        """
        id = successor_id(job.id, ending.kind)
        store = self._store
        machine = self._machine
        if self._has_been(id):
            return
        # Jobs expire on each holder by itself. Other endings are told, by one.
        if ending.letter is not None and ending.letter.why == BY_EXPIRY and self._follower(id):
            return
        etime = min(machine.now // 1000 + ending.ttl, UINT32_MAX)
        retry = DEFAULT_RETRY
        if self._policies.count and self._policies.of(ending.to).retry > 0:
            retry = self._policies.of(ending.to).retry
        new = Job(
            id,
            store.queues.one_name(ending.to),
            job.body,
            job.repl,
            store.next_ctime(),
            etime,
            0,
            retry,
            store.dump_number,
        )
        new.delivered = job.delivered
        new.flags = job.flags & FLAGS_PRIORITY
        store.register(new)
        self._give_trailer(job, new, ending)
        if queue_it:
            if self._notes.noting:
                reason = schema.BY_DEATH if ending.kind == DEAD else schema.BY_REDRIVE
                self._notes.note(schema.ADDED, new, reason, new=True)
            store.put(new)
            self._send_to_c_nodes(new)
            self._copies.look_after(new)
        else:
            if self._notes.noting:
                self._notes.note(schema.COPIED, new, new=True)
            new.flags |= FLAG_QUEUED_BEFORE
            store.postpone(new)
            store.progress.note(new)  # or a start takes it for its own, which nobody has queued
        if machine.journaling:
            self._aof_codec.note(new)

    def lacks(self, id: bytes, ending: Ending) -> bool:
        """Whether this node has still to make the job ``id``, which has ended as ``ending`` says:
        it holds a predecessor, and has not heard that it ended."""
        if ending.letter is None:
            return False
        jobs = self._store.jobs
        for before in predecessor_ids(ending.letter.first, id):
            job = jobs.get(before)
            if self._paging.knows(before) if job is None else job.state != ACKED:
                return True
        return False

    def _bring(self, job: Job, then: Callable[[], object]) -> bool:
        """Bring the successor of the ended ``job`` back into memory if it is on disk. Return
        whether that has yet to happen: then ``then`` will be called."""
        ending = self._trailers.ending(job)
        if ending is None or ending.letter is None:
            return False
        id = successor_id(job.id, ending.kind)
        return self._store.jobs.get(id) is None and self._paging.bring(id, then)

    def look_after(self, job: Job) -> None:
        """See to it that what follows the ended ``job`` has its copies: not all holders have
        confirmed the end. The node that made it has done so already, unless it was restarted."""
        if self._bring(job, partial(self.look_after, job)):
            return
        new = self._of(job)
        if new is not None:
            self._copies.look_after(new)

    def not_made_by(self, node: bytes, job: Job) -> None:
        """Note that ``node`` does not hold ``job``, which has ended, and so has made no copy of
        what follows it."""
        if self._bring(job, partial(self.not_made_by, node, job)):
            return
        new = self._of(job)
        if new is not None and node in (new.delivered or ()):
            self._copies.lacks(new, node)

    def _of(self, job: Job) -> Job | None:
        """The job that follows the ended ``job``, if this node has it and it has not ended."""
        ending = self._trailers.ending(job)
        if ending is None or ending.letter is None:
            return None
        new = self._store.jobs.get(successor_id(job.id, ending.kind))
        return new if new is not None and new.state in (ACTIVE, QUEUED) else None

    def tell_followed(self, sender: bytes, id: bytes) -> bool:
        """Return whether another job has followed the job ``id``, which this node does not hold. If
        so, tell ``sender``, which does and has extensions, so that it has a copy of that one
        instead: it was away, and whoever else knew may be gone."""
        follower = self._follower(id)
        if not follower:
            return False
        if self._store.jobs.get(follower) is None and self._paging.bring(
            follower, partial(self.tell_followed, sender, id)
        ):
            return True
        kind = next((kind for kind in SALTS if successor_id(id, kind) == follower), 0)
        self._tell_followed(sender, id, self._store.jobs.get(follower), kind)
        return True

    def _has_been(self, id: bytes) -> bool:
        """Whether this node has the job ``id``, or had it until a moment ago."""
        if self._store.jobs.get(id) is not None or self._tombstones.ended.has(id):
            return True
        return self._paging.knows(id)

    def _follower(self, id: bytes) -> bytes:
        """The id of the first job which has followed the job ``id`` that this node has, or had
        until a moment ago; empty: it knows of none."""
        for kind in SALTS:
            at = id
            for _ in range(_LOOKED_FOR):
                at = successor_id(at, kind)
                if self._has_been(at):
                    return at
                kind = DEAD if kind == REDRIVEN else REDRIVEN
        return b""

    def _tell_followed(self, sender: bytes, id: bytes, new: Job | None, kind: int) -> None:
        """Tell ``sender`` that the job ``id`` has ended, and that ``new`` has followed it (None:
        that has ended, too). ``kind``: how it ended; 0: there were others in between."""
        told = self._packets.about_job(bus.SETACK, id, 1, bus.UNKNOWN_END)
        if new is not None and new.state in (ACTIVE, QUEUED):
            trailer = self._trailers.of(new)
            letter = None if trailer is None else trailer.letter
            if kind and letter is not None and letter.why == BY_EXPIRY:
                return  # there it expires as well, and one of the holders then queues the letter
            self._store.replicas.add(new, sender)
            if kind and letter is not None:
                # It makes its copy itself, and so do all that it tells.
                ttl = max(int(new.etime) - self._machine.now // 1000, 0)
                ending = Ending(kind, to=new.queue, ttl=ttl, letter=letter)
                told = self._packets.fields(bus.ENDJOB, EndJob(id, 1, 0, ending).pack())
            else:
                self._notices.copy(self._codec.encode(new), (sender,), bus.NOREPLY)
                if new.state != QUEUED:
                    self._store.replicas.places.leaves(new, self._machine.now)
        self._notices.fields.append((sender, told))  # behind the copy

    def announce(self, job: Job, ending: Ending) -> None:
        """Tell the other holders of ``job``, which has ended as ``ending`` says, that its successor
        is in the queue of this node: one of them may have made it at the same moment. Then offer
        it. Call this after they have been told that the job ended."""
        id = successor_id(job.id, ending.kind)
        new = self._store.jobs.get(id)
        if new is None:
            if self._paging.bring(id, partial(self.announce, job, ending)):
                return
            new = self._store.jobs.get(id)
        if new is not None and new.delivered is not None:
            packet = self._packets.about_job(bus.QUEUED, new.id)
            for id in new.delivered:
                if id != self._store.replicas.own:
                    self._notices.fields.append((id, packet))
        self.offer(ending)

    def offer(self, ending: Ending) -> None:
        """Offer successors to the nodes that wait for jobs of their queue."""
        if self._exports.asked_for:
            self._exports.offer(ending.to)

    def _give_trailer(self, job: Job, new: Job, ending: Ending) -> None:
        """Give ``new`` its origin, and what ``job`` carried."""
        trailer = Trailer()
        before = self._trailers.of(job)
        if before is not None:
            trailer.inherit(before)
        trailer.letter = ending.letter
        self._trailers.put(new, trailer)

    def _send_to_c_nodes(self, job: Job) -> None:
        """Send copies of ``job`` to those of its holders that do not make it themselves."""
        c_nodes = self._store.replicas.c_nodes_of(job)
        if c_nodes and self._trailers.is_plain(job):
            self._notices.copy(self._codec.encode(job), tuple(c_nodes), bus.NOREPLY)


def first_id(job: Job, letter: Letter | None) -> bytes:
    """The id of ``job`` before it died for the first time. ``letter``: the job's own, if any."""
    return job.id if letter is None else letter.first
