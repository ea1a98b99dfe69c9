"""What a worker has done, counted: in a worker process since it last told, in the parent in all."""

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
"""Names of tasks that are told apart: jobs may name what they like. The others are ``OTHER``."""

LONGEST = 200
"""Characters of such a name; longer ones are ``OTHER``, too."""

OTHER = "other"


class Tally:
    """Counts of tasks and of jobs.

    Attributes:
        counts: how many runs, by task, queue and outcome. seconds: how long they took, by task.
        waited: s that slots have waited for a job, all of them together.
        errors: how often no job could be taken.
        last_job: when the last one was taken, s since the epoch; 0: none was.
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
        """Add what another one has counted."""
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
    """Adds up how long slots wait, also those that still do.

    Args:
        tally: where it is counted.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._waiting = 0
        self._since = 0.0

    def begin(self, now: float) -> None:
        """A slot begins to wait at ``now`` (s, by any clock)."""
        self.count(now)
        self._waiting += 1

    def end(self, now: float) -> None:
        """One waits no longer."""
        self.count(now)
        self._waiting -= 1

    def count(self, now: float) -> None:
        """Count what was waited until now."""
        self._tally.waited += self._waiting * (now - self._since)
        self._since = now
