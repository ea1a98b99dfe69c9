"""Hands packets of other nodes to the objects that handle them."""

from collections.abc import Callable
from contextlib import suppress
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
from disque_trio.protocol.bus import JobMessage, JobsMessage, PacketError, QueueMessage
from disque_trio.protocol.fields import Field
from disque_trio.protocol.given import read_row
from disque_trio.protocol.serialjob import ID_LENGTH
from disque_trio.protocol.settled import read_settled

# These come for each job. Compiled, a constant of another module costs a look-up.
_GOTJOB: Final = 5
_QUEUED: Final = 7
_SETACK: Final = 8
_WILLQUEUE: Final = 9
_GOTACK: Final = 10
_DELJOB: Final = 11
_WORKING: Final = 14
_INCR: Final = 6  # flags


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
        self._federation = federation
        self._notices = core.notices
        self._settlements = core.settlements
        self._notes = core.store.notes
        self._replicas = core.store.replicas
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
            self._hand_jobs_over(type, sender, bus.read_jobs(packet))
        elif type in self._about_queue:
            self._about_queue[type](sender, bus.read_about_queue(packet))
        elif type in self._with_fields:
            self._with_fields[type](sender, bus.read_fields(packet))
        elif type == bus.GIVEN:
            self._notices.reads_many(sender)
            self._settlements.confirmed(sender, read_row(packet))
            on_disk = self._federation.on_given(sender, packet)
            if on_disk:
                self._hand_jobs_over(bus.YOURJOBS, sender, JobsMessage(on_disk, 0))
        elif type == bus.SETTLED:
            self._notices.reads_many(sender)
            settled = read_settled(packet)
            self._settlements.confirmed(sender, settled.heard)
            self._ack_gc.on_settled(sender, settled)
            for want in settled.wants:
                self._exports.on_needjobs(sender, want)

    def keep_request(self, sender: bytes, packet: bytes) -> None:
        """Note what ``sender`` wants if ``packet`` asks for jobs, which are being loaded."""
        type = bus.packet_type(packet)
        with suppress(PacketError):  # it would not be heard anyway
            if type == bus.NEEDJOBS:
                self._exports.remember(sender, bus.read_about_queue(packet))
            elif type == bus.SETTLED:
                for want in read_settled(packet).wants:
                    self._exports.remember(sender, want)

    def _hand_over(self, type: int, sender: bytes, message: JobMessage) -> None:
        """Handle ``message``, in which ``sender`` tells about one job: once it is in memory, if it
        has to be."""
        if (
            self._pages.jobs
            and self._jobs.get(message.id) is None
            and not self._needs_no_job(type, sender, message)
        ):
            if type == _WILLQUEUE and self._answers(sender, message):
                return
            kept = JobMessage(message.id, message.aux, message.flags, message.mark)
            then = partial(self._hand_over, type, sender, kept)
            whole = type == _WILLQUEUE  # the others follow
            if self._paging.bring(message.id, partial(self._go_on, sender, then), whole):
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

    def _needs_no_job(self, type: int, sender: bytes, message: JobMessage) -> bool:
        """Whether ``message`` can be handled although its job may lie on disk."""
        if type == _GOTJOB:
            return True  # jobs of which that matters are in memory
        if type == _QUEUED:
            return not message.flags & _INCR and self._paging.hears(sender, message.id)
        if type in (_SETACK, _GOTACK, _DELJOB):
            return not self._notes.noting and self._paging.ending(message.id) is not None
        return False

    def _answers(self, sender: bytes, message: JobMessage) -> bool:
        """Whether ``message``, a WILLQUEUE of ``sender``, was answered without reading the job."""
        asker = self._replicas.named(message.aux) if message.aux else sender
        return asker != b"" and self._paging.answer(asker, message.id)

    def _hand_jobs_over(self, type: int, sender: bytes, message: JobsMessage) -> None:
        """Handle ``message``, in which ``sender`` sends jobs: those that lie on disk here once they
        are in memory. Raises ``PacketError``."""
        if not self._pages.jobs or self._are_here(type, sender, message):
            self._with_jobs[type](sender, message)

    def _are_here(self, type: int, sender: bytes, message: JobsMessage) -> bool:
        """Reduce ``message`` of ``sender`` to the jobs that do not lie on disk here. Return whether
        any are left to be handled now."""
        jobs = [data for data in message.jobs if self._is_here(type, sender, data, message)]
        some = len(jobs) > 0 or not message.jobs
        message.jobs = jobs
        return some

    def _is_here(self, type: int, sender: bytes, data: bytes, message: JobsMessage) -> bool:
        """Whether the serialised job ``data`` of a ``message`` of ``sender`` does not lie on disk
        here. If it does, it is handled later, unless nothing has to be read for that."""
        id = data[4 : 4 + ID_LENGTH]
        if self._jobs.get(id) is not None or not self._paging.knows(id):
            return True
        confirm = message.flags & bus.NOREPLY == 0
        if type == bus.REPLJOB and self._replication.is_known(sender, data, confirm):
            return False
        alone = JobsMessage([data], message.flags)
        then = partial(self._hand_jobs_over, type, sender, alone)
        return not self._paging.bring(id, partial(self._go_on, sender, then))

    def _go_on(self, sender: bytes, then: Callable[[], None]) -> None:
        """Handle what ``sender`` told about a job that is in memory now."""
        self._notes.peer = sender
        with suppress(PacketError):
            then()
        self._notes.peer = b""
