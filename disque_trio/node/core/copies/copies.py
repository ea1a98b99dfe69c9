"""Makes the copies of jobs that nodes which are away cannot make.

A dead letter, and a job that is sent back, is copied by those who hold the job before it (see
``successors``). If one of them is away just then, or has forgotten that job, it makes no copy.
Then the node that queues the successor sends copies as for a new job: to the holders that can be
reached, and to other nodes if these are too few. It goes on until enough nodes have confirmed one.
So do the holders of a job with a key if the node that began to add it is away (see ``votes``), and
those of jobs whose copies were lost with a node (see ``few_copies``).
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from disque_trio.node.core.copies.placement import Placement
from disque_trio.node.core.jobs.job import ACTIVE, FLAG_TRAILER, QUEUED, Job
from disque_trio.node.core.jobs.key_messages import SAY_ADDED, KeyMessage
from disque_trio.node.core.queues.core import Core
from disque_trio.protocol.keyrecord import ADDED

FIRST_GAP: Final = 1_000  # ms between attempts, doubled each time
MAX_GAP: Final = 60_000
AT_ONCE: Final = 50  # jobs to look at per turn
SHORT_OVERHEAD: Final = 300  # bytes that it takes to know that a job has too few copies


class Short:
    """A job that may have too few copies.

    Attributes:
        job: the job.
        needed: how many other nodes are to hold it.
        confirmed: other nodes that have said that they hold it.
        due: when to look at it next, in ms.
        gap: ms until the time after that.
    """

    def __init__(self, job: Job, needed: int) -> None:
        self.job = job
        self.needed = needed
        self.confirmed: list[bytes] = []
        self.due = 0
        self.gap = FIRST_GAP


class Copies:
    """The jobs on one node that may have too few copies.

    Args:
        placement: chooses nodes for copies.

    Attributes:
        by_id: those that may have too few.
        on_end: called with the id of each that has enough, or has ended.
    """

    def __init__(self, core: Core, placement: Placement) -> None:
        self.by_id: dict[bytes, Short] = {}
        self.on_end: Callable[[bytes], None] = _nobody
        core.paging.keep(self.by_id)
        self._store = core.store
        self._machine = core.machine
        self._placement = placement
        self._codec = core.bus_codec
        self._notices = core.notices
        self._peers = core.peers
        self._timer = core.timer
        self._dues: list[tuple[int, bytes]] = []  # heap: when to look at which, ms

    def look_after(self, job: Job) -> None:
        """See to it that ``job``, which other holders are to make as well, has its copies, if one
        of them cannot be told."""
        own = self._store.replicas.own
        for id in job.delivered or ():
            if id != own and not self._peers.linked(id):
                self.want(job)
                return

    def want(self, job: Job, needed: int = -1) -> None:
        """See to it that ``job`` has its copies. ``needed``: on how many other nodes; -1: as many
        as it asks for."""
        if needed < 0:
            needed = job.repl - 1
        if job.id in self.by_id or not needed:
            return
        short = self.by_id[job.id] = Short(job, needed)
        self._machine.memory.used += SHORT_OVERHEAD
        self._send(short)

    def lacks(self, job: Job, node: bytes) -> None:
        """Note that ``node``, which should have made a copy of ``job``, has not."""
        short = self.by_id.get(job.id)
        if short is None:
            self.want(job)
        elif node in short.confirmed:
            short.confirmed.remove(node)

    def confirmed(self, node: bytes, id: bytes) -> None:
        """Note that ``node`` says that it holds the job ``id``."""
        short = self.by_id.get(id)
        if short is not None and node not in short.confirmed:
            short.confirmed.append(node)
            self._store.replicas.add(short.job, node)
            if self._placement.enough(short.confirmed, short.needed, self._peers.leaving):
                self._drop(id)

    def _drop(self, id: bytes) -> None:
        del self.by_id[id]
        self._machine.memory.used -= SHORT_OVERHEAD
        self.on_end(id)

    def _send(self, short: Short) -> None:
        """Send copies to the holders that have not confirmed one, and to more nodes if they are too
        few."""
        job = short.job
        replicas = self._store.replicas
        nodes = [
            id
            for id in job.delivered or ()
            if id != replicas.own and id not in short.confirmed and self._takes(job, id)
        ]
        missing = short.needed - len(short.confirmed) - len(nodes)
        if missing > 0 or not nodes:  # or all that confirmed are on too few hosts
            for id in self._placement.choose(job, max(missing, 1), self._peers.leaving):
                if self._peers.linked(id):
                    replicas.add(job, id)
                    nodes.append(id)
        if nodes:
            self._notices.copy(self._codec.encode(job), tuple(nodes), 0)
            if job.state != QUEUED:
                replicas.places.leaves(job, self._machine.now)  # it has left already
            self._say_added(job, nodes)
        short.due = self._machine.now + short.gap
        short.gap = min(2 * short.gap, MAX_GAP)
        heappush(self._dues, (short.due, job.id))
        self._timer.wake_by(short.due)

    def _say_added(self, job: Job, nodes: list[bytes]) -> None:
        """Tell ``nodes`` that get a copy of ``job`` that it has its key for good, if it has."""
        if job.flags & FLAG_TRAILER:
            entry = self._store.uniques.of(job)
            if entry is not None and entry.state == ADDED:
                message = KeyMessage(SAY_ADDED, entry.queue, entry.key, job.id)
                self._store.uniques.tell(message, nodes)

    def _takes(self, job: Job, node: bytes) -> bool:
        """Whether a copy of ``job`` can be sent to ``node``: to none that is leaving, and to no C
        node whose clients would see a trailer."""
        peers = self._peers
        if not peers.linked(node) or peers.leaves(node):
            return False
        return peers.understands(node) or self._store.trailers.is_plain(job)

    # ---- time -------------------------------------------------------------------------------

    def linked_to(self, now: int) -> None:
        """Look at all at ``now``: there is a new connection to some node."""
        for short in self.by_id.values():
            short.due = now
            short.gap = FIRST_GAP
        self._dues = [(now, id) for id in self.by_id]

    @property
    def due(self) -> int:
        """Return when to look at the next one, in ms; 0: there is none."""
        return self._dues[0][0] if self._dues else 0

    def go_on(self, now: int) -> None:
        """Look at some of those that are due at ``now``."""
        for _ in range(AT_ONCE):
            if not self._dues or self._dues[0][0] > now:
                break
            due, id = heappop(self._dues)
            short = self.by_id.get(id)
            if short is None or short.due != due:
                continue
            if short.job.state in (ACTIVE, QUEUED):
                self._send(short)
            else:
                self._drop(id)

    def flush(self) -> None:
        """Start over: all jobs have been forgotten. The caller clears the memory account."""
        self.by_id.clear()
        self._dues.clear()


def _nobody(id: bytes) -> None:
    """Where ``on_end`` goes while nobody listens."""
