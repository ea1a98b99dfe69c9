"""The files of a batch."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from disque_spark.archive import ArchiveError, check_written
from disque_spark.files import location
from disque_spark.lakehouse import files
from disque_spark.lakehouse.columns import BAD, partition_of, partition_path, plain
from disque_spark.lakehouse.files import OpenFile, few, merged, read
from packages.spark.tests.support.jobs_files import DAY, rows, written


def ids_of(path: Path) -> list[str]:
    return [one for batch in read(location(path)) for one in batch.column("id").to_pylist()]


def test_a_task_writes_a_file_for_each_queue_and_day(tmp_path: Path) -> None:
    batches = [
        rows(["1", "2"]),
        pa.concat_batches([rows(["3"]), rows(["4"], "b/ü")]),
        rows(["5"], day=DAY + timedelta(1)),
    ]
    found = {(file.queue, file.day): file for file in written(tmp_path, False, *batches)}
    assert {key: ids_of(tmp_path / file.name) for key, file in found.items()} == {
        ("q", "2026-11-24"): ["1", "2", "3"],
        ("b/ü", "2026-11-24"): ["4"],
        ("q", "2026-11-25"): ["5"],
    }
    file = found["q", "2026-11-24"]
    assert (file.rows, file.size) == (3, (tmp_path / file.name).stat().st_size)
    # These are in the path; a table that wants them in the file gets them there.
    assert not {"queue", "day"} & set(pq.read_schema(tmp_path / file.name).names)
    (whole,) = written(tmp_path, True, rows(["1"]))
    assert {"queue", "day"} < set(pq.read_schema(tmp_path / whole.name).names)


def test_a_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert written(tmp_path, False) == []
    assert written(tmp_path, False, rows([])) == []
    assert list(tmp_path.iterdir()) == []


def test_bodies_and_fields_without_a_value_are_counted(tmp_path: Path) -> None:
    batch = rows(["1", "2", "3"])
    value = pa.array([{"a": 1}, None, None], pa.struct([("a", pa.int32())]))
    batch = batch.append_column("value", value).append_column(BAD, pa.array([3, 0, 0]))
    (file,) = written(tmp_path, False, batch)
    assert (file.undecoded, file.bad) == (2, 3)
    assert BAD not in pq.read_schema(tmp_path / file.name).names


def test_small_files_of_a_batch_become_one_and_large_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [
        *written(tmp_path, False, rows(["1"]), rows(["x"], "other")),
        *written(tmp_path, False, rows(["2"])),
    ]
    found = {file.queue: file for file in few(tasks, location(tmp_path))}
    assert sorted(ids_of(tmp_path / found["q"].name)) == ["1", "2"]
    assert (found["q"].rows, found["q"].day) == (2, "2026-11-24")
    assert found["other"].name == tasks[1].name
    monkeypatch.setattr(files, "SMALL", 100)
    assert sorted(few(tasks, location(tmp_path))) == sorted(tasks)


def test_a_file_that_the_driver_does_not_see_as_a_whole_is_an_error(tmp_path: Path) -> None:
    place = location(tmp_path)
    (file,) = written(tmp_path, False, rows(["1"]))
    check_written([file], place)
    with pytest.raises(ArchiveError, match="share"):
        check_written([file._replace(size=file.size + 1)], place)
    with pytest.raises(ArchiveError, match="share"):
        check_written([file._replace(name="elsewhere")], place)


def test_files_are_read_and_written_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 4_000)
    monkeypatch.setattr(files, "_READ_BYTES", 2_000)
    ids = [f"{n}" for n in range(1000)]
    with OpenFile(location(tmp_path / "a")) as file:
        for place in range(0, 1000, 10):
            file.add(rows(ids[place : place + 10]))
    assert pq.ParquetFile(tmp_path / "a").metadata.num_row_groups > 10
    assert max(batch.num_rows for batch in read(location(tmp_path / "a"))) < 100
    assert ids_of(tmp_path / "a") == ids
    place = location(tmp_path)
    count, size = merged([place / "a", place / "a"], place / "b")
    assert (count, size) == (2000, (tmp_path / "b").stat().st_size)
    assert pq.ParquetFile(tmp_path / "b").metadata.num_row_groups > 10
    assert ids_of(tmp_path / "b") == [*ids, *ids]


def test_files_of_other_versions_are_merged_with_the_columns_of_all(tmp_path: Path) -> None:
    """Spark wrote times as INT96; jobs archived before bodies were decoded have no value."""
    old = pa.Table.from_batches([rows(["1"])]).drop_columns(["queue", "day"])
    pq.write_table(old, tmp_path / "old", use_deprecated_int96_timestamps=True)
    value = pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    (new,) = written(tmp_path, False, rows(["2"]).append_column("value", value))
    value = pa.array([{"b": [{"x": 2}]}])
    (newer,) = written(tmp_path, False, rows(["3"]).append_column("value", value))
    place = location(tmp_path)
    merged([place / name for name in ("old", new.name, newer.name)], place / "both")
    found = pq.read_table(tmp_path / "both").to_pylist()
    values = [None, {"a": 1, "b": None}, {"a": None, "b": [{"x": 2}]}]
    assert [row["value"] for row in found] == values
    assert {row["archived_at"].isoformat() for row in found} == {"2026-11-24T12:00:00+00:00"}


@pytest.mark.parametrize("queue", ["a", "007", "mail/in", "a b", "ü%", "a=b:c", "%3A", "{x}"])
def test_the_name_of_a_partition_says_its_queue(queue: str) -> None:
    path = partition_path(queue, "2026-11-24")
    assert path.count("/") == 1
    assert partition_of(f"/table/{path}") == (queue, "2026-11-24")


def test_types_that_readers_do_not_share_are_made_plain() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.large_string(), nullable=False),
            ("b", pa.struct([("c", pa.large_binary()), ("d", pa.list_(pa.large_string()))])),
            ("e", pa.timestamp("ns")),
            ("f", pa.timestamp("us", "Europe/Berlin")),
            ("g", pa.date32()),
        ]
    )
    strings = pa.list_(pa.field("element", pa.string()))
    assert plain(schema) == pa.schema(
        [
            ("a", pa.string()),
            ("b", pa.struct([("c", pa.binary()), ("d", strings)])),
            ("e", pa.timestamp("us", "UTC")),
            ("f", pa.timestamp("us", "UTC")),
            ("g", pa.date32()),
        ]
    )
