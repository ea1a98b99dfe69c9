"""Frees flushed jobs and queues in steps.

Freeing a million jobs takes some tenths of a second, during which a node would serve nobody. So a
flush replaces the containers of jobs and queues with new ones, and hands the old ones over to this
module, which empties them bit by bit.
"""

from typing import Final

from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.queues.queue import Queue
from disque_trio.protocol.trailer import Trailer

FREED_AT_ONCE: Final = 1_000  # entries; a fraction of a millisecond


class LazyFree:
    """Holds containers that nothing refers to any more, and empties them step by step."""

    def __init__(self) -> None:
        self._lists: list[list[Job]] = []
        self._jobs: list[dict[bytes, Job] | dict[bytes, Trailer]] = []
        self._queues: list[dict[bytes, Queue]] = []

    def add(
        self,
        lists: list[list[Job]],
        jobs: list[dict[bytes, Job]],
        queues: list[dict[bytes, Queue]],
    ) -> None:
        """Add lists of jobs, dicts of jobs by id, and dicts of queues (with their jobs) by name."""
        self._lists += lists
        self._jobs += [shard for shard in jobs if shard]
        self._queues += [shard for shard in queues if shard]

    def add_trailers(self, trailers: list[dict[bytes, Trailer]]) -> None:
        """Add dicts of trailers by the ids of their jobs."""
        self._jobs += [shard for shard in trailers if shard]

    def free(self, count: int) -> bool:
        """Free ``count`` entries. Return False when nothing is left."""
        while count > 0:
            if self._lists:
                jobs = self._lists[-1]
                if len(jobs) > count:
                    del jobs[-count:]
                    return True
                count -= len(jobs) + 1
                self._lists.pop()
            elif self._queues:
                queues = self._queues[-1]
                while queues and count > 0:
                    queue = queues.popitem()[1]
                    self._lists += queue.hand_over()
                    count -= 1
                if not queues:
                    self._queues.pop()
                    count -= 1
            elif self._jobs:
                found = self._jobs[-1]
                while found and count > 0:
                    found.popitem()
                    count -= 1
                if not found:
                    self._jobs.pop()
                    count -= 1
            else:
                return False
        return True
