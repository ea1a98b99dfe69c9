"""Timers for jobs, in buckets of time.

Most jobs are added, taken and acknowledged long before their time. So adding and removing must both
be cheap and leave nothing behind. With a heap, removing is expensive, or lazy (a job that was
acknowledged at once would be kept until its retry time). Here, time is cut into buckets of 32 ms. A
bucket is a list in which each job knows its index, so it can be removed by swapping it with the
last one. Only the numbers of buckets are in a heap.

Jobs that stay where they are for long can be in a lot: a bucket whose time never comes, as somebody
else looks after it (see ``lifecycle.lots``). Whatever happens to such a job takes it out again, as
out of any bucket.
"""

from heapq import heappop, heappush
from typing import Final

from disque_trio.node.core.jobs.job import Job

# Uncompiled, an int is an object of 32 bytes; these exist only once.
_MANY: Final = 8192
_SLOTS: Final = list(range(_MANY))

_SHIFT: Final = 5  # a bucket is 32 ms, so a timer is late by at most that much
_RECENT: Final = 32  # buckets; jobs of the same time and retry time are spread over some 16
_PLACES: Final = _RECENT - 1
IN_LOT: Final = 1 << 49  # ``awake`` of a job in a lot, at least: thousands of years
_FIRST_LOT: Final = IN_LOT >> _SHIFT


class JobTimers:
    """Holds the jobs of a node by the time of their next check."""

    def __init__(self) -> None:
        self._buckets: dict[int, list[Job]] = {}
        self._order: list[int] = []  # heap of the buckets' numbers
        # The buckets that jobs were put into lately, each at its number's place: they are found
        # much faster there.
        self._numbers = [-1] * _RECENT
        self._recent: list[list[Job]] = [[] for _ in range(_RECENT)]
        self._lots = 0

    def add(self, job: Job, awake: int) -> None:
        """Add ``job``, which must not be in the timers, to be looked at at ``awake`` (ms, not
        0)."""
        job.awake = awake
        number = awake >> _SHIFT
        place = number & _PLACES
        if self._numbers[place] == number:
            bucket = self._recent[place]
        else:
            found = self._buckets.get(number)
            if found is None:
                found = self._buckets[number] = []
                heappush(self._order, number)
            bucket = self._recent[place] = found
            self._numbers[place] = number
        slot = len(bucket)
        job.slot = _SLOTS[slot] if slot < _MANY else slot
        bucket.append(job)

    def remove(self, job: Job) -> None:
        """Remove ``job``, if it is in the timers."""
        if job.awake == 0:
            return
        number = job.awake >> _SHIFT
        place = number & _PLACES
        bucket = self._recent[place] if self._numbers[place] == number else self._buckets[number]
        last = bucket.pop()
        if last is not job:
            bucket[job.slot] = last
            last.slot = job.slot
        job.awake = 0

    def move(self, job: Job, awake: int) -> None:
        """Look at ``job`` at ``awake`` instead."""
        if job.awake >> _SHIFT == awake >> _SHIFT and job.awake:
            job.awake = awake
            return
        self.remove(job)
        self.add(job, awake)

    def next_due(self) -> int:
        """Return when ``due`` next returns something, in ms; 0: never."""
        order = self._order
        buckets = self._buckets
        while order:
            if buckets[order[0]]:
                return (order[0] + 1) << _SHIFT
            self._drop_first()
        return 0

    def _drop_first(self) -> None:
        """Remove the first bucket."""
        number = heappop(self._order)
        del self._buckets[number]
        self._forget(number & _PLACES)

    def _forget(self, place: int) -> None:
        """Forget the recent bucket at ``place``."""
        self._numbers[place] = -1
        self._recent[place] = []

    def due(self, now: int, limit: int) -> list[Job]:
        """Take out up to ``limit`` jobs whose time has come by ``now`` (ms).

        Buckets are returned whole, after their last millisecond has passed.
        """
        found: list[Job] = []
        order = self._order
        while order and (order[0] + 1) << _SHIFT <= now and len(found) < limit:
            bucket = self._buckets[order[0]]
            room = limit - len(found)
            if len(bucket) <= room:
                found += bucket
                self._drop_first()
            else:
                found += bucket[-room:]
                del bucket[-room:]
        for job in found:
            job.awake = 0
        return found

    def numbers(self, below: int) -> list[int]:
        """The numbers of the buckets that are no lots, the last one first; those that are less than
        ``below``, or all if that is 0."""
        below = below or _FIRST_LOT
        found = [number for number in self._buckets if number < below]
        found.sort(reverse=True)
        return found

    def in_bucket(self, number: int) -> list[Job]:
        """The jobs in a bucket."""
        return list(self._buckets[number])

    def make_lot(self) -> int:
        """Make a lot, and return the number of its bucket."""
        self._lots += 1
        number = _FIRST_LOT + self._lots
        self._buckets[number] = []
        return number

    def put_in_lot(self, job: Job, lot: int) -> None:
        """Put ``job`` into the lot whose bucket has this number."""
        self.move(job, lot << _SHIFT)

    def awake_in(self, lot: int) -> int:
        """``Job.awake`` of the jobs in a lot."""
        return lot << _SHIFT

    def lot_size(self, lot: int) -> int:
        """The number of jobs in a lot."""
        return len(self._buckets[lot])

    def lot_of(self, job: Job) -> int:
        """The number of the bucket of the lot that ``job`` is in; 0: it is in none."""
        return job.awake >> _SHIFT if job.awake >= IN_LOT else 0

    def drop_lot(self, lot: int) -> list[Job]:
        """Take all jobs out of a lot, which is no more."""
        found = self._buckets.pop(lot)
        self._forget(lot & _PLACES)
        for job in found:
            job.awake = 0
        return found

    def hand_over(self) -> list[list[Job]]:
        """Remove all jobs, which must not be added again, and return them."""
        buckets = list(self._buckets.values())
        self._buckets.clear()
        self._order.clear()
        for place in range(_RECENT):
            self._forget(place)
        return buckets


def sooner(due: int, other: int) -> int:
    """The earlier of two times (ms), where 0 means never."""
    return other if other and (due == 0 or other < due) else due
