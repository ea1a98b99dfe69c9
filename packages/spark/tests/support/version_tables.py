"""Archives as Delta and Iceberg tables, read by their own libraries."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from disque_spark.files import location
from disque_spark.lakehouse.delta import DeltaFiles
from disque_spark.lakehouse.formats import table_of
from disque_spark.lakehouse.iceberg import IcebergFiles
from disque_spark.lakehouse.settings import TableSettings
from disque_spark.lakehouse.table import Table, Upkeep
from packages.spark.tests.support.jobs_files import COLUMNS, DAY, add

FORMATS = ("delta", "iceberg")


def quiet(text: str) -> None:
    pass


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A new table, in a directory with an unusual name."""
    directory = tmp_path / "the archive, ü"
    directory.mkdir()
    made = table_of(location(directory), TableSettings(request.param))
    made.create(COLUMNS)
    return made


def directory_of(table: Table) -> Path:
    assert isinstance(table, DeltaFiles | IcebergFiles)
    directory = table._directory
    return directory if isinstance(directory, Path) else Path(directory.path)


def put(table: Table, number: int, *ids: str, queue: str = "q", back: int = 0) -> None:
    add(table, directory_of(table), number, ids, queue, DAY - timedelta(back))


def at_noon(table: Table) -> Table:
    """The table, with that day as now."""
    noon = 1_795_521_600.0
    if isinstance(table, DeltaFiles):
        return DeltaFiles(location(directory_of(table)), clock=lambda: noon)
    return IcebergFiles(directory_of(table), "disque.archive", {}, clock=lambda: noon)


def ids_of(table: Table) -> list[str]:
    """As the library reads it."""
    return sorted(contents(table).column("id").to_pylist())


def contents(table: Table) -> pa.Table:
    """As the library reads it."""
    if isinstance(table, DeltaFiles):
        return DeltaTable(str(directory_of(table))).to_pyarrow_table()
    assert isinstance(table, IcebergFiles)
    return table._table().scan().to_arrow()


def failing_after(call: Callable[..., object], *failures: Exception) -> Callable[..., object]:
    """Carry out the call, then fail, as if the answer was lost."""
    left = list(failures)

    def fails(*words: object, **named: object) -> object:
        result = call(*words, **named)
        if left:
            raise left.pop()
        return result

    return fails


def failing(call: Callable[..., object], *failures: Exception) -> Callable[..., object]:
    """Carry out the call after these failures."""
    left = list(failures)

    def fails(*words: object, **named: object) -> object:
        if left:
            raise left.pop()
        return call(*words, **named)

    return fails


def after(call: Callable[..., object], table: Table) -> Callable[..., object]:
    """Carry out the call after a compaction that keeps an hour."""
    left = [table]

    def late(*words: object, **named: object) -> object:
        if left:
            left.pop().keep_up(Upkeep(history=3600), quiet)
        return call(*words, **named)

    return late
