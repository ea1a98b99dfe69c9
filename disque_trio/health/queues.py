"""What is wrong with a queue, as seen over all nodes: jobs wait, and nobody takes them.

A node knows only its own part of a queue, so whoever asks all of them decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from disque_trio import humanize
from disque_trio.health.keeper import Fact
from disque_trio.health.table import DEAD_WITHIN, NO_WORKER_AFTER, WAITS_TOO_LONG

_TIMES: Final = (b"filled-ago", b"wanted-ago", b"died-ago", b"jobs-died")  # fields of QSTAT


class QueueTimes(NamedTuple):
    """What a node tells of when it had jobs of a queue, gave some out and lost some, in its
    QSTAT. Each is in seconds before that; None: never, as far as the node knows.

    Attributes:
        filled: when it last got a job while it had none; None: it has none.
        wanted: when a client took one there, or wanted one in vain.
        died: when one last became a dead letter there.
        deaths: how many have recently.
    """

    filled: float | None
    wanted: float | None
    died: float | None
    deaths: int


def read_times(fields: Mapping[bytes, object]) -> QueueTimes | None:
    """The times in a reply to QSTAT; None: the node is of a release that does not tell them."""
    filled, wanted, died, deaths = map(fields.get, _TIMES)
    if not (
        isinstance(filled, int)
        and isinstance(wanted, int)
        and isinstance(died, int)
        and isinstance(deaths, int)
    ):
        return None
    return QueueTimes(
        filled / 1000 if fields.get(b"len") else None,
        None if wanted < 0 else wanted / 1000,
        None if died < 0 else died / 1000,
        deaths,
    )


def unserved_for(nodes: Sequence[QueueTimes]) -> float | None:
    """For how many seconds jobs of a queue have been waiting, and none was given out by any of
    ``nodes``; None: none wait."""
    filled = [times.filled for times in nodes if times.filled is not None]
    wanted = [times.wanted for times in nodes if times.wanted is not None]
    return min([max(filled), *wanted]) if filled else None


def last_death(nodes: Sequence[QueueTimes]) -> tuple[float | None, int]:
    """When, in seconds before now, jobs of a queue last became dead letters, and how many have
    recently."""
    died = [times.died for times in nodes if times.died is not None]
    return min(died, default=None), sum([times.deaths for times in nodes])


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
