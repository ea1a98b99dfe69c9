"""The patterns of queue names from which clients want jobs, their index, and the queues that have
jobs for them.

Each pattern is compared once, in slices, with all queues, and with each queue that gets jobs. A
queue has jobs for a pattern if its name matches (a glob, as in Redis). A queue that is new, or
has jobs again, is compared only with patterns whose start its name shares, so a thousand patterns
that begin differently cost no more than one.
"""

from bisect import insort
from collections import deque
from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.glob import MAX_WANTED, Glob, glob_prefix
from disque_trio.node.core.federation.exports import Wanted
from disque_trio.node.core.jobs.registry import SHARDS
from disque_trio.node.core.queues.need_jobs import Imports
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.queues import Queues
from disque_trio.node.core.shared.policies import DEAD_SUFFIX
from disque_trio.respserver.client import Client

_TURNS: Final = 1_000  # queues
MAX_NAME: Final = 1_000  # bytes; a longer name matches only stars
_MOST_REMEMBERED: Final = 10_000  # names and patterns

_QUICK: Final = 8  # to compare a name is as much work as for so many bytes of it,
_QUICK_SHIFT: Final = 3  # and to look at 8 of these takes a microsecond

STANDS_IN: Final = 8  # in a client's ``details``: it is a pattern's stand-in

# Behind a pattern, which is shorter: queues of dead letters do not match.
_BUT_DEAD: Final = b"\0" * (MAX_WANTED + 1)


def but_dead(pattern: bytes) -> bytes:
    """What to want in place of ``pattern`` for jobs of queues that are not of dead letters, that
    is, do not end in ``.dead``."""
    return pattern if pattern.endswith(DEAD_SUFFIX) else pattern + _BUT_DEAD


class Interest:
    """A pattern that is in use on this node.

    Args:
        wanted: the pattern, or what ``but_dead`` makes of it.

    Attributes:
        wanted: as given.
        pattern: as clients write it.
        but_dead: queues of dead letters do not match.
        number: never used again.
        alone: its number, as ``found_by`` of queues that no other pattern has found.
        glob: the pattern, read; None: not yet, it matches nothing.
        found: matching queues that have jobs, or had some when last looked at; the one to serve
            next comes first.
        left: how many of these to look at, because clients began to wait, or stopped.
        complete_at: the step of the search for queues after which all have been found.
        clients: those that wait, in the order of their arrival.
        consumers: how many clients have their jobs pushed, whether they wait or not.
        stand_in: waits for them in the queues whose jobs cannot be delivered now.
        dropped: it is no longer in use.
        used: when it was last wanted, in ms.
        imports: what this node knows of such jobs elsewhere; None: it never asked.
        asks_at: when to ask other nodes again, in ms; 0: never.
        emptied: names of some of the queues that had jobs.
        remote: what other nodes want, by their ids.
    """

    def __init__(self, wanted: bytes, number: int) -> None:
        self.wanted = wanted
        self.but_dead = len(wanted) > MAX_WANTED
        self.pattern = wanted[: -len(_BUT_DEAD)] if self.but_dead else wanted
        self.number = number
        self.alone: tuple[int, ...] = (number,)
        self.glob: Glob | None = None
        self.found: deque[Queue] = deque()
        self.left = 0
        self.complete_at = 0
        self.clients: dict[Client, None] = {}
        self.consumers = 0
        self.stand_in = Client(number)
        self.stand_in.details = STANDS_IN
        self.dropped = False
        self.used = 0
        self.imports: Imports | None = None
        self.asks_at = 0
        self.emptied: dict[bytes, None] = {}
        self.remote: dict[bytes, Wanted] = {}

    def put(self, queue: Queue) -> None:
        """Note that ``queue``, which matches, has jobs."""
        if not queue.found_by:
            queue.found_by = self.alone
        elif self.number in queue.found_by:
            return
        else:
            queue.found_by = (*queue.found_by, self.number)
        self.found.append(queue)

    def drop(self, queue: Queue) -> None:
        """Note that ``queue`` was taken out of ``found``."""
        if len(queue.found_by) == 1:
            queue.found_by = ()
        else:
            queue.found_by = tuple([number for number in queue.found_by if number != self.number])

    def had_turn(self, queue: Queue) -> None:
        """Let the others that were ``found`` come before ``queue``, which gave another node jobs:
        if these cannot be delivered there, the next ones should be of another queue."""
        known = self.number in queue.found_by
        if known and len(self.found) <= _TURNS:  # of more, a turn of the node looks at a part
            self.found.remove(queue)
            self.found.append(queue)

    def is_unused(self, now: int) -> bool:
        """Whether nobody wants jobs by this pattern at ``now`` (ms)."""
        for id in [id for id, wish in self.remote.items() if wish.until <= now]:
            del self.remote[id]
        return not (self.clients or self.consumers or self.remote)

    def matches(self, name: bytes) -> bool:
        """Whether the queue ``name`` is one of those wanted."""
        if self.glob is None or (self.but_dead and name.endswith(DEAD_SUFFIX)):
            return False
        return self.glob.matches(name)

    def since(self) -> int:
        """The number of the wait that began first."""
        for client in self.clients:
            return client.wait_number
        return 0


class InterestIndex:
    """Finds the patterns that match a name.

    Attributes:
        spent: how long that took beyond a few patterns and a short name, in about microseconds;
            the caller resets it.
    """

    def __init__(self) -> None:
        self.spent = 0
        self._by_prefix: dict[bytes, dict[Interest, None]] = {}
        self._lengths: list[int] = []  # of the prefixes, sorted, without duplicates
        self._counts: dict[int, int] = {}  # how many prefixes have a length
        # What was found for names since the last change: queues get many jobs, one by one.
        self._found: dict[bytes, list[Interest]] = {}
        self._remembered = 0  # how much that is

    def add(self, interest: Interest) -> None:
        """Read the pattern of ``interest``, and find it from now on."""
        self._found.clear()
        interest.glob = Glob(interest.pattern)
        prefix = glob_prefix(interest.pattern)
        interests = self._by_prefix.get(prefix)
        if interests is not None:
            interests[interest] = None
            return
        self._by_prefix[prefix] = {interest: None}
        length = len(prefix)
        if length not in self._counts:
            insort(self._lengths, length)
            self._counts[length] = 0
        self._counts[length] += 1

    def remove(self, interest: Interest) -> None:
        """Stop finding ``interest``."""
        if interest.glob is None:
            return
        self._found.clear()
        prefix = glob_prefix(interest.pattern)
        interests = self._by_prefix[prefix]
        del interests[interest]
        if interests:
            return
        del self._by_prefix[prefix]
        length = len(prefix)
        self._counts[length] -= 1
        if not self._counts[length]:
            del self._counts[length]
            self._lengths.remove(length)

    def matching(self, name: bytes) -> list[Interest]:
        """The interests whose patterns match ``name``. Do not change the list."""
        known = self._found.get(name)
        if known is not None:
            return known
        found: list[Interest] = []
        size = len(name)
        if size > MAX_NAME:
            interests = self._by_prefix.get(b"", {})
            stars = [interest for interest in interests if not interest.pattern.strip(b"*")]
            return [one for one in stars if not (one.but_dead and name.endswith(DEAD_SUFFIX))]
        for length in self._lengths:
            if length > size:
                break
            interests = self._by_prefix.get(name[:length], {})
            self.spent += len(interests) * (size + _QUICK) >> _QUICK_SHIFT
            found += [interest for interest in interests if interest.matches(name)]
        if not self._found or self._remembered > _MOST_REMEMBERED:
            self._found.clear()
            self._remembered = 0
        self._found[name] = found
        self._remembered += 1 + len(found)
        return found


NAMES: Final = 20  # queues without jobs to remember for a pattern
_EMPTY: Final = 15  # looking at 16 queues without jobs takes as long as at one with jobs
_READING: Final = 50  # how many queues could be looked at while a pattern is read


class ReadyQueues:
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
            elif interest.remote:
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
                    shard = shards[self._searched % SHARDS]
                    if not shard:
                        self._searched += 1
                        continue
                    self._names = list(shard)
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
            if not interest.remote:
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
