"""The jobs that are not just waiting in a queue for the first time: those that a client has, that
are delayed or paused, that came back, and dead letters.

People look at these in lists, and at how many there are. In a long queue they are few, so that a
list need not look at all jobs of the node. A job is marked whenever it may have become one of them;
whoever looks at the marked jobs finds out whether it still is, and removes the mark if not.
"""

from typing import Final

from disque_trio.node.core.jobs.job import FLAG_DELIVERED, FLAG_PAUSED, Job
from disque_trio.node.core.jobs.registry import Registry

MARK_SHARDS: Final = 1024
"""A dict of a million entries stops a node for 40 ms when it grows, so there are several."""
# Two characters of the random part of a job's id choose one, which is cheaper than a checksum.
_FIRST: Final = 12
_SECOND: Final = 13

FLAGS: Final = FLAG_PAUSED | FLAG_DELIVERED
"""A job with one of these is marked when its timer is set."""


class MarkedJobs:
    """The marked jobs of one node.

    Attributes:
        shards: the jobs by id.
    """

    def __init__(self) -> None:
        self.shards: list[dict[bytes, Job]] = [{} for _ in range(MARK_SHARDS)]

    def add(self, job: Job) -> None:
        """Mark ``job``."""
        id = job.id
        self.shards[(id[_FIRST] & 63) << 4 | id[_SECOND] & 15][id] = job

    def drop(self, id: bytes) -> None:
        """Remove the mark of the job ``id``, if it has one."""
        self.shards[(id[_FIRST] & 63) << 4 | id[_SECOND] & 15].pop(id, None)

    def hand_over(self) -> list[dict[bytes, Job]]:
        """Remove all marks, and return them."""
        shards = self.shards
        self.shards = [{} for _ in range(MARK_SHARDS)]
        return shards


class MarkingRegistry(Registry[Job]):
    """All jobs of one node, by id.

    Attributes:
        marked: some of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.marked = MarkedJobs()
