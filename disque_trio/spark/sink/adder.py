"""Adds many jobs over one connection at a time: pipelined, and through another node when one fails.

A job whose answer was lost is added again: without a key (UNIQUE) it may be there twice then.
"""

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

import hiredis

from disque_trio.respclient.login import Login
from disque_trio.spark.client import Arg, BlockingClient, Reply, WireError
from disque_trio.spark.nodes import discovered

# Another node, or the same one a moment later, may take what was refused for these reasons.
RETRIED = frozenset(("NOREPL", "NOUNIQ", "LEAVING", "OOM", "LOADING", "MISCONF"))
# Until the others agree that a node is gone there may be no majority for keys.
NO_MAJORITY = "NOUNIQ"
PAUSE_MOST = 2.0  # s


class Refusal(NamedTuple):
    """A job that no node took: its place in the list, and the error."""

    place: int
    error: str


class Adder:
    """Adds jobs to a cluster.

    Args:
        nodes: addresses, in the order to try them.
        login: how to get in.
        discover: whether to ask them for the others, to turn to when they are lost.
        timeout: seconds to wait for a reply.
        retries: how often to try again what was refused for a reason that may pass.
        pause: seconds before the first retry; each further one waits twice as long.
        failover: seconds to look for a node when none answers, and to wait, however often that is
            tried again, for a majority that knows about keys.
        sleep, clock: of the time module.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        login: Login | None = None,
        discover: bool = True,
        timeout: float = 60.0,
        retries: int = 5,
        pause: float = 0.1,
        failover: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nodes = list(nodes)
        self._login = login
        self._discover = discover
        self._timeout = timeout
        self._retries = retries
        self._pause = pause
        self._failover = failover
        self._sleep = sleep
        self._clock = clock
        self._client = BlockingClient(nodes, login, timeout)

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
            self.close()  # the next one may have room, or more nodes in reach
            self._sleep(min(self._pause * 2**attempt, PAUSE_MOST))
        return sorted(refused)

    def close(self) -> None:
        """Close the connection; the next request goes to the next node."""
        self._client.close()

    def send(self, requests: Sequence[Sequence[Arg]]) -> list[Reply]:
        """All replies, if it takes several connections: what has no answer is sent to another node.

        Raises:
            WireError: no node can be reached; ``replies`` are those that came.
        """
        replies: list[Reply] = []
        deadline: float | None = None
        while len(replies) < len(requests):
            try:
                if self._discover:
                    self._find_others()
                replies += self._client.pipeline(requests[len(replies) :])
            except WireError as lost:
                replies += lost.replies
                now = self._clock()
                if lost.replies or deadline is None:
                    deadline = now + self._failover
                elif now >= deadline:
                    raise
                else:
                    self._sleep(self._pause)
        return replies

    def _find_others(self) -> None:
        """Once: it is only to have where to go."""
        known = discovered(self._client)
        self._discover = False
        nodes = list(dict.fromkeys([*self._nodes, *known]))
        if nodes != self._nodes:
            self._client.close()
            # The one that answered comes first, as it did.
            first = nodes.index(known[0])
            self._nodes = nodes[first:] + nodes[:first]
            self._client = BlockingClient(self._nodes, self._login, self._timeout)


def code_of(error: str) -> str:
    """The first word of an error."""
    return error.split(" ", 1)[0]
