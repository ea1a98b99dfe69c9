"""Entries for jobs in replies of GETJOB and QPEEK, and the trailer fields in replies of SHOW."""

from typing import Final

from disque_trio.node.core.jobs.job import FLAG_TRAILER, FLAGS_PRIORITY, Job, priority_of
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.node.core.queues.queue import Queue
from disque_trio.protocol.trailer import Trailer
from disque_trio.resp.reply import Value, encode

# What a client may ask GETJOB to add to its entries.
WITH_COUNTERS: Final = 1
WITH_HEADERS: Final = 2
PUSHED: Final = 4  # not asked for: the job is pushed (see ``consumers``)

ONE: Final = b"*1\r\n"  # what comes before a single entry
TAKEN_AT_ONCE: Final = 1 << 20  # bytes of bodies, after which no further job is taken


def size_of(jobs: list[Job]) -> int:
    """The bytes of the bodies of ``jobs``."""
    return sum([len(job.body or b"") for job in jobs])


def job_entry(job: Job, queue: Queue, before: bytes = b"") -> bytes:
    """The entry of ``job`` in a GETJOB reply: queue, id and body, and what comes ``before`` it."""
    body = job.body
    if body is None:
        body = b""
    return b"%b*3\r\n%b%b\r\n$%d\r\n%b\r\n" % (
        before,
        queue.reply_head,
        job.id,
        len(body),
        body,
    )


def job_entry_with(job: Job, queue: Queue, details: int, trailers: Trailers) -> bytes:
    """The entry of ``job`` in a GETJOB reply with ``details``: WITH_COUNTERS, WITH_HEADERS."""
    body = job.body
    if body is None:
        body = b""
    if details == WITH_COUNTERS and not job.flags & (FLAG_TRAILER | FLAGS_PRIORITY):
        return (
            b"*7\r\n%b%b\r\n$%d\r\n%b\r\n$5\r\nnacks\r\n:%d\r\n"
            b"$21\r\nadditional-deliveries\r\n:%d\r\n"
        ) % (queue.reply_head, job.id, len(body), body, job.nacks, job.deliveries)
    trailer = trailers.of(job)
    more: list[Value] = []
    if details & WITH_COUNTERS:
        more += [b"nacks", job.nacks, b"additional-deliveries", job.deliveries]
        more += describe_priority(job)
        if trailer is not None and trailer.letter is not None:
            more += _flat(trailer.letter.shown())
    if details & WITH_HEADERS:
        more += [b"headers", [] if trailer is None else list(trailer.headers)]
    rest = b"".join([encode(value) for value in more])
    return b"*%d\r\n%b%b\r\n$%d\r\n%b\r\n%b" % (
        3 + len(more),
        queue.reply_head,
        job.id,
        len(body),
        body,
        rest,
    )


def describe_priority(job: Job) -> list[Value]:
    """The priority for SHOW and WITHCOUNTERS; nothing if it is 0."""
    priority = priority_of(job)
    return [b"priority", priority] if priority else []


def describe_trailer(trailer: Trailer) -> list[Value]:
    """The fields of ``trailer`` for SHOW, as names and values in turn: only those that are set."""
    headers: list[Value] = [b"headers", list(trailer.headers)] if trailer.headers else []
    return headers + _flat(trailer.shown())


def _flat(fields: list[tuple[bytes, bytes | int]]) -> list[Value]:
    return [part for field in fields for part in field]
