"""Files as written by the tasks of an archive."""

from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from disque_spark.files import Location, location
from disque_spark.lakehouse.columns import BASE
from disque_spark.lakehouse.files import DataFile, TaskWriter
from disque_spark.lakehouse.table import StreamBatch, Table

QUERY = "01234567-89ab-cdef-0123-456789abcdef"
DAY = date(2026, 11, 24)
COLUMNS = pa.schema([*BASE, ("queue", pa.string()), ("day", pa.date32())])


def rows(ids: Iterable[str], queue: str = "q", day: date = DAY) -> pa.RecordBatch:
    """Jobs with these ids."""
    when = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    return pa.RecordBatch.from_pylist(
        [
            {
                "id": one,
                "body": f"body of {one}".encode(),
                "nacks": 0,
                "additional_deliveries": 0,
                "node": "n" * 40,
                "ctime": None,
                "archived_at": when,
                "queue": queue,
                "day": day,
            }
            for one in ids
        ],
        schema=COLUMNS,
    )


def written(directory: Path | Location, whole: bool, *batches: pa.RecordBatch) -> list[DataFile]:
    """The result of a task that writes these rows."""
    place = location(directory)
    place.make_directory()
    told = TaskWriter(place, whole)(iter(batches))
    return [DataFile(**row) for found in told for row in found.to_pylist()]


def add(
    table: Table,
    directory: Path | Location,
    number: int,
    ids: Iterable[str],
    queue: str = "q",
    day: date = DAY,
    query: str = QUERY,
) -> None:
    """Add a batch to a table."""
    staging = location(directory) / f"_staging-{uuid4().hex}"
    files = written(staging, table.whole, rows(ids, queue, day))
    table.add(StreamBatch(query, number), files, staging)
