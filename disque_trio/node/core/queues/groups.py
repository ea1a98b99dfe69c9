"""What a queue knows of the groups of its jobs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from disque_trio.node.core.jobs.job import Job

if TYPE_CHECKING:
    from disque_trio.node.core.queues.queue import Queue


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

    def number_held(self) -> int:
        """Return how many jobs hold up their groups."""
        raise NotImplementedError

    def oldest(self) -> int:
        """The creation time of the oldest job, in ms times a million. There must be one."""
        raise NotImplementedError

    def lines(self) -> list[list[Job]]:
        """Return all jobs, in lists that the caller must not change."""
        raise NotImplementedError

    def queues(self) -> "list[Queue]":
        """The jobs of each group."""
        raise NotImplementedError
