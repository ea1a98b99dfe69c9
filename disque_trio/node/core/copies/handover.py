"""Gives away all that a node holds which leaves its cluster, so that it can be stopped for good.

Queued jobs go to other nodes in turn, a few at a time (YOURJOBS), as if these had asked. Of what is
in no queue (delayed jobs, copies, jobs that were given away, jobs that clients have) other nodes
get copies (REPLJOB) until as many as the job asks for have confirmed one (GOTJOB). Whoever gets a
job that this node would have queued later is told when to (ENQUEUE). Then this node forgets it,
unless a client has it: that one acknowledges it here, or, once this node is gone, elsewhere.

Nodes that leave too, or fail, get nothing. What only they have confirmed is copied again.
"""

from typing import Final

from disque_trio.node.core.copies.placement import Placement
from disque_trio.node.core.federation.exports import Exports
from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_PAUSED,
    FLAG_QUEUED_BEFORE,
    FLAG_RESERVED,
    FLAG_TRAILER,
    Job,
    first_due,
    is_delivered,
)
from disque_trio.node.core.queues.core import Core
from disque_trio.protocol import bus

REST: Final = 20  # ms between steps
IDLE: Final = 1_000  # the same while nothing is left
QUEUES: Final = 200  # to look at in a step
GIVEN: Final = 500  # jobs to give away in a step
LOOKED_AT: Final = 500  # jobs to look at in a step
UNCONFIRMED: Final = 2_000  # copies that may be under way
AGAIN: Final = 1_000  # ms until a copy that was not confirmed is sent again
OVERHEAD: Final = 300  # bytes for each of these


class Copied:
    """A job of which other nodes are to hold copies.

    Attributes:
        job: the job.
        confirmed: nodes that have said that they hold it.
        sent: when copies were last sent, in ms.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.confirmed: list[bytes] = []
        self.sent = 0


class Handover:
    """The handing over on one node.

    Args:
        placement: chooses nodes for copies.
        exports: gives queued jobs away.

    Attributes:
        active: it is under way.
        under_way: jobs of which copies were sent and not all are confirmed.
        in_hand: jobs that clients have, and other nodes too.
        due: when to go on, in ms; 0: never.
    """

    def __init__(self, core: Core, placement: Placement, exports: Exports) -> None:
        self.active = False
        self.under_way: dict[bytes, Copied] = {}
        self.in_hand: dict[bytes, None] = {}
        self.due = 0
        self._store = core.store
        self._machine = core.machine
        self._paging = core.paging
        self._placement = placement
        self._exports = exports
        self._codec = core.bus_codec
        self._notices = core.notices
        self._packets = core.packets
        self._peers = core.peers
        self._timer = core.timer
        self._staying: list[bytes] = []
        self._names: list[bytes] = []  # of queues to look at
        self._cursor = 0  # how far the look at all jobs has come
        self._turn = 0  # whose turn it is to get jobs
        core.paging.keep(self.under_way)
        core.paging.keep(self.in_hand)

    def begin(self, now: int) -> None:
        """Give everything away from ``now`` on, ms."""
        if not self.active:
            self.active = True
            self.due = now
            self._timer.wake_by(now)

    def end(self) -> None:
        """Keep the rest: this node stays."""
        self.active = False
        self.due = 0
        self._start_over()
        self._names.clear()

    def left(self) -> int:
        """How many jobs this node has that other nodes may not have."""
        jobs = self._store.jobs
        safe = sum([_is_in_hand(jobs.get(id)) for id in self.in_hand])
        return jobs.count + self._paging.pages.jobs - safe

    def _start_over(self) -> None:
        self._machine.memory.used -= OVERHEAD * (len(self.under_way) + len(self.in_hand))
        self.under_way.clear()
        self.in_hand.clear()
        self._cursor = 0

    def flush(self) -> None:
        """Start over: all jobs have been forgotten. The caller clears the memory account."""
        self.under_way.clear()
        self.in_hand.clear()
        self._names.clear()
        self._cursor = 0

    # ---- time -------------------------------------------------------------------------------

    def go_on(self, now: int) -> None:
        """Do a step, if it is time."""
        if not self.active or self.due > now:
            return
        self.due = now + (REST if self.left() else IDLE)
        self._timer.wake_by(self.due)
        staying = self._peers.reachable
        if staying != self._staying:
            if not set(self._staying) <= set(staying):
                self._start_over()  # what the missing ones have confirmed counts no more
            self._staying = list(staying)
        if self._machine.write_problem or self._exports.stopping:
            return
        self._give_queued()
        self._send_again(now)
        if len(self.under_way) < UNCONFIRMED:
            self._cursor, found = self._store.jobs.scan(self._cursor, LOOKED_AT)
            for job in found:
                self._look(job)
            if not self._cursor:
                self._forget_ended()
        self._bring_from_disk()

    def _ready(self) -> list[bytes]:
        """The nodes that can take jobs now."""
        peers = self._peers
        return [id for id in peers.takers() if peers.linked(id) and not peers.behind(id)]

    # ---- what is queued -----------------------------------------------------------------------

    def _give_queued(self) -> None:
        """Give jobs of some queues away."""
        takers = self._ready()
        queues = self._store.queues.by_name
        if not self._names:
            self._names = [name for name, queue in queues.items() if queue.length]
        room = GIVEN
        for _ in range(min(QUEUES, len(self._names))):
            if room <= 0 or not takers:
                break
            queue = queues.get(self._names[-1])
            number = 0
            if queue is not None:
                self._turn += 1
                id = takers[self._turn % len(takers)]
                number = self._exports.hand_over(id, queue, room)
                room -= number
            if number == 0 or queue is None or not queue.length:
                self._names.pop()  # empty, or what is left has to wait for something

    # ---- what is in no queue ------------------------------------------------------------------

    def _look(self, job: Job) -> None:
        """See to it that others have ``job``, unless it is queued, or about to end or to begin."""
        if job.state != ACTIVE or job.id in self.under_way or job.id in self.in_hand:
            return
        if len(self.under_way) >= UNCONFIRMED:
            return
        self._machine.memory.used += OVERHEAD
        if job.retry == 0 and (is_delivered(job) or job.flags & FLAG_RESERVED):
            self.in_hand[job.id] = None  # nobody else may ever have it
            return
        copied = self.under_way[job.id] = Copied(job)
        self._send(copied)

    def _send(self, copied: Copied) -> None:
        """Send copies to the other holders that have not confirmed one, and to more nodes if these
        are too few."""
        job = copied.job
        copied.sent = self._machine.now
        replicas = self._store.replicas
        nodes = [
            id
            for id in job.delivered or ()
            if id != replicas.own and id not in copied.confirmed and self._takes(job, id)
        ]
        missing = self._wanted(job) - len(copied.confirmed) - len(nodes)
        if missing > 0:
            for id in self._placement.choose(job, missing, True):
                if self._peers.linked(id):
                    replicas.add(job, id)
                    nodes.append(id)
        if nodes:
            self._notices.copy(self._codec.encode(job), tuple(nodes), 0)

    def _takes(self, job: Job, node: bytes) -> bool:
        """Whether the holder ``node`` stays, and can be sent a copy of ``job``."""
        peers = self._peers
        return (
            node in self._staying
            and peers.linked(node)
            and (
                not job.flags & FLAG_TRAILER
                or peers.understands(node)
                or self._store.trailers.is_plain(job)
            )
        )

    def _wanted(self, job: Job) -> int:
        """How many others are to hold ``job``: as many as it asks for, as far as there are."""
        return max(1, min(job.repl, self._peers.room(True))) if job.retry else 1

    def _send_again(self, now: int) -> None:
        """Send again what was not confirmed, and drop what has ended or was queued meanwhile."""
        for id, copied in list(self.under_way.items()):
            if copied.job.state != ACTIVE:
                self._drop(id)
            elif copied.sent + AGAIN <= now:
                self._send(copied)

    def _drop(self, id: bytes) -> None:
        del self.under_way[id]
        self._machine.memory.used -= OVERHEAD

    def confirmed(self, node: bytes, id: bytes) -> None:
        """Note that ``node`` says that it holds the job ``id``."""
        copied = self.under_way.get(id)
        if copied is None or node in copied.confirmed or node not in self._staying:
            return
        copied.confirmed.append(node)
        self._store.replicas.add(copied.job, node)
        if self._placement.enough(copied.confirmed, self._wanted(copied.job), True):
            self._drop(id)
            if copied.job.state == ACTIVE:
                self._part_with(copied.job, copied.confirmed)

    def _part_with(self, job: Job, holders: list[bytes]) -> None:
        """Forget ``job``, which ``holders`` have, unless a client has it."""
        if is_delivered(job):
            self._machine.memory.used += OVERHEAD
            self.in_hand[job.id] = None
            return
        now = self._machine.now
        if job.flags & FLAG_PAUSED:
            due = 0 if job.place is not None else int(job.qtime)
        else:
            # A mere copy has been queued before, as far as its holder can tell.
            due = 0 if job.flags & FLAG_QUEUED_BEFORE else first_due(job)
        if due > now:
            packet = self._packets.about_job(bus.ENQUEUE, job.id, (due - now + 999) // 1000)
            self._peers.send(self._placement.choose_one(holders), packet)
        self._store.let_go(job)

    def _forget_ended(self) -> None:
        """Forget jobs that clients had, and have no more."""
        jobs = self._store.jobs
        for id in list(self.in_hand):
            if not _is_in_hand(jobs.get(id)):
                del self.in_hand[id]
                self._machine.memory.used -= OVERHEAD

    def _bring_from_disk(self) -> None:
        """Bring jobs back that lie on disk and are in no queue, if there is room."""
        pages = self._paging.pages
        memory = self._machine.memory
        if not pages.jobs or memory.used > memory.external_above:
            return
        if len(self.under_way) >= UNCONFIRMED:
            return
        for segment in pages.segments.values():
            if segment.origin is not None:
                if not segment.reading:
                    self._paging.want(segment, -1)
                return


def _is_in_hand(job: Job | None) -> bool:
    """Whether a client has ``job``, or nobody here can ever queue it."""
    return job is not None and job.state == ACTIVE and (job.retry == 0 or is_delivered(job))
