"""What a queue knows of the groups of its jobs."""

from collections.abc import Iterator
from typing import Any

from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.pages.segment import Segment


class Groups:
    """Interface to the jobs of a queue that are served by group (see ``grouping``).

    Attributes:
        length: the number of jobs.
    """

    def __init__(self) -> None:
        self.length = 0

    def push(self, job: Job) -> None:
        """Put ``job`` into its group."""
        raise NotImplementedError

    def next_job(self) -> Job | None:
        """What ``pop`` would take out; None: nothing."""
        raise NotImplementedError

    def pop(self) -> Job:
        """Take out the next job. ``deliverable`` must not be 0."""
        raise NotImplementedError

    def remove(self, job: Job) -> bool:
        """Take ``job`` out of its group; return whether it was there."""
        raise NotImplementedError

    def pass_turn(self, job: Job) -> None:
        """Move on to the next group if ``job``, which is about to be removed, is the one whose turn
        it is."""
        raise NotImplementedError

    def deliverable(self) -> int:
        """Return how many jobs can be taken now; may count only some of them."""
        raise NotImplementedError

    def first_to_last(self) -> Iterator[Job]:
        """The jobs in the order in which they would come if none of them held its group."""
        raise NotImplementedError

    def last_to_first(self) -> Iterator[Job]:
        """The last job of each group in turn, then the ones before them."""
        raise NotImplementedError

    def ready_jobs(self) -> Iterator[Job]:
        """The jobs of ``first_to_last``, those of each group up to the first one that lies on
        disk."""
        raise NotImplementedError

    def number_held(self) -> int:
        """Return how many jobs hold up their groups."""
        raise NotImplementedError

    def oldest(self) -> int:
        """The creation time of the oldest job, in ms times a million. There must be one."""
        raise NotImplementedError

    def lines(self) -> list[list[Job]]:
        """Return all jobs, in lists that the caller must not change."""
        raise NotImplementedError

    def queues(self) -> list[Any]:
        """The jobs of each group, a ``Queue``; first of those that can be served, in turn."""
        raise NotImplementedError

    # ---- jobs on disk -----------------------------------------------------------------------

    def lane(self, name: bytes) -> Any:
        """The jobs of the group ``name``, which has some: a ``Queue``."""
        raise NotImplementedError

    def dry_changed(self, name: bytes) -> None:
        """Note that the next job of the group ``name`` lies on disk, or does so no longer."""
        raise NotImplementedError

    def gone_from_disk(self, segment: Segment, count: int) -> None:
        """Count that ``count`` of the jobs of ``segment`` are not there any more."""
        raise NotImplementedError

    def next_on_disk(self) -> Segment | None:
        """The segment that has the job whose turn it is; None: it is in memory, or there is
        none."""
        raise NotImplementedError

    def take_segments(self) -> list[Segment]:
        """Take all jobs on disk out of their groups."""
        raise NotImplementedError
