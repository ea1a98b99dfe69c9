"""Says WORKING for the jobs that a task has in hand, as long as the function works on them."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence

import hiredis

from disque_trio.respclient.login import Login
from disque_trio.spark.client import BlockingClient, Reply, WireError
from disque_trio.spark.leases.fetch import WORKING_AT_ONCE
from disque_trio.spark.sink.adder import code_of

TICK = 0.25  # s
FIRST = 0.5  # s after which the first WORKING is due: the retry time is not known yet
LONGEST = 10.0
SHARE = 4  # beats in a retry time
ENDED = ("CANCELLED", "ACKED")


class Heart:
    """A thread with a connection of its own.

    It learns the jobs' retry times from the answers, and beats several times in each.

    Args:
        nodes: to connect to, the first that answers. login, timeout: as for ``BlockingClient``.
        clock: monotonic seconds.

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
        self._client = BlockingClient(nodes, login, min(timeout, LONGEST))
        self._clock = clock
        self._due: dict[str, float] = {}  # when to say WORKING for a job
        self._changed = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="disque-working", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def hold(self, ids: Iterable[str]) -> None:
        """These jobs are in hand now."""
        with self._changed:
            self._due.update(dict.fromkeys(ids, self._clock() + FIRST))

    def release(self, ids: Iterable[str]) -> None:
        """These are not any more."""
        with self._changed:
            for id in ids:
                self._due.pop(id, None)
                self.ended.discard(id)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._client.close()

    def due(self) -> list[str]:
        """The jobs for which it is time."""
        now = self._clock()
        with self._changed:
            return [id for id, time in self._due.items() if time <= now and id not in self.ended]

    def learn(self, ids: Sequence[str], replies: Sequence[Reply]) -> None:
        """What nodes answered to WORKING."""
        now = self._clock()
        with self._changed:
            for id, reply in zip(ids, replies, strict=True):
                if id not in self._due:
                    continue
                pause = reply / SHARE if isinstance(reply, int) and reply > 0 else LONGEST
                self._due[id] = now + min(pause, LONGEST)
                if isinstance(reply, hiredis.ReplyError) and code_of(str(reply)) in ENDED:
                    self.ended.add(id)

    def _beat(self) -> None:
        while not self._stop.wait(TICK):
            ids = self.due()
            for at in range(0, len(ids), WORKING_AT_ONCE):
                part = ids[at : at + WORKING_AT_ONCE]
                try:
                    self.learn(part, self._client.pipeline([("WORKING", id) for id in part]))
                except WireError:
                    break  # at the next tick the next node is asked
