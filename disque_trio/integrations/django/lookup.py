"""What the nodes of a cluster know of a task that has not ended."""

import time

import trio

from disque_trio.client.client import Client
from disque_trio.client.connecting import connect_to
from disque_trio.client.nodes import LEAVING_PRIORITY
from disque_trio.client.replies import Record
from disque_trio.client.urls import Cluster
from disque_trio.respclient.errors import DisqueError

PATIENCE = 1.0
"""Seconds in which the other nodes have to answer."""


async def unfinished(client: Client, cluster: Cluster, id: str) -> tuple[bytes, bool] | None:
    """The body of the job and whether it is with a worker, None if no node that answers has it, or
    one knows that it has ended.

    The node in use is asked first, and the others where that may not be the whole truth: a node
    that does not have the job in its queue cannot tell whether another one has.

    Raises:
        DisqueError: as ``Client.show``.
    """
    job = await client.show(id)
    found = [job]
    if job is None or _taken(job):
        found += await _elsewhere(client, cluster, id)
    known = [job for job in found if job is not None]
    if not known or any(job["state"] == "acked" for job in known):
        return None
    body = known[0]["body"]
    assert isinstance(body, bytes)
    return body, all(_taken(job) for job in known)


async def _elsewhere(client: Client, cluster: Cluster, id: str) -> list[Record | None]:
    """What SHOW says on those of the other nodes that answer."""
    found: list[Record | None] = []

    async def ask(address: str) -> None:
        try:
            async with connect_to(cluster.only(address), 0, PATIENCE) as node:
                found.append(await node.show(id))
        except DisqueError:
            pass  # it cannot be asked now

    hello = await client.hello()
    with trio.move_on_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for node in hello.nodes:
                if node.id != hello.node_id and node.priority < LEAVING_PRIORITY:
                    nursery.start_soon(ask, str(node.address))
    return found


def _taken(job: Record) -> bool:
    """Whether a job is with a worker, as far as the node can tell that has it."""
    delay = job["delay"] if isinstance(job["delay"], int) else 0
    created = job["ctime"] if isinstance(job["ctime"], int) else 0
    return job["state"] == "active" and time.time() > created / 1e9 + delay
