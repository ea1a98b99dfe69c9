"""A pattern of queue names from which clients want jobs, and the index of all patterns in use.

A queue has jobs for a pattern if its name matches (a glob, as in Redis). A queue that is new, or
has jobs again, is compared only with patterns whose start its name shares, so a thousand patterns
that begin differently cost no more than one.
"""

from bisect import insort
from collections import deque
from typing import Final

from disque_trio.glob import Glob, glob_prefix
from disque_trio.node.core.federation.exports import Wanted
from disque_trio.node.core.queues.need_jobs import Imports
from disque_trio.node.core.queues.queue import Queue
from disque_trio.respserver.client import Client

MAX_PATTERN: Final = 255  # bytes, as of a topic
MAX_JOKERS: Final = 32  # stars and classes in a pattern: each makes it more expensive
MAX_NAME: Final = 1_000  # bytes; a longer name matches only stars
_MOST_REMEMBERED: Final = 10_000  # names and patterns

_QUICK: Final = 8  # to compare a name is as much work as for so many bytes of it,
_QUICK_SHIFT: Final = 3  # and to look at 8 of these takes a microsecond

STANDS_IN: Final = 8  # in a client's ``details``: it is a pattern's stand-in


class Interest:
    """A pattern that is in use on this node.

    Attributes:
        pattern: as clients write it.
        number: never used again.
        alone: its number, as ``found_by`` of queues that no other pattern has found.
        glob: the pattern, read; None: not yet, it matches nothing.
        found: matching queues that have jobs, or had some when last looked at; the one to serve
            next comes first.
        left: how many of these to look at, because clients began to wait, or stopped.
        complete_at: the step of the search for queues after which all have been found.
        clients: those that wait, in the order of their arrival.
        stand_in: waits for them in the queues whose jobs cannot be delivered now.
        dropped: it is no longer in use.
        used: when it was last wanted, in ms.
        imports: what this node knows of such jobs elsewhere; None: it never asked.
        asks_at: when to ask other nodes again, in ms; 0: never.
        emptied: names of some of the queues that had jobs.
        wishes: what other nodes want, by their ids.
    """

    def __init__(self, pattern: bytes, number: int) -> None:
        self.pattern = pattern
        self.number = number
        self.alone: tuple[int, ...] = (number,)
        self.glob: Glob | None = None
        self.found: deque[Queue] = deque()
        self.left = 0
        self.complete_at = 0
        self.clients: dict[Client, None] = {}
        self.stand_in = Client(number)
        self.stand_in.details = STANDS_IN
        self.dropped = False
        self.used = 0
        self.imports: Imports | None = None
        self.asks_at = 0
        self.emptied: dict[bytes, None] = {}
        self.wishes: dict[bytes, Wanted] = {}

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

    def is_unused(self, now: int) -> bool:
        """Whether nobody wants jobs by this pattern at ``now`` (ms)."""
        for id in [id for id, wish in self.wishes.items() if wish.until <= now]:
            del self.wishes[id]
        return not self.clients and not self.wishes

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
            return [interest for interest in interests if not interest.pattern.strip(b"*")]
        for length in self._lengths:
            if length > size:
                break
            interests = self._by_prefix.get(name[:length], {})
            self.spent += len(interests) * (size + _QUICK) >> _QUICK_SHIFT
            for interest in interests:
                glob = interest.glob
                if glob is not None and glob.matches(name):
                    found.append(interest)
        if not self._found or self._remembered > _MOST_REMEMBERED:
            self._found.clear()
            self._remembered = 0
        self._found[name] = found
        self._remembered += 1 + len(found)
        return found


def pattern_problem(pattern: bytes) -> str:
    """Return why ``pattern`` is not valid for GETJOB; empty: it is."""
    if not 0 < len(pattern) <= MAX_PATTERN:
        return f"a pattern must have 1 to {MAX_PATTERN} bytes"
    if pattern.count(b"*") + pattern.count(b"[") > MAX_JOKERS:
        return f"a pattern may have at most {MAX_JOKERS} stars and classes"
    return ""
