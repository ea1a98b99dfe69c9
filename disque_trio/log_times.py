"""Durations counted in ranges that double: a few dozen numbers say how long things take, from a
millisecond to days, and those of several nodes are merged by adding them.

Element ``i`` of ``counts`` is the number of durations from 2**(i-1) ms up to 2**i ms; element 0
that of durations below 1 ms. Zeros at the end are left out, so lists differ in length.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final

MOST: Final = 31
"""Elements; the last one also counts everything longer, that is from six days on."""


def merge(*parts: Iterable[int]) -> list[int]:
    """The durations of several sources together."""
    return [sum(column) for column in zip_longest(*parts, fillvalue=0)]


def grown(now: Sequence[int], before: Sequence[int]) -> list[int]:
    """What has been counted since it was ``before``; everything if the counter began again."""
    if any(new < old for new, old in zip_longest(now, before, fillvalue=0)):
        return list(now)
    found = [new - old for new, old in zip_longest(now, before, fillvalue=0)]
    while found and not found[-1]:
        found.pop()
    return found


def quantile(counts: Sequence[float], share: float) -> float | None:
    """The duration in ms that ``share`` (0 to 1) of all do not exceed, as if those of a range were
    spread evenly over it; None: there are none."""
    total = sum(counts)
    if not total:
        return None
    wanted = share * total
    seen = 0.0
    for index, count in enumerate(counts):
        if count and seen + count >= wanted:
            low = 0 if index == 0 else 1 << (index - 1)
            return low + ((1 << index) - low) * max(wanted - seen, 0) / count
        seen += count
    return float(1 << (len(counts) - 1))
