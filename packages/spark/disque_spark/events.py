"""The event logs of nodes as a table. There are two ways to read them, with the same rows.

``read_events`` uses Spark's own JSON reader, which is faster and reads from any file system that
Spark knows. ``disque-events`` is a data source with a name, for SQL and for other languages; it
reads files with ``files.Location``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from disque_spark.datasources.pushdown import bounds
from disque_spark.files import settings_of
from disque_spark.options import (
    arrow_schema,
    check_names,
    choice,
    flag,
    paths_of,
    size,
)
from disque_spark.periods import Period, moment
from disque_spark.segments import MALFORMED, Piece, blocks, find_segments, rows_of, split
from disque_trio.eventlog.schema import KEYS, MOVE_FIELDS, PAUSE_FIELDS, RARE_FIELDS

# The types of a line's keys; those not listed are BIGINT.
_TYPES = {
    **dict.fromkeys(("node", "event", "id", "queue", "reason", "client", "peer"), "STRING"),
    **dict.fromkeys(("nacks", "deliveries", "repl", "copies", "priority"), "INT"),
    **dict.fromkeys(("group", "schedule", *MOVE_FIELDS, "what"), "STRING"),
}
# Keys that were added later come last: programs may rely on the positions of columns.
_LATER = (*RARE_FIELDS, *PAUSE_FIELDS, "schedule", "tick", *MOVE_FIELDS, "what")
_COLUMNS = (*(key for key in KEYS if key not in _LATER), "count", *_LATER)
LINE_SCHEMA = ", ".join(f"{key} {_TYPES.get(key, 'BIGINT')}" for key in _COLUMNS)
# ``time`` is in UTC, to the millisecond; ``time_ms`` is the same time as the number in the line.
EVENT_SCHEMA = LINE_SCHEMA.replace("time BIGINT,", "time TIMESTAMP, time_ms BIGINT,", 1)
PIECE_BYTES = 32 << 20
EVENTS_OPTIONS = (
    *("path", "includeOpen", "malformed", "partitionBytes", "since", "until", "pushdown"),
)

CLOSED_SEGMENTS = "events-*.{jsonl,jsonl.gz}"
_MODES = {"drop": "DROPMALFORMED", "fail": "FAILFAST", "keep": "PERMISSIVE"}


def event_schema(malformed: str = "drop") -> str:
    """The columns of the table; ``keep`` adds a column for lines that are not events."""
    return EVENT_SCHEMA + (f", {MALFORMED} STRING" if malformed == "keep" else "")


def read_events(
    spark: SparkSession,
    *paths: str,
    include_open: bool = False,
    malformed: str = "drop",
) -> DataFrame:
    """The events in the segments at ``paths``, read by Spark's own JSON reader.

    Spark parses only the columns that the query uses, and evaluates filters on columns other than
    ``time`` while it reads a line. So for speed, filter by ``time_ms`` instead of ``time``.

    Args:
        paths: files, or directories that are searched recursively; wildcards are allowed.
        include_open: also read segments that nodes are still writing, up to their current end. The
            query fails if one of them is closed meanwhile.
        malformed: what to do with lines that are not events: ``drop``, ``fail``, or ``keep`` them
            in a column of their own. JSON without a time is never an error: it is dropped, or kept.

    Raises:
        OptionError: ``malformed`` is none of these.
        OSError: ``include_open`` is set, and there is nothing at one of ``paths``.
    """
    keep = choice({"malformed": malformed}, "malformed", *_MODES) == "keep"
    columns = LINE_SCHEMA + (f", {MALFORMED} STRING" if keep else "")
    reader = (
        spark.read.schema(columns)
        .option("mode", _MODES[malformed])
        .option("columnNameOfCorruptRecord", MALFORMED)
    )
    if include_open:
        lines = reader.json([place.uri for place in find_segments(paths, True, settings_of(spark))])
    else:
        reader = reader.option("pathGlobFilter", CLOSED_SEGMENTS)
        lines = reader.option("recursiveFileLookup", "true").json(list(paths))
    others = [f.col(name) for name in lines.columns if name not in ("time", MALFORMED)]
    if keep:
        # Spark refuses queries that use only the bare column.
        no_event = f.when(f.col("time").isNull(), f.to_json(f.struct("time", *others)))
        others.append(f.coalesce(MALFORMED, no_event).alias(MALFORMED))
    else:
        # If a query uses no column, like a count, Spark would count every line as a row.
        lines = lines.where("time IS NOT NULL")
    return lines.select(
        f.timestamp_millis("time").alias("time"), f.col("time").alias("time_ms"), *others
    )


class EventsSource(DataSource):
    """``disque-events``: the event logs of nodes."""

    @classmethod
    def name(cls) -> str:
        return "disque-events"

    def schema(self) -> str:
        check_names(self.options, self.name(), EVENTS_OPTIONS)
        return event_schema(choice(self.options, "malformed", *_MODES))

    def reader(self, schema: StructType) -> DataSourceReader:
        check_names(self.options, self.name(), EVENTS_OPTIONS)
        pushdown = flag(self.options, "pushdown", False)
        return (PushingEventsReader if pushdown else EventsReader)(schema, self.options)


class EventsReader(DataSourceReader):
    """Reads segments in pieces of about the same size.

    Options: ``path`` (files, or directories that are searched recursively; wildcards are allowed),
    ``includeOpen``, ``malformed`` (drop, fail, keep), ``partitionBytes``, ``since``, ``until``.

    Attributes:
        period: the period whose events are wanted.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._paths = paths_of(options)
        self._open = flag(options, "includeOpen", False)
        self._malformed = choice(options, "malformed", *_MODES)
        self._piece = size(options, "partitionBytes", PIECE_BYTES)
        since, until = (moment(name, options.get(name)) for name in ("since", "until"))
        self.period = Period(since, until)

    def partitions(self) -> Sequence[InputPartition]:
        """Partitions of the segments that exist now, each with one or more pieces."""
        segments = self.period.segments(find_segments(self._paths, self._open))
        return [InputPartition(pieces) for pieces in split(segments, self._piece)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of the partition's pieces."""
        pieces: list[Piece] = partition.value or []
        schema = arrow_schema(self._schema)
        for piece in pieces:
            for block in blocks(piece):
                table = self.period.rows(rows_of(block, schema, self._malformed, piece.path))
                yield from table.to_batches(max_chunksize=10_000)


class PushingEventsReader(EventsReader):
    """Uses filters on ``time_ms``; Spark evaluates them again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Called by Spark with the filters of the query."""
        for filter in filters:
            low, high = bounds(filter, "time_ms")
            self.period = self.period.within(Period(low, None if high is None else high + 1))
        return filters
