"""Goes over the groups of queues whose jobs may go to disk.

Each group has a line of its own, with segments of its own. The more groups a queue has, the shorter
their segments are: the heads of all groups stay in memory, and segments come back to all of them.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.pages.pages import Pages
from disque_trio.node.core.pages.segment import Segment, SegmentLines
from disque_trio.node.core.queues.queue import Queue

LANES_A_LOOK: Final = 1_000  # groups to look at before others have their turn
LEAST_OF_GROUP: Final = 64  # jobs; shorter segments take more memory than 40 bytes a job
LEAST_BYTES_OF_GROUP: Final = 1 << 14
_SEGMENTS: Final = 4  # of the usual size; the segments of all groups next to go are as long


class Lanes:
    """Goes over the queues that are to be looked at, and over the groups of one of them.

    Attributes:
        queues: the queues, the next one last.
        from_start: whether these began with the first one of all.
        looks: how many groups may be looked at before others have their turn.
    """

    def __init__(self) -> None:
        self.queues: list[Queue] = []
        self.from_start = False
        self.looks = 0
        self._queue: Queue | None = None
        self._lanes: list[Queue] = []  # the next one last
        self._groups = 1  # how many

    def begin(self, queue: Queue) -> None:
        """Begin with ``queue``, which has groups, unless that was done."""
        if queue is not self._queue and queue.groups is not None:
            self._queue = queue
            self._lanes = queue.groups.queues()
            self._groups = max(len(self._lanes), 1)
            self._lanes.append(queue)

    def lane(self) -> Queue | None:
        """The next one of what is in a group, and what is in none; None: there are no more."""
        if not self._lanes:
            self._queue = None
            return None
        return self._lanes[-1]

    def go_on(self) -> None:
        """Go on to the next one."""
        self.looks -= 1
        self._lanes.pop()

    def share(self, pages: Pages) -> tuple[int, int]:
        """How many jobs of a group are to go together, and how many bytes of records."""
        most = max(_SEGMENTS * pages.most // self._groups, LEAST_OF_GROUP)
        most_bytes = max(_SEGMENTS * pages.most_bytes // self._groups, LEAST_BYTES_OF_GROUP)
        return min(most, pages.most), min(most_bytes, pages.most_bytes)


def put_in_group(queue: Queue, lane: Queue, segment: Segment, pages: Pages) -> None:
    """Let ``segment`` be one of ``lane``, a group of ``queue``."""
    segment.group = lane.name
    segment.plain = False  # it takes more than its file to put a job back
    groups = queue.groups
    if lane.paged is None and groups is not None:
        changed = partial(groups.dry_changed, lane.name)
        lane.paged = SegmentLines(queue.name, pages.hungry, pages.dry, changed, queue.paged)


def by_turns(lanes: Iterable[Iterator[Job | None]], most: int) -> Iterator[Job | None]:
    """One job of each of ``lanes`` in turn, ``most`` at most, until there are no more; None: the
    next one is not there yet."""
    left: list[Iterator[Job | None]] = []
    found = 0
    while True:
        for jobs in lanes:
            job = next(jobs, b"")
            while job is None:
                yield None
                job = next(jobs, b"")
            if isinstance(job, Job):
                left.append(jobs)
                yield job
                found += 1
                if found == most:
                    return
        if not left:
            return
        lanes, left = left, []
