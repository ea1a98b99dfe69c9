"""What is wrong with a queue, as seen over all nodes: jobs wait, and nobody takes them.

A node knows only its own part of a queue, so whoever asks all of them decides.
"""

from collections.abc import Iterator
from typing import NamedTuple

from disque_trio import humanize
from disque_trio.health.keeper import Fact
from disque_trio.health.table import DEAD_WITHIN, NO_WORKER_AFTER, WAITS_TOO_LONG


class QueueSeen(NamedTuple):
    """A queue of a cluster.

    Attributes:
        name: as shown.
        length: queued jobs.
        oldest: for how many seconds the oldest of them has been there.
        paused: no jobs are given out on purpose.
        waiters: clients that wait for its jobs.
        unserved: seconds since a job was given out, or since somebody began to look, if none was;
            None: nobody knows.
        letters: it is for dead letters, or has nothing else.
        died: seconds since jobs of it last became dead letters; None: none has, as far as known.
        deaths: how many have recently.
    """

    name: str
    length: int
    oldest: float
    paused: bool = False
    waiters: int = 0
    unserved: float | None = None
    letters: bool = False
    died: float | None = None
    deaths: int = 0


def queue_facts(seen: QueueSeen) -> Iterator[Fact]:
    """What is wrong with a queue."""
    if seen.length and not (seen.paused or seen.letters):
        waits = f"{humanize.jobs(seen.length)}, oldest {humanize.duration(seen.oldest)}"
        unserved = seen.unserved
        if unserved is not None and unserved >= NO_WORKER_AFTER and not seen.waiters:
            text = f"{waits}, no worker for {humanize.duration(unserved)}"
            yield Fact("no-worker", text, seen.name)
        elif seen.oldest >= WAITS_TOO_LONG:
            yield Fact("waits-long", waits, seen.name)
    if seen.died is not None and seen.died < DEAD_WITHIN:
        text = (
            f"{humanize.jobs(seen.deaths)} became dead letters, the last one "
            f"{humanize.duration(seen.died)} ago"
        )
        yield Fact("dead-letters", text, seen.name)
