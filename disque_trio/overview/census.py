"""Counts the jobs of all queues of a node, in small steps, while somebody is looking."""

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from disque_trio.client import replies
from disque_trio.overview.looks import Looks
from disque_trio.overview.queues import Counts, QueueTable
from disque_trio.respclient.connection import Connection, Reply
from disque_trio.respclient.errors import ConnectionLost, DisqueError, ProtocolError
from disque_trio.respclient.values import as_text

EACH: Final = 5.0  # minimum s between the starts of two walks
REFUSED_EACH: Final = 60.0  # s until a node that refused is asked again
SHARE: Final = 20.0  # a walk takes at most one part in this many of a node's time
STEP: Final = 1_500  # jobs scanned in one step: the maximum of a node
REST: Final = 0.005  # minimum s between two steps
PATIENCE: Final = 30.0  # s to wait for a reply
KEPT: Final = 60.0
"""Seconds for which counts are shown, or twice the duration of the walk, if that is longer."""


class Sum:
    """The sum over the steps of one walk."""

    def __init__(self) -> None:
        self.counts: dict[str, Counts] = {}

    def add(self, reply: Reply) -> bytes:
        """Add a reply to ``JSCAN ... REPLY counts``. Returns the next cursor.

        Raises:
            DisqueError: the node cannot count, or the reply is invalid.
        """
        if isinstance(reply, DisqueError):
            raise reply
        cursor, rows = replies.page(reply)
        for row in rows:
            match row:
                case [bytes(name), int(delayed), int(in_hand), int(dead)]:
                    queue = as_text(name)
                    before = self.counts.get(queue, (0, 0, 0))
                    self.counts[queue] = (
                        before[0] + delayed,
                        before[1] + in_hand,
                        before[2] + dead,
                    )
                case _:
                    raise ProtocolError(f"not a queue's counts: {row!r:.100}")
        return cursor


async def take(
    open: Callable[[], AbstractAsyncContextManager[Connection]],
    address: str,
    looks: Looks,
    table: QueueTable,
) -> None:
    """Walk over the jobs of the node at ``address`` repeatedly, while somebody looks at the counts
    of all queues; each walk has a connection from ``open``, which raises DisqueError if there is
    none. A node may be unable to count: an older release, C Disque, or one that denies us
    permission."""
    while True:
        await looks.counts.wait(time.time)
        begun, started, round = time.time(), trio.current_time(), looks.round
        try:
            async with open() as connection:
                counts = await _walk(connection.execute_many, looks)
        except DisqueError as error:
            await trio.sleep(EACH if isinstance(error, ConnectionLost) else REFUSED_EACH)
            continue
        took = trio.current_time() - started
        if counts is not None:
            table.counted(address, counts, begun, time.time(), max(KEPT, 2 * took))
            looks.reported(address, round)
            await trio.sleep(max(0.0, EACH - took))


async def _walk(
    ask: Callable[[list[tuple[str | bytes | int, ...]]], Awaitable[list[Reply]]], looks: Looks
) -> dict[str, Counts] | None:
    """The counts of all queues; None if nobody is looking any more."""
    found, cursor = Sum(), b"0"
    while looks.counts.lasts(time.time()):
        begun = trio.current_time()
        with trio.move_on_after(PATIENCE) as scope:
            [reply] = await ask([("JSCAN", cursor, "COUNT", STEP, "REPLY", "counts")])
            cursor = found.add(reply)
        if scope.cancelled_caught:
            raise ConnectionLost(f"no reply within {PATIENCE:g} s")
        if cursor == b"0":
            return found.counts
        await trio.sleep(max(REST, (SHARE - 1) * (trio.current_time() - begun)))
    return None
