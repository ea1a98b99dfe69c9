"""A walk over the queued jobs in memory, which may come and go meanwhile."""

from collections.abc import Iterator

from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.queues.queue import Queue, chunk_after, place_after


class OldestFirst:
    """Walks over the jobs of ``queues`` that are in memory: line by line, that is, those of one
    queue, group and priority together, the oldest first. Each that stays comes once."""

    def __init__(self, queues: Iterator[Queue]) -> None:
        self._queues = queues
        self._lanes: list[Queue] = []  # of the current queue, the next one last
        self._lane: Queue | None = None
        self._urgencies: list[int] = []  # of the current lane, the next one last
        self._ctime = -1  # after which to go on in the current line
        self._id = b""

    def part(self, before: int) -> list[Job] | None:
        """Some more jobs. The rest of a line from the first job on that is not older than
        ``before`` (a ctime) is left out. Empty: there are none in this place. None: that was
        all."""
        if self._lane is None:
            if not self._lanes:
                queue = next(self._queues, None)
                if queue is None:
                    return None
                self._lanes = [queue]
                if queue.groups is not None:
                    self._lanes += queue.groups.queues()
            self._lane = self._lanes.pop()
            self._urgencies = self._lane.urgencies()
        lane = self._lane
        while self._urgencies:
            chunks = lane.line(self._urgencies[-1])
            at = chunk_after(chunks, self._ctime, self._id)
            if at < len(chunks):
                chunk = chunks[at]
                start = place_after(chunk, self._ctime, self._id)
                if chunk[start].ctime < before:
                    part = chunk[start:]
                    self._ctime, self._id = part[-1].ctime, part[-1].id
                    return part
            self._urgencies.pop()
            self._ctime, self._id = -1, b""
        self._lane = None
        return []
