"""Histograms of durations."""

from bisect import bisect_left
from typing import Final


class Histogram:
    """Counts durations by range.

    Args:
        bounds: the upper ends of the ranges, ascending; values above the last one count, too.
        per_second: how many units of ``bounds`` and of observed values make a second.

    Attributes:
        bounds, per_second: as given.
        counts: number of values in each range; one more than there are bounds.
        sum: of all observed values.
    """

    __slots__ = ("bounds", "counts", "per_second", "sum")

    def __init__(self, bounds: tuple[int, ...], per_second: int) -> None:
        self.bounds = bounds
        self.per_second = per_second
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0

    def observe(self, value: int) -> None:
        """Count ``value``."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


MS: Final = 1_000
NS: Final = 1_000_000_000

JOB_TIMES: Final = (5, 25, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 1_800_000, 7_200_000)
"""For waiting and processing, in ms."""
STEP_TIMES: Final = (
    *(10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000),
    *(10_000_000, 25_000_000, 100_000_000, 500_000_000, 1_000_000_000),
)
"""For commands and turns, in ns."""
DISK_TIMES: Final = (
    *(500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000),
    *(100_000_000, 250_000_000, 1_000_000_000, 5_000_000_000),
)
"""For waits for a disk or a network, in ns."""
