"""Archives queues into a table: a stream that acknowledges jobs once they are in permanent files.

The table is partitioned by queue and day. Its directory also has directories that readers of the
table skip: the checkpoint of the stream, the name of its leases, and the files of incomplete
batches. A job that was delivered twice is in the table twice; ``read_archive`` drops duplicates.

Tasks write the files of a batch to a staging directory. When they are complete, the driver commits
them to the table as its format requires (``lakehouse``). Repeated batches are recognized.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from uuid import uuid4

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from disque_spark.classic import Py4JJavaError
from disque_spark.defaults import PARQUET
from disque_spark.failures import one_line, text_of
from disque_spark.files import Location, location, settings_of
from disque_spark.health import HealthFile
from disque_spark.lakehouse.bodies import decoded, with_columns_of
from disque_spark.lakehouse.columns import BAD
from disque_spark.lakehouse.files import WRITTEN, DataFile, TaskWriter, few
from disque_spark.lakehouse.formats import table_of
from disque_spark.lakehouse.reading import more_columns, read_table
from disque_spark.lakehouse.settings import TableFailedError, TableSettings, table_failures
from disque_spark.lakehouse.table import StreamBatch, Table
from disque_spark.leases.keeper import LeaseKeeper
from disque_spark.leases.places import place_of
from disque_spark.leases.planner import Offset
from disque_spark.leases.queue import QueuePlace
from disque_spark.options import arrow_schema
from disque_spark.package import is_remote
from disque_spark.restarts import LONGEST_PAUSE, Restarts, wait
from disque_trio.disk import sync_directory

CHECKPOINT = "_checkpoint"
LEASES = "_leases"
_LEASE_QUEUE = f"{LEASES}/queue"
STAGING = "_staging"
_LOOK_SECONDS = 1


class ArchiveError(Exception):
    """An archive cannot be written or read; the text says which, and why."""


@dataclass
class _State:
    """The state shared by the thread that adds batches and the one that waits for it.

    Attributes:
        closing: no further batch may begin.
        adding: a batch is being added.
        added: number of the last batch added by this stream; -1: none.
        total: rows written by all streams.
        last: number of the last batch with jobs that Spark has reported; -1: none.
        undecoded: jobs whose bodies could not be decoded, in the batches added.
        bad: fields of other bodies that could not be decoded.
    """

    closing: bool = False
    adding: bool = False
    added: int = -1
    total: int = 0
    last: int = -1
    undecoded: int = 0
    bad: int = 0


@dataclass(frozen=True)
class Archive:
    """An archive: its settings, and the stream that writes it.

    Attributes:
        nodes: addresses ``host:port``.
        queues: names of queues.
        table: directory of the table.
        source: Spark data source that jobs come from.
        settings: how the table is written.
        seconds: from the start of one batch to the next; 0: no pause.
        available_now: end when the jobs queued now are in the table.
        options: further options of the source.
        checkpoint: a directory that Spark can use; None: one in the table's directory, which has
            to be local.
    """

    nodes: Sequence[str]
    queues: Sequence[str]
    table: Location | PathLike[str] | str
    source: str = "disque"
    settings: TableSettings = field(default_factory=TableSettings)
    seconds: int = 10
    available_now: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str | None = None
    _state: _State = field(default_factory=_State, init=False, repr=False)

    def jobs(self, spark: SparkSession) -> DataFrame:
        """The rows of the table, as a stream. If its bodies are decoded, the column ``BAD`` is not
        one of the table's."""
        options = {
            "nodes": ",".join(self.nodes),
            **self._leases(),
            **self.options,
        }
        if len(self.queues) == 1:  # its name may have commas
            options["queue"] = self.queues[0]
        else:
            options["queues"] = ",".join(self.queues)
        rows = spark.readStream.format(self.source).options(**options).load()
        # The time of the batch; it stays the same if the batch is repeated.
        now = f.current_timestamp()
        # In UTC, whatever the session's time zone is, as compaction does.
        day = f.date_from_unix_date(f.floor(f.unix_micros(now) / 86_400_000_000).cast("int"))
        rows = rows.select("*", now.alias("archived_at"), day.alias("day"))
        return decoded(rows, self.settings.body, self.settings.drop_body)

    @property
    def place(self) -> Location:
        """Where the table is."""
        return location(self.table)

    @property
    def _checkpoint(self) -> Location:
        place = self.place
        if self.checkpoint is None and place.local is None:
            raise ArchiveError(f"{place}: needs a checkpoint in a directory that Spark can use")
        return location(self.checkpoint) if self.checkpoint else place / CHECKPOINT

    def leases(self) -> QueuePlace:
        """Where the leases of the stream are.

        Raises:
            ArchiveError: an earlier release has left leases in the table's directory.
        """
        self._name_leases()
        return place_of({"nodes": ",".join(self.nodes), **self._leases(), **self.options})

    def _name_leases(self) -> None:
        """Make up a name for the leases, if they have none. A path is not the same table on all
        machines, so the name is beside the table."""
        place = self.place
        if place.local is not None:
            check_left(place)
            make_directory(place.local / LEASES)
            (place / _LEASE_QUEUE).put_new(f"archive-{uuid4().hex[:16]}".encode())

    def _leases(self) -> dict[str, str]:
        """Options for leases, unless given."""
        if any(name.lower() == "leasequeue" for name in self.options):
            return {}
        place = self.place
        if place.local is None:
            name = hashlib.sha256(place.uri.encode()).hexdigest()[:16]
            return {"leaseQueue": f"archive-{name}"}
        named = place / _LEASE_QUEUE
        return {"leaseQueue": named.read_bytes().decode() if named.exists() else "archive-new"}

    @property
    def undecoded(self) -> int:
        """How many bodies could not be decoded, in the batches added."""
        return self._state.undecoded

    @property
    def bad(self) -> int:
        """How many fields of the other bodies could not be decoded, in the batches added."""
        return self._state.bad

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the stream, or continue where an earlier run has ended.

        Raises:
            TableError: the table has other settings, or its format needs a package that is not
                installed.
            TableFailedError: the table cannot be reached or written to at the moment.
        """
        self._state.added = -1
        place, checkpoint = self.place, self._checkpoint
        table = table_of(place, self.settings)
        with table_failures(str(place)):
            before = TableSettings.read(place)
            old = before.body if before is not None else None
            settings = replace(self.settings, body=with_columns_of(spark, old, self.settings.body))
            self._name_leases()
            jobs = replace(self, settings=settings).jobs(spark)
            replace(settings, columns=more_columns(jobs.schema)).keep(place)
            table.create(arrow_schema(jobs.drop(BAD).schema))
        writer = jobs.writeStream.option("checkpointLocation", str(checkpoint)).queryName(
            f"archive {','.join(self.queues)}"
        )
        writer = writer.foreachBatch(lambda batch, number: self._add(table, batch, number))
        if self.available_now:
            writer = writer.trigger(availableNow=True)
        elif self.seconds:
            writer = writer.trigger(processingTime=f"{self.seconds} seconds")
        return writer.start()

    def acknowledge(self) -> None:
        """Acknowledge the last batch of a stream that has ended, if it is complete. Spark tells the
        source about it only at the next batch; until then, its jobs would be delivered again after
        RETRY.

        Raises:
            LeaseError: a stream is running.
            WireError: no node can be reached; the next run will acknowledge it.
        """
        offset = _committed(self._checkpoint)
        if offset is None:
            return
        leases = self.leases()
        with closing(leases.open()) as log:
            if log.identity == offset.log:
                LeaseKeeper(log, self.nodes, leases.login).finish(offset.seq)

    def run(
        self,
        spark: SparkSession,
        progress: Callable[[str], None],
        tell: Callable[[str], None],
        stop: Callable[[], object] = lambda: False,
        restarts: Restarts | None = None,
        health: HealthFile | None = None,
    ) -> int:
        """Run the stream until it ends. If it fails, restart it from its checkpoint where that may
        help. Returns how many rows were written.

        Args:
            progress: called now and then with a line about the progress.
            tell: called with a line about each failure before a restart.
            stop: whether to end the stream; the current batch is finished first.
            restarts: decides about restarts.
            health: the health file to keep.

        Raises:
            TableError: the table has other settings, or needs a package that is not installed.
            PySparkException, Py4JJavaError, TableFailedError: the stream failed, and restarting
                does not help.
        """
        restarts = restarts or Restarts()
        health = health or HealthFile()
        before = done = self._state.total

        def went_on(text: str) -> None:
            nonlocal done
            if self._state.total > done:  # an idle stream reports progress, too
                restarts.progress()
            done = self._state.total
            health.running(self._state.last, done - before)
            progress(text)

        while not stop():
            query = None
            try:
                health.starting()
                query = self.start(spark)
                self.follow(query, went_on, stop)
                break
            except (PySparkException, Py4JJavaError, TableFailedError) as failure:
                line = one_line(failure)
                pause = restarts.pause(text_of(failure), line)
                if query is not None and query.isActive:  # only the call failed
                    query.stop()
                    wait(LONGEST_PAUSE, lambda: not self._state.adding)
                if pause is None:
                    raise
                health.restarting(line, pause)
                tell(f"{line}; restarting in {pause:.0f} s")
            wait(pause, stop)
        return self._state.total - before

    def follow(
        self,
        query: StreamingQuery,
        progress: Callable[[str], None],
        stop: Callable[[], object] = lambda: False,
    ) -> int:
        """Wait for the end of the stream. Returns how many rows it wrote.

        Args:
            progress: called now and then with a line about the progress.
            stop: whether to end the stream; the current batch is finished first.

        Raises:
            StreamingQueryException: the stream failed.
        """
        seen = ""
        over = last = -1
        ended = False
        state = self._state
        before = state.total
        while not ended:
            failure = None
            try:
                ended = bool(query.awaitTermination(_LOOK_SECONDS))
            except StreamingQueryException as problem:
                failure = problem
                ended = True
            for done in query.recentProgress:
                over = max(over, done["batchId"])
                # Not by the number of the batch: an idle stream reports that of the next one.
                if done["timestamp"] > seen:
                    seen = done["timestamp"]
                    rows = _rows(done)
                    state.total += rows
                    if rows:
                        state.last = done["batchId"]
                    progress(f"batch {done['batchId']}: {state.total - before} jobs")
            if failure is not None and not state.closing:
                raise failure
            if not ended and stop():
                if not state.closing:
                    state.closing = True
                    last = over
                if self._rests(query, over, last):
                    query.stop()
        return state.total - before

    def _rests(self, query: StreamingQuery, over: int, last: int) -> bool:
        """Whether the stream is between two batches, or as close to that as can be known.

        Args:
            over: the last batch that Spark has reported.
            last: the last one it had reported when the stream was told to stop.
        """
        if is_remote(query):  # batches are added in a process of the server, without our state
            # If the stream is never idle, the next batch has just begun: the next run repeats it.
            return over > last or not query.status["isTriggerActive"]
        return not self._state.adding and self._state.added <= over

    def _add(self, table: Table, rows: DataFrame, number: int) -> None:
        """Add a batch to the table."""
        state = self._state
        if state.closing:
            raise ArchiveError("the stream is being stopped")
        state.adding = True
        staging = self.place / STAGING
        try:
            staging.delete_tree()  # left by a batch that was interrupted
            staging.make_directory()
            write = TaskWriter(staging, table.whole)
            found = [DataFile(*row) for row in rows.mapInArrow(write, WRITTEN).collect()]
            check_written(found, staging)
            # A new checkpoint counts from 0 again.
            query = json.loads((self._checkpoint / "metadata").read_bytes())["id"]
            table.add(StreamBatch(query, number), few(found, staging), staging)
            state.undecoded += sum(file.undecoded for file in found)
            state.bad += sum(file.bad for file in found)
        except Exception as failure:
            # One line only: Spark searches the text with a regex that breaks on long ones.
            known = isinstance(failure, PySparkException | ArchiveError | OSError)
            kind = "" if known else f"{type(failure).__name__}: "
            raise ArchiveError(f"{kind}{one_line(failure)}") from None
        finally:
            state.added = number
            state.adding = False


def check_left(table: Location) -> None:
    """Check that an earlier release has not left jobs leased in a directory with the table.

    Raises:
        ArchiveError: it has.
    """
    leases = table / LEASES
    left = [*(leases / "batch-*").glob(), *(leases / "done-*" / "plan.json").glob()]
    if left:
        raise ArchiveError(
            f"{leases} has jobs that an earlier release has taken and not acknowledged: run that"
            " release once more, or delete the directory, and they come again after their RETRY"
        )


def check_written(files: Sequence[DataFile], staging: Location) -> None:
    """Check that all files written by tasks are here. Executors on other machines may have written
    to a directory of the same name there.

    Raises:
        ArchiveError: a file is missing or incomplete.
    """
    for file in files:
        path = staging / file.name
        if not path.is_file() or path.size() != file.size:
            raise ArchiveError(
                f"{path} is missing or incomplete: the table has to be in a directory that the"
                " driver and all executors share"
            )


def make_directory(path: Path) -> None:
    """Create a directory and its parents, if they are missing, and sync them to disk."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync_directory(one.parent)


def read_archive(
    spark: SparkSession,
    table: Location | PathLike[str] | str,
    catalog: Mapping[str, str] | None = None,
) -> DataFrame:
    """The jobs of an archive of any format, each once.

    Args:
        table: the archive's directory.
        catalog: further properties of the catalog of an Iceberg table.

    Raises:
        ArchiveError: there is no archive.
        TableError: it cannot be read.
    """
    place = location(table, settings_of(spark))
    settings = TableSettings.read(place) or TableSettings()
    if settings.format == PARQUET and not (place / "**" / "*.parquet").glob():
        raise ArchiveError(f"no archive at {place}")
    return read_table(spark, place, settings, catalog or {}).dropDuplicates(["id"])


def _rows(progress: StreamingQueryProgress) -> int:
    """Number of rows of a batch. Spark Connect reports only those of its sources."""
    rows = progress["numInputRows"]
    return sum(source["numInputRows"] for source in progress["sources"]) if rows is None else rows


def _committed(checkpoint: Location) -> Offset | None:
    """The end offset of the last batch that Spark has committed; None: there is none."""
    names = [path.name for path in (checkpoint / "commits" / "*").glob()]
    commits = [name for name in names if name.isdecimal()]
    if not commits:
        return None
    last = max(commits, key=int)
    # The file has a version, the properties of the batch, and a line for each source.
    lines = (checkpoint / "offsets" / last).read_bytes().splitlines()
    return Offset.of(json.loads(lines[-1]))
