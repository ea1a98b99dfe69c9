"""Queues what a node that is lost had in its queues, and tells others what would be needed for that
if this one were.

That a node is dead is certain if its machine refuses connections, or if somebody forgets it while
it fails. One that is only silent may go on delivering behind a partition. So when a node is dead,
each holder looks for the jobs that it had queued as far as the holder knows (see ``places``), and
queues them in a moment, unless another node that is asked before has them (WILLQUEUE). The holders
do so one after the other, in an order that depends on the job, so that only one does. A job that a
client of the dead node may have comes back after its retry time.

A node tells the other holders what its clients have had for some time (LEFT), and all of it when
there is a new connection, since some may not have heard of it.

A node whose file was damaged is dead as far as the jobs in the damaged records are concerned: it
names them (LOST) to each node to which there is a new connection, and the holders send copies.
"""

from functools import partial
from typing import Final

from disque_trio.node.core.copies.copies import Copies
from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_PAUSED,
    FLAG_QUEUED_BEFORE,
    FLAG_WILLQUEUE,
    QUEUED,
    Job,
    first_due,
    is_maker,
)
from disque_trio.node.core.jobs.timers import IN_LOT
from disque_trio.node.core.lifecycle.requeue import even_place
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.store import WARNING_TIME
from disque_trio.node.core.rpc.calls import LEFT, LOST
from disque_trio.node.core.rpc.notices import MOST
from disque_trio.protocol.fields import Field, FieldsError
from disque_trio.protocol.serialjob import ID_LENGTH, split_nodes

A_TURN: Final = 1_000  # jobs to look at
MOST_BEFORE: Final = 3  # holders that come first, at most; more count as so many
IN_HAND: Final = 2  # type of the field with the ids of jobs that clients have
ELSEWHERE: Final = 3  # and of those that are neither in a queue here nor in a client's hands
LOST_IDS: Final = 2  # type of the field with the ids of lost jobs


class DeadNodes:
    """What one node does for the case that a node is lost. ``copies`` sends copies again."""

    def __init__(self, core: Core, copies: Copies) -> None:
        store = core.store
        self._store = store
        self._machine = store.machine
        self._replicas = store.replicas
        self._places = store.replicas.places
        self._rpc = core.rpc
        self._peers = core.peers
        self._dead: dict[bytes, int] = {}  # where the look through all jobs for each has come
        self._untold: dict[bytes, int] = {}  # the same for nodes that are to hear of all
        self.due = 0  # when to go on, in ms; 0: there is nothing to do
        self._recovery = core.recovery
        self._paging = core.paging
        self._copies = copies
        core.rpc.handlers[LEFT] = self._on_left
        core.rpc.handlers[LOST] = self._on_lost
        core.peers.died = self.died
        core.paging.keep(self._replicas.ask_all)

    def _call(self) -> None:
        self.due = max(self._machine.now, 1) if self._dead or self._untold else 0
        self._rpc.timer.wake_by(self.due)

    # ---- telling --------------------------------------------------------------------------------

    def tell(self, now: int) -> None:
        """Tell the other holders of the jobs that left the queues here some time ago, and have not
        ended."""
        jobs = self._store.jobs
        told: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
        left = self._places.take(now)
        for id in left.ids:
            found = jobs.get(id)
            if found is not None:
                left.jobs.append(found)
        for job in left.jobs:
            if job.state == ACTIVE:
                for node in job.delivered or ():
                    self._note(told, node, job)
        self._send(told)

    def _note(
        self, told: dict[bytes, tuple[list[bytes], list[bytes]]], node: bytes, job: Job
    ) -> None:
        """Add ``job`` to what ``node`` is ``told``, if it is not in a queue here."""
        if job.state != ACTIVE or job.flags & FLAG_PAUSED or not self._peers.tells(node):
            return
        lists = told.get(node)
        if lists is None:
            lists = told[node] = ([], [])
        if job.flags & FLAG_DELIVERED:
            lists[0].append(job.id)
        elif job.place is None or job.place.node != node:
            lists[1].append(job.id)

    def _send(self, told: dict[bytes, tuple[list[bytes], list[bytes]]]) -> None:
        for node, (in_hand, elsewhere) in told.items():
            while in_hand or elsewhere:
                fields: list[Field] = []
                if in_hand:
                    fields.append((IN_HAND, b"".join(in_hand[:MOST])))
                if elsewhere:
                    fields.append((ELSEWHERE, b"".join(elsewhere[:MOST])))
                self._peers.send(node, self._rpc.notification(LEFT, fields))
                in_hand = in_hand[MOST:]
                elsewhere = elsewhere[MOST:]

    def linked_to(self, nodes: list[bytes]) -> None:
        """Tell ``nodes``, to which connections are new, of all jobs that clients have, and of those
        that the file has lost."""
        lost = [
            id
            for id in self._recovery.lost
            if self._store.jobs.get(id) is None and not self._paging.knows(id)
        ]
        for node in nodes:
            if self._peers.understands(node):
                for at in range(0, len(lost), MOST):
                    ids = b"".join(lost[at : at + MOST])
                    self._peers.send(node, self._rpc.notification(LOST, [(LOST_IDS, ids)]))
            self._dead.pop(node, None)
            self._paging.is_back(node)
            if self._peers.tells(node):
                self._untold[node] = 0
        self._call()

    def _on_left(self, sender: bytes, fields: list[Field]) -> None:
        """Handle LEFT: jobs are no longer in a queue of ``sender``."""
        for type, ids in fields:
            if type not in (IN_HAND, ELSEWHERE):
                continue
            if len(ids) % ID_LENGTH:
                raise FieldsError("a list of ids has the wrong length")
            for id in split_nodes(ids):
                if self._store.jobs.get(id) is None:
                    if type == IN_HAND and self._paging.leaves(sender, id):
                        continue
                    if self._paging.bring(id, partial(self._left, sender, type, id)):
                        continue
                self._left(sender, type, id)

    def _left(self, sender: bytes, type: int, id: bytes) -> None:
        """Note that the job ``id`` is no longer in a queue of ``sender``."""
        job = self._store.jobs.get(id)
        if job is None or job.state != ACTIVE or job.flags & FLAG_DELIVERED:
            return
        if type == IN_HAND:
            job.place = self._places.in_hand(sender)
            self._replicas.add(job, sender)  # it may have got the job from a third node
            if job.retry and not job.flags & (FLAG_QUEUED_BEFORE | FLAG_PAUSED):
                # It would be queued soon, unless another holder has it.
                job.flags |= FLAG_QUEUED_BEFORE
                self._store.postpone(job)
            elif job.retry and not job.flags & (FLAG_WILLQUEUE | FLAG_PAUSED):
                # It will be queued in a moment: ``sender`` may not have been there to be asked.
                self._replicas.ask(job, sender)
        elif job.place is not None and job.place.node == sender:
            job.place = None
        else:
            return
        if job.awake >= IN_LOT:
            self._store.schedule(job)

    def _on_lost(self, sender: bytes, fields: list[Field]) -> None:
        """Handle LOST: ``sender`` held jobs that it has lost."""
        for type, ids in fields:
            if type != LOST_IDS:
                continue
            if len(ids) % ID_LENGTH:
                raise FieldsError("a list of ids has the wrong length")
            for id in split_nodes(ids):
                if self._store.jobs.get(id) is not None or not self._paging.bring(
                    id, partial(self._lost_by, sender, id)
                ):
                    self._lost_by(sender, id)

    def _lost_by(self, sender: bytes, id: bytes) -> None:
        """See to it that ``sender``, which has lost the job ``id``, gets a copy."""
        job = self._store.jobs.get(id)
        if job is None or not job.retry or sender not in (job.delivered or ()):
            return
        if self._was_queued_at(sender, job):
            self._take_over(sender, job)
        if job.state in (ACTIVE, QUEUED):
            self._copies.lacks(job, sender)

    # ---- a dead node ----------------------------------------------------------------------------

    def died(self, node: bytes) -> None:
        """Queue what ``node``, which is dead, had in its queues."""
        self._untold.pop(node, None)
        self._dead[node] = 0
        self._paging.died(node, partial(self._found_at, node))
        self._call()

    def go_on(self, now: int) -> None:
        """Look at some jobs for each node that is dead, or to which there is a new connection."""
        if not self.due or self.due > now:
            return
        for node in list(self._dead):
            for job in self._next_jobs(self._dead, node):
                self._found_at(node, job)
        for node in list(self._untold):
            told: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
            for job in self._next_jobs(self._untold, node):
                if job.delivered is not None and node in job.delivered and self._is_to_tell(job):
                    self._note(told, node, job)
            self._send(told)
        self._call()

    def _found_at(self, node: bytes, job: Job) -> None:
        """Queue ``job`` if the dead ``node`` had it in its queue."""
        if self._was_queued_at(node, job):
            self._take_over(node, job)

    def _next_jobs(self, cursors: dict[bytes, int], node: bytes) -> list[Job]:
        """The jobs to look at next for ``node``, which is taken from ``cursors`` with the last."""
        cursor, found = self._store.jobs.scan(cursors[node], A_TURN)
        if cursor:
            cursors[node] = cursor
        else:
            del cursors[node]
        return found

    def _is_to_tell(self, job: Job) -> bool:
        """Whether another holder might think that ``job`` is in a queue here, if it is not."""
        return job.retry > 0 and (
            job.flags & FLAG_DELIVERED != 0
            or (job.place is not None and is_maker(self._replicas.own, job.id))
        )

    def _was_queued_at(self, node: bytes, job: Job) -> bool:
        place = job.place
        return (
            place is not None
            and place.node == node
            and not place.in_hand
            and job.state == ACTIVE
            and job.retry > 0
            and not job.flags & (FLAG_DELIVERED | FLAG_PAUSED)
        )

    def _take_over(self, dead: bytes, job: Job) -> None:
        """Queue ``job``, which the node ``dead`` had queued, after other holders that come first,
        unless a node that is asked before has it."""
        own = even_place(self._replicas.own, job.id)
        before = 0
        for id in job.delivered or ():
            if id not in (dead, self._replicas.own) and self._peers.linked(id):
                before += self._peers.tells(id) and even_place(id, job.id) > own
        due = max(self._machine.now + WARNING_TIME, first_due(job) + 2 * WARNING_TIME)
        due += min(before, MOST_BEFORE) * WARNING_TIME
        if 0 < job.qtime < due:
            due = int(job.qtime)  # its retry time is over before, but nobody has had it
        job.place = None
        self._replicas.ask_all[job.id] = None
        self._store.queue_unless_held(job, due)

    def flush(self) -> None:
        """Start over: all jobs have been forgotten."""
        self._dead.clear()
        self._untold.clear()
        self._places.flush()
        self._replicas.ask_all.clear()
        self.due = 0
