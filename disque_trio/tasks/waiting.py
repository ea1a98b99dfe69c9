"""Why a job has not ended: what a node knows of it and of its queue."""

from disque_trio.client import Client, DisqueError
from disque_trio.client.replies import Record
from disque_trio.client.shown import ShownJob
from disque_trio.job_past import Past, split_trace


async def why_pending(client: Client, id: str) -> str:
    """Return what holds up a job, as far as the nodes in use know; empty if they do not. Asks
    nothing that the user may not ask, and raises nothing."""
    try:
        record = await client.show(id)
        if record is None:
            return ""
        job = ShownJob.of(record)
        failed = f"; attempts that failed: {job.nacks}" if job.nacks else ""
        reason, _ = split_trace(Past.read(job.last_reason).said)
        failed += f", the last with {reason}" if failed and reason else ""
        if job.state != "queued":
            later = "; it is delayed" if job.delay and not job.nacks else ""
            return (failed or later or "; a worker has it").removeprefix("; ")
        stat = await client.qstat(job.queue) or {}
    except DisqueError:
        return ""
    return queue_text(job.queue, stat) + failed


def queue_text(queue: str, stat: Record) -> str:
    """Describe a queue with a job that waits, from the reply to QSTAT."""
    count = stat.get("len")
    waits = "1 job waits" if count == 1 else f"{count!r} jobs wait"
    if stat.get("pause") in ("out", "all"):
        return f"{waits} in {queue}, which is paused"
    if stat.get("blocked"):
        return f"{waits} in {queue} for a worker that may take it"
    if stat.get("jobs-out"):
        return f"{waits} in {queue}; no worker waits for one now"
    return f"{waits} in {queue}; no worker has asked for it"
