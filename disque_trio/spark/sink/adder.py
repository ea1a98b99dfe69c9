"""Adds many jobs to a cluster: pipelined, and through another node when one fails.

A job whose answer was lost is added again: without a key (UNIQUE) it may be there twice then.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import hiredis

from disque_trio.spark.client import Arg
from disque_trio.spark.link import RETRIED, Link

# Until the others agree that a node is gone there may be no majority for keys.
NO_MAJORITY = "NOUNIQ"
PAUSE_MOST = 2.0  # s


class Refusal(NamedTuple):
    """A job that no node took: its place in the list, and the error."""

    place: int
    error: str


class Adder(Link):
    """Adds jobs to a cluster.

    Args:
        retries: how often to try again what was refused for a reason that may pass; in any case it
            waits for ``failover`` seconds for a majority that knows about keys.
        link: as for ``Link``; ``pause`` is also that before the first retry, each further one waits
            twice as long.
    """

    def __init__(self, nodes: Sequence[str], *link: Any, retries: int = 5, **more: Any) -> None:
        super().__init__(nodes, *link, **more)
        self._retries = retries

    def add(self, jobs: Sequence[Sequence[Arg]]) -> list[Refusal]:
        """Send ADDJOBs and return those that were refused, in their order.

        Raises:
            WireError: no node can be reached; which of them were added is not known.
        """
        refused: list[Refusal] = []
        places = list(range(len(jobs)))
        deadline = self._clock() + self._failover
        for attempt in count():
            replies = self.send([jobs[place] for place in places])
            again: list[int] = []
            for place, reply in zip(places, replies, strict=True):
                if isinstance(reply, hiredis.ReplyError):
                    error = str(reply)
                    code = code_of(error)
                    left = attempt < self._retries
                    if code == NO_MAJORITY and not left:
                        left = self._clock() < deadline
                    if left and code in RETRIED:
                        again.append(place)
                    else:
                        refused.append(Refusal(place, error))
            if not again:
                break
            places = again
            self.turn()  # the next one may have room, or more nodes in reach
            self._sleep(min(self._pause * 2**attempt, PAUSE_MOST))
        return sorted(refused)


def code_of(error: str) -> str:
    """The first word of an error."""
    return error.split(" ", 1)[0]
