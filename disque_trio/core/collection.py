"""The end of jobs that were processed: their copies have to go everywhere, and never come back.

The node that is told by a client (ACKJOB) marks the job acknowledged and tells all that may hold
a copy (SETACK). Each confirms (GOTACK), and when all have, they are told to forget it (DELJOB) and
it is forgotten here. Until then it is kept and the others are told again, ever more slowly; so a
holder that was cut off hears of it when it is back.

Nodes may know of different holders. SETACK and DELJOB say which the sender knows of, in 16 bits;
who knows of others keeps the job and goes on by itself until these have confirmed as well. C nodes
only tell how many they know of, and forget the job everywhere when these have confirmed; to them
who knows more does not confirm before it has collected the job itself.

An acknowledge for a job that this node does not hold is kept as a dummy: a job without a body and
without holders. All nodes are told until one says that it knows the job, and so takes over.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from disque_trio.core.job import ACKED, Job
from disque_trio.core.peers import Peers
from disque_trio.core.replication import ReplicatedStore
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketWriter

if TYPE_CHECKING:
    from random import Random

FIRST_GAP: Final = 1_000  # ms between attempts to collect a job, doubled each time
MAX_GAP: Final = 180_000
MAX_ATTEMPTS: Final = 10
MAX_ENDED: Final = 20_000  # jobs of which it is remembered that they ended
_SPREAD: Final = 500  # ms; half of it to either side


class CollectingStore(ReplicatedStore):
    """Jobs that end everywhere."""

    def __init__(
        self,
        id: bytes,
        peers: Peers,
        packets: PacketWriter,
        entropy: Callable[[int], bytes],
        rng: "Random",
        maxmemory: int,
    ) -> None:
        super().__init__(id, peers, packets, entropy, rng, maxmemory)
        self._ended: dict[bytes, None] = {}

    def remember_ack(self, id: bytes) -> None:
        """A client acknowledged the job ``id``, which is not known here: keep that for those who
        know it. Nothing is kept for a job that is delivered at most once, or by a node that is
        alone or leaving."""
        try:
            minutes = int(id[36:40], 16)
        except ValueError:
            return
        if self.peers.size == 1 or self.leaving or not minutes & 1:
            return
        # The id has whole minutes, the rest of the last one is cut off.
        etime = self.now // 1000 + (minutes + 1) * 60
        job = Job(id, b"", None, 0, self.now * 1_000_000, etime, 0, 0, self.dump_number)
        job.state = ACKED
        job.delivered = ()
        self._register(job)
        if self.eventing:
            self.note("acked", job, "client")
        self.memory.evictable[id] = job
        self.collect(job)

    def has_ended(self, sender: bytes, id: bytes) -> bool:
        if id not in self._ended:
            return False
        self.peers.send(sender, self.packets.about_job(bus.SETACK, id, 1))
        return True

    def _end(self, job: Job) -> None:
        """Forget the acknowledged ``job``, but not at once that it was: a copy that was sent
        before may still come, over a connection that was given up since."""
        if len(self._ended) >= MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[job.id] = None
        if self.eventing:
            self.note("deleted", job, "collected")
        self.delete(job)

    def collect(self, job: Job) -> None:
        """Tell all that may hold the acknowledged ``job`` and have not confirmed; forget it when
        nobody is left."""
        missing = self._not_confirmed(job)
        if not missing and not self.write_problem:
            self._finish(job)
            return
        packet = self._setack(job)
        for id in missing:
            self.peers.send(id, packet)
        self._collect_later(job)

    def answer_acked(self, sender: bytes, job: Job) -> None:
        self.peers.send(sender, self._setack(job))

    def _setack(self, job: Job) -> bytes:
        holders = self._me_alone if job.delivered is None else job.delivered
        mark = self.holders.mark(holders) if holders else 0
        return self.packets.about_job(bus.SETACK, job.id, len(holders), 0, mark)

    def _collect_later(self, job: Job) -> None:
        gap = min(FIRST_GAP << int(job.gc_retry), MAX_GAP)
        if job.gc_retry < MAX_ATTEMPTS:
            job.gc_retry += 1
        gap += int(self._random() * _SPREAD) - _SPREAD // 2
        self._timers.move(job, min(self.now + gap, job.etime * 1000 + 1000))

    def _not_confirmed(self, job: Job) -> list[bytes]:
        """The nodes that may bring ``job`` back. Those that were taken out of the cluster for
        good do not count."""
        confirmed = job.confirmed or []
        if job.delivered == ():
            return [id for id in self.peers.everyone() if id not in confirmed]
        holders = job.delivered or ()
        return [id for id in holders if self.peers.knows(id) and id not in confirmed]

    def _finish(self, job: Job) -> None:
        """Nobody can bring ``job`` back: forget it everywhere."""
        if job.delivered:
            mark = self.holders.mark(job.delivered)
            self.tell_holders(job, self.packets.about_job(bus.DELJOB, job.id, 0, 0, mark))
        self._end(job)

    def on_setack(self, sender: bytes, packet: bytes) -> None:
        """Another node knows that the job was processed."""
        id, holders_known = bus.read_about_job(packet)
        job = self.jobs.get(id)
        if job is None:
            if not self.write_problem:
                self.peers.send(sender, self.packets.about_job(bus.GOTACK, id, 0))
            return
        news = job.state != ACKED
        if news:
            if self.eventing:
                self.note("acked", job, "peer")
            self._mark_acked(job)
        if job.delivered == ():
            # A dummy here as well: no copy. If the sender knows better it takes over.
            self.peers.send(sender, self.packets.about_job(bus.GOTACK, id, 0))
            if holders_known:
                self.delete(job)
            return
        if holders_known:
            self._add_holder(job, sender)
        holders = self._me_alone if job.delivered is None else job.delivered
        mark = bus.packet_mark(packet)
        if mark:
            confirm = True
            collect = mark != self.holders.mark(holders)
        else:
            # A dummy of the sender, or a C node, which forgets the job everywhere as soon as all
            # that it knows of have confirmed.
            confirm = len(holders) <= holders_known or holders_known == 0
            collect = len(holders) > holders_known
        # Not before it is on disk: a crash would bring the job back. The sender asks again.
        if confirm and not self.write_problem:
            self.peers.send(sender, self.packets.about_job(bus.GOTACK, id, 1))
        if collect:
            if holders_known:
                self._note_confirmed(job, sender)
            if news or holders_known == 0 or not confirm:
                self.collect(job)
        elif news:
            self._collect_later(job)

    def on_deljob(self, sender: bytes, packet: bytes) -> None:
        """The job is done with, as far as ``sender`` knows of holders."""
        job = self.jobs.get(bus.read_about_job(packet)[0])
        if job is None:
            return
        mark = bus.packet_mark(packet)
        if job.state == ACKED and job.delivered and mark:
            self._note_confirmed(job, sender)
            if mark != self.holders.mark(job.delivered):
                # Others may hold it that the sender never heard of.
                if not self._not_confirmed(job):
                    self._finish(job)
                return
            self._end(job)
            return
        if self.eventing:
            self.note("deleted", job, "peer")
        self.delete(job)

    def _note_confirmed(self, job: Job, id: bytes) -> None:
        if job.confirmed is None:
            job.confirmed = [id]
        elif id not in job.confirmed:
            job.confirmed.append(id)

    def on_gotack(self, sender: bytes, packet: bytes) -> None:
        """A node confirms that it knows of the acknowledge."""
        id, known = bus.read_about_job(packet)
        job = self.jobs.get(id)
        if job is None:
            return
        if job.state != ACKED:
            if self.eventing:
                self.note("acked", job, "peer")
            self._mark_acked(job)
        if job.delivered == () and known:
            self.delete(job)  # there is one that knows the job, and cares for it
            return
        if known and sender not in (job.delivered or ()):
            self._add_holder(job, sender)
        self._note_confirmed(job, sender)
        if not self.write_problem and not self._not_confirmed(job):
            self._finish(job)
        elif not job.awake:
            self._collect_later(job)
