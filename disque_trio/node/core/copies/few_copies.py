"""Jobs that have fewer copies than they should: counts them, and has the missing ones made.

A job comes to that when a node that held one of its copies has left the cluster for good (CLUSTER
FORGET), or is about to leave it, or if there were too few nodes when it was added (ASYNC). Nodes
that only do not answer count: their copies are expected back. A job that is delivered at most once
has no copies; one that is queued on a leaving node has to be taken from there.

Of the nodes that hold a job and answer, the one with the lowest id sees to it, one that is leaving
only if there is no other: the job is counted and listed there, so the figures of all nodes add up.
They are counted after nodes have left, and after a start, and every minute as long as there are
any. The jobs that lie on disk are counted by what memory knows of them.

``Copies`` sends the copies, by the same packet as for a new job, and until they are confirmed. It
gets a few jobs at a time, and none while other nodes have not read what they were sent, so clients
hardly notice. A new holder is named to all others, by the same packet, so the end of the job finds
it.
"""

from collections import deque
from typing import Final

from disque_trio.node.core.copies.copies import Copies
from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_RESERVED,
    QUEUED,
    UINT16_MAX,
    Job,
)
from disque_trio.node.core.pages.segment import Segment
from disque_trio.node.core.queues.core import Core
from disque_trio.resp.reply import integer
from disque_trio.respserver.client import Client, Pending

MOST_IDS: Final = 1_000  # that one COPYJOB may name
SLICE: Final = 25  # jobs of which copies are begun in a turn ...
SLICE_BYTES: Final = 1 << 20  # ... but no further one after this many bytes of bodies
MOST_OPEN: Final = 5_000  # jobs whose copies nobody has confirmed yet
BEHIND: Final = 10  # ms until a node checks again whether others have read what it sent
A_TURN: Final = 1_000  # jobs to count
AGAIN: Final = 60_000  # ms until they are counted again, as long as there are any
AFTER_COPIES: Final = 10_000  # ms after some got copies
AFTER_START: Final = 5_000  # ms; until then, a node hears from the others
_NOT_HERE: Final = UINT16_MAX  # copies of a job that another node sees to


class CopyRequest(Pending):
    """The pending reply of a COPYJOB.

    Attributes:
        ids: those to begin with yet, the next one last.
        open: those whose copies have not been confirmed.
        done: how many jobs have all their copies.
        deadline: in ms since the epoch; 0: none.
    """

    __slots__ = ("deadline", "done", "ids", "open")

    def __init__(self, client: Client, ids: list[bytes], deadline: int) -> None:
        super().__init__(client, None)
        self.ids = list(reversed(dict.fromkeys(ids)))
        self.open: set[bytes] = set()
        self.done = 0
        self.deadline = deadline


class FewCopies:
    """The jobs of one node that have too few copies.

    Args:
        copies: sends copies.

    Attributes:
        count: how many there were when they were counted last.
    """

    def __init__(self, core: Core, copies: Copies) -> None:
        self.count = 0
        self._store = core.store
        self._machine = core.machine
        self._pages = core.paging.pages
        self._replicas = core.store.replicas
        self._peers = core.peers
        self._timer = core.timer
        self._copies = copies
        copies.on_end = self._on_end
        self._requests: deque[CopyRequest] = deque()
        self._waiting: dict[bytes, list[CopyRequest]] = {}
        self._next_slice = 0  # ms; 0: there is none
        self._left: dict[tuple[bytes, ...], int] = {}  # as ``left``, for sets of holders
        self._here: dict[tuple[bytes, ...], int] = {}  # the same, or ``_NOT_HERE``
        self._everyone: list[bytes] = []
        self._count_at = 0  # ms; 0: never
        self._cursor = 0
        self._counting = False
        self._counted = 0
        self._segments: list[int] = []  # numbers of those to count yet

    # ---- which -----------------------------------------------------------------------------------

    def look(self) -> None:
        """Find out again which nodes are there, before a look at some jobs."""
        self._left.clear()
        self._here.clear()

    def left(self, holders: tuple[bytes, ...] | None) -> int:
        """How many copies a job with these ``holders`` has, besides those on nodes that have left
        the cluster, or are about to; if they have to be on different hosts, on how many."""
        own = 0 if self._peers.leaving else 1
        if holders is None:
            return own
        number = self._left.get(holders)
        if number is None:
            number = self._left[holders] = own + self._others(holders)
        return number

    def _others(self, holders: tuple[bytes, ...] | None) -> int:
        """How many of ``holders`` count besides this node; or hosts besides this one."""
        peers = self._peers
        others = [id for id in holders or () if peers.knows(id) and not peers.leaves(id)]
        if not peers.by_host:
            return len(others)
        places = {peers.place(id) or id.decode() for id in others}  # it is not known at once
        if not peers.leaving:
            places.discard(peers.here())
        return len(places)

    def lacks(self, job: Job) -> bool:
        """Whether ``job`` has too few copies."""
        if job.state not in (ACTIVE, QUEUED):
            return False
        if not job.retry:
            return self._peers.leaving and not job.flags & (FLAG_DELIVERED | FLAG_RESERVED)
        return self.left(job.delivered) < int(job.repl)

    def is_short(self, job: Job) -> bool:
        """Whether ``job`` has too few copies, and this node sees to it."""
        return self._left_here(job.delivered) < int(job.repl) and self.lacks(job)

    def _left_here(self, holders: tuple[bytes, ...] | None) -> int:
        if holders is None:
            return self.left(None)
        number = self._here.get(holders)
        if number is None:
            peers = self._peers
            place = (peers.leaving, self._replicas.own)
            number = self.left(holders)
            for id in holders:
                if peers.answers(id) and peers.understands(id) and (peers.leaves(id), id) < place:
                    number = _NOT_HERE
            self._here[holders] = number
        return number

    # ---- COPYJOB ---------------------------------------------------------------------------------

    def begin(self, client: Client, ids: list[bytes], timeout: int) -> None:
        """Make the copies that the jobs ``ids`` lack. ``client`` hears how many have all once they
        are confirmed, or after ``timeout`` ms (0: no limit)."""
        deadline = self._machine.now + timeout if timeout else 0
        request = CopyRequest(client, ids, deadline)
        client.line_up(request)
        self._requests.append(request)
        self._next_slice = self._machine.now
        self._timer.wake_by(max(self._machine.now, 1))

    def _make_some(self) -> None:
        """Begin with the copies of some jobs."""
        self.look()
        requests = [request for request in self._requests if request.ids]
        if not requests:
            self._next_slice = 0
            return
        full = len(self._copies.by_id) >= MOST_OPEN
        if full or any(map(self._peers.behind, self._peers.everyone())):
            self._next_slice = self._machine.now + BEHIND
            return
        request = requests[0]
        size = 0
        for _ in range(SLICE):
            if not request.ids or size >= SLICE_BYTES:
                break
            size += self._make(request, request.ids.pop())
        self._requests.remove(request)
        self._requests.append(request)  # the others are next
        self._next_slice = self._machine.now
        self._end_if_done(request)

    def _make(self, request: CopyRequest, id: bytes) -> int:
        """Begin with the copies of the job ``id``; return about how many bytes go to other
        nodes."""
        job = self._store.jobs.get(id)
        if job is None or job.state not in (ACTIVE, QUEUED):
            return 0  # it has ended, or another node holds it
        if not self.lacks(job):
            request.done += 1
            return 0
        others = int(job.repl) - (0 if self._peers.leaving else 1)
        wanted = min(others, self._possible(job)) if job.retry else 0
        if wanted <= self._others(job.delivered):
            return 0  # there is no node for another one
        self._copies.want(job, wanted)
        if id in self._copies.by_id:
            request.open.add(id)
            self._waiting.setdefault(id, []).append(request)
        return len(job.body or b"") * wanted

    def _possible(self, job: Job) -> int:
        """How many other nodes, or hosts, could hold ``job`` now."""
        peers = self._peers
        takers = peers.takers()
        if peers.by_host:
            return max(peers.room(peers.leaving), self._others(job.delivered))
        others = [id for id in job.delivered or () if id != self._replicas.own]
        holding = [id for id in others if peers.linked(id) and not peers.leaves(id)]
        return len(takers) + sum([id not in takers for id in holding])

    def _on_end(self, id: bytes) -> None:
        """Note that nothing more is done about the copies of the job ``id``."""
        requests = self._waiting.pop(id, None)
        if requests is None:
            return
        self.look()
        job = self._store.jobs.get(id)
        done = job is not None and job.state in (ACTIVE, QUEUED) and not self.lacks(job)
        for request in requests:
            request.open.discard(id)
            request.done += done
            self._end_if_done(request)
        if self._count_at and not self._counting:
            self._count_by(self._machine.now + AFTER_COPIES)

    def _end_if_done(self, request: CopyRequest) -> None:
        if not request.ids and not request.open:
            self._end(request)

    def _end(self, request: CopyRequest) -> None:
        """Answer ``request``."""
        self._drop(request)
        request.reply = integer(request.done)
        self._machine.answered.append(request)

    def _drop(self, request: CopyRequest) -> None:
        self._requests.remove(request)
        for id in request.open:
            others = [one for one in self._waiting.pop(id, []) if one is not request]
            if others:
                self._waiting[id] = others

    def forget_client(self, client: Client) -> None:
        """Do no more for ``client``, which has disconnected, than was begun."""
        for request in list(self._requests):
            if request.client is client:
                self._drop(request)

    # ---- counting --------------------------------------------------------------------------------

    def _count_by(self, at: int) -> None:
        """Count by ``at`` (ms)."""
        if not self._count_at or at < self._count_at:
            self._count_at = at
            self._timer.wake_by(at)

    def loaded(self, now: int) -> None:
        """Count soon after ``now``: jobs were loaded."""
        self._everyone = self._peers.everyone()
        self._count_by(now + AFTER_START)

    def cron(self, now: int) -> None:
        """Count if a node has left the cluster by ``now``."""
        everyone = self._peers.everyone()
        if everyone is not self._everyone and everyone != self._everyone:
            left = not set(self._everyone) <= set(everyone)
            came = len(everyone) > len(self._everyone)
            self._everyone = everyone
            if left or (came and self.count):
                self._counting = False
                self._count_by(max(now, 1))

    def _count_some(self) -> None:
        """Count in some jobs."""
        if not self._counting:
            self._counting = True
            self._cursor = self._counted = 0
            self._segments = []
        self.look()
        if self._cursor >= 0:
            following, found = self._store.jobs.scan(self._cursor, A_TURN)
            for job in found:
                self._counted += self.is_short(job)
            self._cursor = following or -1
            if not following:
                self._segments = [
                    number for number, one in self._pages.segments.items() if one.copies
                ]
        elif self._segments:
            segment = self._pages.segments.get(self._segments.pop())
            self._counted += 0 if segment is None else self._short_in(segment)
        if self._cursor >= 0 or self._segments:
            self._count_at = self._machine.now + 1
            return
        self.count = self._counted
        self._counting = False
        self._count_at = self._machine.now + AGAIN if self.count else 0

    def _short_in(self, segment: Segment) -> int:
        """How many jobs in ``segment``, on disk, have too few copies, and are for this node to see
        to."""
        short = [
            holders is not None and self._left_here(holders) < segment.copies
            for holders in segment.holders
        ]
        if not any(short):
            return 0
        if segment.holder_of is None:
            return segment.live
        which = segment.holder_of
        return sum([short[which[place]] for place in segment.places()])

    # ---- time ------------------------------------------------------------------------------------

    @property
    def due(self) -> int:
        """When there is next something to do, in ms; 0: never."""
        due = self._count_at
        for at in (self._next_slice, *[request.deadline for request in self._requests]):
            if at and (not due or at < due):
                due = at
        return due

    def go_on(self, now: int) -> None:
        """Do what is due at ``now``, or a part of it if there is much."""
        for request in list(self._requests):
            if request.deadline and request.deadline <= now:
                self._end(request)
        if self._next_slice and self._next_slice <= now:
            self._make_some()
        if self._count_at and self._count_at <= now and not self._machine.loading:
            self._count_some()

    def flush(self) -> None:
        """Start over: all jobs have been forgotten."""
        for request in list(self._requests):
            self._end(request)
        self._waiting.clear()
        self._counting = False
        self.count = self._count_at = self._next_slice = 0
