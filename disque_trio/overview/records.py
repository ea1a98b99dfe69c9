"""What programs are told of queues, nodes and jobs: the fields of ``disque queues --json`` and the
like, and of the console's HTTP API. docs/cli.md describes them; none is renamed."""

import base64
from typing import Any, Final

from disque_trio.client.shown import ShownJob
from disque_trio.overview.history import quantiles
from disque_trio.overview.nodes import NodeState
from disque_trio.overview.queues import QueueRow

STAGES: Final = ("fresh", "running", "delayed", "retrying", "dead")
"""What jobs are to users, in the words of JSCAN: those that a node answers for, so that each is
listed by one node, or by all that hold it while it waits for its time."""

STATES: Final = (*STAGES, "queued", "active", "acked", "wait-repl")
"""What JSCAN can select jobs by."""


def queue_fields(row: QueueRow) -> dict[str, Any]:
    """A queue. Rates are per second, times in seconds."""
    return {
        "queue": row.name,
        "queued": row.length,
        "added_per_second": row.added,
        "delivered_per_second": row.delivered,
        "acked_per_second": row.acked,
        "expired_per_second": row.expired,
        "oldest": row.oldest,
        "waiting_clients": row.blocked,
        "never_asked_for": row.unasked,
        "paused": row.paused or "none",
        "held_back_by": row.held_by.split(),
        "groups": row.groups,
        "in_hand": row.in_hand,
        "delayed": row.delayed,
        "dead": row.dead,
        "nodes": list(row.nodes),
        "moved_per_second": row.moved,
        "waiting": quantiles(row.wait),
        "processing": quantiles(row.processing),
        "older_nodes": list(row.older),
    }


_WORDS: Final = {"here": "up", "away": "unreachable"}


def status_of(state: NodeState) -> str:
    """``up``, ``leaving``, ``unreachable`` or ``connecting``."""
    return _WORDS.get(state.status, state.status)


def node_fields(state: NodeState) -> dict[str, Any]:
    """A node. Times are in seconds, ``since`` since the epoch."""
    return {
        "node": state.address,
        "id": state.id,
        "state": status_of(state),
        "since": round(state.since, 3),
        "problem": state.problem or state.refused,
        "version": state.info.get("disque_version", ""),
        "uptime": state.number("uptime_in_seconds"),
        "jobs": state.number("registered_jobs"),
        "queues": state.number("registered_queues"),
        "clients": state.number("connected_clients"),
        "used_memory": state.number("used_memory"),
        "maxmemory": state.number("maxmemory"),
        "jobs_on_disk": state.number("paging_jobs"),
        "added_per_second": state.rate("added"),
        "delivered_per_second": state.rate("delivered"),
        "acked_per_second": state.rate("acked"),
        "failed_per_second": state.rate("failed"),
        "alarms": [line._asdict() for line in state.alarms],
    }


def stage_of(job: ShownJob, now: float) -> str:
    """In which of ``STAGES`` a job is at ``now`` (s since the epoch), or the state that its node
    tells."""
    if job.client:
        return "running" if job.retry else "delivered"
    waits = job.state == "active" and _is_put_off(job, now)
    if job.state == "queued" or waits:
        if job.is_dead_letter:
            return "dead"
        if job.nacks + job.additional_deliveries:
            return "retrying"
        return "delayed" if waits else "fresh"
    return job.state


def _is_put_off(job: ShownJob, now: float) -> bool:
    return bool(job.delay) and now < job.created + job.delay


def due_in(job: ShownJob, now: float) -> float | None:
    """Seconds from ``now`` (s since the epoch) until a job that is put off is queued."""
    if _is_put_off(job, now):
        return job.created + job.delay - now  # some of its nodes look at it only a retry time later
    waits = [ms for ms in (job.next_awake_within, job.next_requeue_within) if ms is not None]
    return min(waits) / 1000 if waits else None


def tries_of(job: ShownJob) -> int:
    """How often it was delivered, as far as its node knows."""
    if job.is_dead_letter:
        return job.dead_attempts
    came_back = job.nacks + job.additional_deliveries
    return max(job.attempts or 0, came_back + (1 if job.client else 0))


def last_error_of(job: ShownJob) -> str:
    """Why it came back last, or became a dead letter."""
    return job.dead_reason or job.last_reason or job.dead_why


def body_fields(body: bytes, size: int) -> dict[str, Any]:
    """A body: ``body`` if it is text, ``body_base64`` if it is not."""
    cut = size > len(body)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        if not (cut and error.start >= len(body) - 3):  # cut off within a character
            return {"body_base64": base64.b64encode(body).decode()}
        text = body[: error.start].decode()
    return {"body": text}


def job_fields(job: ShownJob, node: str, now: float) -> dict[str, Any]:
    """A job, as ``node`` tells of it at ``now`` (s since the epoch). Times are in seconds;
    ``added`` is since the epoch."""
    letter = job.letter
    return {
        "id": job.id,
        "queue": job.queue,
        "state": stage_of(job, now),
        "node": node,
        "added": round(job.created, 3),
        "ttl": job.ttl,
        "retry": job.retry,
        "delay": job.delay,
        "copies": job.repl,
        "priority": job.priority,
        "tries": tries_of(job),
        "nacks": job.nacks,
        "additional_deliveries": job.additional_deliveries,
        "due_in": due_in(job, now) if job.state == "active" and not job.client else None,
        "running_for": None if job.client_since is None else job.client_since / 1000,
        "client": job.client or None,
        "group": job.group,
        "unique": job.unique_key,
        "note": job.note,
        "added_to": job.added_to or job.queue,
        "headers": [list(pair) for pair in job.header_pairs],
        "last_error": last_error_of(job),
        "dead_from": None if letter is None else letter.queue,
        "dead_why": None if letter is None else letter.why,
        "first_id": None if letter is None else letter.first_id,
        "progress": float(job.progress) if job.progress else None,
        "progress_text": job.progress_text,
        "body_size": job.body_size,
        **body_fields(job.body, job.body_size),
    }
