"""Wait lists of clients that wait for events, and the times of their next polls.

A ``WaitList`` is what the consumers of one group wait in for events of one queue: those that take
the next event (QGET with BLOCK) in the order in which they came, and those that only want to know
that there is one (QNOTIFY). To poll it is to ask the store whether there is an event.
"""

from heapq import heappop, heappush
from typing import Final

from disque_trio.bananaq.core.requests import Get
from disque_trio.respserver.client import Client

_MANY_TIMERS: Final = 1000


class Waiter:
    """A client that waits for an event.

    Args:
        once: it does not wait when the first poll of each queue was in vain.

    Attributes:
        client: the client.
        group: its group. queues: the queues, any of which will do.
        get: how it takes the event; None: it is told the name of the queue.
        unpolled: how many queues have not been polled for it yet.
        taking: a poll that takes an event for it is under way.
        over: its time was over meanwhile.
        gone: it waits no more.
    """

    __slots__ = ("client", "get", "gone", "group", "once", "over", "queues", "taking", "unpolled")

    def __init__(
        self,
        client: Client,
        group: bytes,
        queues: list[bytes],
        get: Get | None = None,
        once: bool = False,
    ) -> None:
        self.client = client
        self.group = group
        self.queues = queues
        self.get = get
        self.unpolled = len(queues)
        self.once = once
        self.taking = False
        self.over = False
        self.gone = False


class WaitList:
    """The clients of ``group`` that wait for events of ``queue``.

    Attributes:
        getters, listeners: waiters in the order in which they came.
        unpolled: those of them that it has not been polled for yet.
        ready: it is to be polled soon.
        polling: a poll is under way. again: it has to be polled again after that.
        poll_at: when it is polled in any case, ms; 0: no time is set.
    """

    __slots__ = (
        "again",
        "getters",
        "group",
        "listeners",
        "poll_at",
        "polling",
        "queue",
        "ready",
        "unpolled",
    )

    def __init__(self, queue: bytes, group: bytes) -> None:
        self.queue = queue
        self.group = group
        self.getters: dict[Waiter, None] = {}
        self.listeners: dict[Waiter, None] = {}
        self.unpolled: list[Waiter] = []
        self.ready = False
        self.polling = False
        self.again = False
        self.poll_at = 0

    def add(self, waiter: Waiter) -> None:
        """Add ``waiter``."""
        if waiter.get is not None:
            self.getters[waiter] = None
        else:
            self.listeners[waiter] = None
        self.unpolled.append(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Remove ``waiter``."""
        self.getters.pop(waiter, None)
        self.listeners.pop(waiter, None)

    @property
    def empty(self) -> bool:
        """Whether nobody waits."""
        return not self.getters and not self.listeners


class WaitLists:
    """All wait lists, by queue and group."""

    def __init__(self) -> None:
        self._queues: dict[bytes, dict[bytes, WaitList]] = {}

    def get(self, queue: bytes, group: bytes) -> WaitList | None:
        """The wait list of ``group`` for ``queue``, if there is one."""
        lists = self._queues.get(queue)
        return None if lists is None else lists.get(group)

    def of(self, queue: bytes, group: bytes | None) -> list[WaitList]:
        """The wait lists for ``queue``: that of ``group``, if there is one; None: all of them."""
        lists = self._queues.get(queue)
        if lists is None:
            return []
        if group is None:
            return list(lists.values())
        found = lists.get(group)
        return [] if found is None else [found]

    def make(self, queue: bytes, group: bytes) -> WaitList:
        """The wait list of ``group`` for ``queue``, made if need be."""
        lists = self._queues.get(queue)
        if lists is None:
            lists = self._queues[queue] = {}
        found = lists.get(group)
        if found is None:
            found = lists[group] = WaitList(queue, group)
        return found

    def drop(self, wait_list: WaitList) -> None:
        """Forget ``wait_list`` if nobody is in it and no poll is to come or under way."""
        if not wait_list.empty or wait_list.polling or wait_list.ready:
            return
        lists = self._queues.get(wait_list.queue)
        if lists is not None and lists.get(wait_list.group) is wait_list:
            wait_list.poll_at = 0
            del lists[wait_list.group]
            if not lists:
                del self._queues[wait_list.queue]


class PollTimers:
    """The times at which wait lists are polled even though nothing was reported."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, WaitList]] = []  # ms, number, list
        self._most = _MANY_TIMERS
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, wait_list: WaitList, at: int, now: int) -> None:
        """Poll ``wait_list`` at ``at`` (ms), if that is earlier than what was set before."""
        if wait_list.poll_at != 0 and at >= wait_list.poll_at > now:
            return
        wait_list.poll_at = at
        self._numbers += 1
        heap = self._heap
        heappush(heap, (at, self._numbers, wait_list))
        if len(heap) > self._most:
            # Those of lists that are gone stay behind; they must not pile up.
            heap[:] = sorted(timer for timer in heap if timer[2].poll_at == timer[0])
            self._most = max(_MANY_TIMERS, 2 * len(heap))

    def due(self, now: int) -> list[WaitList]:
        """Take out the wait lists that have to be polled at ``now`` (ms)."""
        found: list[WaitList] = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, _, wait_list = heappop(heap)
            if wait_list.poll_at == at:
                wait_list.poll_at = 0
                found.append(wait_list)
        return found

    def next_due(self) -> int:
        """When the next one is due, ms; 0: none is set."""
        heap = self._heap
        while heap and heap[0][2].poll_at != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else 0
