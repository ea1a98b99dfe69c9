"""Archives as Delta and Iceberg tables: what they have in common, read by their own libraries."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Transaction

from disque_spark.files import location
from disque_spark.lakehouse.columns import fitted
from disque_spark.lakehouse.files import read
from disque_spark.lakehouse.formats import table_of
from disque_spark.lakehouse.iceberg import IcebergFiles
from disque_spark.lakehouse.settings import TableError, TableSettings
from disque_spark.lakehouse.table import StreamBatch, Table, TableFile, Upkeep
from packages.spark.tests.support.jobs_files import COLUMNS, QUERY, add, rows, written
from packages.spark.tests.support.version_tables import (
    FORMATS,
    contents,
    directory_of,
    failing,
    failing_after,
    ids_of,
    put,
    quiet,
    table,
)

__all__ = ["table"]


def test_batches_come_into_the_table_each_once(table: Table) -> None:
    put(table, 0, "1", "2")
    put(table, 1, "3", queue="mail/in ü")
    put(table, 1, "3", queue="mail/in ü")
    put(table, 0, "1", "2")
    assert ids_of(table) == ["1", "2", "3"]
    add(table, directory_of(table), 0, ["4"], query="another")
    assert ids_of(table) == ["1", "2", "3", "4"]
    read_back = [one for file in table.files() for rows in read(file.path) for one in rows["id"]]
    assert sorted(one.as_py() for one in read_back) == ["1", "2", "3", "4"]


def test_a_batch_without_rows_is_nothing(table: Table) -> None:
    put(table, 0)
    assert ids_of(table) == []
    put(table, 1, "1")
    assert ids_of(table) == ["1"]


def test_a_table_that_is_there_is_used_if_it_has_the_columns(table: Table) -> None:
    put(table, 0, "1")
    table.create(COLUMNS)
    assert ids_of(table) == ["1"]
    other = COLUMNS.set(COLUMNS.get_field_index("nacks"), pa.field("nacks", pa.string()))
    with pytest.raises(TableError, match="column nacks has type int32, not string"):
        table.create(other)


HEADERS = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


def test_a_column_may_come_later(table: Table) -> None:
    """It is null in earlier rows, and in rows of writers that do not know it."""
    put(table, 0, "1")
    table.create(COLUMNS.append(HEADERS))
    pairs = [{"key": "kind", "value": b"late"}]
    batch = pa.Table.from_batches([rows(["2"])]).append_column(HEADERS, [[pairs]]).to_batches()
    staging = location(directory_of(table)) / "_staging-2"
    files = written(staging, table.whole, *batch)
    table.add(StreamBatch(QUERY, 1), files, staging)
    table.create(COLUMNS)
    put(table, 2, "3")
    for _ in range(2):
        assert contents(table).column("headers").type.num_fields
        # From the files: pyiceberg 0.12 reads a null list as an empty one.
        found = [row for file in table.files() for row in rows_with(file, HEADERS)]
        assert sorted(found, key=str) == [("1", None), ("2", pairs), ("3", None)]
        table.keep_up(Upkeep(), quiet)
    assert ids_of(table) == ["1", "2", "3"]
    assert len(table.files()) == 1


def rows_with(file: TableFile, column: pa.Field) -> list[tuple[object, object]]:
    """Return the ids in a file, with the values of ``column``."""
    schema = pa.schema([("id", pa.string()), column])
    found = [row for part in read(file.path) for row in fitted(part, schema).to_pylist()]
    return [(row["id"], row[column.name]) for row in found]


def test_types_that_not_all_tables_have_are_widened_or_refused(table: Table) -> None:
    small = pa.field("value", pa.struct([("n", pa.map_(pa.string(), pa.int16()))]))
    for _ in range(2):
        table.create(COLUMNS.append(small))
    for kind in (pa.duration("us"), pa.null()):
        with pytest.raises(TableError, match="cannot have columns of the type"):
            table.create(COLUMNS.append(pa.field("other", kind)))


@pytest.mark.parametrize("format", FORMATS)
def test_a_column_that_somebody_has_dropped_is_missed(tmp_path: Path, format: str) -> None:
    table = table_of(location(tmp_path), TableSettings(format))
    table.create(COLUMNS.remove(COLUMNS.get_field_index("nacks")))
    with pytest.raises(TableError, match="has lost its column nacks"):
        table.create(COLUMNS)


@pytest.mark.parametrize("way", [failing, failing_after])
def test_a_commit_that_others_were_faster_than_is_tried_again_and_is_there_once(
    table: Table, monkeypatch: pytest.MonkeyPatch, way: Callable[..., Callable[..., object]]
) -> None:
    put(table, 0, "1")
    one = way(DeltaTable.create_write_transaction, CommitFailedError("first"))
    monkeypatch.setattr(DeltaTable, "create_write_transaction", one)
    lost = CommitStateUnknownException() if way is failing_after else CommitFailedException()
    other = way(Transaction.commit_transaction, lost)
    monkeypatch.setattr(Transaction, "commit_transaction", other)
    put(table, 1, "2")
    assert ids_of(table) == ["1", "2"]


def test_a_writer_that_dies_before_the_commit_leaves_no_rows(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Died

    put(table, 0, "1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", dies)
        patch.setattr(Transaction, "commit_transaction", dies)
        with pytest.raises(Died):
            put(table, 1, "2")
    assert ids_of(table) == ["1"]
    shutil.rmtree(next(directory_of(table).glob("_staging*")))
    put(table, 1, "2")
    assert ids_of(table) == ["1", "2"]
    # Its leftovers are removed once they are too old to belong to a batch in flight.
    torn = {str(path) for path in directory_of(table).rglob("part-000001*.parquet")}
    torn -= {file.path.path for file in table.files()}
    assert len(torn) == 1
    table.keep_up(Upkeep(history=3600), quiet)
    assert Path(*torn).exists()
    for path in directory_of(table).rglob("part-*"):
        os.utime(path, (1, 1))
    table.keep_up(Upkeep(history=3600), quiet)
    assert not Path(*torn).exists()
    assert ids_of(table) == ["1", "2"]


def test_iceberg_says_in_its_snapshots_which_batch_they_are(tmp_path: Path) -> None:
    table = IcebergFiles(tmp_path, "shop.orders", {})
    table.create(COLUMNS)
    add(table, tmp_path, 3, ["1"])
    snapshot = table._table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["disque.query"] == QUERY
    assert snapshot.summary["disque.batch"] == "3"


def test_iceberg_takes_a_catalog_of_its_own(tmp_path: Path) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
        "warehouse": f"file://{tmp_path / 'warehouse'}",
    }
    archive = tmp_path / "archive"
    archive.mkdir()
    table = table_of(location(archive), TableSettings("iceberg", catalog=properties, table="a.b"))
    table.create(COLUMNS)
    add(table, archive, 0, ["1"])
    assert list((tmp_path / "warehouse").rglob("part-*.parquet"))
    assert [row for file in table.files() for rows in read(file.path) for row in rows["id"]]


def test_a_directory_that_is_not_a_table_is_refused(tmp_path: Path) -> None:
    for name in FORMATS:
        directory = tmp_path / name
        directory.mkdir()
        with pytest.raises(TableError, match=r"no \w+ table"):
            table_of(location(directory), TableSettings(name)).files()
