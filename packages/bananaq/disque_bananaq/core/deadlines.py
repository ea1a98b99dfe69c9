"""Timers for missed deadlines of deliveries and for the expiry of events.

Most deliveries are acknowledged long before their deadline, so adding and removing one are both
cheap and leave nothing behind. Time is divided into buckets: lists in which each item knows its
place, so that it can be removed by swapping it with the last one. Near buckets are one millisecond
long. Items due later are in far buckets of about four seconds, which are spread over near ones when
their time comes. So timers an hour ahead need a thousand buckets, not millions.
"""

from heapq import heappop, heappush
from typing import Final

_FAR: Final = 12  # a far bucket is 4096 ms


class Timed:
    """An object with a time.

    Attributes:
        when: the time, in µs since the epoch.
        slot, bucket: its place in a ``Deadlines``; bucket None: it is in none.
    """

    __slots__ = ("bucket", "slot", "when")

    def __init__(self, when: int) -> None:
        self.when = when
        self.slot = 0
        self.bucket: list[Timed] | None = None


class Deadlines:
    """Timed objects in buckets, each due in the first millisecond that is not before its time."""

    def __init__(self) -> None:
        self._near: dict[int, list[Timed]] = {}  # by ms
        self._near_order: list[int] = []  # heap of the keys
        self._far: dict[int, list[Timed]] = {}  # by ms >> _FAR
        self._far_order: list[int] = []
        # The first far bucket, looked up lately. One that is no longer in ``_far`` stays empty.
        self._first = 0
        self._first_bucket: list[Timed] = []
        self._horizon = 0  # far buckets up to here are spread, or about to be

    def add(self, item: Timed) -> None:
        """Add ``item``, which must be in no ``Deadlines``, at its ``when``."""
        ms = (item.when + 999) // 1000
        far = ms >> _FAR
        if far <= self._horizon:
            _put(self._near, self._near_order, ms, item)
        else:
            _put(self._far, self._far_order, far, item)

    def remove(self, item: Timed) -> None:
        """Remove ``item``; does nothing if it is in no bucket."""
        bucket = item.bucket
        if bucket is None:
            return
        last = bucket.pop()
        if last is not item:
            bucket[item.slot] = last
            last.slot = item.slot
        item.bucket = None

    def is_due(self, now: int) -> bool:
        """Return whether ``due`` has something to do at ``now`` (ms)."""
        return (len(self._near_order) > 0 and self._near_order[0] <= now) or (
            len(self._far_order) > 0 and self._far_order[0] <= (now >> _FAR) + 1
        )

    def next_due(self) -> int:
        """Return when ``due`` has something to do, in ms; 0: not before something is added."""
        order = self._near_order
        near = self._near
        while order and not near[order[0]]:
            del near[heappop(order)]
        far_order = self._far_order
        if far_order and not (far_order[0] == self._first and self._first_bucket):
            far = self._far
            while far_order and not far[far_order[0]]:
                del far[heappop(far_order)]
            if far_order:
                self._first = far_order[0]
                self._first_bucket = far[self._first]
        first = order[0] if order else 0
        if far_order:
            spread = max((far_order[0] - 1) << _FAR, 1)
            if first == 0 or spread < first:
                first = spread
        return first

    def due(self, now: int, limit: int) -> list[Timed]:
        """Remove and return what is due at ``now`` (ms), looking at ``limit`` items at most."""
        found: list[Timed] = []
        left = limit
        horizon = (now >> _FAR) + 1
        if horizon > self._horizon:
            self._horizon = horizon
        far_order = self._far_order
        while far_order and far_order[0] <= horizon and left > 0:
            bucket = self._far[far_order[0]]
            while bucket and left > 0:
                item = bucket.pop()
                left -= 1
                ms = (item.when + 999) // 1000
                if ms <= now:
                    item.bucket = None
                    found.append(item)
                else:
                    _put(self._near, self._near_order, ms, item)
            if not bucket:
                del self._far[heappop(far_order)]
                left -= 1
        order = self._near_order
        while order and order[0] <= now and left > 0:
            bucket = self._near[order[0]]
            while bucket and left > 0:
                item = bucket.pop()
                left -= 1
                item.bucket = None
                found.append(item)
            if not bucket:
                del self._near[heappop(order)]
                left -= 1
        return found


def _put(buckets: dict[int, list[Timed]], order: list[int], number: int, item: Timed) -> None:
    """Put ``item`` into the bucket ``number``, which is made if necessary."""
    bucket = buckets.get(number)
    if bucket is None:
        bucket = []
        buckets[number] = bucket
        heappush(order, number)
    item.slot = len(bucket)
    item.bucket = bucket
    bucket.append(item)
