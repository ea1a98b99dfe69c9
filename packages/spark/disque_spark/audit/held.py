"""Reads from append-only files which jobs the nodes still hold: the table ``held`` of an audit.

A job that was never delivered and is in such a file is waiting; if it is in none, it is lost. The
files must be those of all nodes, from after they stopped, or from a backup made after the end of
the logs.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from disque_spark.audit.classify import DECIDE
from disque_spark.audit.rules import (
    HELD,
    LOST,
    NEVER_ACKED,
    NEVER_DELIVERED,
    NOT_REQUEUED,
    WAITING_LETTER,
)
from disque_spark.audit.stages import tasks
from disque_spark.datasources.aof import live_records
from disque_spark.datasources.pushdown import STATES
from disque_spark.files import Location
from disque_spark.options import batch_of, text
from disque_trio.aof.format import AofError
from disque_trio.protocol.serialjob import SerialJobError, decode_job

ROWS = 20_000  # rows in a record batch
_DECIDE = DECIDE.format(logs="logs?", nodes=".*") + "$"  # a pattern

_TIME = pa.timestamp("us", tz="UTC")
_HELD = pa.schema(
    [
        ("job", pa.string()),
        ("queue", pa.string()),
        ("node", pa.string()),  # null: there is no nodes.conf beside the file
        ("file", pa.string()),
        ("state", pa.string()),
        ("repl", pa.int32()),
        ("nacks", pa.int32()),
        ("additional", pa.int32()),
        ("delay", pa.int64()),
        ("retry", pa.int64()),
        ("ctime", _TIME),
        ("expires", _TIME),
    ]
)
TABLE_SCHEMA = pa.schema([*_HELD, ("ended", pa.string()), ("logged", pa.bool_())])


def held(spark: SparkSession, files: Sequence[Location], jobs: DataFrame) -> DataFrame:
    """The jobs in append-only files, with a row for each node that has the job.

    Args:
        files: the files.
        jobs: the table ``jobs``. The column ``logged`` says whether it has the job, and ``ended``
            how the job ended according to it; a node that died before it recorded the end still has
            the job in its file.

    Raises:
        AofError: a file is damaged, other than at its end.
    """
    places = list(files)
    rows = tasks(spark, len(places), lambda number: held_in(places[number]), _HELD)
    known = jobs.select(f.col("id").alias("job"), "ended", f.lit(True).alias("logged"))
    return rows.join(known, "job", "left").withColumn("logged", f.col("logged").isNotNull())


def held_in(path: Location) -> Iterator[pa.RecordBatch]:
    """The jobs in one file that were not deleted. A crash may have truncated it.

    Raises:
        AofError: it is damaged elsewhere.
    """
    node = node_of_aof(path)
    rows: list[tuple[object, ...]] = []
    with path.open_input(0) as file:
        try:
            for offset, _, data in live_records(file):
                rows.append(_row(offset, data, path, node))
                if len(rows) >= ROWS:
                    yield batch_of(rows, _HELD)
                    rows = []
        except AofError as failure:
            if not failure.truncated:
                raise AofError(failure.offset, f"{failure.reason} ({path})", False) from None
    if rows:
        yield batch_of(rows, _HELD)


def _row(offset: int, data: bytes, path: Location, node: str | None) -> tuple[object, ...]:
    try:
        job = decode_job(data)
    except SerialJobError as problem:
        raise AofError(offset, str(problem), False) from problem
    id = job.id.decode("ascii", "backslashreplace")
    created, expires = job.ctime // 1000, job.etime * 1_000_000
    numbers = (job.repl, job.nacks, job.deliveries, job.delay, job.retry, created, expires)
    return (id, text(job.queue), node, str(path), STATES[job.state], *numbers)


def node_of_aof(path: Location) -> str | None:
    """The id of the node that wrote a file, from the ``nodes.conf`` beside it; None if unknown."""
    try:
        lines = (path.parent / "nodes.conf").read_bytes().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) > 2 and "myself" in fields[2].split(","):
            return fields[0]
    return None


def are_all(files: Sequence[Location], nodes: Sequence[str]) -> bool:
    """Whether these are the files of all ``nodes``, as far as is known."""
    known = [node_of_aof(path) for path in files]
    return len(files) >= len(nodes) if None in known else set(nodes) <= set(known)


def with_held_jobs(found: DataFrame, held: DataFrame, end: int, all_nodes: bool) -> DataFrame:
    """Findings, changed by what append-only files say about jobs still to be delivered.

    Args:
        found: rows of the table ``findings``.
        held: see ``held``.
        end: when the log ends, ms; jobs that had expired by then are not held.
        all_nodes: whether ``held`` is complete. If not, no job is called lost. Neither is a job
            that may have been delivered in a gap of a log.
    """
    alive = held.where((f.col("state") != "acked") & (f.unix_millis("expires") > end))
    waits = alive.select("job").distinct().withColumn("waits", f.lit(True))
    never = f.col("kind").isin(NEVER_DELIVERED, NOT_REQUEUED, NEVER_ACKED, WAITING_LETTER)
    lost = never & f.col("reason").isNull() & f.lit(all_nodes)
    # Even if a job is in a file, it may have been queued again in a gap of the log.
    sure = (f.col("kind") != NOT_REQUEUED) | f.col("reason").isNull()
    reason = f.when(never & f.col("waits") & sure, HELD).when(lost, LOST).otherwise(f.col("reason"))
    # A dead letter that no node has is not waiting.
    is_gone = (f.col("kind") == WAITING_LETTER) & (reason == LOST)
    kind = f.when(is_gone, NEVER_DELIVERED).otherwise(f.col("kind"))
    # If a file decides, no log is needed for that.
    told = never & f.col("waits") & sure
    logs = f.when(told, f.array().cast("array<string>")).otherwise(f.col("would_decide"))
    detail = f.when(told, f.regexp_replace("detail", _DECIDE, "")).otherwise(f.col("detail"))
    changed = {"reason": reason, "kind": kind, "would_decide": logs, "detail": detail}
    columns = [changed.get(name, f.col(name)).alias(name) for name in found.columns]
    return found.join(waits, "job", "left").select(*columns)
