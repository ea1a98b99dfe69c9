"""Sends WORKING for the jobs that a task has in hand, while the function works on them."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence

import hiredis

from disque_spark.client import BlockingClient, WireError
from disque_spark.leases.fetch import WORKING_AT_ONCE
from disque_spark.sink.adder import code_of
from disque_trio.respclient.blocking import Reply
from disque_trio.respclient.login import Login

TICK = 0.25  # s
FIRST = 0.5  # s until the first WORKING for a job, whose retry time is not known yet
LONGEST = 10.0  # s
SHARE = 4  # WORKINGs per retry time
ENDED = ("CANCELLED", "ACKED")


class Heart:
    """A thread that sends WORKING on connections of its own.

    It learns the jobs' retry times from the replies, and sends WORKING several times in each. Only
    a node that holds a job accepts WORKING, so it also learns which node that is.

    Args:
        nodes: all known nodes.
        login, timeout: as for ``BlockingClient``.
        clock: returns monotonic seconds.

    Attributes:
        ended: jobs in hand that were cancelled, or acknowledged by others.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        login: Login | None,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ended: set[str] = set()
        self._clients = [BlockingClient([node], login, min(timeout, LONGEST)) for node in nodes]
        self._clock = clock
        self._at: dict[str, int] = {}  # index of the node to ask first, by job; default: 0
        self._due: dict[str, float] = {}  # time of the next WORKING, by job
        self._changed = threading.Lock()
        self._talks = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="disque-working", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def hold(self, ids: Iterable[str]) -> None:
        """Begin to send WORKING for these jobs."""
        with self._changed:
            self._due.update(dict.fromkeys(ids, self._clock() + FIRST))

    def release(self, ids: Iterable[str]) -> None:
        """Stop sending WORKING for these jobs."""
        with self._changed:
            for id in ids:
                self._due.pop(id, None)
                self._at.pop(id, None)
                self.ended.discard(id)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for client in self._clients:
            client.close()

    def due(self) -> list[str]:
        """The jobs that are due for a WORKING."""
        now = self._clock()
        with self._changed:
            return [id for id, time in self._due.items() if time <= now and id not in self.ended]

    def learn(self, ids: Sequence[str], replies: Sequence[Reply]) -> list[str]:
        """Learn from the replies to WORKING. Returns the jobs that the node does not know."""
        now = self._clock()
        codes = [
            code_of(str(one)) if isinstance(one, hiredis.ReplyError) else "" for one in replies
        ]
        with self._changed:
            for id, reply, code in zip(ids, replies, codes, strict=True):
                if id in self._due:
                    pause = reply / SHARE if isinstance(reply, int) and reply > 0 else LONGEST
                    self._due[id] = now + min(pause, LONGEST)
                    if code in ENDED:
                        self.ended.add(id)
        return [id for id, code in zip(ids, codes, strict=True) if code == "NOJOB"]

    def still(self, ids: Sequence[str]) -> set[str]:
        """Send WORKING now. Returns the jobs that have not ended: those that a node still knows, or
        that an unreachable node may know."""
        lost = False
        left = list(ids)
        with self._talks:
            for turn in range(len(self._clients)):
                places: dict[int, list[str]] = {}
                for id in left:
                    self._at[id] = (self._at.get(id, 0) + (turn and 1)) % len(self._clients)
                    places.setdefault(self._at[id], []).append(id)
                left = []
                for at, some in places.items():
                    for first in range(0, len(some), WORKING_AT_ONCE):
                        part = some[first : first + WORKING_AT_ONCE]
                        try:
                            replies = self._clients[at].pipeline([("WORKING", id) for id in part])
                            left += self.learn(part, replies)
                        except WireError:
                            lost = True
                            left += part
        ended = self.ended if lost else self.ended.union(left)
        return set(ids) - ended

    def _beat(self) -> None:
        while not self._stop.wait(TICK):
            if due := self.due():
                self.still(due)
