"""What a job has been through whose worker has no parent that could tell.

The process of a worker of Dramatiq or Django has nobody who knows which jobs it had when it died.
Its connections break, and the node queues these jobs again, which it counts as additional
deliveries; a worker that stops gives its jobs back with NACK. So a job with additional deliveries
was with processes that died, or whose nodes did. Which of the jobs of such a process has killed it
is not known. So each of them runs in a process of its own from then on, and only what happens there
counts against it. ``disque_trio.job_past`` has the rest.
"""

from dataclasses import replace

from disque_trio.client.jobs import HeldJob
from disque_trio.job_past import NOTHING, Past


async def past_of(job: HeldJob) -> Past:
    """Return what a job has been through."""
    if not job.nacks and not job.additional_deliveries:
        return NOTHING
    return counted(Past.read(await job.last_reason()), job.additional_deliveries)


def counted(past: Past, additional_deliveries: int) -> Past:
    """Count as crashes what the node has counted, too. ``past``: what the last reason says."""
    return replace(past, crashes=past.alone + additional_deliveries)


def runs_alone(past: Past) -> bool:
    """Return whether the job has to run in a process of its own."""
    return past.crashes > 0


async def give_back(job: HeldJob) -> None:
    """Give a job back because its worker stops, which does not count against it."""
    if job.nacks and not await job.last_reason():
        # Not known, and not to be lost: then it counts as a crash, which costs it a process.
        await job.requeue()
    else:
        past = Past.read(await job.last_reason())
        await job.requeue(reason=past.stopped().reason())
