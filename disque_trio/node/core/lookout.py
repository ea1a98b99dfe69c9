"""Knows which queues have jobs for the patterns in use.

Each pattern is compared with all queues once, in slices, and with each queue that gets jobs.
"""

from collections import deque
from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.queue import Queue
from disque_trio.node.core.queues import Queues
from disque_trio.node.core.registry import SHARDS
from disque_trio.node.core.watch import Watch, WatchIndex

NAMES: Final = 20  # queues without jobs that are remembered for a pattern
# What counts as one queue with jobs that is looked at: so many (``>>``) without; and compiling a
# pattern as so many.
_EMPTY_SHIFT: Final = 4
_COMPILING: Final = 50


class Lookout:
    """Finds the queues of one node that have jobs for patterns.

    Args:
        queues: all queues.
        peers: the rest of the cluster.
    """

    def __init__(self, queues: Queues, peers: Peers) -> None:
        self._queues = queues
        self._peers = peers
        self._index = WatchIndex()
        self._new: deque[Watch] = deque()  # to be compiled
        self._looking: dict[Watch, None] = {}  # those that have some ``left``
        self._searched = 0  # shards of the queues, again and again
        self._search_end = 0
        self._closing: deque[Watch] = deque()  # removed, but known to queues

    def add(self, watch: Watch) -> None:
        """Find queues for ``watch``, from the next ``work`` on."""
        self._new.append(watch)

    def remove(self, watch: Watch) -> None:
        """Find none for ``watch`` any more."""
        watch.dropped = True
        self._index.remove(watch)
        self._looking.pop(watch, None)
        self._closing.append(watch)

    def matching(self, name: bytes) -> list[Watch]:
        """The watches that the name of a queue matches."""
        return self._index.matching(name)

    def is_searching(self, watch: Watch) -> bool:
        """Whether queues with jobs may match ``watch`` that it does not know, or has to look at."""
        return watch.expression is None or watch.complete_at > self._searched or watch.left > 0

    def note(self, queue: Queue) -> None:
        if not queue.length:
            return
        found = self.matching(queue.name)
        if len(found) > 1:
            found.sort(key=Watch.since)
        for watch in found:
            watch.put(queue)
            if watch.clients:
                queue.waiters[watch.stand_in] = None
            elif watch.wishes:
                self._queues.ready.append(queue)

    def emptied(self, watch: Watch, queue: Queue) -> None:
        """``queue``, which was taken out of those that ``watch`` found, has no jobs any more."""
        watch.drop(queue)
        queue.waiters.pop(watch.stand_in, None)
        self._remember(watch, queue.name)

    def _remember(self, watch: Watch, name: bytes) -> None:
        """The queue ``name`` matches, but has no jobs."""
        watch.emptied.pop(name, None)
        if len(watch.emptied) >= NAMES:
            del watch.emptied[next(iter(watch.emptied))]
        watch.emptied[name] = None

    def look_again(self, watch: Watch) -> None:
        """Look at all queues that ``watch`` found: who waits by it has changed."""
        watch.left = len(watch.found)
        if watch.left:
            self._looking[watch] = None

    def work(self, left: int) -> None:
        """Do some of what is to be done, as much as ``left`` queues take."""
        while self._new and left > 0:
            watch = self._new.popleft()
            if not watch.dropped:
                self._index.add(watch)
                self._search_end = watch.complete_at = self._searched + SHARDS
                left -= _COMPILING
        while self._looking and left > 0:
            watch = next(iter(self._looking))
            while watch.left > 0 and left > 0:
                left -= 1
                watch.left -= 1
                self._look(watch)
            if watch.left <= 0:
                del self._looking[watch]
        if self._searched < self._search_end and left > 0:
            by_names = not knows_only_extended(self._peers)
            while self._searched < self._search_end and left > 0:
                left -= self._search(by_names)
        while self._closing and left > 0:
            watch = self._closing[0]
            while watch.found and left > 0:
                left -= 1
                queue = watch.found.popleft()
                watch.drop(queue)
                queue.waiters.pop(watch.stand_in, None)
            if not watch.found:
                self._closing.popleft()

    def _look(self, watch: Watch) -> None:
        """Look at the next queue that ``watch`` found."""
        if not watch.found:
            return
        queue = watch.found.popleft()
        if not queue.length:
            self.emptied(watch, queue)
            return
        watch.found.append(queue)
        if watch.clients:
            queue.waiters[watch.stand_in] = None
        else:
            queue.waiters.pop(watch.stand_in, None)
            if not watch.wishes:
                return
        self._queues.ready.append(queue)

    def _search(self, by_names: bool) -> int:
        """Look at some of the queues; returns for how many that counts. ``by_names``: matching ones
        without jobs are of interest, too."""
        shard = self._queues.index.shards[self._searched % SHARDS]
        self._searched += 1
        count = len(shard) >> _EMPTY_SHIFT
        for queue in shard.values():
            if queue.length:
                count += 1
                self.note(queue)
                if queue.waiters:
                    self._queues.ready.append(queue)
            elif by_names:
                count += 1
                for watch in self.matching(queue.name):
                    self._remember(watch, queue.name)
        return count

    def has_work(self) -> bool:
        """Whether there is more for ``work`` to do."""
        return bool(
            self._new or self._looking or self._searched < self._search_end or self._closing
        )

    def flush(self, watches: list[Watch]) -> None:
        """All queues are forgotten; ``watches`` stay."""
        for watch in watches:
            watch.found.clear()
            watch.left = 0
        self._looking.clear()
        self._closing.clear()


def knows_only_extended(peers: Peers) -> bool:
    """Whether all other nodes know patterns; C nodes are asked for queues by name."""
    return all(map(peers.understands, peers.everyone()))
