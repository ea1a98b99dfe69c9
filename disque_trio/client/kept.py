"""Results that are kept for a while, each as a job in a queue of its own.

Readers look at the job and put it back. So a result lives as long as it should, even across
restarts of nodes with an append-only file, and whoever waits for one waits in GETJOB.
"""

import math

from disque_trio.client import tracing
from disque_trio.client.client import Client
from disque_trio.respclient.values import Name

NEARBY = 0.1
"""Seconds in which another node of the cluster hands over an existing result."""

RETRY = 30
"""Seconds after which a result is available again if its reader was killed while reading."""


async def keep(
    client: Client,
    queue: str,
    result: Name,
    seconds: float,
    replicate: int | None,
    *,
    retry: int = RETRY,
) -> None:
    """Keep ``result`` in ``queue`` for ``seconds``, at least one, on ``replicate`` nodes. If the
    queue already has a result, that one stays. If its node crashes, nobody finds it for ``retry``
    seconds.

    Raises:
        DisqueError: as for ``Client.add``.
    """
    ttl = max(1, math.ceil(seconds))
    # RETRY must be shorter than the life of the job.
    retry = min(retry, max(1, ttl // 2))
    with tracing.unseen():
        await client.add(queue, result, retry=retry, ttl=ttl, replicate=replicate, unique="result")


async def peek(client: Client, queue: str) -> bytes | None:
    """Return the result in ``queue`` if the node in use has it.

    Raises:
        DisqueError: as for ``Client.qpeek``.
    """
    found = await client.qpeek(queue, 1)
    return found[0].body if found else None


async def read(client: Client, queue: str, wait: float) -> bytes | None:
    """Return the result in ``queue``; None if none arrives within ``wait`` seconds.

    Raises:
        DisqueError: as for ``Client.get``.
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
