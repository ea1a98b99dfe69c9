"""Archives as plain Parquet files: batches, old days, and what earlier versions have left."""

import json
from datetime import timedelta
from pathlib import Path

import pyarrow.dataset
import pytest

from disque_spark.files import Location
from disque_spark.lakehouse.files import placed, read
from disque_spark.lakehouse.parquet import RECORDS, ParquetFiles
from disque_spark.lakehouse.settings import TableError
from disque_spark.lakehouse.table import Upkeep
from packages.spark.tests.support.jobs_files import COLUMNS, DAY, QUERY, add

OTHER = QUERY.replace("0", "f")
NOON = 1_795_521_600.0  # of DAY


def quiet(text: str) -> None:
    pass


def ids_of(directory: Path) -> list[str]:
    """Read them as any other program would."""
    table = pyarrow.dataset.dataset(directory, format="parquet").to_table(["id"])
    return sorted(table.column("id").to_pylist())


def files_of(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("queue=*/day=*/*"))


@pytest.fixture
def table(tmp_path: Path) -> ParquetFiles:
    return ParquetFiles(tmp_path, clock=lambda: NOON)


def test_a_batch_that_is_repeated_replaces_its_files(table: ParquetFiles, tmp_path: Path) -> None:
    """Also an older one, and files of a version that divided batches differently."""
    for query in (QUERY, OTHER):
        for number in (6, 7):
            add(table, tmp_path, number, [f"{number}a", f"{number}b"], query=query)
    place = tmp_path / "queue=q" / f"day={DAY}"
    (place / f"part-000007-{QUERY}-00003.c000.snappy.parquet").write_text("")
    for number in (7, 6):
        add(table, tmp_path, number, [f"{number}a", f"{number}b"])
    assert ids_of(tmp_path) == sorted(["6a", "6b", "7a", "7b"] * 2)
    names = [f"part-00000{n}-{query}-00000.parquet" for n in (6, 7) for query in (QUERY, OTHER)]
    assert files_of(tmp_path) == sorted(names)
    assert not list(tmp_path.glob("_staging*"))


def test_files_are_complete_when_they_get_their_names(
    table: ParquetFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def looked(source: Location, target: Location) -> None:
        assert not target.exists()
        seen.append(sum(rows.num_rows for rows in read(source)))
        placed(source, target)

    monkeypatch.setattr("disque_spark.lakehouse.parquet.placed", looked)
    add(table, tmp_path, 0, ["1", "2"])
    assert seen == [2]


def test_old_days_are_removed(table: ParquetFiles, tmp_path: Path) -> None:
    for back in range(4):
        add(table, tmp_path, back, [f"{back}"], "q/1", DAY - timedelta(back))
    dry = table.keep_up(Upkeep(days=1, dry_run=True), quiet)
    assert dry.days == ["q/1, 2026-11-21", "q/1, 2026-11-22"]
    assert ids_of(tmp_path) == ["0", "1", "2", "3"]
    done = table.keep_up(Upkeep(days=1), quiet)
    assert (done.days, done.removed) == (dry.days, 2)
    assert ids_of(tmp_path) == ["0", "1"]
    assert {file.day for file in table.files()} == {str(DAY), str(DAY - timedelta(1))}
    assert not list(tmp_path.glob("queue=*/day=2026-11-2[12]"))


@pytest.mark.parametrize("first", [True, False], ids=["before its file is there", "after"])
def test_a_day_may_be_removed_while_a_batch_is_added_to_it(
    table: ParquetFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    add(table, tmp_path, 0, ["0"], day=DAY - timedelta(3))
    rename, removed = Location.rename, []

    def raced(file: Location, other: Location) -> None:
        if not first:
            rename(file, other)
        if not removed:
            removed.append(table.keep_up(Upkeep(days=1), quiet).removed)
        if first:
            rename(file, other)

    with monkeypatch.context() as patch:
        patch.setattr(Location, "rename", raced)
        add(table, tmp_path, 9, ["9"], day=DAY - timedelta(3))
    assert removed == ([1] if first else [2])
    assert [path.name for path in tmp_path.rglob("*.parquet")] == (
        [f"part-000009-{QUERY}-00000.parquet"] if first else []
    )
    assert not list(tmp_path.glob("_staging*"))


def test_nothing_is_merged(table: ParquetFiles, tmp_path: Path) -> None:
    add(table, tmp_path, 0, ["1"])
    with pytest.raises(TableError, match=r"not merged; .* --format delta or iceberg"):
        table.keep_up(Upkeep(), quiet)


def test_what_a_compaction_of_an_earlier_version_has_left_is_finished(
    table: ParquetFiles, tmp_path: Path
) -> None:
    """It died before it removed what it had replaced, or before its new file was there."""
    for number in range(5):
        add(table, tmp_path, number, [f"{number}"])
    place = f"queue=q/day={DAY}"
    old = [f"{place}/part-00000{n}-{QUERY}-00000.parquet" for n in range(5)]
    (tmp_path / old[0]).rename(tmp_path / place / "part-c000000-new.parquet")
    (tmp_path / old[0]).write_bytes((tmp_path / old[1]).read_bytes())
    records = tmp_path / RECORDS
    records.mkdir()
    for name, output, inputs in (
        ("done", f"{place}/part-c000000-new.parquet", old[:1]),
        ("torn", f"{place}/part-c000002-new.parquet", old[2:4]),
        ("day", None, old[4:]),
    ):
        (records / f"{name}.json").write_text(json.dumps({"output": output, "inputs": inputs}))
    table.create(COLUMNS)
    assert ids_of(tmp_path) == ["0", "1", "2", "3"]
    assert not list(records.glob("*.json"))
