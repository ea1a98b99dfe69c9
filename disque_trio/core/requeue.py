"""Which of the holders of a job queues it again, and what they tell each other for that.

Every holder queues a job again when its retry time is over without an acknowledge. So that only
one does, it asks the others half a second before (WILLQUEUE); whoever has it in a queue answers
QUEUED, and whoever hears QUEUED pushes its own time back. Where two queued it all the same, one of
them, chosen by the job's id, takes it out again. A job that stays in its queue for long is
announced again before the others begin to ask.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from disque_trio.core.filing import FiledStore
from disque_trio.core.job import ACKED, QUEUED, UINT16_MAX, WAIT_REPL, Job
from disque_trio.core.peers import Peers
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketWriter

if TYPE_CHECKING:
    from random import Random


class RequeueStore(FiledStore):
    """Jobs that other nodes hold as well.

    Args:
        packets: makes this node's packets.
    """

    def __init__(
        self,
        id: bytes,
        peers: Peers,
        packets: PacketWriter,
        entropy: Callable[[int], bytes],
        rng: "Random",
        maxmemory: int,
    ) -> None:
        super().__init__(id, peers, entropy, rng, maxmemory)
        self.packets = packets

    # ---- telling the others -----------------------------------------------------------------

    def tell_holders(self, job: Job, packet: bytes) -> None:
        """Send ``packet`` to all other nodes that may hold ``job``."""
        if job.delivered is not None:
            for id in job.delivered:
                if id != self.id:
                    self.peers.send(id, packet)

    def tell_queued(self, job: Job, nack: bool) -> None:
        if job.delivered is not None:
            flags = bus.INCR_NACKS if nack else bus.INCR_DELIVERIES
            self.tell_holders(job, self.packets.about_job(bus.QUEUED, job.id, 0, flags))

    def still_queued(self, job: Job) -> None:
        if job.delivered is not None:
            self.tell_holders(job, self.packets.about_job(bus.QUEUED, job.id))

    def tell_willqueue(self, job: Job) -> None:
        self.tell_holders(job, self.packets.about_job(bus.WILLQUEUE, job.id))

    def tell_working(self, job: Job) -> None:
        if job.delivered is not None:
            self.tell_holders(job, self.packets.about_job(bus.WORKING, job.id))

    def tell_deleted(self, id: bytes, job: Job | None) -> None:
        """Delete the copies of ``job``; when it is not known here (None), all nodes are asked."""
        packet = self.packets.about_job(bus.DELJOB, id)
        if job is not None:
            self.tell_holders(job, packet)
        else:
            for node in self.peers.everyone():
                self.peers.send(node, packet)

    def has_ended(self, sender: bytes, id: bytes) -> bool:
        """Whether the job ``id``, of which ``sender`` sent a copy, was acknowledged and forgotten a
        moment ago; tells it then."""
        return False

    def answer_acked(self, sender: bytes, job: Job) -> None:
        """``sender`` does not know that ``job`` was processed: tell it."""

    def tell_paused(self, queue: bytes, paused: int) -> None:
        """Set the pause bits of ``queue`` everywhere."""
        self.tell_of_queue(self.peers.everyone(), bus.PAUSE, queue, paused)

    def tell_of_queue(self, nodes: list[bytes], type: int, queue: bytes, aux: int) -> None:
        """Send NEEDJOBS or PAUSE to ``nodes``, unless the name is longer than others take."""
        if len(queue) <= bus.MAX_QUEUE_NAME:
            packet = self.packets.about_queue(type, queue, aux)
            for id in nodes:
                self.peers.send(id, packet)

    def _add_holder(self, job: Job, id: bytes) -> None:
        """The node ``id`` holds ``job``, too."""
        holders = self._me_alone if job.delivered is None else job.delivered
        if id not in holders:
            job.delivered = self.holders.add(holders, id)

    # ---- what other nodes say ---------------------------------------------------------------

    def _living_job(self, sender: bytes, packet: bytes) -> Job | None:
        """The job that a packet about a holder's queue is for, if it is not over. The sender holds
        it as well; if it does not know that the job was acknowledged, it is told."""
        job = self.jobs.get(bus.read_about_job(packet)[0])
        if job is None or job.state == WAIT_REPL:
            return None
        if job.state == ACKED:
            self.answer_acked(sender, job)
            return None
        self._add_holder(job, sender)
        return job

    def on_queued(self, sender: bytes, packet: bytes) -> None:
        """Another holder has the job in its queue."""
        job = self._living_job(sender, packet)
        if job is None:
            return
        flags = bus.packet_flags(packet)
        if flags & bus.INCR_NACKS:
            job.nacks = min(job.nacks + 1, UINT16_MAX)
        if flags & bus.INCR_DELIVERIES:
            job.deliveries = min(job.deliveries + 1, UINT16_MAX)
        if job.state == QUEUED:
            if self._keeps(job, sender):
                # It has to hear that it was not the only one.
                self.peers.send(sender, self.packets.about_job(bus.QUEUED, job.id))
                return
            self.dequeue(job)
            if self.eventing:
                self.note("dequeued", job, "peer")
        if job.retry:
            self._postpone(job)

    def _keeps(self, job: Job, sender: bytes) -> bool:
        """Of two nodes that queued ``job``: whether this one keeps it. The random part of the
        job's id decides, so that it is not always the same node that wins."""
        mask = job.id[11:35]
        for i in range(len(sender)):
            mine = self.id[i] ^ mask[i % 24]
            other = sender[i] ^ mask[i % 24]
            if mine != other:
                return mine > other
        return True

    def on_willqueue(self, sender: bytes, packet: bytes) -> None:
        """Another holder is about to queue the job: is that needed?"""
        job = self._living_job(sender, packet)
        if job is not None and job.state == QUEUED:
            # The rest is likely about to do the same.
            self.tell_holders(job, self.packets.about_job(bus.QUEUED, job.id))

    def on_working(self, sender: bytes, packet: bytes) -> None:
        """A worker asked another holder for more time."""
        job = self._living_job(sender, packet)
        if job is None:
            return
        if job.state == QUEUED:
            self.dequeue(job)
            if self.eventing:
                self.note("dequeued", job, "peer")
        if job.retry:
            self._postpone(job)

    def on_pause(self, sender: bytes, packet: bytes) -> None:
        """PAUSE with BCAST was said elsewhere."""
        name, paused = bus.read_about_queue(packet)
        paused &= 3
        if paused or name in self.queues:
            self.pause(name, paused)
