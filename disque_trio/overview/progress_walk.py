"""Asks a node how far its jobs in hand are, in small steps, while somebody is looking."""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from disque_trio.client import replies
from disque_trio.client.shown import jobs_in
from disque_trio.overview.census import PATIENCE, REFUSED_EACH, REST, SHARE, STEP
from disque_trio.overview.looks import Looks
from disque_trio.overview.running import RunningJob, RunningJobs
from disque_trio.respclient.connection import Connection, Reply
from disque_trio.respclient.errors import ConnectionLost, DisqueError

EACH: Final = 2.0  # minimum s between the starts of two walks
MOST: Final = 1_000  # jobs in hand about which a node is asked in one walk
AT_ONCE: Final = 100  # commands


async def follow(
    open: Callable[[], AbstractAsyncContextManager[Connection]],
    address: str,
    looks: Looks,
    running: RunningJobs,
) -> None:
    """Ask the node at ``address`` repeatedly, while somebody looks at running jobs; each time on a
    connection from ``open``, which raises DisqueError if there is none. A node may deny us
    permission."""
    while True:
        await looks.running.wait(time.time)
        started = trio.current_time()
        try:
            async with open() as connection:
                found = await _walk(connection, looks)
        except DisqueError as error:
            running.node_lost(address)
            await trio.sleep(EACH if isinstance(error, ConnectionLost) else REFUSED_EACH)
            continue
        if found is not None:
            running.took(address, found)
            await trio.sleep(max(REST, EACH - (trio.current_time() - started)))


async def _walk(connection: Connection, looks: Looks) -> list[RunningJob] | None:
    """Return the jobs in hand that say how far they are; None: nobody is looking any more."""
    ids: list[bytes] = []
    cursor: Reply = b"0"
    while looks.running.lasts(time.time()):
        begun = trio.current_time()
        [reply] = await _ask(connection, [("JSCAN", _bytes(cursor), "COUNT", STEP, "TAKEN")])
        cursor, some = replies.page(reply)
        ids += [id for id in some if isinstance(id, bytes)]
        if cursor == b"0" or len(ids) >= MOST:
            return await _show(connection, ids[:MOST])
        await trio.sleep(max(REST, (SHARE - 1) * (trio.current_time() - begun)))
    return None


async def _show(connection: Connection, ids: list[bytes]) -> list[RunningJob]:
    found: list[RunningJob] = []
    for first in range(0, len(ids), AT_ONCE):
        some = ids[first : first + AT_ONCE]
        shown = jobs_in(await _ask(connection, [("SHOW", id, "MAXBODY", 0) for id in some]))
        found += [job for job in map(RunningJob.of, shown) if job is not None]
        await trio.sleep(REST)
    return found


async def _ask(
    connection: Connection, commands: list[tuple[str | bytes | int, ...]]
) -> list[Reply]:
    """Raises DisqueError."""
    with trio.move_on_after(PATIENCE):
        answers = await connection.execute_many(commands)
        for answer in answers:
            if isinstance(answer, DisqueError):
                raise answer
        return answers
    raise ConnectionLost(f"no reply within {PATIENCE:g} s")


def _bytes(cursor: Reply) -> bytes:
    return cursor if isinstance(cursor, bytes) else b"0"
