"""Wait lists of clients that wait for events, and the times of their next polls.

Consumers of one group that wait for events of one queue are in a ``WaitList``: those that take the
next event (QGET with BLOCK) in the order of their arrival, and those that only want to know that
there is one (QNOTIFY). Polling a list means asking the store whether there is an event.
"""

from heapq import heappop, heappush
from typing import Final

from disque_bananaq.core.requests import Get
from disque_trio.respserver.client import Client

_MANY_TIMERS: Final = 1000


class Waiter:
    """A client that waits for an event.

    Args:
        once: stop waiting when each queue was polled once in vain.

    Attributes:
        client: the client.
        group: its group.
        queues: the queues, any of which will do.
        get: how it takes the event; None: it only gets the name of the queue.
        unpolled: how many queues have not been polled for it yet.
        taking: a poll that takes an event for it is in progress.
        over: it timed out during that poll.
        gone: it no longer waits.
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
        getters, listeners: the waiters, in the order of their arrival.
        unpolled: those of them for which the list has not been polled yet.
        ready: the list is about to be polled.
        polling: a poll is in progress.
        again: poll again after that.
        poll_at: when to poll at the latest, in ms; 0: no time is set.
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
        """Return the wait list of ``group`` for ``queue``, if there is one."""
        lists = self._queues.get(queue)
        return None if lists is None else lists.get(group)

    def of(self, queue: bytes, group: bytes | None) -> list[WaitList]:
        """Return the wait lists for ``queue``: that of ``group``, or all of them if None."""
        lists = self._queues.get(queue)
        if lists is None:
            return []
        if group is None:
            return list(lists.values())
        found = lists.get(group)
        return [] if found is None else [found]

    def make(self, queue: bytes, group: bytes) -> WaitList:
        """Return the wait list of ``group`` for ``queue``; make it if necessary."""
        lists = self._queues.get(queue)
        if lists is None:
            lists = self._queues[queue] = {}
        found = lists.get(group)
        if found is None:
            found = lists[group] = WaitList(queue, group)
        return found

    def drop(self, wait_list: WaitList) -> None:
        """Drop ``wait_list`` if it is empty and no poll is due or in progress."""
        if not wait_list.empty or wait_list.polling or wait_list.ready:
            return
        lists = self._queues.get(wait_list.queue)
        if lists is not None and lists.get(wait_list.group) is wait_list:
            wait_list.poll_at = 0
            del lists[wait_list.group]
            if not lists:
                del self._queues[wait_list.queue]


class PollTimers:
    """The times at which to poll wait lists even if nothing is reported."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, WaitList]] = []  # ms, number, list
        self._most = _MANY_TIMERS
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, wait_list: WaitList, at: int, now: int) -> None:
        """Poll ``wait_list`` at ``at`` (ms), unless an earlier time is set."""
        if wait_list.poll_at != 0 and at >= wait_list.poll_at > now:
            return
        wait_list.poll_at = at
        self._numbers += 1
        heap = self._heap
        heappush(heap, (at, self._numbers, wait_list))
        if len(heap) > self._most:
            # Timers of dropped lists stay behind; they must not pile up.
            heap[:] = sorted(timer for timer in heap if timer[2].poll_at == timer[0])
            self._most = max(_MANY_TIMERS, 2 * len(heap))

    def due(self, now: int) -> list[WaitList]:
        """Remove and return the wait lists to be polled at ``now`` (ms)."""
        found: list[WaitList] = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, _, wait_list = heappop(heap)
            if wait_list.poll_at == at:
                wait_list.poll_at = 0
                found.append(wait_list)
        return found

    def next_due(self) -> int:
        """Return when the next one is due, in ms; 0: none is set."""
        heap = self._heap
        while heap and heap[0][2].poll_at != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else 0
