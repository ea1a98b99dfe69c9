"""Parses job ids, which several commands take."""

from typing import Final

from disque_trio.node.core.job import Job
from disque_trio.node.core.node import Node
from disque_trio.protocol.serialjob import is_job_id
from disque_trio.respserver.command import CommandError

BAD_ID: Final = "BADID Invalid Job ID format."


def require_extensions(node: Node) -> None:
    """Raise CommandError unless jobs may have trailers: a node that does not know them is a
    member."""
    if not node.peers.extended:
        raise CommandError(
            "NOEXT A node of the cluster does not know extensions, or cluster-extensions is no"
        )


def check_ids(ids: list[bytes]) -> None:
    """Raise CommandError unless all ``ids`` look like ids of jobs."""
    for id in ids:
        if not is_job_id(id):
            raise CommandError(BAD_ID)


def find_jobs(node: Node, ids: list[bytes]) -> list[Job]:
    """Those of the jobs ``ids`` that this node holds; raises CommandError for a malformed id."""
    jobs = node.store.jobs
    found: list[Job] = []
    for id in ids:
        if not is_job_id(id):
            raise CommandError(BAD_ID)
        job = jobs.get(id)
        if job is not None:
            found.append(job)
    return found


def find_job(node: Node, id: bytes) -> Job | None:
    """The job ``id`` if this node holds it."""
    if not is_job_id(id):
        raise CommandError(BAD_ID)
    return node.store.jobs.get(id)
