"""Results that are kept for a while: a job each, in a queue of its own, that is looked at and put
back. So they live as long as they shall, over restarts of nodes that have a file, and whoever waits
for one waits in GETJOB."""

import math

from disque_trio.client import tracing
from disque_trio.client.client import Client
from disque_trio.respclient.values import Name

NEARBY = 0.1
"""Seconds in which another node of the cluster hands over a result that is there."""

RETRY = 30
"""Seconds until a result can be had again whose reader was killed while it read."""


async def keep(
    client: Client, queue: str, result: Name, seconds: float, replicate: int | None
) -> None:
    """Keep ``result`` in ``queue`` for so many seconds, at least one, on ``replicate`` nodes. The
    first one that is kept there stays.

    Raises:
        DisqueError: as ``Client.add``.
    """
    ttl = max(1, math.ceil(seconds))
    # RETRY has to be shorter than the life of the job.
    retry = min(RETRY, max(1, ttl // 2))
    with tracing.unseen():
        await client.add(queue, result, retry=retry, ttl=ttl, replicate=replicate, unique="result")


async def peek(client: Client, queue: str) -> bytes | None:
    """The result in ``queue`` if the node in use has it.

    Raises:
        DisqueError: as ``Client.qpeek``.
    """
    found = await client.qpeek(queue, 1)
    return found[0].body if found else None


async def read(client: Client, queue: str, wait: float) -> bytes | None:
    """The result in ``queue``, None if none came within ``wait`` seconds.

    Raises:
        DisqueError: as ``Client.get``.
    """
    here = await peek(client, queue)
    if here is not None:
        return here
    if not wait and len((await client.hello()).nodes) > 1:
        wait = NEARBY
    with tracing.unseen():
        found = await client.get(queue, timeout=wait, nohang=not wait)
    if not found:
        return None
    await client.nack(found[0].id, delay=0)
    return found[0].body
