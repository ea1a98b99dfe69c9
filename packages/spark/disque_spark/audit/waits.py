"""Counts the jobs that are in queues at the end of the logs, and since when the oldest is."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

# By kind (WAITING, WAITING_LETTER, or UNSURE: those of both whose node was started again since, and
# has lost them if they are not in its file) and queue: the number of jobs, and since when (ms) the
# oldest is in the queue.
Waits = dict[str, dict[str, list[int]]]
UNSURE = "unsure"
MOST_QUEUES = 1000  # of a kind; the others are counted as OTHERS
OTHERS = ""


class Waiting(NamedTuple):
    """Jobs that wait.

    Attributes:
        jobs: number of jobs.
        since: when the oldest came into its queue, ms; 0: there are none.
        queue: the queue of that one.
    """

    jobs: int = 0
    since: int = 0
    queue: str = OTHERS


def add_waits(waits: Waits, more: Mapping[str, Mapping[str, Iterable[int]]]) -> None:
    """Add ``more`` to ``waits``."""
    for kind, queues in more.items():
        known = waits.setdefault(kind, {})
        for queue, (jobs, since) in queues.items():
            place = queue if queue in known or len(known) < MOST_QUEUES else OTHERS
            before = known.setdefault(place, [0, since])
            known[place] = [before[0] + jobs, min(before[1], since)]


def waiting_of(waits: Mapping[str, Mapping[str, Iterable[int]]], kind: str) -> Waiting:
    """All jobs of a kind."""
    total, oldest, where = 0, 0, OTHERS
    for queue, (jobs, since) in waits.get(kind, {}).items():
        if not total or since < oldest:
            oldest, where = since, queue
        total += jobs
    return Waiting(total, oldest, where)
