"""Fetches jobs from a node into a lease, before Spark sees a row.

A job that is in no lease is not lost: nobody acknowledges it, so its node delivers it again.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import repeat

import pyarrow as pa

from disque_spark.client import Arg, BlockingClient, RefusedError, WireError, accepted, by_ids
from disque_spark.leases.queue import QueuePlace
from disque_spark.leases.queue_batch import QueueBatch
from disque_spark.leases.store import LeaseError, PartitionPlan
from disque_spark.options import batch_of, text
from disque_trio.respclient.blocking import Reply
from disque_trio.respclient.login import Login

HEADERS = "headers"  # the column
FIRST_FETCH = 16  # jobs to fetch first, to learn how large they are
FETCH_BYTES = (
    64 << 20
)  # approximate size of the bodies in one GETJOB; an Arrow record batch has to be below 2 GiB
WORKING_AT_ONCE = 2000  # so that replies do not pile up while requests are sent


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read.

    Attributes:
        queues: names of queues, in the order for GETJOB.
        pattern: a pattern for names of queues, instead of ``queues``.
        nodes: addresses to begin with.
        discover: whether to ask them for the other nodes.
        partitions_per_node: tasks per node.
        min_partitions: the fewest tasks in total.
        max_jobs: the most jobs in a batch; 0: no limit.
        max_bytes: the most bytes of bodies in a batch; 0: no limit.
        leases: where leases are stored; None with ``ackOnRead``.
        idle_wait: ms that the driver waits in GETJOB when there is nothing to do.
        fetch: the most jobs in one GETJOB; fewer if they are large.
        wait: ms that a task waits in GETJOB when no job is left; 0: does not wait.
        with_ctime: whether to ask for each job's creation time.
        with_headers: whether to ask for each job's headers.
        heartbeat: seconds from one WORKING to the next while fetching.
        login, timeout: see ``BlockingClient``.
        elsewhere: whoever gets the rows sends WORKING, and acknowledges the jobs or hands them
            back.
    """

    queues: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    discover: bool = True
    partitions_per_node: int = 1
    max_jobs: int = 0
    leases: QueuePlace | None = None
    idle_wait: int = 100
    fetch: int = 500
    wait: int = 0
    with_ctime: bool = False
    heartbeat: float = 10.0
    login: Login | None = None
    timeout: float = 60.0
    pattern: str | None = None
    min_partitions: int = 1
    max_bytes: int = 0
    with_headers: bool = False
    elsewhere: bool = False


def leased(
    batch: QueueBatch, number: int, plan: PartitionPlan, options: ReadOptions, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The jobs of a partition: those in its lease, which is created if there is none.

    Raises:
        LeaseError: the batch does not exist here, or its lease is not visible.
        OSError: the lease cannot be written.
    """
    with closing(batch):
        jobs = batch.jobs(number)
        if jobs is None:
            _lease(batch, number, plan, options, schema)
            jobs = batch.jobs(number)
        if jobs is None:
            # Must not count as "no jobs": another attempt's lease would be acknowledged unread.
            raise LeaseError(f"{batch}: there is no lease {number}, or it is not visible here")
        for place, some in enumerate(jobs):
            if not place:
                batch.mark_read(number)
            yield fitted(some, schema)


def take(
    client: BlockingClient, options: ReadOptions, limit: int, schema: pa.Schema, size: int = 0
) -> Iterator[pa.RecordBatch]:
    """Take up to ``limit`` jobs (0: all) from a node, some at a time.

    Args:
        size: the most bytes of bodies, on the assumption that no body is larger than those seen so
            far; 0: no limit.

    Raises:
        WireError: the connection broke; jobs yielded before are taken.
    """
    node, _ = client.hello()
    seen: set[bytes] = set()
    heard = time.monotonic()
    fetch = first_fetch(options, size)
    taken, largest = 0, 1  # bytes
    while not limit or len(seen) < limit:
        count = min(fetch, limit - len(seen)) if limit else fetch
        found = get_jobs(client, options, count, 0)
        if not found and options.wait:
            found = get_jobs(client, options, count, options.wait)
        if not found:
            return
        # If this takes longer than the retry time, a job may be delivered twice.
        new = [job for job in found if _id(job) not in seen]
        seen.update([_id(job) for job in new])
        if new:
            yield job_rows(new, node, times(client, new) if options.with_ctime else None, schema)
        sizes = [len(job[2]) for job in found if isinstance(job[2], bytes)]
        fetch = min(options.fetch, max(1, FETCH_BYTES // max(sum(sizes) // len(sizes), 1)))
        if size:
            taken, largest = taken + sum(sizes), max(largest, *sizes)
            fetch = min(fetch, 2 * count, (size - taken) // largest)
            if fetch < 1:
                return
        if time.monotonic() - heard > options.heartbeat:
            working(client, list(seen))
            heard = time.monotonic()


def first_fetch(options: ReadOptions, size: int) -> int:
    """How many jobs to ask for first, while their sizes are unknown."""
    return 1 if size else min(FIRST_FETCH, options.fetch)


def get_jobs(
    client: BlockingClient, options: ReadOptions, count: int, wait: int
) -> list[list[Reply]]:
    """Send one GETJOB that waits for ``wait`` ms. Returns no jobs if the node is leaving."""
    how: list[Arg] = ["TIMEOUT", wait] if wait else ["NOHANG"]
    how += ["COUNT", count, "WITHCOUNTERS"]
    if options.with_headers:
        how.append("WITHHEADERS")
    if options.pattern is not None:
        how.append("PATTERN")
    queues = options.queues if options.pattern is None else (options.pattern,)
    try:
        found = client.call("GETJOB", *how, "FROM", *queues)
    except RefusedError as refused:
        if refused.code == "LEAVING":
            return []
        raise
    return [job for job in found if isinstance(job, list)] if isinstance(found, list) else []


def job_rows(
    jobs: Sequence[list[Reply]], node: str, ctimes: Sequence[int | None] | None, schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of ``schema`` for jobs from GETJOB. ``ctimes``: microseconds since the epoch."""
    rows: list[tuple[object, ...]] = [
        (_text(id), _text(queue), body, nacks, additional, node, ctime)
        # A dead letter has more fields than these.
        for (queue, id, body, _, nacks, _, additional, *_), ctime in zip(
            jobs, ctimes or repeat(None, len(jobs)), strict=True
        )
    ]
    if HEADERS in schema.names:
        rows = [(*row, headers_of(job)) for row, job in zip(rows, jobs, strict=True)]
    return batch_of(rows, schema)


def headers_of(job: Sequence[Reply]) -> list[dict[str, object]] | None:
    """The headers of a job from GETJOB, in the form of the column; None if it has none."""
    more = dict(zip(job[7::2], job[8::2], strict=True))
    found = more.get(b"headers")
    if not isinstance(found, list) or not found:
        return None
    return [
        {"key": _text(name), "value": value}
        for name, value in zip(found[::2], found[1::2], strict=True)
    ]


def fitted(jobs: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with the columns of ``schema``: ``withHeaders`` may have been different when the lease
    was made."""
    if jobs.schema.names == schema.names:
        return jobs
    columns = [
        jobs.column(field.name)
        if field.name in jobs.schema.names
        else pa.nulls(jobs.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def times(client: BlockingClient, jobs: Sequence[list[Reply]]) -> list[int | None]:
    """When jobs were created, in microseconds since the epoch; None for jobs the node has lost."""
    found: list[int | None] = []
    for fields in client.pipeline([("SHOW", _id(job)) for job in jobs]):
        ctime = None
        if isinstance(fields, list):
            at = fields.index(b"ctime")
            value = fields[at + 1]
            ctime = value // 1000 if isinstance(value, int) else None
        found.append(ctime)
    return found


def acknowledge(client: BlockingClient, ids: Sequence[str | bytes]) -> None:
    """Send ACKJOB for all ``ids``.

    Raises:
        WireError: the connection broke; some jobs may be acknowledged.
    """
    for reply in client.pipeline(by_ids("ACKJOB", ids)):
        accepted(reply)


def give_back(client: BlockingClient, ids: Sequence[str | bytes]) -> None:
    """Send ENQUEUE for all ``ids``. If it fails, their retry time brings them back."""
    with suppress(WireError):
        client.pipeline(by_ids("ENQUEUE", ids))


def working(client: BlockingClient, ids: Sequence[str | bytes]) -> None:
    """Send WORKING for all ``ids``. Has no effect on jobs that are unknown, acknowledged or too
    old.

    Raises:
        WireError: the connection broke.
    """
    for at in range(0, len(ids), WORKING_AT_ONCE):
        client.pipeline([("WORKING", id) for id in ids[at : at + WORKING_AT_ONCE]])


def keep(client: BlockingClient, ids: Sequence[str | bytes]) -> None:
    """Send WORKING at once for newly leased jobs: copies on other nodes may be about to be queued.
    If it fails, the next heartbeat does it."""
    with suppress(WireError):
        working(client, ids)


def _lease(
    batch: QueueBatch, number: int, plan: PartitionPlan, options: ReadOptions, schema: pa.Schema
) -> None:
    taken: list[str] = []
    with (
        closing(batch.draft(schema)) as draft,
        BlockingClient([plan.address], options.login, options.timeout) as client,
    ):
        try:
            for jobs in _until_lost(take(client, options, plan.limit, schema, plan.size)):
                taken += jobs.column(0).to_pylist()
                draft.append(jobs)
        except (OSError, RefusedError):  # the disk is full, or no node can store the lease
            give_back(client, taken)
            raise
        try:
            published = draft.publish(number)
        except WireError:
            raise  # the lease may exist now: its jobs must not be given back
        except OSError:
            give_back(client, taken)
            raise
        if published:
            keep(client, taken)
        else:
            # Another attempt has leased other jobs, so ours need not wait for their retry time.
            leased = batch.leased()
            give_back(client, [id for id in taken if id not in leased])


def _until_lost(jobs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield ``jobs`` until the node is lost: those before that are enough for a batch."""
    with suppress(WireError):
        yield from jobs


def _id(job: list[Reply]) -> bytes:
    id = job[1]
    assert isinstance(id, bytes)
    return id


def _text(name: Reply) -> str:
    assert isinstance(name, bytes)
    return text(name)
