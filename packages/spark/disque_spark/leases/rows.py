"""The rows of a lease that is kept in Disque, stored in pages.

Small bodies are in the pages. Large ones are not, since a node holds them already: they are asked
for when the rows are read.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from disque_spark.leases.journal import Cells

INLINE_BYTES = 4096  # larger bodies are not stored in pages
PAGE_BYTES = 1 << 20  # approximate size of a page
PAGE_IDS = 20_000
ASK_BYTES = 64 << 20  # approximate size of the bodies to ask for at a time
ASK_FIRST = 8  # bodies to ask for first, to learn how large they are
_BODY = "body"
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class RowsWriter:
    """Writes rows to pages, as they come.

    Args:
        cells: where to store the pages.
        batch: number of the batch they belong to.

    Attributes:
        ids: ids of the pages that contain job ids.
        rows: ids of the pages that contain rows.
    """

    def __init__(self, cells: Cells, batch: int) -> None:
        self.ids: list[str] = []
        self.rows: list[str] = []
        self._cells = cells
        self._head = b"%d\n" % batch
        self._jobs: list[str] = []
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def append(self, jobs: pa.RecordBatch) -> None:
        """Add rows, whose first column has the ids of the jobs."""
        small = without_large(jobs)
        self._jobs += small.column(0).to_pylist()
        self._batches.append(small)
        self._size += small.nbytes
        if self._size >= PAGE_BYTES:
            self._keep_rows()
        if len(self._jobs) >= PAGE_IDS:
            self._keep_ids()

    def finish(self) -> None:
        """Write the remaining rows and ids."""
        if self._batches:
            self._keep_rows()
        if self._jobs:
            self._keep_ids()

    def _keep_rows(self) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._batches[0].schema, options=_COMPRESSED) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
        self.rows.append(self._cells.add(self._head + sink.getvalue().to_pybytes()))
        self._batches = []
        self._size = 0

    def _keep_ids(self) -> None:
        self.ids.append(self._cells.add(self._head + "\n".join(self._jobs).encode()))
        self._jobs = []


def batch_of_page(body: bytes) -> int:
    """The number of the batch that a page belongs to."""
    return int(body[: body.index(b"\n")])


def read_ids(cells: Cells, pages: Sequence[str]) -> list[str]:
    """The ids of jobs in pages."""
    return [
        id for body in cells.read(pages) for id in body[body.index(b"\n") + 1 :].decode().split()
    ]


def read_rows(
    cells: Cells, pages: Sequence[str], without: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows in pages, except jobs in ``without``, and jobs whose large body is no longer on any
    node."""
    left_out = set(without)
    for page in pages:
        [body] = cells.read([page])
        with pa.ipc.open_stream(pa.py_buffer(body)[body.index(b"\n") + 1 :]) as stream:
            for jobs in stream:
                yield from _filled(cells, only_new(jobs, left_out))


def only_new(jobs: pa.RecordBatch, without: set[str]) -> pa.RecordBatch:
    """The rows whose jobs are not in ``without``."""
    if not without:
        return jobs
    return jobs.filter(
        pa.array([id not in without for id in jobs.column(0).to_pylist()], pa.bool_())
    )


def without_large(jobs: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, with null in place of large bodies."""
    place = jobs.schema.get_field_index(_BODY)
    field = jobs.schema.field(place).with_nullable(True)
    schema = jobs.schema.set(place, field)
    columns = list(jobs.columns)
    values = columns[place].to_pylist()
    if any(len(value) > INLINE_BYTES for value in values):
        small = [None if len(value) > INLINE_BYTES else value for value in values]
        columns[place] = pa.array(small, field.type)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _filled(cells: Cells, jobs: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows with all their bodies, some at a time."""
    place = jobs.schema.get_field_index(_BODY)
    count = ASK_FIRST if jobs.column(place).null_count else jobs.num_rows
    at = 0
    while at < jobs.num_rows:
        some = jobs.slice(at, count)
        at += some.num_rows
        column = some.column(place)
        if column.null_count:
            values = column.to_pylist()
            large = [n for n, value in enumerate(values) if value is None]
            ids = [some.column(0)[n].as_py() for n in large]
            for n, body in zip(large, cells.bodies(ids), strict=True):
                values[n] = body
            columns = list(some.columns)
            columns[place] = pa.array(values, column.type)
            some = pa.RecordBatch.from_arrays(columns, schema=some.schema)
            there = [value is not None for value in values]
            if not all(there):
                some = some.filter(pa.array(there, pa.bool_()))
            count = max(1, ASK_BYTES // max(some.nbytes // max(some.num_rows, 1), 1))
        if some.num_rows:
            schema = some.schema.set(place, some.schema.field(place).with_nullable(False))
            yield pa.RecordBatch.from_arrays(some.columns, schema=schema)


class Spool:
    """Rows in a local file, for the task that has fetched them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - has no name, so leaves nothing
        self._writer = pa.ipc.new_stream(self._file, schema)

    def append(self, jobs: pa.RecordBatch) -> None:
        """Add rows."""
        self._writer.write_batch(jobs)

    def read(self, without: set[str]) -> Iterator[pa.RecordBatch]:
        """All rows except jobs in ``without``. No rows can be added after that."""
        self._writer.close()
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as stream:
            for jobs in stream:
                new = only_new(jobs, without)
                if new.num_rows:
                    yield new

    def close(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # the disk may be full, but nobody needs the file any more
            self._file.close()
