"""Archives as Delta and Iceberg tables: what is the same for both, read by their own libraries."""

import os
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Transaction

from disque_trio.spark.files import location
from disque_trio.spark.lakehouse.columns import fitted
from disque_trio.spark.lakehouse.delta import DeltaFiles
from disque_trio.spark.lakehouse.files import read
from disque_trio.spark.lakehouse.formats import table_of
from disque_trio.spark.lakehouse.iceberg import IcebergFiles
from disque_trio.spark.lakehouse.settings import TableError, TableSettings
from disque_trio.spark.lakehouse.table import Batch, Table, TableFile, Upkeep
from tests.support.jobs_files import COLUMNS, DAY, QUERY, add, rows, written

FORMATS = ("delta", "iceberg")


def quiet(text: str) -> None:
    pass


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A new one, in a directory whose name is no plain one."""
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
    """The same, on that day."""
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
    with pytest.raises(TableError, match="column nacks is int32 there, not string"):
        table.create(other)


HEADERS = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


def test_a_column_may_come_later(table: Table) -> None:
    """It is null in what was there before, and in what those add who do not know it."""
    put(table, 0, "1")
    table.create(COLUMNS.append(HEADERS))
    pairs = [{"key": "kind", "value": b"late"}]
    batch = pa.Table.from_batches([rows(["2"])]).append_column(HEADERS, [[pairs]]).to_batches()
    staging = location(directory_of(table)) / "_staging-2"
    files = written(staging, table.whole, *batch)
    table.add(Batch(QUERY, 1), files, staging)
    table.create(COLUMNS)
    put(table, 2, "3")
    for _ in range(2):
        assert contents(table).column("headers").type.num_fields
        # From the files: pyiceberg 0.12 takes a list that is null for an empty one.
        found = [row for file in table.files() for row in rows_with(file, HEADERS)]
        assert sorted(found, key=str) == [("1", None), ("2", pairs), ("3", None)]
        table.keep_up(Upkeep(), quiet)
    assert ids_of(table) == ["1", "2", "3"]
    assert len(table.files()) == 1


def rows_with(file: TableFile, column: pa.Field) -> list[tuple[object, object]]:
    """The ids of a file, and what else they have."""
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


def failing_after(call: Callable[..., object], *failures: Exception) -> Callable[..., object]:
    """The call is carried out, and then fails: the answer was lost."""
    left = list(failures)

    def fails(*words: object, **named: object) -> object:
        result = call(*words, **named)
        if left:
            raise left.pop()
        return result

    return fails


def failing(call: Callable[..., object], *failures: Exception) -> Callable[..., object]:
    """The call is carried out after so many failures."""
    left = list(failures)

    def fails(*words: object, **named: object) -> object:
        if left:
            raise left.pop()
        return call(*words, **named)

    return fails


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


def test_who_dies_before_the_commit_leaves_nothing_in_the_table(
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
    # What it has left goes when it is so old that it cannot be of a batch in flight.
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


def test_small_files_become_one_and_old_versions_go(table: Table) -> None:
    for number in range(6):
        put(table, number, f"{number}", queue="a/b" if number % 2 else "c")
    dry = table.keep_up(Upkeep(dry_run=True), quiet)
    assert (dry.before, dry.after) == (6, 2)
    assert len(table.files()) == 6
    outcome = table.keep_up(Upkeep(), quiet)
    assert (outcome.before, outcome.after) == (6, 2)
    assert len(table.files()) == 2
    assert ids_of(table) == ["0", "1", "2", "3", "4", "5"]
    # Who reads an older version has its files until the history is over.
    assert len(list(directory_of(table).rglob("part-0*.parquet"))) >= 6
    put(table, 5, "5")
    put(table, 6, "6", queue="c")
    assert ids_of(table) == ["0", "1", "2", "3", "4", "5", "6"]
    for path in directory_of(table).rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    assert table.keep_up(Upkeep(history=0), quiet).removed
    put(table, 5, "5")
    assert ids_of(table) == ["0", "1", "2", "3", "4", "5", "6"]


def test_old_days_go(tmp_path: Path, table: Table) -> None:
    for back in range(4):
        put(table, back, f"{back}", back=back)
    later = at_noon(table)
    dry = later.keep_up(Upkeep(days=1, dry_run=True), quiet)
    assert dry.days == ["q, 2026-11-21", "q, 2026-11-22"]
    assert ids_of(table) == ["0", "1", "2", "3"]
    assert later.keep_up(Upkeep(days=1), quiet).days == dry.days
    assert ids_of(table) == ["0", "1"]
    assert later.keep_up(Upkeep(days=1), quiet).days == []


def test_a_compaction_and_an_archive_do_not_disturb_each_other(table: Table) -> None:
    failures: list[BaseException] = []

    def archive() -> None:
        try:
            for number in range(12):
                put(table, number, f"{number:02}")
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=archive)
    thread.start()
    while thread.is_alive():
        table.keep_up(Upkeep(), quiet)
    thread.join()
    assert failures == []
    table.keep_up(Upkeep(), quiet)
    assert ids_of(table) == [f"{number:02}" for number in range(12)]
    assert len(table.files()) == 1


def test_duplicates_go_if_they_shall(table: Table) -> None:
    put(table, 0, "1", "2")
    put(table, 1, "2", "3")
    assert table.keep_up(Upkeep(deduplicate=True), quiet).duplicates == 1
    assert ids_of(table) == ["1", "2", "3"]


def at_the_same_time(
    table: Table, patch: pytest.MonkeyPatch, *others: Callable[[], object]
) -> None:
    """Others come between what a compaction looks up, and its commit."""
    swap, left = type(table).swap, list(others)  # type: ignore[attr-defined]

    def late(self: Table, *words: object) -> None:
        if left:
            left.pop()()
        swap(self, *words)

    patch.setattr(type(table), "swap", late)


def test_of_two_compactions_at_once_each_file_is_merged_by_one(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        put(table, number, f"{number}")
    at_the_same_time(table, monkeypatch, lambda: table.keep_up(Upkeep(), quiet))
    outcome = table.keep_up(Upkeep(), quiet)
    assert (outcome.before, len(outcome.waiting)) == (0, 1)
    assert ids_of(table) == ["0", "1", "2", "3"]
    assert len(table.files()) == 1


def test_a_compaction_that_a_batch_overtakes_is_committed_after_it(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        put(table, number, f"{number}")
    at_the_same_time(table, monkeypatch, lambda: put(table, 4, "4"))
    assert table.keep_up(Upkeep(), quiet).before == 4
    assert ids_of(table) == ["0", "1", "2", "3", "4"]
    assert len(table.files()) == 2


def test_days_that_are_removed_do_not_come_back_by_a_compaction(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are those merged twice that it removes while they become one."""
    for number in range(4):
        put(table, number, f"{number}", back=number // 2)
    at_the_same_time(table, monkeypatch, lambda: at_noon(table).keep_up(Upkeep(days=0), quiet))
    outcome = table.keep_up(Upkeep(), quiet)
    assert (outcome.before, len(outcome.waiting)) == (0, 2)
    assert ids_of(table) == ["0", "1"]


@pytest.mark.parametrize("way", [failing, failing_after])
def test_a_compaction_whose_commit_fails_is_tried_again(
    table: Table, monkeypatch: pytest.MonkeyPatch, way: Callable[..., Callable[..., object]]
) -> None:
    """Also when it had come through, and the answer was lost."""
    for number in range(3):
        put(table, number, f"{number}", back=number // 2)
    one = way(DeltaTable.create_write_transaction, CommitFailedError("first"))
    monkeypatch.setattr(DeltaTable, "create_write_transaction", one)
    lost = CommitStateUnknownException() if way is failing_after else CommitFailedException()
    other = way(Transaction.commit_transaction, lost)
    monkeypatch.setattr(Transaction, "commit_transaction", other)
    assert table.keep_up(Upkeep(), quiet).before == 2
    assert ids_of(table) == ["0", "1", "2"]
    assert len(table.files()) == 2


def test_files_that_delta_itself_has_merged_are_merged_on(tmp_path: Path) -> None:
    """They lie in directories whose names are escaped, twice in Delta's log."""
    table = DeltaFiles(location(tmp_path))
    table.create(COLUMNS)
    for number in range(3):
        put(table, number, f"{number}", queue="mail/in ü%2F")
    DeltaTable(str(tmp_path)).optimize.compact()
    put(table, 3, "3", queue="mail/in ü%2F")
    assert table.keep_up(Upkeep(), quiet).before == 2
    assert ids_of(table) == ["0", "1", "2", "3"]
    assert len(table.files()) == 1


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


def test_what_is_no_table_is_an_error(tmp_path: Path) -> None:
    for name in FORMATS:
        directory = tmp_path / name
        directory.mkdir()
        with pytest.raises(TableError, match=r"no \w+ table"):
            table_of(location(directory), TableSettings(name)).files()
