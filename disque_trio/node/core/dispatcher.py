"""Hands packets of other nodes to the objects that handle them."""

from collections.abc import Callable
from functools import partial
from typing import Final

from disque_trio.node.core.changes.updates import Updates
from disque_trio.node.core.copies.replication import Replication
from disque_trio.node.core.federation.exports import Exports
from disque_trio.node.core.federation.federation import Federation
from disque_trio.node.core.lifecycle.ack_gc import AckGc
from disque_trio.node.core.lifecycle.requeue import Requeue
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.shared.sharing import SharedMaps
from disque_trio.protocol import bus
from disque_trio.protocol.bus import JobMessage, JobsMessage, QueueMessage
from disque_trio.protocol.fields import Field

# These come for each job. Compiled, a constant of another module costs a look-up.
_GOTJOB: Final = 5
_SETACK: Final = 8
_GOTACK: Final = 10
_DELJOB: Final = 11
_WORKING: Final = 14


class Dispatcher:
    """Hands packets about jobs and queues to the objects that handle them."""

    def __init__(
        self,
        core: Core,
        replication: Replication,
        requeue: Requeue,
        ack_gc: AckGc,
        federation: Federation,
        exports: Exports,
        shared_maps: SharedMaps,
        updates: Updates,
    ) -> None:
        self._paging = core.paging
        self._pages = core.paging.pages
        self._jobs = core.store.jobs
        self._exports = exports
        self._notices = core.notices
        self._replication = replication
        self._ack_gc = ack_gc
        self._about_job: dict[int, Callable[[bytes, JobMessage], None]] = {
            bus.ENQUEUE: replication.on_enqueue,
            bus.QUEUED: updates.on_queued,
            bus.WILLQUEUE: updates.on_willqueue,
            bus.WORKING: requeue.on_working,
        }
        self._about_queue: dict[int, Callable[[bytes, QueueMessage], None]] = {
            bus.NEEDJOBS: exports.on_needjobs,
            bus.PAUSE: federation.on_pause,
        }
        self._with_jobs: dict[int, Callable[[bytes, JobsMessage], None]] = {
            bus.REPLJOB: replication.on_repljob,
            bus.YOURJOBS: federation.on_yourjobs,
            bus.UPDATEJOB: updates.on_updatejob,
        }
        self._with_fields: dict[int, Callable[[bytes, list[Field]], None]] = {
            bus.ENDJOB: ack_gc.on_endjob,
            bus.REQUEUED: requeue.on_requeued,
            bus.QUESTION: core.rpc.on_question,
            bus.ANSWER: core.rpc.on_answer,
        }
        for kind, sharing in shared_maps.kinds.items():
            self._with_fields[kind] = sharing.on_packet

    def dispatch(self, sender: bytes, packet: bytes) -> None:
        """Handle ``packet`` from the node ``sender``. Raises ``PacketError`` if it is malformed."""
        type = bus.packet_type(packet)
        if _GOTJOB <= type <= _DELJOB or type == _WORKING:
            message = bus.read_about_job(packet)
            if not bus.names_many(packet):
                self._hand_over(type, sender, message)
                return
            self._notices.reads_many(sender)
            for id in bus.job_ids(packet):
                message.id = id
                self._hand_over(type, sender, message)
        elif type in self._with_jobs:
            self._with_jobs[type](sender, bus.read_jobs(packet))
        elif type in self._about_queue:
            self._about_queue[type](sender, bus.read_about_queue(packet))
        elif type in self._with_fields:
            self._with_fields[type](sender, bus.read_fields(packet))

    def keep_request(self, sender: bytes, packet: bytes) -> None:
        """Note what ``sender`` wants if ``packet`` asks for jobs, which are being loaded."""
        if bus.packet_type(packet) == bus.NEEDJOBS:
            try:
                self._exports.remember(sender, bus.read_about_queue(packet))
            except bus.PacketError:
                pass  # it would not be heard anyway

    def _hand_over(self, type: int, sender: bytes, message: JobMessage) -> None:
        """Handle ``message``, in which ``sender`` tells about one job: once it is in memory."""
        if self._pages.jobs and self._jobs.get(message.id) is None:
            kept = JobMessage(message.id, message.aux, message.flags, message.mark)
            then = partial(self._hand_over, type, sender, kept)
            if self._paging.bring(message.id, then):
                return
        # Compiled, these comparisons take a fraction of a call through a dict.
        if type == _GOTJOB:
            self._replication.on_gotjob(sender, message)
        elif type == _SETACK:
            self._ack_gc.on_setack(sender, message)
        elif type == _GOTACK:
            self._ack_gc.on_gotack(sender, message)
        elif type == _DELJOB:
            self._ack_gc.on_deljob(sender, message)
        else:
            self._about_job[type](sender, message)
