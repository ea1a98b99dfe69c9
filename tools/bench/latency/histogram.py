"""A histogram of times with buckets that grow with the time, so that nothing is lost at either end.

A power of two is cut into ``PARTS`` equal buckets: a time is known to within 0.8 percent of it,
whether it is a microsecond or a minute, and a million of them need no more memory than ten.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

PARTS: Final = 128
_BITS: Final = PARTS.bit_length() - 1


def bucket(nanoseconds: int) -> int:
    """The number of the bucket that a time (ns, not negative) falls into."""
    if nanoseconds < 2 * PARTS:
        return nanoseconds
    shift = nanoseconds.bit_length() - 1 - _BITS
    return (shift << _BITS) + (nanoseconds >> shift)


def upper_end(number: int) -> int:
    """The longest time (ns) of a bucket."""
    if number < 2 * PARTS:
        return number
    shift = (number >> _BITS) - 1
    return (((number & (PARTS - 1)) | PARTS) + 1 << shift) - 1


class Histogram:
    """So many times in each bucket.

    Attributes:
        counts: by number of the bucket.
        total: all of them.
        worst: the longest time (s), exactly.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0
        self.worst = 0.0

    def record(self, seconds: Iterable[float]) -> None:
        """Adds times; what is below zero by an error of the clock counts as zero."""
        counts = self.counts
        for time in seconds:
            number = bucket(max(0, round(time * 1e9)))
            counts[number] = counts.get(number, 0) + 1
            self.total += 1
            if time > self.worst:
                self.worst = time

    def percentile(self, fraction: float) -> float:
        """The time (s) that this part of all is not above, by nearest rank.

        Raises ValueError when there are no times.
        """
        if not self.total:
            raise ValueError("no percentile of an empty histogram")
        rank = max(1, math.ceil(fraction * self.total))
        if rank == self.total:
            return self.worst
        seen = 0
        for number in sorted(self.counts):
            seen += self.counts[number]
            if seen >= rank:
                return min(upper_end(number) / 1e9, self.worst)
        raise AssertionError("the counts are not the total")

    def as_data(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {
            "counts": {str(k): self.counts[k] for k in sorted(self.counts)},
            "worst": self.worst,
        }

    @classmethod
    def from_data(cls, counts: Mapping[str, int], worst: float) -> Histogram:
        """What ``as_data`` gave."""
        made = cls()
        made.counts = {int(number): count for number, count in counts.items()}
        made.total = sum(made.counts.values())
        made.worst = worst
        return made
