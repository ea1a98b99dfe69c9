"""Dead letters: the rows that no node took, in Parquet files that can be read and written again."""

import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("queue", pa.string()),
        ("delay", pa.int64()),
        ("retry", pa.int64()),
        ("ttl", pa.int64()),
        ("replicate", pa.int64()),
        ("maxlen", pa.int64()),
        ("timeout", pa.int64()),
        ("error", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
    ]
)


class DeadLetters:
    """The dead letters of a task: one file, that appears when the task is done, if it has any.

    Args:
        directory: is made if it is not there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = f"refused-{uuid.uuid4().hex}.parquet"
        self._open = directory / f".{self._name}.open"
        self._writer: pq.ParquetWriter | None = None

    def add(
        self, rows: pa.RecordBatch, places: Sequence[int], errors: Sequence[str], queue: str | None
    ) -> None:
        """Keep the rows at ``places``. ``queue``: of those that name none."""
        if self._writer is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._open, SCHEMA)
        chosen = rows.take(pa.array(places, pa.int64()))
        own = {name.lower(): chosen.column(at) for at, name in enumerate(chosen.schema.names)}
        now = time.time_ns() // 1000
        columns: list[pa.Array] = []
        for field in SCHEMA:
            if field.name == "error":
                columns.append(pa.array(errors, field.type))
            elif field.name == "time":
                columns.append(pa.array([now] * len(places), field.type))
            elif field.name in own:
                column = own[field.name].cast(field.type)
                fill = field.name == "queue" and queue is not None
                columns.append(column.fill_null(queue) if fill else column)
            else:
                value = queue if field.name == "queue" else None
                columns.append(pa.array([value] * len(places), field.type))
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))

    def publish(self) -> str:
        """Let others see it, if there is anything in it; returns its path, or ""."""
        if self._writer is None:
            return ""
        self._writer.close()
        self._writer = None
        path = self._directory / self._name
        self._open.rename(path)
        return str(path)

    def close(self) -> None:
        """Remove what is not published."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._open.unlink(missing_ok=True)
