"""Changes jobs that are not delivered (UPDATEJOB, QMOVE, ADDJOB REPLACE), on all their holders.

A change has a version: the time of the node in ms and 16 bits of its id; it is higher than any that
the node knows for this job. The newest wins on every holder, in whatever order changes arrive. The
holders are sent the whole job (UPDATEJOB) and confirm (news of the kind UPDATED); those that do not
are told again, at growing intervals. When a holder says that it queues the job, the others tell it
which change they have, and it may ask for that; and after a restart, a node tells the others which
changes it has.

A holder that has given the job to a worker says so; then the client gets an error, and a further
change restores the former contents of the job.

While a holder is away, there may be a change that it has not confirmed for each of a million jobs
(see QMOVE), so no turn looks at all of them.
"""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.changes.contents import Contents, ContentsSetter
from disque_trio.node.core.federation.exports import Exports
from disque_trio.node.core.jobs.job import (
    ACKED,
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_PAUSED,
    FLAG_TRAILER,
    GONE,
    QUEUED,
    WAIT_REPL,
    Job,
    first_due,
    is_delivered,
)
from disque_trio.node.core.jobs.registry import SHARDS
from disque_trio.node.core.lifecycle.requeue import Requeue
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.store import JobStore
from disque_trio.node.core.rpc.calls import UPDATED
from disque_trio.protocol import bus
from disque_trio.protocol.bus import JobMessage, JobsMessage, PacketError
from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_number,
    pack_texts,
    unpack_number,
    unpack_texts,
)
from disque_trio.protocol.trailer import STARTED, Trailer
from disque_trio.resp.reply import OK, error
from disque_trio.respserver.client import Client, Pending

FIRST_GAP: Final = 500  # ms between attempts to tell a holder, doubled each time
PATIENCE: Final = 2_000  # ms that a client waits for the holders
AT_ONCE: Final = 50  # changes to look at per turn
LOOKED_AT: Final = 2_000  # jobs to look at per turn in search of changed ones
PENDING_OVERHEAD: Final = 500  # bytes that a change takes, besides the body that it replaced


class PendingUpdate:
    """A change that not all holders of its job have confirmed.

    Attributes:
        version: of the change.
        holders: the nodes that hold the job, as far as is known.
        missing: those of them that have not confirmed it.
        before: the previous contents of the job.
        replies: called with the reply for each of those who wait.
        deadline: when they stop waiting, in ms.
        due: when to tell the missing nodes again, in ms.
        gap: ms until the time after that.
        wake: when to look at it next, in ms; 0: not planned.
    """

    def __init__(self, version: int, missing: list[bytes], before: Contents, now: int) -> None:
        self.version = version
        self.holders = list(missing)
        self.missing = missing
        self.before = before
        self.replies: list[Callable[[bytes], None]] = []
        self.deadline = now + PATIENCE
        self.due = now + FIRST_GAP
        self.gap = FIRST_GAP
        self.wake = 0


class PendingUpdates:
    """The changes to one node's jobs that not all holders know of yet.

    Attributes:
        by_id: the changes, by job id.
    """

    def __init__(self, core: Core) -> None:
        self.by_id: dict[bytes, PendingUpdate] = {}
        self._machine = core.machine
        self._peers = core.peers
        self._timer = core.timer
        self._dues: list[tuple[int, bytes]] = []  # heap: when to look at which, ms
        self._waiting = 0  # number of waiting clients

    def put(self, id: bytes, update: PendingUpdate) -> None:
        """Keep ``update`` for the job ``id``, instead of any earlier one."""
        if id not in self.by_id:
            self._machine.memory.used += PENDING_OVERHEAD
        self.by_id[id] = update
        self.look_at(id, update, update.due)

    def drop(self, id: bytes) -> PendingUpdate | None:
        """Forget the change of the job ``id``, if there is one, and return it."""
        update = self.by_id.pop(id, None)
        if update is not None:
            self._machine.memory.used -= PENDING_OVERHEAD
        return update

    def look_at(self, id: bytes, update: PendingUpdate, due: int) -> None:
        """Look at ``update`` of the job ``id`` at ``due`` (ms) at the latest."""
        if update.wake == 0 or due < update.wake:
            update.wake = due
            heappush(self._dues, (due, id))
            self._timer.wake_by(due)

    @property
    def due(self) -> int:
        """Return when to look at the next change, in ms; 0: there is none."""
        return self._dues[0][0] if self._dues else 0

    def take_due(self, now: int) -> list[tuple[bytes, PendingUpdate]]:
        """Some of the changes to look at by ``now`` (ms), with the ids of their jobs."""
        found: list[tuple[bytes, PendingUpdate]] = []
        for _ in range(AT_ONCE):
            if not self._dues or self._dues[0][0] > now:
                break
            due, id = heappop(self._dues)
            update = self.by_id.get(id)
            if update is not None and update.wake == due:
                update.wake = 0
                found.append((id, update))
        return found

    # ---- those who wait ---------------------------------------------------------------------

    def wait(self, update: PendingUpdate, told: Callable[[bytes], None]) -> None:
        """Call ``told`` with the reply when ``update`` is known to all holders, or will not be."""
        self._waiting += 1
        update.replies.append(told)
        update.deadline = self._machine.now + PATIENCE

    def awaited(self, update: PendingUpdate) -> bool:
        """Whether a reachable node, or one that is thought to be, has not confirmed the change."""
        peers = self._peers
        return any(peers.linked(id) or id in peers.reachable for id in update.missing)

    def answer(self, update: PendingUpdate, reply: bytes) -> None:
        """Send ``reply`` to the clients that wait for ``update``."""
        problem = self._machine.write_problem
        self._give(update, self._machine.misconf if problem else reply)

    def _give(self, update: PendingUpdate, reply: bytes) -> None:
        replies, update.replies = update.replies, []
        self._waiting -= len(replies)
        for told in replies:
            told(reply)

    def refuse(self, refusal: bytes) -> None:
        """Send ``refusal`` to all waiting clients: the records could not be written."""
        if self._waiting:
            for update in self.by_id.values():
                self._give(update, refusal)

    def flush(self) -> list[PendingUpdate]:
        """Forget all changes, and return them. The caller clears the memory account."""
        updates = list(self.by_id.values())
        self.by_id = {}
        self._dues = []
        return updates


class ChangedJobs:
    """Finds the changed jobs in ``store``, a few at a time.

    Attributes:
        searching: there may be more.
    """

    def __init__(self, store: JobStore) -> None:
        self.searching = False
        self._store = store
        self._shard = 0  # the next one to search
        self._found: list[Job] = []  # in earlier shards

    def begin(self) -> None:
        """Start to search all jobs."""
        self.searching = True
        self._shard = 0

    def some(self) -> list[Job]:
        """Return some more of the changed jobs."""
        if not self.searching:
            return []
        trailers = self._store.trailers
        left = LOOKED_AT
        while len(self._found) < AT_ONCE and self._shard < SHARDS and left > 0:
            shard = self._store.jobs.shards[self._shard]
            self._shard += 1
            left -= len(shard)
            for job in shard.values():
                trailer = trailers.of(job)
                if trailer is not None and trailer.updated:
                    self._found.append(job)
        jobs = self._found[-AT_ONCE:]
        del self._found[-AT_ONCE:]
        self.searching = self._shard < SHARDS or len(self._found) > 0
        return [job for job in jobs if job.state in (ACTIVE, QUEUED)]

    def flush(self) -> None:
        """Start over: there are no jobs any more."""
        self.searching = False
        self._found.clear()


MAX_GAP: Final = 60_000  # ms between attempts to tell a holder
SLACK: Final = 2  # s by which an expiry may differ, since nodes are told whole seconds
MANY_LATE: Final = 1_000

# What a holder says, in a field besides the ticket (1).
_ABOUT: Final = 2
_HAS_IT: Final = 0
_WAS_DELIVERED: Final = 1  # before the change came
_NOT_HELD: Final = 2
_HAS_ENDED: Final = 3
# What holders say unasked.
_OFFERED: Final = 4  # it has this change
_WANTED: Final = 5  # it does not

DELIVERED_TEXT: Final = "DELIVERED Job was delivered and cannot be changed."
DELIVERED: Final = error(DELIVERED_TEXT)
ENDED: Final = error(b"NOJOB Job has ended meanwhile.")
# A newer change, by another node, has taken its place, and may be undone.
SUPERSEDED: Final = error(b"NOREPL Another change of the job has taken the place of this one")
_TIMEOUT: Final = error(
    b"NOREPL Timeout reached before all nodes that hold the job had the change; it will be repeated"
)


class Updates:
    """The changes to one node's jobs.

    Args:
        exports: gives jobs to nodes that want them.
        requeue: queues them when their delay is over.

    Attributes:
        pending: the changes that not all holders have confirmed.
        on_proposal: called if another node sends a job that is not changed yet (see
            ``replacements``), with the node, the job and its trailer.
    """

    def __init__(self, core: Core, exports: Exports, requeue: Requeue) -> None:
        store = core.store
        self._store = store
        self._machine = store.machine
        self._notes = store.notes
        self._replicas = store.replicas
        self._trailers = store.trailers
        self._aof_codec = core.aof_codec
        self._codec = core.bus_codec
        self._paging = core.paging
        self._requeue = requeue
        self._setter = ContentsSetter(core, requeue, exports)
        self._rpc = core.rpc
        self._notices = core.notices
        self._peers = core.peers
        self._packets = core.packets
        self.on_proposal: Callable[[bytes, Job, Trailer], None] = _nobody
        self._last_ms = 0
        self.pending = PendingUpdates(core)
        self._changed = ChangedJobs(store)  # for ``resume``
        self._late: dict[bytes, int] = {}  # versions that came after the job was delivered
        core.rpc.handlers[UPDATED] = self._on_updated

    @property
    def due(self) -> int:
        """Return when there is next something to do, in ms; 0: never."""
        return self._machine.now if self._changed.searching else self.pending.due

    # ---- from clients -----------------------------------------------------------------------

    def change(self, client: Client, job: Job, contents: Contents) -> None:
        """Give ``job``, which is not delivered, new ``contents``; ``client`` gets its reply when
        the other holders have confirmed."""
        update = self._change(job, contents)
        if update is None or not self.pending.awaited(update):
            client.out.append(OK)
            return
        reply = Pending(client, None)
        client.line_up(reply)
        self.pending.wait(update, partial(self._reply, reply))

    def _reply(self, pending: Pending, reply: bytes) -> None:
        pending.reply = OK if reply is SUPERSEDED else reply
        self._machine.answered.append(pending)

    def replace(self, job: Job, contents: Contents, told: Callable[[bytes], None]) -> None:
        """Do the same, and call ``told`` with the reply: OK, or an error, such as SUPERSEDED."""
        update = self._change(job, contents)
        if update is None or not self.pending.awaited(update):
            told(OK)
        else:
            self.pending.wait(update, told)

    def move(self, job: Job, queue: bytes) -> None:
        """Move ``job``, which is not delivered, to ``queue``, as a client asked."""
        contents = self.contents(job)
        contents.queue = queue
        self._change(job, contents)

    def contents(self, job: Job) -> Contents:
        """The contents of ``job``."""
        return Contents(job, self._trailers.of(job))

    def _change(self, job: Job, contents: Contents) -> PendingUpdate | None:
        """Give ``job`` new ``contents`` and tell the other holders; None: there are none."""
        before = self.contents(job)
        self._store.total_updated += 1
        self._commit(job, contents, self._next_version(job), schema.BY_CLIENT, True)
        return self._pend(job, before)

    def version(self, job: Job) -> int:
        """The version of the last change to ``job``; 0: there was none."""
        trailer = self._trailers.of(job)
        return 0 if trailer is None else trailer.updated

    def _next_version(self, job: Job) -> int:
        ms = self._last_ms = max(
            self._machine.now, self._last_ms + 1, (self.version(job) >> 16) + 1
        )
        return ms << 16 | int(self._replicas.own[:4], 16)

    def _commit(
        self, job: Job, contents: Contents, version: int, reason: schema.Reason, asked: bool = False
    ) -> None:
        """Give ``job`` the ``contents`` of the change ``version``. ``asked``: a client asked this
        node for it."""
        trailer = self._trailers.want(job)
        trailer.updated = version
        origin = job.queue
        moved = contents.moves(job, trailer)
        if moved:
            self._setter.move(job, contents)
        trailer.note = contents.note
        trailer.headers = contents.headers
        self._trailers.recount(job, trailer)
        self._setter.set(job, contents, asked)
        self._store.uniques.extend(job)
        if self._notes.noting:
            if job.queue != origin:
                self._notes.note_move(job, reason, origin)
            else:
                self._notes.note(schema.UPDATED, job, reason, new=True)
            if asked and job.flags & FLAG_PAUSED and job.state == ACTIVE:
                self._notes.note_pause(job, schema.BY_CLIENT)
        if moved:
            self._setter.offer(job)
        # An at-most-once job that this queues may go to another node at once.
        if self._machine.journaling and job.state not in (WAIT_REPL, GONE):
            self._aof_codec.note(job)

    # ---- changes by other nodes --------------------------------------------------------------

    def take(self, job: Job, new: Job, trailer: Trailer | None) -> bool:
        """Take the contents of ``new``, the same job as another node has it, with ``trailer``, if
        they are newer than those of ``job``. Return whether this node has nothing newer."""
        if trailer is not None and trailer.key_state == STARTED:
            self._store.uniques.note_start(job)
        known = self.version(job)
        version = 0 if trailer is None else trailer.updated
        if version <= known or job.state == ACKED:
            return version == known
        if job.retry == 0 and job.flags & FLAG_DELIVERED:
            return True  # it will never be delivered again
        contents = Contents(new, trailer)
        if abs(contents.etime - int(job.etime)) <= SLACK:
            contents.etime = int(job.etime)
        if (contents.retry == 0) != (job.retry == 0):
            contents.retry = int(job.retry)
        if new.delay == job.delay:
            contents.due = first_due(job)
        if is_delivered(job):
            if len(self._late) >= MANY_LATE:
                del self._late[next(iter(self._late))]
            self._late[job.id] = version
        self._commit(job, contents, version, schema.BY_PEER)
        update = self.pending.drop(job.id)
        if update is not None:
            self.pending.answer(update, SUPERSEDED)
        return True

    # ---- the other holders ------------------------------------------------------------------

    def _pend(self, job: Job, before: Contents) -> PendingUpdate | None:
        """Tell the other holders the new contents of ``job``; None: there are none."""
        own = self._replicas.own
        now = self._machine.now
        missing = [id for id in job.delivered or () if id != own and self._peers.knows(id)]
        if not missing or job.state == GONE:
            return None
        update = PendingUpdate(self.version(job), missing, before, now)
        earlier = self.pending.by_id.get(job.id)
        if earlier is not None and earlier.replies:
            update.replies = earlier.replies
            update.before = earlier.before
        self.pending.put(job.id, update)
        self._send(job, missing)
        return update

    def _send(self, job: Job, nodes: list[bytes]) -> None:
        """Send ``job`` to the connected ones of ``nodes``."""
        reached = [id for id in nodes if self._peers.linked(id) and self._peers.understands(id)]
        if reached:
            packet = self._packets.jobs(bus.UPDATEJOB, [self._codec.encode(job)])
            for id in reached:
                self._notices.fields.append((id, packet))

    def _add_holders(self, job: Job) -> None:
        """Tell holders of ``job`` that this node did not know of when it changed the job."""
        update = self.pending.by_id.get(job.id)
        if update is not None:
            own = self._replicas.own
            more = [id for id in job.delivered or () if id != own and id not in update.holders]
            update.holders += more
            update.missing += more
            self._send(job, more)

    def tick(self, now: int) -> None:
        """Repeat some unconfirmed changes, and end waits, when it is time to."""
        for id, update in self.pending.take_due(now):
            job = self._store.jobs.get(id)
            if job is None or job.state == ACKED:
                self.pending.drop(id)
                self.pending.answer(update, ENDED)
                continue
            if update.replies:
                if not self.pending.awaited(update):
                    self.pending.answer(update, OK)
                elif update.deadline <= now:
                    self.pending.answer(update, _TIMEOUT)
                else:
                    self.pending.look_at(id, update, update.deadline)
            if update.due <= now:
                update.missing = [node for node in update.missing if self._peers.knows(node)]
                if not update.missing:
                    self.pending.drop(id)
                    continue
                # A copy still waiting in a connection need not be queued behind itself.
                self._send(job, [node for node in update.missing if not self._peers.behind(node)])
                update.gap = min(2 * update.gap, MAX_GAP)
                update.due = now + update.gap
            self.pending.look_at(id, update, update.due)
        for job in self._changed.some():
            if job.id not in self.pending.by_id:
                self._pend(job, self.contents(job))

    # ---- from other nodes -------------------------------------------------------------------

    def on_updatejob(self, sender: bytes, message: JobsMessage) -> None:
        """Handle UPDATEJOB: another holder has changed a job. Raises ``PacketError``."""
        for data in message.jobs:
            new = self._codec.decode(data)
            trailer = self._codec.trailer
            if new is None or trailer is None:
                raise PacketError("an UPDATEJOB without a change")
            if trailer.updated:
                self._on_change(sender, new, trailer)
            else:
                self.on_proposal(sender, new, trailer)

    def _on_change(self, sender: bytes, new: Job, trailer: Trailer) -> None:
        """Take the change in ``new``, the job as ``sender`` has it, with ``trailer``."""
        if self._machine.add_problem:
            return  # a restart would undo it; the sender will repeat it
        job = self._store.jobs.get(new.id)
        said = _HAS_IT
        if job is None:
            said = _NOT_HELD
        elif job.state == ACKED:
            said = _HAS_ENDED
        else:
            known = new.delivered or ()
            for id in known:
                self._replicas.add(job, id)
            newest = self.take(job, new, trailer)
            self._add_holders(job)
            if not newest or any(id not in known for id in job.delivered or ()):
                self._send(job, [sender])  # it missed a newer change, or does not know a holder
            if self._late.get(job.id) == trailer.updated or (
                job.retry == 0 and is_delivered(job) and self.version(job) < trailer.updated
            ):
                said = _WAS_DELIVERED
        self._notify(sender, new.id, trailer.updated, said)

    def _on_updated(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Handle UPDATED: what a holder says about a change. Raises ``FieldsError``."""
        for type, value in fields:
            if type == _ABOUT:
                about = unpack_texts(value)
                if len(about) != 3:
                    raise FieldsError("malformed answer to a change")
                self._on_confirmed(
                    sender, about[0], unpack_number(about[1]), unpack_number(about[2])
                )
        return None

    def _on_confirmed(self, sender: bytes, id: bytes, version: int, said: int) -> None:
        """Handle what ``sender`` ``said`` about the change ``version`` of the job ``id``."""
        if said in (_OFFERED, _WANTED):
            job = self._store.jobs.get(id)
            if job is None:
                if self._paging.bring(id, partial(self._on_confirmed, sender, id, version, said)):
                    return
                job = self._store.jobs.get(id)
            if job is not None and job.state in (ACTIVE, QUEUED):
                if said == _WANTED:
                    self._send(job, [sender])
                elif self.version(job) < version:
                    self._notify(sender, id, version, _WANTED)
            return
        update = self.pending.by_id.get(id)
        if update is None or update.version != version or sender not in update.missing:
            return
        update.missing = [node for node in update.missing if node != sender]
        job = self._store.jobs.get(id)
        if job is None or job.state == ACKED or said == _HAS_ENDED:
            self.pending.answer(update, ENDED)
        elif said == _WAS_DELIVERED and update.replies:
            self.pending.answer(update, DELIVERED)
            self.pending.drop(id)
            before = update.before
            self._commit(job, before, self._next_version(job), schema.BY_CLIENT)
            self._pend(job, before)
            return
        elif update.replies and not self.pending.awaited(update):
            self.pending.answer(update, OK)
        if not update.missing:
            self.pending.drop(id)

    def on_willqueue(self, sender: bytes, message: JobMessage) -> None:
        """Handle WILLQUEUE: another holder asks whether it needs to queue the job; it may not know
        the last change."""
        self._requeue.on_willqueue(sender, message)
        self._offer(sender, message.id)

    def on_queued(self, sender: bytes, message: JobMessage) -> None:
        """Handle QUEUED: another holder has the job in its queue; it may not know the last
        change."""
        self._requeue.on_queued(sender, message)
        self._offer(sender, message.id)

    def _offer(self, sender: bytes, id: bytes) -> None:
        """Tell ``sender``, which holds the job ``id``, which change to it this node has."""
        job = self._store.jobs.get(id)
        if job is not None and job.flags & FLAG_TRAILER and job.state in (ACTIVE, QUEUED):
            version = self.version(job)
            if version and self._peers.understands(sender):
                self._notify(sender, id, version, _OFFERED)

    def _notify(self, node: bytes, id: bytes, version: int, said: int) -> None:
        """Say ``said`` to ``node`` about the change ``version`` of the job ``id``."""
        about = [id, pack_number(version), pack_number(said)]
        packet = self._rpc.notification(UPDATED, [(_ABOUT, pack_texts(about))])
        self._notices.fields.append((node, packet))

    def resume(self) -> None:
        """Find changed jobs after a restart: not all holders may have these changes."""
        self._changed.begin()
        self._rpc.timer.wake_by(self._machine.now)

    def refuse(self, refusal: bytes) -> None:
        """Send ``refusal`` to all waiting clients: the records could not be written."""
        self.pending.refuse(refusal)

    def flush(self) -> None:
        """Forget all changes; clients hear that their jobs are gone."""
        for update in self.pending.flush():
            self.pending.answer(update, ENDED)
        self._late.clear()
        self._changed.flush()


def _nobody(sender: bytes, new: Job, trailer: Trailer) -> None:
    pass
