"""Walks over the jobs of nodes, with what they tell of each."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from disque_trio.cli.subcommands.reach import Member
from disque_trio.client import replies
from disque_trio.client.shown import ShownJob
from disque_trio.resp.command import Argument
from disque_trio.respclient.values import elements

STEP: Final = 500
"""Jobs that a node visits for one reply that tells of them: its maximum."""

STAGES: Final = ("queued", "running", "delayed", "retrying", "dead")
"""The states of jobs that a node answers for, so that each is listed by one node, or by all that
hold it while it is delayed."""


async def shown_jobs(
    member: Member, conditions: Sequence[Argument], most_body: int | None, step: int = STEP
) -> AsyncIterator[list[ShownJob]]:
    """The jobs of a node that meet ``conditions`` of JSCAN, a reply at a time. ``most_body``: bytes
    of their bodies; None: all. Raises DisqueError."""
    limit: tuple[Argument, ...] = () if most_body is None else ("MAXBODY", most_body)
    cursor = b"0"
    while True:
        reply = await member.ask(
            "JSCAN", cursor, "COUNT", step, *conditions, "REPLY", "all", "CLIENT", *limit
        )
        cursor, page = replies.page(reply)
        records = [replies.record(elements(entry)) for entry in page if entry is not None]
        yield [ShownJob.of(record) for record in records if record is not None]
        if cursor == b"0":
            return


def stage_of(job: ShownJob, now: float) -> str:
    """In which of ``STAGES`` a job is at ``now`` (s since the epoch), or the state that its node
    tells."""
    if job.client:
        return "running" if job.retry else "delivered"
    waits = job.state == "active" and _is_put_off(job, now)
    if job.state == "queued" or waits:
        if job.dead_from is not None:
            return "dead"
        if job.nacks + job.additional_deliveries:
            return "retrying"
        return "delayed" if waits else "queued"
    return job.state


def _is_put_off(job: ShownJob, now: float) -> bool:
    return bool(job.delay) and now < job.created + job.delay


def due_in(job: ShownJob) -> float | None:
    """Seconds until a job that is put off is queued."""
    waits = [ms for ms in (job.next_awake_within, job.next_requeue_within) if ms is not None]
    return min(waits) / 1000 if waits else None
