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

    def learn(self, ids: Sequence[str], replies: Sequence[Reply]) -> None:
        """Learn from the replies to WORKING."""
        now = self._clock()
        with self._changed:
            for id, reply in zip(ids, replies, strict=True):
                if id not in self._due:
                    continue
                pause = reply / SHARE if isinstance(reply, int) and reply > 0 else LONGEST
                self._due[id] = now + min(pause, LONGEST)
                if isinstance(reply, hiredis.ReplyError) and code_of(str(reply)) in ENDED:
                    self.ended.add(id)

    def still(self, ids: Sequence[str]) -> set[str]:
        """Send WORKING now. Returns the jobs that have not ended: those that a node still knows, or
        that an unreachable node may know."""
        lost = False
        left = list(ids)
        with self._talks:
            for turn in range(len(self._clients)):
                places: dict[int, list[str]] = {}
                for id in left:
                    at = (self._at.get(id, 0) + (turn and 1)) % len(self._clients)
                    self._at[id] = at
                    places.setdefault(at, []).append(id)
                left = []
                for at, some in places.items():
                    try:
                        left += self._say(self._clients[at], some)
                    except WireError:
                        lost = True
                        left += some
                if not left:
                    break
        ended = self.ended if lost else self.ended.union(left)
        return set(ids) - ended

    def _say(self, client: BlockingClient, ids: Sequence[str]) -> list[str]:
        """Send WORKING to one node. Returns the jobs that it does not know."""
        unknown: list[str] = []
        for at in range(0, len(ids), WORKING_AT_ONCE):
            part = ids[at : at + WORKING_AT_ONCE]
            replies = client.pipeline([("WORKING", id) for id in part])
            self.learn(part, replies)
            unknown += [
                id
                for id, reply in zip(part, replies, strict=True)
                if isinstance(reply, hiredis.ReplyError) and code_of(str(reply)) == "NOJOB"
            ]
        return unknown

    def _beat(self) -> None:
        while not self._stop.wait(TICK):
            if due := self.due():
                self.still(due)
