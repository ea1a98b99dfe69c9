"""Asks the nodes of a cluster about a task that has not ended."""

import time

from disque_integrations.elsewhere import ask_others
from disque_trio.client.client import Client
from disque_trio.client.shown import ShownJob
from disque_trio.client.urls import Cluster


async def unfinished(client: Client, cluster: Cluster, id: str) -> tuple[bytes, bool] | None:
    """Return the body of the job, and whether a worker has it. None if no node that answers has the
    job, or if one knows that it has ended.

    The node in use is asked first. The others are asked if that may not be the whole truth: a node
    whose queue does not have the job cannot tell whether another node's queue has it.

    Raises:
        DisqueError: as for ``Client.show``.
    """
    job = await _shown(client, id)
    found = [job]
    if job is None or _taken(job):
        found += await ask_others(client, cluster, lambda node: _shown(node, id))
    known = [job for job in found if job is not None]
    if not known or any(job.state == "acked" for job in known):
        return None
    return known[0].body, all(_taken(job) for job in known)


async def _shown(client: Client, id: str) -> ShownJob | None:
    record = await client.show(id)
    return None if record is None else ShownJob.of(record)


def _taken(job: ShownJob) -> bool:
    """Return whether a worker has the job, as far as the node that replied can tell."""
    return job.state == "active" and time.time() > job.created + job.delay
