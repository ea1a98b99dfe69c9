"""Taking jobs from a node into a lease: what a task does before Spark sees a row.

A job that is in no lease is not lost: nobody acknowledges it, so its node delivers it again.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from disque_trio.spark.leases import LeaseError, LeaseFile, Share, leased_jobs, mark_read
from disque_trio.spark.options import text
from disque_trio.spark.wire import Arg, RefusedError, Reply, Wire, WireError, accepted

ACK_IDS = 500  # in one command
FIRST_FETCH = 16  # jobs to see how large they are
FETCH_BYTES = (
    64 << 20
)  # of bodies in one GETJOB, about; a record batch of Arrow has to be below 2 GiB
WORKING_AT_ONCE = 2000  # so that answers wait nowhere while requests are sent


@dataclass(frozen=True)
class Taking:
    """How to take jobs.

    Attributes:
        queues: in the order of GETJOB's.
        fetch: jobs in one GETJOB, at most; fewer if they are large.
        wait: ms to wait in GETJOB when there is no job left; 0: not at all.
        with_ctime: whether to ask for each job's time of creation.
        heartbeat: seconds between two WORKINGs while it takes long.
        password, timeout: of connections, see ``Wire``.
    """

    queues: tuple[str, ...]
    fetch: int = 500
    wait: int = 0
    with_ctime: bool = False
    heartbeat: float = 10.0
    password: str | None = None
    timeout: float = 60.0


def leased(
    batch: Path, number: int, share: Share, taking: Taking, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The jobs of a share: those in its lease, which is made if there is none.

    Raises:
        LeaseError: the batch is not here, or its lease cannot be seen.
        OSError: the lease cannot be written.
    """
    jobs = leased_jobs(batch, number)
    if jobs is None:
        _lease(batch, number, share, taking, schema)
        jobs = leased_jobs(batch, number)
    if jobs is None:
        # Not to be taken for no jobs: whoever has leased some gets them acknowledged.
        raise LeaseError(f"{batch}: there is no lease {number}, or it cannot be seen from here")
    if jobs:
        mark_read(batch, number)
        yield from jobs


def take(wire: Wire, taking: Taking, limit: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Take up to ``limit`` jobs (0: all) from a node, some at a time.

    Raises:
        WireError: the connection broke; what was given before is taken.
    """
    node, _ = wire.hello()
    seen: set[bytes] = set()
    heard = time.monotonic()
    fetch = min(FIRST_FETCH, taking.fetch)
    while not limit or len(seen) < limit:
        count = min(fetch, limit - len(seen)) if limit else fetch
        found = get_jobs(wire, taking.queues, count, 0)
        if not found and taking.wait:
            found = get_jobs(wire, taking.queues, count, taking.wait)
        if not found:
            return
        # Who takes for longer than the retry time may be given a job twice.
        new = [job for job in found if _id(job) not in seen]
        seen.update([_id(job) for job in new])
        if new:
            yield job_rows(new, node, times(wire, new) if taking.with_ctime else None, schema)
        fetch = min(taking.fetch, max(1, FETCH_BYTES // max(_mean_size(found), 1)))
        if time.monotonic() - heard > taking.heartbeat:
            working(wire, list(seen))
            heard = time.monotonic()


def get_jobs(wire: Wire, queues: Sequence[str], count: int, wait: int) -> list[list[Reply]]:
    """One GETJOB; ``wait`` in ms, 0: not at all. None come from a node that is leaving."""
    how: list[Arg] = ["TIMEOUT", wait] if wait else ["NOHANG"]
    try:
        found = wire.call("GETJOB", *how, "COUNT", count, "WITHCOUNTERS", "FROM", *queues)
    except RefusedError as refused:
        if refused.code == "LEAVING":
            return []
        raise
    return [job for job in found if isinstance(job, list)] if isinstance(found, list) else []


def job_rows(
    jobs: Sequence[list[Reply]], node: str, ctimes: Sequence[int | None] | None, schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of ``schema``, of what GETJOB gave. ``ctimes``: microseconds since the epoch."""
    columns = [
        [_text(job[1]) for job in jobs],
        [_text(job[0]) for job in jobs],
        [job[2] for job in jobs],
        [job[4] for job in jobs],
        [job[6] for job in jobs],
        [node] * len(jobs),
        list(ctimes) if ctimes is not None else [None] * len(jobs),
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def times(wire: Wire, jobs: Sequence[list[Reply]]) -> list[int | None]:
    """When jobs were created, in microseconds since the epoch; None if the node lost one."""
    found: list[int | None] = []
    for fields in wire.pipeline([("SHOW", _id(job)) for job in jobs]):
        ctime = None
        if isinstance(fields, list):
            at = fields.index(b"ctime")
            value = fields[at + 1]
            ctime = value // 1000 if isinstance(value, int) else None
        found.append(ctime)
    return found


def acknowledge(wire: Wire, ids: Sequence[str | bytes]) -> None:
    """Say ACKJOB for all ``ids``.

    Raises:
        WireError: the connection broke; some are said then.
    """
    replies = wire.pipeline(
        [("ACKJOB", *ids[at : at + ACK_IDS]) for at in range(0, len(ids), ACK_IDS)]
    )
    for reply in replies:
        accepted(reply)


def give_back(wire: Wire, ids: Sequence[str | bytes]) -> None:
    """Say ENQUEUE for all ``ids``. If that fails they come again by their retry time."""
    try:
        wire.pipeline([("ENQUEUE", *ids[at : at + ACK_IDS]) for at in range(0, len(ids), ACK_IDS)])
    except WireError:
        pass


def working(wire: Wire, ids: Sequence[str | bytes]) -> None:
    """Say WORKING for all ``ids``. Jobs that are unknown, acknowledged or old stay as they are.

    Raises:
        WireError: the connection broke.
    """
    for at in range(0, len(ids), WORKING_AT_ONCE):
        wire.pipeline([("WORKING", id) for id in ids[at : at + WORKING_AT_ONCE]])


def _lease(batch: Path, number: int, share: Share, taking: Taking, schema: pa.Schema) -> None:
    file = LeaseFile(batch, schema)
    taken: list[str] = []
    try:
        with Wire([share.address], taking.password, reply_timeout=taking.timeout) as wire:
            try:
                for jobs in _until_lost(take(wire, taking, share.limit, schema)):
                    taken += jobs.column(0).to_pylist()
                    file.append(jobs)
                published = file.publish(number)
            except OSError:  # a full disk
                give_back(wire, taken)
                raise
            # Another attempt has leased other jobs: these need not wait for their retry time.
            if not published:
                give_back(wire, taken)
    finally:
        file.close()


def _until_lost(jobs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What comes until the node is lost is enough for a batch."""
    try:
        yield from jobs
    except WireError:
        pass


def _mean_size(jobs: Sequence[list[Reply]]) -> int:
    """Of the bodies, in bytes."""
    return sum([len(job[2]) for job in jobs if isinstance(job[2], bytes)]) // len(jobs)


def _id(job: list[Reply]) -> bytes:
    id = job[1]
    assert isinstance(id, bytes)
    return id


def _text(name: Reply) -> str:
    assert isinstance(name, bytes)
    return text(name)
