"""What became of tasks, counted: in a worker process since it last told, in the parent in all."""

from bisect import bisect_left
from collections import defaultdict
from typing import Any

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram in seconds; what is above all of them is in one more."""

MOST = 1000
"""Names of tasks that are told apart: jobs may name what they like. The others are ``OTHER``."""

OTHER = "other"


class Seconds:
    """A histogram of seconds.

    Attributes:
        counts: how many were in each bucket. total: their sum in seconds.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class Tally:
    """Counts of tasks.

    Attributes:
        counts: how many, by task, queue and outcome. seconds: how long they took, by task.
    """

    def __init__(self) -> None:
        self.counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self.seconds: defaultdict[str, Seconds] = defaultdict(Seconds)

    def add(self, task: str, queue: str, outcome: str, seconds: float) -> None:
        """Count one."""
        task = self._name(task)
        self.counts[task, queue, outcome] += 1
        self.seconds[task].add(seconds)

    def of(self, outcome: str) -> int:
        """How many had this outcome."""
        return sum(count for key, count in self.counts.items() if key[2] == outcome)

    @property
    def all(self) -> int:
        """How many there were."""
        return sum(self.counts.values())

    def take(self) -> dict[str, Any]:
        """All that was counted, for ``merge`` by way of JSON, and begin anew."""
        taken = {
            "counts": [[*key, count] for key, count in self.counts.items()],
            "seconds": {name: [each.total, *each.counts] for name, each in self.seconds.items()},
        }
        self.counts.clear()
        self.seconds.clear()
        return taken

    def merge(self, taken: dict[str, Any]) -> None:
        """Add what another one has counted."""
        for task, (total, *counts) in taken["seconds"].items():
            mine = self.seconds[self._name(task)]
            mine.total += total
            mine.counts = [a + b for a, b in zip(mine.counts, counts, strict=True)]
        for task, queue, outcome, count in taken["counts"]:
            self.counts[self._name(task), queue, outcome] += count

    def _name(self, task: str) -> str:
        return task if task in self.seconds or len(self.seconds) < MOST else OTHER
