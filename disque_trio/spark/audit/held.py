"""Reads from append-only files which jobs the nodes still hold: the table ``held`` of an audit.

A job that was never delivered and is in such a file waits; one that is in none is lost. The files
are to be those of all nodes, after they have stopped, or a backup that is younger than the log.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from disque_trio.aof.format import AofError
from disque_trio.protocol.serialjob import SerialJobError, decode_job
from disque_trio.spark.audit.classify import DECIDE
from disque_trio.spark.audit.rules import (
    HELD,
    LOST,
    NEVER_ACKED,
    NEVER_DELIVERED,
    NOT_REQUEUED,
    WAITING_LETTER,
)
from disque_trio.spark.audit.stages import tasks
from disque_trio.spark.datasources.aof import live_records
from disque_trio.spark.datasources.pushdown import STATES
from disque_trio.spark.files import Location
from disque_trio.spark.options import batch_of, text

ROWS = 20_000  # in a batch
_DECIDE = DECIDE.format(logs="logs?", nodes=".*") + "$"  # a pattern

_TIME = pa.timestamp("us", tz="UTC")
_HELD = pa.schema(
    [
        ("job", pa.string()),
        ("queue", pa.string()),
        ("node", pa.string()),  # null: nothing beside the file says whose it is
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
    """The jobs in append-only files, a row for each node that has one.

    Args:
        jobs: the table. The column ``logged`` says whether the job is there, ``ended`` how it says
            that the job did; a node that has died before it noted that has it all the same.

    Raises:
        AofError: a file is damaged, other than at its end.
    """
    places = list(files)
    rows = tasks(spark, len(places), lambda number: held_in(places[number]), _HELD)
    known = jobs.select(f.col("id").alias("job"), "ended", f.lit(True).alias("logged"))
    return rows.join(known, "job", "left").withColumn("logged", f.col("logged").isNotNull())


def held_in(path: Location) -> Iterator[pa.RecordBatch]:
    """The jobs in one file that were not deleted since. A crash may have cut it off.

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
    """The id of the node whose file it is, by the ``nodes.conf`` beside it; None: there is none."""
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
    """Whether these are the files of all ``nodes``, as far as one can tell."""
    known = [node_of_aof(path) for path in files]
    return len(files) >= len(nodes) if None in known else set(nodes) <= set(known)


def with_held_jobs(found: DataFrame, held: DataFrame, end: int, all_nodes: bool) -> DataFrame:
    """Findings, those of jobs that are to be delivered yet with what append-only files say of them.

    Args:
        found: with the columns of findings. held: see there.
        end: when the log ends, ms; what had expired by then is held by nobody.
        all_nodes: ``held`` is of all nodes. Without that no job is called lost. Where the log has
            gaps none is either: it may have been delivered there.
    """
    alive = held.where((f.col("state") != "acked") & (f.unix_millis("expires") > end))
    waits = alive.select("job").distinct().withColumn("waits", f.lit(True))
    never = f.col("kind").isin(NEVER_DELIVERED, NOT_REQUEUED, NEVER_ACKED, WAITING_LETTER)
    lost = never & f.col("reason").isNull() & f.lit(all_nodes)
    # That it is in a file does not say that it was not queued again where the log has a gap.
    sure = (f.col("kind") != NOT_REQUEUED) | f.col("reason").isNull()
    reason = f.when(never & f.col("waits") & sure, HELD).when(lost, LOST).otherwise(f.col("reason"))
    # A letter that nobody has waits no more.
    is_gone = (f.col("kind") == WAITING_LETTER) & (reason == LOST)
    kind = f.when(is_gone, NEVER_DELIVERED).otherwise(f.col("kind"))
    # Where a file tells, no log has to.
    told = never & f.col("waits") & sure
    logs = f.when(told, f.array().cast("array<string>")).otherwise(f.col("would_decide"))
    detail = f.when(told, f.regexp_replace("detail", _DECIDE, "")).otherwise(f.col("detail"))
    changed = {"reason": reason, "kind": kind, "would_decide": logs, "detail": detail}
    columns = [changed.get(name, f.col(name)).alias(name) for name in found.columns]
    return found.join(waits, "job", "left").select(*columns)
