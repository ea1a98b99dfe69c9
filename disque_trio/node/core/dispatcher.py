"""Hands the packets of other nodes to what handles them."""

from collections.abc import Callable

from disque_trio.node.core.ack_gc import AckGc
from disque_trio.node.core.exports import Exports
from disque_trio.node.core.federation import Federation
from disque_trio.node.core.notices import Notices
from disque_trio.node.core.replication import Replication
from disque_trio.node.core.requeue import Requeue
from disque_trio.protocol import bus
from disque_trio.protocol.bus import JobMessage, JobsMessage, QueueMessage


class Dispatcher:
    """Hands packets about jobs and queues to the objects that handle them."""

    def __init__(
        self,
        replication: Replication,
        requeue: Requeue,
        ack_gc: AckGc,
        federation: Federation,
        exports: Exports,
        notices: Notices,
    ) -> None:
        self._notices = notices
        self._about_job: dict[int, Callable[[bytes, JobMessage], None]] = {
            bus.GOTJOB: replication.on_gotjob,
            bus.ENQUEUE: replication.on_enqueue,
            bus.QUEUED: requeue.on_queued,
            bus.WILLQUEUE: requeue.on_willqueue,
            bus.WORKING: requeue.on_working,
            bus.SETACK: ack_gc.on_setack,
            bus.GOTACK: ack_gc.on_gotack,
            bus.DELJOB: ack_gc.on_deljob,
        }
        self._about_queue: dict[int, Callable[[bytes, QueueMessage], None]] = {
            bus.NEEDJOBS: exports.on_needjobs,
            bus.PAUSE: federation.on_pause,
        }
        self._with_jobs: dict[int, Callable[[bytes, JobsMessage], None]] = {
            bus.REPLJOB: replication.on_repljob,
            bus.YOURJOBS: federation.on_yourjobs,
        }

    def dispatch(self, sender: bytes, packet: bytes) -> None:
        """Handle ``packet`` of the node ``sender``. Raises PacketError if it is malformed."""
        type = bus.packet_type(packet)
        handle = self._about_job.get(type)
        if handle is not None:
            message = bus.read_about_job(packet)
            if not bus.names_many(packet):
                handle(sender, message)
                return
            self._notices.reads_many(sender)
            for id in bus.job_ids(packet):
                message.id = id
                handle(sender, message)
        elif type in self._with_jobs:
            self._with_jobs[type](sender, bus.read_jobs(packet))
        elif type in self._about_queue:
            self._about_queue[type](sender, bus.read_about_queue(packet))
