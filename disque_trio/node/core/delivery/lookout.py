"""Finds the queues that have jobs for the patterns in use.

Each pattern is compared once, in slices, with all queues, and with each queue that gets jobs.
"""

from collections import deque
from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.delivery.interest import Interest, InterestIndex
from disque_trio.node.core.jobs.registry import SHARDS
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.queues import Queues

NAMES: Final = 20  # queues without jobs to remember for a pattern
_EMPTY: Final = 15  # looking at 16 queues without jobs takes as long as at one with jobs
_READING: Final = 50  # how many queues could be looked at while a pattern is read


class Lookout:
    """Finds the queues of one node that have jobs for patterns.

    Args:
        queues: all queues.
        peers: the rest of the cluster.
    """

    def __init__(self, queues: Queues, peers: Peers) -> None:
        self._queues = queues
        self._peers = peers
        self._index = InterestIndex()
        self._new: deque[Interest] = deque()  # to be read
        self._looking: dict[Interest, None] = {}  # those with something ``left``
        self._searched = 0  # shards of the queues, counting on over all rounds
        self._names: list[bytes] = []  # of queues of the current shard, not looked at yet
        self._search_end = 0
        self._closing: deque[Interest] = deque()  # removed, but queues still refer to them

    def add(self, interest: Interest) -> None:
        """Find queues for ``interest`` from the next ``work`` on."""
        self._new.append(interest)

    def remove(self, interest: Interest) -> None:
        """Stop finding queues for ``interest``."""
        interest.dropped = True
        self._index.remove(interest)
        self._looking.pop(interest, None)
        self._closing.append(interest)

    def matching(self, name: bytes) -> list[Interest]:
        """The interests whose patterns match the queue name ``name``."""
        return self._index.matching(name)

    def is_searching(self, interest: Interest) -> bool:
        """Whether there may be queues with jobs that match ``interest`` and that it has not found
        or looked at yet."""
        return interest.glob is None or interest.complete_at > self._searched or interest.left > 0

    def note(self, queue: Queue) -> None:
        """See ``QueueInterests.note``."""
        if not queue.length:
            return
        found = self.matching(queue.name)
        if len(found) > 1:
            found = sorted(found, key=Interest.since)
        for interest in found:
            interest.put(queue)
            if interest.clients:
                queue.waiters[interest.stand_in] = None
            elif interest.wishes:
                self._queues.ready.append(queue)

    def emptied(self, interest: Interest, queue: Queue) -> None:
        """Note that ``queue``, which was taken out of ``interest.found``, has no jobs any more."""
        interest.drop(queue)
        queue.waiters.pop(interest.stand_in, None)
        self._remember(interest, queue.name)

    def _remember(self, interest: Interest, name: bytes) -> None:
        """Remember that the queue ``name`` matches but has no jobs."""
        interest.emptied.pop(name, None)
        if len(interest.emptied) >= NAMES:
            del interest.emptied[next(iter(interest.emptied))]
        interest.emptied[name] = None

    def look_again(self, interest: Interest) -> None:
        """Look at all queues that ``interest`` found: its waiting clients have changed."""
        interest.left = len(interest.found)
        if interest.left:
            self._looking[interest] = None

    def work(self, left: int) -> None:
        """Do some of the pending work, as much as looking at ``left`` queues takes."""
        while self._new and left > 0:
            interest = self._new.popleft()
            if not interest.dropped:
                self._index.add(interest)
                # A shard that is half searched is looked at once more.
                self._search_end = self._searched + SHARDS + (1 if self._names else 0)
                interest.complete_at = self._search_end
                left -= _READING
        while self._looking and left > 0:
            interest = next(iter(self._looking))
            while interest.left > 0 and left > 0:
                left -= 1
                interest.left -= 1
                self._look(interest)
            if interest.left <= 0:
                del self._looking[interest]
        if self._searched < self._search_end and left > 0:
            by_names = not knows_only_extended(self._peers)
            shards = self._queues.index.shards
            while self._searched < self._search_end and left > 0:
                if not self._names:
                    self._names = list(shards[self._searched % SHARDS])
                left = self._search(left, by_names)
                if not self._names:
                    self._searched += 1
        while self._closing and left > 0:
            interest = self._closing[0]
            while interest.found and left > 0:
                left -= 1
                queue = interest.found.popleft()
                interest.drop(queue)
                queue.waiters.pop(interest.stand_in, None)
            if not interest.found:
                self._closing.popleft()

    def _look(self, interest: Interest) -> None:
        """Look at the next queue that ``interest`` found."""
        if not interest.found:
            return
        queue = interest.found.popleft()
        if not queue.length:
            self.emptied(interest, queue)
            return
        interest.found.append(queue)
        if interest.clients:
            queue.waiters[interest.stand_in] = None
        else:
            queue.waiters.pop(interest.stand_in, None)
            if not interest.wishes:
                return
        self._queues.ready.append(queue)

    def _search(self, left: int, by_names: bool) -> int:
        """Look at some of ``_names``, as much as looking at ``left`` queues takes; return what is
        left of that. ``by_names``: remember matching queues without jobs, too."""
        index = self._index
        empty = 0
        while self._names and left > 0:
            queue = self._queues.by_name.get(self._names.pop())
            if queue is None:
                continue
            index.spent = 0
            if queue.length:
                left -= 1
                self.note(queue)
                if queue.waiters:
                    self._queues.ready.append(queue)
            elif by_names:
                left -= 1
                for interest in self.matching(queue.name):
                    self._remember(interest, queue.name)
            else:
                empty += 1
                if not empty & _EMPTY:
                    left -= 1
            left -= index.spent
        return left

    def has_work(self) -> bool:
        """Whether there is more for ``work`` to do."""
        return bool(
            self._new or self._looking or self._searched < self._search_end or self._closing
        )

    def flush(self, interests: list[Interest]) -> None:
        """Start over: all queues have been forgotten. ``interests`` stay."""
        for interest in interests:
            interest.found.clear()
            interest.left = 0
        self._looking.clear()
        self._closing.clear()


def knows_only_extended(peers: Peers) -> bool:
    """Whether all other nodes know patterns; C nodes have to be asked for queues by name."""
    return all(map(peers.understands, peers.everyone()))
