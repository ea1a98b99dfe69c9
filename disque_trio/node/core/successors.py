"""Makes the jobs that follow others: dead letters, and jobs that are made of them again.

Every node that holds the ending job makes the new one from its own copy, so no body travels. The
new id is derived from the old one: holders that cannot see each other make the same job, so there
is only one when they meet again.
"""

from base64 import b64encode
from hashlib import sha256
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.aof_codec import AofCodec
from disque_trio.node.core.bus_codec import BusCodec
from disque_trio.node.core.exports import Exports
from disque_trio.node.core.job import (
    ACKED,
    DEFAULT_RETRY,
    FLAG_QUEUED_BEFORE,
    FLAG_WILLQUEUE,
    FLAGS_PRIORITY,
    UINT32_MAX,
    Job,
)
from disque_trio.node.core.notices import Notices
from disque_trio.node.core.policies import Policies
from disque_trio.node.core.store import JobStore
from disque_trio.node.core.tombstones import Tombstones
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketWriter
from disque_trio.protocol.trailer import DEAD, REDRIVEN, Ending, Letter, Trailer

_ENDING_OF_ID: Final = b"-ffff"  # delivered at least once; not all nodes know how long it lives
_MAX_PREDECESSORS: Final = 100  # jobs; no queue is expected to bury and redrive a job as often
_SALTS: Final[dict[int, bytes]] = {DEAD: b"dead ", REDRIVEN: b"redriven "}


def successor_id(id: bytes, kind: int) -> bytes:
    """The id of the job that follows the job ``id`` when it ends in the way ``kind``."""
    digest = sha256(_SALTS[kind] + id).digest()
    return id[:11] + b64encode(digest[:18]) + _ENDING_OF_ID


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
        store: the jobs.
        policies: of the queues.
        aof_codec: makes records for the journal.
        codec: serialises jobs for other nodes.
        exports: gives jobs to nodes that want them.
        tombstones: jobs that have ended.
        notices: for other nodes, at the end of the turn.
        packets: makes this node's packets.
    """

    def __init__(
        self,
        store: JobStore,
        policies: Policies,
        aof_codec: AofCodec,
        codec: BusCodec,
        exports: Exports,
        tombstones: Tombstones,
        notices: Notices,
        packets: PacketWriter,
    ) -> None:
        self._store = store
        self._machine = store.machine
        self._notes = store.notes
        self._trailers = store.trailers
        self._policies = policies
        self._aof_codec = aof_codec
        self._codec = codec
        self._exports = exports
        self._tombstones = tombstones
        self._notices = notices
        self._packets = packets

    def make(self, job: Job, ending: Ending, queue_it: bool) -> None:
        """Make the successor of ``job``, unless it exists or has ended already. This node holds
        ``job`` with its body, and it is about to end as ``ending`` says.

        Args:
            queue_it: whether this node queues it; otherwise it is a copy, which another node
                queues.
        """
        id = successor_id(job.id, ending.kind)
        store = self._store
        machine = self._machine
        if store.jobs.get(id) is not None or self._tombstones.ended.has(id):
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
            if self._exports.asked_for:
                self._exports.offer(new.queue)
        else:
            if self._notes.noting:
                self._notes.note(schema.COPIED, new, new=True)
            new.flags |= FLAG_QUEUED_BEFORE | FLAG_WILLQUEUE
            store.postpone(new)
        if machine.journaling:
            self._aof_codec.note(new)

    def lacks(self, id: bytes, ending: Ending) -> bool:
        """Whether this node has still to make the job ``id``, which has ended as ``ending`` says:
        it holds a predecessor, and has not heard that it ended."""
        if ending.letter is None:
            return False
        jobs = self._store.jobs
        held = [jobs.get(before) for before in predecessor_ids(ending.letter.first, id)]
        return any(job is not None and job.state != ACKED for job in held)

    def announce(self, job: Job, kind: int) -> None:
        """Tell the other holders of ``job``, which has ended in the way ``kind``, that its
        successor is in the queue of this node: one of them may have made it at the same moment.
        Call it after they have been told that the job ended."""
        new = self._store.jobs.get(successor_id(job.id, kind))
        if new is None or new.delivered is None:
            return
        packet = self._packets.about_job(bus.QUEUED, new.id)
        for id in new.delivered:
            if id != self._store.replicas.own:
                self._notices.fields.append((id, packet))

    def _give_trailer(self, job: Job, new: Job, ending: Ending) -> None:
        """Give ``new`` its origin, and what ``job`` carried."""
        trailer = Trailer()
        before = self._trailers.of(job)
        if before is not None:
            trailer.headers = before.headers
            trailer.group = before.group
        trailer.letter = ending.letter
        self._trailers.put(new, trailer)

    def _send_to_c_nodes(self, job: Job) -> None:
        """Send copies of ``job`` to those of its holders that do not make it themselves."""
        c_nodes = self._store.replicas.c_nodes_of(job)
        if c_nodes:
            self._notices.copy(self._codec.encode(job), tuple(c_nodes), bus.NOREPLY)


def first_id(job: Job, letter: Letter | None) -> bytes:
    """The id of ``job`` before it died for the first time. ``letter``: the job's own, if any."""
    return job.id if letter is None else letter.first
