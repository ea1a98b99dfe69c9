"""Adds many jobs to a cluster: pipelined, and through another node when one fails.

If the reply for a job is lost, the job is added again. Without a key (UNIQUE), it may then exist
twice.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import hiredis

from disque_spark.client import Arg
from disque_spark.link import RETRIED, NodeConnections

# Until the other nodes agree that a node is gone, there may be no majority for keys.
NO_MAJORITY = "NOUNIQ"
PAUSE_MOST = 2.0  # s


class Refusal(NamedTuple):
    """A job that no node accepted: its index in the list, and the error."""

    place: int
    error: str


class Adder(NodeConnections):
    """Adds jobs to a cluster.

    Args:
        retries: how often to retry jobs refused for a transient reason. If the reason is that there
            is no majority for keys, it retries for at least ``failover`` seconds.
        link: as for ``NodeConnections``. ``pause`` is also the pause before the first retry; it
            doubles for each further one.
    """

    def __init__(self, nodes: Sequence[str], *link: Any, retries: int = 5, **more: Any) -> None:
        super().__init__(nodes, *link, **more)
        self._retries = retries

    def add(self, jobs: Sequence[Sequence[Arg]]) -> list[Refusal]:
        """Send ADDJOBs and return those that were refused, in order.

        Raises:
            WireError: no node can be reached; any of the jobs may have been added.
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
            self.turn()  # the next node may have room, or reach more nodes
            self._sleep(min(self._pause * 2**attempt, PAUSE_MOST))
        return sorted(refused)


def code_of(error: str) -> str:
    """The first word of an error."""
    return error.split(" ", 1)[0]
