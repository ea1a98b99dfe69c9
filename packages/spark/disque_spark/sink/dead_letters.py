"""Dead letters: saves rows that no node accepted in Parquet files, which can be written again."""

import time
import uuid
from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from disque_spark.files import Location
from disque_spark.sink.requests import NUMBERS, TEXTS

SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("queue", pa.string()),
        *((name, pa.int64()) for name in NUMBERS),
        ("timeout", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        *((name, pa.binary()) for name in TEXTS),
        ("unique", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("error", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
    ]
)


class DeadLetters:
    """The dead letters of a task: one file, if there are any, which appears when the task is done.

    Args:
        directory: directory for the file; created if necessary.
    """

    def __init__(self, directory: Location) -> None:
        self._directory = directory
        self._name = f"refused-{uuid.uuid4().hex}.parquet"
        self._open = directory / f".{self._name}.open"
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(
        self, rows: pa.RecordBatch, places: Sequence[int], errors: Sequence[str], queue: str | None
    ) -> None:
        """Save the rows at the indexes ``places``. ``queue`` is for rows that name none."""
        if self._writer is None:
            self._file = self._open.open_output()
            self._writer = pq.ParquetWriter(self._file, SCHEMA)
        chosen = rows.take(pa.array(places, pa.int64()))
        own = {name.lower(): chosen.column(at) for at, name in enumerate(chosen.schema.names)}
        own["error"] = pa.array(errors, pa.string())
        own["time"] = pa.array([time.time_ns() // 1000] * len(places), pa.int64())
        columns = [
            own[field.name].cast(field.type)
            if field.name in own
            else pa.nulls(len(places), field.type)
            for field in SCHEMA
        ]
        if queue is not None:
            at = SCHEMA.get_field_index("queue")
            columns[at] = columns[at].fill_null(queue)
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))

    def publish(self) -> str:
        """Make the file visible, if there is one; returns its path, or ""."""
        if self._writer is None:
            return ""
        self._end()
        path = self._directory / self._name
        self._open.rename(path)
        return str(path)

    def close(self) -> None:
        """Remove the file, unless it is published."""
        if self._writer is not None:
            self._end()
            self._open.delete()

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._file is not None:
            self._file.close()
        self._writer = self._file = None
