"""Says WORKING for the jobs that a task has in hand, as long as the function works on them."""

import threading
from collections.abc import Iterable, Sequence

import hiredis

from disque_trio.respclient.login import Login
from disque_trio.spark.client import BlockingClient, Reply, WireError
from disque_trio.spark.leases.fetch import WORKING_AT_ONCE

FIRST = 1.0  # s after which the jobs that were taken are said to be worked on
LONGEST = 10.0
SHARE = 4  # beats in a retry time
ENDED = ("CANCELLED", "ACKED")


class Heart:
    """A thread with a connection of its own.

    It learns the jobs' retry times from the answers, and beats several times within the shortest.

    Args:
        nodes: to connect to, the first that answers. login, timeout: as for ``BlockingClient``.

    Attributes:
        ended: jobs in hand that were cancelled, or acknowledged by others.
    """

    def __init__(self, nodes: Sequence[str], login: Login | None, timeout: float) -> None:
        self.ended: set[str] = set()
        self._client = BlockingClient(nodes, login, timeout)
        self._held: dict[str, None] = {}
        self._pause = FIRST
        self._changed = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="disque-working", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def hold(self, ids: Iterable[str]) -> None:
        """These jobs are in hand now."""
        with self._changed:
            self._held.update(dict.fromkeys(ids))

    def release(self, ids: Iterable[str]) -> None:
        """These are not any more."""
        with self._changed:
            for id in ids:
                self._held.pop(id, None)
                self.ended.discard(id)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._client.close()

    def learn(self, ids: Sequence[str], replies: Sequence[Reply]) -> None:
        """What nodes answered to WORKING."""
        retries = [reply for reply in replies if isinstance(reply, int) and reply > 0]
        self._pause = min([LONGEST, *(retry / SHARE for retry in retries)])
        errors = [
            (id, str(reply).split(" ", 1)[0])
            for id, reply in zip(ids, replies, strict=True)
            if isinstance(reply, hiredis.ReplyError)
        ]
        with self._changed:
            self.ended.update(id for id, code in errors if code in ENDED and id in self._held)

    def _beat(self) -> None:
        while not self._stop.wait(self._pause):
            with self._changed:
                ids = [id for id in self._held if id not in self.ended]
            if not ids:
                self._pause = FIRST
                continue
            replies: list[Reply] = []
            try:
                for at in range(0, len(ids), WORKING_AT_ONCE):
                    part = ids[at : at + WORKING_AT_ONCE]
                    replies += self._client.pipeline([("WORKING", id) for id in part])
                self.learn(ids, replies)
            except WireError:
                self._pause = FIRST  # the next node
