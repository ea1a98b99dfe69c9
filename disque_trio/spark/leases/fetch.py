"""Fetches jobs from a node into a lease before Spark sees a row.

A job that is in no lease is not lost: nobody acknowledges it, so its node delivers it again.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import repeat

import pyarrow as pa

from disque_trio.respclient.login import Login
from disque_trio.spark.client import (
    Arg,
    BlockingClient,
    RefusedError,
    Reply,
    WireError,
    accepted,
    by_ids,
)
from disque_trio.spark.leases.store import LeaseError, LeasePlace, PartitionPlan, TaskBatch
from disque_trio.spark.options import batch_of, text

HEADERS = "headers"  # the column
FIRST_FETCH = 16  # jobs to see how large they are
FETCH_BYTES = (
    64 << 20
)  # of bodies in one GETJOB, about; a record batch of Arrow has to be below 2 GiB
WORKING_AT_ONCE = 2000  # so that answers wait nowhere while requests are sent


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read.

    Attributes:
        queues: in the order of GETJOB's. pattern: of their names, instead.
        nodes: addresses to begin with. discover: whether to ask them for the others.
        partitions_per_node: tasks a node has. min_partitions: tasks in all, at least.
        max_jobs: in a batch; 0: as many as there are. max_bytes: of bodies, likewise.
        leases: where they are kept; None with ``ackOnRead``.
        idle_wait: ms that the driver waits in GETJOB when there is nothing to do.
        fetch: jobs in one GETJOB, at most; fewer if they are large.
        wait: ms that a task waits in GETJOB when there is no job left; 0: not at all.
        with_ctime: whether to ask for each job's time of creation. with_headers: or its headers.
        heartbeat: seconds between two WORKINGs while it takes long.
        login, timeout: of connections, see ``BlockingClient``.
        elsewhere: who gets the rows acknowledges, or hands back, and says WORKING.
    """

    queues: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    discover: bool = True
    partitions_per_node: int = 1
    max_jobs: int = 0
    leases: LeasePlace | None = None
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
    batch: TaskBatch, number: int, plan: PartitionPlan, options: ReadOptions, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The jobs of a partition: those in its lease, which is made if there is none.

    Raises:
        LeaseError: the batch is not here, or its lease cannot be seen.
        OSError: the lease cannot be written.
    """
    with closing(batch):
        jobs = batch.jobs(number)
        if jobs is None:
            _lease(batch, number, plan, options, schema)
            jobs = batch.jobs(number)
        if jobs is None:
            # Not to be taken for no jobs: whoever has leased some gets them acknowledged.
            raise LeaseError(f"{batch}: there is no lease {number}, or it cannot be seen from here")
        for place, some in enumerate(jobs):
            if not place:
                batch.mark_read(number)
            yield fitted(some, schema)


def take(
    client: BlockingClient, options: ReadOptions, limit: int, schema: pa.Schema, size: int = 0
) -> Iterator[pa.RecordBatch]:
    """Take up to ``limit`` jobs (0: all) from a node, some at a time.

    Args:
        size: bytes of bodies. No more jobs are asked for than fit into it if none is larger than
            those that came; 0: no limit.

    Raises:
        WireError: the connection broke; what was given before is taken.
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
        # Who takes for longer than the retry time may be given a job twice.
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
    """How many jobs to ask for at first, when nobody knows how large they are."""
    return 1 if size else min(FIRST_FETCH, options.fetch)


def get_jobs(
    client: BlockingClient, options: ReadOptions, count: int, wait: int
) -> list[list[Reply]]:
    """One GETJOB; ``wait`` in ms, 0: not at all. None come from a node that is leaving."""
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
    """Rows of ``schema``, of what GETJOB gave. ``ctimes``: microseconds since the epoch."""
    rows: list[tuple[object, ...]] = [
        (_text(id), _text(queue), body, nacks, additional, node, ctime)
        # A dead letter has more than these.
        for (queue, id, body, _, nacks, _, additional, *_), ctime in zip(
            jobs, ctimes or repeat(None, len(jobs)), strict=True
        )
    ]
    if HEADERS in schema.names:
        rows = [(*row, headers_of(job)) for row, job in zip(rows, jobs, strict=True)]
    return batch_of(rows, schema)


def headers_of(job: Sequence[Reply]) -> list[dict[str, object]] | None:
    """The headers that GETJOB told of a job, in the form of the column; None if it has none."""
    more = dict(zip(job[7::2], job[8::2], strict=True))
    found = more.get(b"headers")
    if not isinstance(found, list) or not found:
        return None
    return [
        {"key": _text(name), "value": value}
        for name, value in zip(found[::2], found[1::2], strict=True)
    ]


def fitted(jobs: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a lease that was made when ``withHeaders`` said something else."""
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
    """When jobs were created, in microseconds since the epoch; None if the node lost one."""
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
    """Say ACKJOB for all ``ids``.

    Raises:
        WireError: the connection broke; some are said then.
    """
    for reply in client.pipeline(by_ids("ACKJOB", ids)):
        accepted(reply)


def give_back(client: BlockingClient, ids: Sequence[str | bytes]) -> None:
    """Say ENQUEUE for all ``ids``. If that fails they come again by their retry time."""
    with suppress(WireError):
        client.pipeline(by_ids("ENQUEUE", ids))


def working(client: BlockingClient, ids: Sequence[str | bytes]) -> None:
    """Say WORKING for all ``ids``. Jobs that are unknown, acknowledged or old stay as they are.

    Raises:
        WireError: the connection broke.
    """
    for at in range(0, len(ids), WORKING_AT_ONCE):
        client.pipeline([("WORKING", id) for id in ids[at : at + WORKING_AT_ONCE]])


def keep(client: BlockingClient, ids: Sequence[str | bytes]) -> None:
    """Say WORKING at once for jobs that are in a lease now: copies elsewhere may be about to come
    into their queues. If that fails the next heartbeat does it."""
    with suppress(WireError):
        working(client, ids)


def _lease(
    batch: TaskBatch, number: int, plan: PartitionPlan, options: ReadOptions, schema: pa.Schema
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
        except (OSError, RefusedError):  # a full disk, or no node that keeps the lease
            give_back(client, taken)
            raise
        try:
            published = draft.publish(number)
        except WireError:
            raise  # it may be a lease now: then its jobs must not come again
        except OSError:
            give_back(client, taken)
            raise
        if published:
            keep(client, taken)
        else:
            # Another attempt has leased other jobs: these need not wait for their retry time.
            leased = batch.leased()
            give_back(client, [id for id in taken if id not in leased])


def _until_lost(jobs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What comes until the node is lost is enough for a batch."""
    with suppress(WireError):
        yield from jobs


def _id(job: list[Reply]) -> bytes:
    id = job[1]
    assert isinstance(id, bytes)
    return id


def _text(name: Reply) -> str:
    assert isinstance(name, bytes)
    return text(name)
