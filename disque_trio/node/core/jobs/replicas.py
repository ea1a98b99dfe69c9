"""Keeps track of the nodes that may hold a job, and tells them about its state.

Most jobs of a node have one of a few sets of holders. So a set is a tuple of ids that all its jobs
share: it costs a job nothing, and is serialised only once.
"""

from typing import Final
from zlib import crc32

from disque_trio.node.core.jobs.job import DEFAULT_REPLICATE, FLAG_END_UNKNOWN, Job
from disque_trio.node.core.jobs.places import Places
from disque_trio.node.core.jobs.timers import IN_LOT
from disque_trio.node.core.rpc.services import Services
from disque_trio.protocol import bus
from disque_trio.protocol.endjob import EndJob
from disque_trio.protocol.serialjob import JobWriter, SerialJob, split_nodes
from disque_trio.protocol.trailer import Trailer

MANY: Final = 4096  # cached sets; a cluster large enough to have more makes them again


class ReplicaSets:
    """Makes and shares the sets of nodes that one node refers to."""

    def __init__(self) -> None:
        self._shared: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
        self._encoded: dict[tuple[bytes, ...], bytes] = {}
        self._read: dict[bytes, tuple[bytes, ...]] = {}
        self._marks: dict[tuple[bytes, ...], int] = {}
        # The set that was last asked for; the next is usually the same.
        self._set: tuple[bytes, ...] = ()
        self._mark = 0
        self._larger: dict[tuple[tuple[bytes, ...], bytes], tuple[bytes, ...]] = {}

    def of(self, ids: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """The shared tuple that equals ``ids``."""
        known = self._shared.get(ids)
        if known is None:
            if len(self._shared) >= MANY:
                self._shared.clear()
            known = self._shared[ids] = ids
        return known

    def read(self, raw: bytes) -> tuple[bytes, ...]:
        """The set whose concatenated ids are ``raw``."""
        known = self._read.get(raw)
        if known is None:
            if len(self._read) >= MANY:
                self._read.clear()
            known = self._read[raw] = self.of(tuple(dict.fromkeys(split_nodes(raw))))
        return known

    def encode(self, ids: tuple[bytes, ...]) -> bytes:
        """The concatenated ``ids``, as in a serialised job."""
        encoded = self._encoded.get(ids)
        if encoded is None:
            if len(self._encoded) >= MANY:
                self._encoded.clear()
            encoded = self._encoded[ids] = b"".join(ids)
        return encoded

    def mark(self, ids: tuple[bytes, ...]) -> int:
        """A 16-bit mark of the set, never 0, by which two nodes see whether they know of the same
        holders. Does not depend on the order of ``ids``."""
        if ids is self._set and self._mark:
            return self._mark
        mark = self._marks.get(ids)
        if mark is None:
            if len(self._marks) >= MANY:
                self._marks.clear()
            mark = self._marks[ids] = crc32(b"".join(sorted(ids))) % 0xFFFF + 1
        self._set = ids
        self._mark = mark
        return mark

    def add(self, ids: tuple[bytes, ...], id: bytes) -> tuple[bytes, ...]:
        """The set of ``ids`` and ``id``, which is not among them."""
        key = (ids, id)
        larger = self._larger.get(key)
        if larger is None:
            if len(self._larger) >= MANY:
                self._larger.clear()
            larger = self._larger[key] = self.of((*ids, id))
        return larger


class Replicas:
    """Knows which nodes hold the jobs of this node, and sends them messages about these jobs. Sends
    none about a job that only this node holds.

    Args:
        own: this node's id.

    Attributes:
        own: this node's id.
        alone: the set with only this node.
        sets: all sets of nodes in use.
        default_copies: how many nodes hold a job that does not say so, in a cluster that is large
            enough.
        places: where jobs are, and which have left the queues here.
        ask_all: ids of jobs about which all nodes are asked next time, not only their holders.
        lots: the numbers by which other nodes know the lots of jobs that are queued here, by
            ``awake`` of these jobs.
    """

    def __init__(self, own: bytes, services: Services) -> None:
        self.own = own
        self.alone: tuple[bytes, ...] = (own,)
        self.sets = ReplicaSets()
        self.default_copies = DEFAULT_REPLICATE
        self.places = Places()
        self.ask_all: dict[bytes, None] = {}
        self.lots: dict[int, int] = {}
        self._peers = services.peers
        self._packets = services.packets
        self._notices = services.notices
        self._writer = JobWriter()
        self._raw = own  # what was read last; the next is usually the same
        self._read: tuple[bytes, ...] | None = None

    def usual_copies(self) -> int:
        """The number of copies without REPLICATE: as the settings say, or as many as possible."""
        peers = self._peers
        size = peers.places() if peers.by_host else peers.size
        usual = self.default_copies
        return size if size < usual else usual

    def renew(self, own: bytes) -> None:
        """Change the id of this node to ``own``."""
        self.own = self._raw = own
        self._read = None
        self.alone = (own,)

    # ---- holders ----------------------------------------------------------------------------

    def of(self, job: Job) -> tuple[bytes, ...]:
        """The nodes that may hold ``job``."""
        return self.alone if job.delivered is None else job.delivered

    def c_nodes_of(self, job: Job) -> list[bytes]:
        """The other nodes that may hold ``job`` and that do not announce extensions."""
        understands = self._peers.understands
        return [id for id in self.of(job) if id != self.own and not understands(id)]

    def add(self, job: Job, id: bytes) -> None:
        """Add the node ``id`` to the holders of ``job``."""
        holders = self.alone if job.delivered is None else job.delivered
        if id not in holders:
            job.delivered = self.sets.add(holders, id)

    def serialize(self, job: Job, flags: int, etime: int, body: bytes) -> bytes:
        """Serialise ``job`` with the nodes that may hold it. ``flags``, ``etime`` (s) and ``body``
        are given separately, since files and other nodes get different ones."""
        return self._writer.encode(
            job.id,
            job.state,
            flags,
            job.repl,
            etime,
            job.ctime,
            job.delay,
            job.retry,
            job.nacks,
            job.deliveries,
            job.queue,
            body,
            self.sets.encode(self.alone if job.delivered is None else job.delivered),
        )

    def write(self, job: SerialJob, holders: tuple[bytes, ...] | None) -> bytes:
        """Serialise ``job``, which is on disk, and may be on ``holders``; None: only here."""
        return self._writer.encode(
            job.id,
            job.state,
            job.flags,
            job.repl,
            job.etime,
            job.ctime,
            job.delay,
            job.retry,
            job.nacks,
            job.deliveries,
            job.queue,
            job.body,
            self.sets.encode(self.alone if holders is None else holders),
        )

    def read(self, raw: bytes) -> tuple[bytes, ...] | None:
        """The nodes whose concatenated ids are ``raw``, plus this one; None: only this node."""
        if raw != self._raw:
            if raw == self.own:
                self._read = None
            else:
                ids = self.sets.read(raw)
                self._read = ids if self.own in ids else self.sets.add(ids, self.own)
            self._raw = raw
        return self._read

    # ---- messages to them -------------------------------------------------------------------

    def tell(self, job: Job, packet: bytes) -> None:
        """Send ``packet`` to all other nodes that may hold ``job``."""
        if job.delivered is not None:
            for id in job.delivered:
                if id != self.own:
                    self._peers.send(id, packet)

    def tell_requeued(self, job: Job, nack: bool) -> None:
        """Tell the other holders that ``job`` was queued again: they count it and postpone their
        own requeue."""
        if job.delivered is not None:
            flags = bus.INCR_NACKS if nack else bus.INCR_DELIVERIES
            self.tell(job, self._packets.about_job(bus.QUEUED, job.id, 0, flags))

    def tell_queued(self, job: Job) -> None:
        """Tell the other holders that ``job`` is in the queue of this node, so that they do not
        queue it."""
        if job.delivered is not None:
            self.tell(job, self._packets.about_job(bus.QUEUED, job.id))

    def announce(self, job: Job, type: int) -> None:
        """Tell the other holders that ``job`` is in the queue of this node (QUEUED), or will be
        unless one of them objects (WILLQUEUE). Those with extensions hear it at the end of the
        turn, of many jobs at once: a job that lies in a queue costs next to nothing."""
        packet = b""
        mark = 0
        lot = 0
        if job.awake >= IN_LOT and type == bus.QUEUED:
            lot = self.lots.get(job.awake, 0)
        if type == bus.WILLQUEUE and job.delivered is not None:
            mark = self.sets.mark(job.delivered)
        if self.ask_all and type == bus.WILLQUEUE and job.id in self.ask_all:
            del self.ask_all[job.id]
            for id in self._peers.everyone():
                if id not in (job.delivered or ()) and self._peers.understands(id):
                    self._notices.announce(id, type, job.id)
        for id in job.delivered or ():
            if id != self.own:
                if self._peers.understands(id):
                    its_lot = lot if lot and self._peers.keeps_lots(id) else 0
                    self._notices.announce(id, type, job.id, its_lot, mark)
                else:
                    packet = packet or self._packets.about_job(type, job.id)
                    self._peers.send(id, packet)

    def ask(self, job: Job, node: bytes) -> None:
        """Ask ``node`` whether this node needs to queue ``job``."""
        mark = self.sets.mark(self.of(job))
        self._notices.announce(node, bus.WILLQUEUE, job.id, 0, mark)

    def tell_of_queued(self, id: bytes, holders: tuple[bytes, ...]) -> None:
        """Tell ``holders`` that the job ``id`` is in the queue of this node, as ``announce``
        does."""
        for node in holders:
            if node != self.own:
                if self._peers.understands(node):
                    self._notices.announce(node, bus.QUEUED, id)
                else:
                    self._peers.send(node, self._packets.about_job(bus.QUEUED, id))

    def pass_on(self, job: Job, asker: bytes, node: bytes, mark: int) -> None:
        """Ask ``node``, which may have ``job``, on behalf of ``asker``, which is about to queue
        it; not if they know of the same holders, by the ``mark`` of that one: then it asks itself.
        Otherwise ``node`` may have got the job while ``asker`` was down."""
        if mark != self.sets.mark(self.of(job)) and self._peers.tells(node):
            self._notices.announce(node, bus.WILLQUEUE, job.id, int(asker[:8], 16))

    def named(self, start: int) -> bytes:
        """The id of the other node that begins with these 32 bits; empty: there is none."""
        for id in self._peers.everyone():
            if int(id[:8], 16) == start:
                return id
        return b""

    def tell_working(self, job: Job) -> None:
        """Tell the other holders that a worker has ``job``: its retry time starts again."""
        if job.delivered is not None:
            self.tell(job, self._packets.about_job(bus.WORKING, job.id))

    def tell_deleted(self, id: bytes, job: Job | None) -> None:
        """Delete the copies of ``job``. If it is not known here (None), ask all nodes."""
        for node in self._peers.everyone() if job is None else self.of(job):
            if node != self.own:
                # Only at the end of the turn: a copy of the job may be about to leave.
                self._notices.add(node, bus.DELJOB, id, 0, 0)

    def tell_acked(self, id: bytes, job: Job, trailer: Trailer | None) -> None:
        """Tell the node ``id``, which does not know, that ``job`` was acknowledged, or ended as
        ``trailer`` says."""
        holders = self.of(job)
        mark = self.sets.mark(holders) if holders else 0
        ending = None if trailer is None else trailer.ending
        if ending is not None and self._peers.understands(id):
            fields = EndJob(job.id, len(holders), mark, ending).pack()
            packet = self._packets.fields(bus.ENDJOB, fields)
        else:
            unknown = job.flags & FLAG_END_UNKNOWN and self._peers.understands(id)
            flags = bus.UNKNOWN_END if unknown else 0
            packet = self._packets.about_job(bus.SETACK, job.id, len(holders), flags, mark)
        self._peers.send(id, packet)

    def tell_of_queue(
        self, nodes: list[bytes], type: int, queue: bytes, aux: int, flags: int = 0
    ) -> None:
        """Send NEEDJOBS or PAUSE to ``nodes``, unless the queue's name is too long for a packet.
        ``flags``: for those that are not C nodes."""
        if len(queue) <= bus.MAX_QUEUE_NAME:
            packet = self._packets.about_queue(type, queue, aux)
            flagged = self._packets.about_queue(type, queue, aux, flags) if flags else packet
            for id in nodes:
                self._peers.send(id, flagged if self._peers.understands(id) else packet)
