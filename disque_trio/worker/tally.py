"""Counts what a worker has done: in a process since its last report, in the parent in total."""

from collections import defaultdict
from typing import Any, Final

from disque_trio.histogram import Histogram

US: Final = 1_000_000
_TIMES: Final = tuple(
    int(seconds * US)
    for seconds in (
        *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
    )
)

MOST = 1000
"""The most names of tasks to count separately, since jobs may name any. Others are ``OTHER``."""

LONGEST = 200
"""The most characters of such a name; longer ones are also ``OTHER``."""

OTHER = "other"


class Tally:
    """Counts of tasks and of jobs.

    Attributes:
        counts: the number of runs, by task, queue and outcome.
        seconds: how long runs took, by task.
        waited: seconds that slots have waited for jobs, all of them together.
        errors: how often no job could be taken.
        last_job: when the last job was taken, in seconds since the epoch; 0: none was.
    """

    def __init__(self) -> None:
        self.counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self.seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(_TIMES, US))
        self.waited = 0.0
        self.errors = 0
        self.last_job = 0.0

    def add(self, task: str, queue: str, outcome: str, seconds: float) -> None:
        """Count a run."""
        task = self._name(task)
        self.counts[task, queue, outcome] += 1
        self.seconds[task].observe(int(seconds * US))

    def of(self, outcome: str) -> int:
        """Return how many runs had this outcome."""
        return sum(count for key, count in self.counts.items() if key[2] == outcome)

    @property
    def all(self) -> int:
        """The number of all runs."""
        return sum(self.counts.values())

    def take(self) -> dict[str, Any]:
        """Return all counts for ``merge``, as values for JSON, and start again from zero."""
        taken = {
            "counts": [[*key, count] for key, count in self.counts.items()],
            "seconds": {name: [each.sum, *each.counts] for name, each in self.seconds.items()},
            "waited": self.waited,
            "errors": self.errors,
            "last_job": self.last_job,
        }
        self.counts.clear()
        self.seconds.clear()
        self.waited = 0.0
        self.errors = 0
        return taken

    def merge(self, taken: dict[str, Any]) -> None:
        """Add the counts of another tally."""
        for task, (total, *counts) in taken["seconds"].items():
            mine = self.seconds[self._name(task)]
            mine.sum += total
            mine.counts = [a + b for a, b in zip(mine.counts, counts, strict=True)]
        for task, queue, outcome, count in taken["counts"]:
            self.counts[self._name(task), queue, outcome] += count
        self.waited += taken["waited"]
        self.errors += taken["errors"]
        self.last_job = max(self.last_job, taken["last_job"])

    def _name(self, task: str) -> str:
        if task in self.seconds:
            return task
        return task if len(self.seconds) < MOST and len(task) <= LONGEST else OTHER


class Waits:
    """Adds up how long slots wait, including those that are still waiting.

    Args:
        tally: gets the sum.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._waiting = 0
        self._since = 0.0

    def begin(self, now: float) -> None:
        """Note that a slot begins to wait at ``now`` (s, by any clock)."""
        self.count(now)
        self._waiting += 1

    def end(self, now: float) -> None:
        """Note that a slot no longer waits."""
        self.count(now)
        self._waiting -= 1

    def count(self, now: float) -> None:
        """Count the waits until now."""
        self._tally.waited += self._waiting * (now - self._since)
        self._since = now
