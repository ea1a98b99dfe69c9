"""Reads the tables of an audit with pyarrow, file by file, and sums up their rows."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit.manifest import FINDINGS, JOBS, MINUTES
from disque_spark.audit.store import Store, StoreError
from disque_spark.audit.tables import COLUMNS, table_files
from disque_spark.files import Location
from disque_spark.parquet import rows_of

__all__ = ["FINDINGS", "JOBS", "MINUTES", "Sums", "Tables", "ms"]

_MANY = 2_000_000  # rows to hold before they are summed up


class Tables:
    """The tables of the current version of an audit.

    Attributes:
        manifest: manifest of the version.

    Raises:
        StoreError: there is no audit at that place.
    """

    def __init__(self, audit: Location) -> None:
        store = Store(audit)
        if store.current is None:
            raise StoreError(f"no audit at {audit}")
        self.manifest = store.manifest
        self._audit = audit

    def rows(self, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a table, some at a time. Columns that the files of older versions lack are
        null; an unknown queue has the name ""."""
        schema = _schema(name, columns)
        for file in table_files(self._audit, name):
            for batch in rows_of(file, schema):
                if batch.num_rows:
                    known = pc.fill_null(batch.column("queue"), "")
                    yield batch.set_column(schema.get_field_index("queue"), "queue", known)

    def all(self, name: str, columns: Sequence[str]) -> pa.Table:
        """All rows of a table at once."""
        return pa.Table.from_batches(self.rows(name, columns), _schema(name, columns))


def _schema(name: str, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([COLUMNS[name].field(column) for column in columns])


class Sums:
    """A table that is summed up while rows come in: one row for each combination of ``keys``.

    Args:
        columns: the other columns, and how to sum them up: ``sum``, ``max`` or ``min``.

    Attributes:
        names: names of all columns.
    """

    def __init__(self, keys: Sequence[str], columns: Mapping[str, str]) -> None:
        self._keys = list(keys)
        self._columns = columns
        self.names = [*keys, *columns]
        self._rows: list[pa.Table] = []
        self._held = 0

    def add(self, rows: Mapping[str, pa.Array]) -> None:
        """Add rows, as columns."""
        self._rows.append(self._summed(pa.table(rows), self._keys))
        self._held += len(self._rows[-1])
        if self._held > _MANY:
            self._rows = [self.table()]
            self._held = len(self._rows[0]) // 2

    def table(self, keys: Sequence[str] | None = None) -> pa.Table:
        """The sums by all keys, or by fewer."""
        empty = {name: pa.array([], pa.int64()) for name in (*self._keys, *self._columns)}
        text = {
            name: pa.array([], pa.string()) for name in self._keys if name in ("queue", "ended")
        }
        rows = pa.concat_tables(self._rows) if self._rows else pa.table(empty | text)
        return self._summed(rows, self._keys if keys is None else keys)

    def _summed(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        wanted = list(self._columns.items())
        summed = rows.group_by(list(keys), use_threads=False).aggregate(wanted)
        names = [*keys, *(f"{name}_{how}" for name, how in wanted)]
        return summed.select(names).rename_columns([*keys, *self._columns])


def ms(times: pa.Array) -> pa.Array:
    """Times in ms, as integers."""
    return pc.divide(times.cast(pa.int64()), 1000)
