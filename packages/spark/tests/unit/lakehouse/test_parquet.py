"""Archives as plain Parquet files: batches, compaction, old days, and crashes in between."""

import fcntl
import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow.dataset
import pytest

from disque_spark.files import Location, location
from disque_spark.lakehouse.files import read
from disque_spark.lakehouse.parquet import RECORDS, ParquetFiles
from disque_spark.lakehouse.planning import Candidate, compacted_name, groups, last_batches
from disque_spark.lakehouse.settings import TableError
from disque_spark.lakehouse.table import Upkeep
from packages.spark.tests.support.jobs_files import DAY, QUERY, add

NOW = Upkeep(older=-3600.0, grace=0.0)
OTHER = QUERY.replace("0", "f")


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
    return ParquetFiles(tmp_path)


def fill(table: ParquetFiles, directory: Path, batches: int) -> list[str]:
    """Add batches of two jobs each; return the ids."""
    ids = []
    for number in range(batches):
        own = [f"{number:03}a", f"{number:03}b"]
        add(table, directory, number, own)
        ids += own
    return ids


def test_a_batch_that_is_repeated_replaces_its_files(table: ParquetFiles, tmp_path: Path) -> None:
    add(table, tmp_path, 7, ["1", "2"])
    add(table, tmp_path, 7, ["1", "2"], query=OTHER)
    # As written by a version of the program that divided batches differently.
    place = tmp_path / "queue=q" / f"day={DAY}"
    (place / f"part-000007-{QUERY}-00003.c000.snappy.parquet").write_text("")
    add(table, tmp_path, 7, ["1", "2"])
    assert ids_of(tmp_path) == ["1", "1", "2", "2"]
    names = [f"part-000007-{query}-00000.parquet" for query in (QUERY, OTHER)]
    assert files_of(tmp_path) == sorted(names)
    assert not list(tmp_path.glob("_staging*"))


def test_small_files_become_few_but_those_of_a_batch_that_may_be_repeated(
    table: ParquetFiles, tmp_path: Path
) -> None:
    ids = fill(table, tmp_path, 20)
    outcome = table.keep_up(NOW, quiet)
    assert (outcome.before, outcome.after, outcome.removed) == (19, 1, 19)
    assert ids_of(tmp_path) == ids
    names = files_of(tmp_path)
    assert len(names) == 2
    assert names[0] == f"part-000019-{QUERY}-00000.parquet"
    add(table, tmp_path, 19, ["019a", "019b"])
    assert ids_of(tmp_path) == ids
    # Nothing is left to do, except to merge what is added later.
    assert table.keep_up(NOW, quiet).before == 0
    add(table, tmp_path, 20, ["020"])
    assert table.keep_up(NOW, quiet).before == 2
    assert ids_of(tmp_path) == [*ids, "020"]
    assert not list((tmp_path / RECORDS).glob("*.json"))


def test_files_are_as_large_as_they_should_be(table: ParquetFiles, tmp_path: Path) -> None:
    ids = fill(table, tmp_path, 20)
    size = next(tmp_path.glob("queue=*/day=*/*")).stat().st_size
    outcome = table.keep_up(Upkeep(target=5 * size, older=-3600, grace=0), quiet)
    assert (outcome.before, outcome.after) == (19, 4)
    assert ids_of(tmp_path) == ids


def test_a_dry_run_and_young_files_change_nothing(table: ParquetFiles, tmp_path: Path) -> None:
    fill(table, tmp_path, 4)
    before = sorted(tmp_path.rglob("*"))
    dry = Upkeep(older=-3600.0, dry_run=True)
    assert table.keep_up(dry, quiet).before == 3
    assert table.keep_up(Upkeep(dry_run=True), quiet).before == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_duplicates_are_dropped_on_request(table: ParquetFiles, tmp_path: Path) -> None:
    for number, ids in enumerate((["1", "2"], ["2", "3"], ["3", "3"], ["x"])):
        add(table, tmp_path, number, ids)
    table.keep_up(NOW, quiet)
    assert ids_of(tmp_path) == ["1", "2", "2", "3", "3", "3", "x"]
    add(table, tmp_path, 4, ["y"])
    outcome = table.keep_up(Upkeep(older=-3600, grace=0, deduplicate=True), quiet)
    assert outcome.duplicates == 3
    assert ids_of(tmp_path) == ["1", "2", "3", "x", "y"]


NOON = 1_795_521_600.0  # of DAY


def days(directory: Path) -> list[str]:
    """Add a job to each of four days; return the directories of the oldest two."""
    for back in range(4):
        add(ParquetFiles(directory), directory, back, [f"{back}"], "q/1", DAY - timedelta(back))
    return ["queue=q%2F1/day=2026-11-21", "queue=q%2F1/day=2026-11-22"]


def test_old_days_are_removed(tmp_path: Path) -> None:
    old = days(tmp_path)
    table = ParquetFiles(tmp_path, clock=lambda: NOON, sleep=lambda _: None)
    dry = table.keep_up(Upkeep(days=1, dry_run=True), quiet)
    assert dry.days == old
    assert ids_of(tmp_path) == ["0", "1", "2", "3"]
    assert table.keep_up(Upkeep(days=1, grace=-1e10), quiet).days == old
    assert ids_of(tmp_path) == ["0", "1"]
    assert not list(tmp_path.glob("queue=*/day=2026-11-2[12]"))
    assert [path.name for path in (tmp_path / RECORDS).iterdir()] == ["lock"]


def test_old_days_are_none_of_the_table_any_more_before_they_go(tmp_path: Path) -> None:
    """Concurrent readers get the files that they have listed; a compaction that dies leaves them to
    the next one."""
    old = days(tmp_path)
    table = ParquetFiles(tmp_path, clock=lambda: NOON, sleep=dies)
    listed = [file.path for file in table.files()]
    with pytest.raises(Died):
        table.keep_up(Upkeep(days=1, grace=60), quiet)
    assert sum(part.num_rows for path in listed for part in read(path)) == 4
    assert len(table.files()) == 2
    # Meanwhile, nobody records or does it again.
    again = ParquetFiles(tmp_path, clock=lambda: NOON, sleep=lambda _: None)
    assert again.keep_up(Upkeep(days=1, grace=1e10), quiet).days == []
    # A batch of such a day does not stay if it is repeated then.
    add(table, tmp_path, 3, ["3"], "q/1", DAY - timedelta(3))
    add(table, tmp_path, 9, ["9"], "q/1", DAY - timedelta(3))
    outcome = again.keep_up(Upkeep(days=1, grace=-1e10), quiet)
    assert outcome.days == old[:1]
    assert ids_of(tmp_path) == ["0", "1"]
    assert [path.name for path in (tmp_path / RECORDS).iterdir()] == ["lock"]


@pytest.mark.parametrize("first", [True, False], ids=["before its file is there", "after"])
def test_a_day_may_be_removed_while_a_batch_is_added_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    old = days(tmp_path)
    table = ParquetFiles(tmp_path, clock=lambda: NOON, sleep=lambda _: None)
    rename, removed = Location.rename, []

    def raced(file: Location, other: Location) -> None:
        if not first:
            rename(file, other)
        if not removed:
            removed.append(None)  # also for the renames of the compaction
            removed.extend(table.keep_up(Upkeep(days=1, grace=-1e10), quiet).days)
        if first:
            rename(file, other)

    with monkeypatch.context() as patch:
        patch.setattr(Location, "rename", raced)
        add(table, tmp_path, 9, ["9"], "q/1", DAY - timedelta(3))
    assert removed[1:] == old
    assert ids_of(tmp_path) == (["0", "1", "9"] if first else ["0", "1"])
    assert not list(tmp_path.glob("_staging*"))


def test_files_may_be_listed_while_a_day_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days(tmp_path)
    table = ParquetFiles(tmp_path, clock=lambda: NOON, sleep=lambda _: None)
    listed, removed = Location.files, []

    def raced(place: Location, recursive: bool = True) -> list[Location]:
        if not removed:
            removed.append(None)
            removed.extend(table.keep_up(Upkeep(days=1, grace=-1e10), quiet).days)
        return listed(place, recursive)

    with monkeypatch.context() as patch:
        patch.setattr(Location, "files", raced)
        found = table.files()
    assert len(removed) == 3
    assert {file.day for file in found} == {str(DAY), str(DAY - timedelta(1))}


def test_replaced_files_stay_while_they_may_be_read(tmp_path: Path) -> None:
    """And the new one appears before they are removed, so whoever lists the files never misses a
    job."""
    slept: list[float] = []
    seen: list[int] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        seen.append(len(files_of(tmp_path)))
        for path in tmp_path.glob("queue=*/day=*/part-c*"):
            os.utime(path, (path.stat().st_mtime - 3600,) * 2)

    table = ParquetFiles(tmp_path, sleep=sleep)
    ids = fill(table, tmp_path, 10)
    table.keep_up(Upkeep(older=-3600, grace=600), quiet)
    assert (slept, seen) == ([600], [11])
    assert len(files_of(tmp_path)) == 2
    assert ids_of(tmp_path) == ids


class Died(Exception):
    pass


def dies(*_: object) -> None:
    raise Died


def died_before_the_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Location, "write_bytes", dies)


def died_before_the_rename(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Location, "rename", dies)


def died_before_the_removal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("time.sleep", dies)


@pytest.mark.parametrize(
    "when", [died_before_the_record, died_before_the_rename, died_before_the_removal]
)
def test_a_compaction_that_dies_leaves_the_rest_to_the_next(
    tmp_path: Path, when: Callable[[pytest.MonkeyPatch], None]
) -> None:
    table = ParquetFiles(tmp_path)
    ids = fill(table, tmp_path, 10)
    with pytest.MonkeyPatch.context() as patch:
        when(patch)
        with pytest.raises(Died):
            ParquetFiles(tmp_path, sleep=lambda _: time.sleep(0)).keep_up(NOW, quiet)
    assert sorted(set(ids_of(tmp_path))) == ids
    table.keep_up(NOW, quiet)
    assert ids_of(tmp_path) == ids
    assert len(files_of(tmp_path)) == 2
    assert [path.name for path in (tmp_path / RECORDS).iterdir()] == ["lock"]


def test_after_a_death_during_the_removal_nothing_is_merged_twice(tmp_path: Path) -> None:
    table = ParquetFiles(tmp_path)
    ids = fill(table, tmp_path, 10)
    delete, left = Location.delete, 5

    def dying(path: Location) -> None:
        nonlocal left
        left -= path.name.startswith("part-0")
        if left < 0:
            raise Died
        delete(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Location, "delete", dying)
        with pytest.raises(Died):
            table.keep_up(NOW, quiet)
    # With a long grace period, it must not continue yet, and merges neither these nor the new one.
    assert table.keep_up(Upkeep(older=-3600, grace=3600), quiet).before == 0
    table.keep_up(NOW, quiet)
    assert ids_of(tmp_path) == ids


def test_files_that_were_replaced_are_none_of_the_table_any_more(tmp_path: Path) -> None:
    """Although they stay for a while, for readers that listed them before."""
    table = ParquetFiles(tmp_path, sleep=dies)
    ids = fill(table, tmp_path, 4)
    with pytest.raises(Died):
        table.keep_up(Upkeep(older=-3600, grace=60), quiet)
    assert len(files_of(tmp_path)) == 5
    assert len(table.replaced()) == 3
    found = [one.as_py() for file in table.files() for part in read(file.path) for one in part[0]]
    assert sorted(found) == ids


def test_two_at_once_are_refused(table: ParquetFiles, tmp_path: Path) -> None:
    fill(table, tmp_path, 3)
    table.keep_up(NOW, quiet)
    with (tmp_path / RECORDS / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TableError, match="another compaction"):
            table.keep_up(NOW, quiet)


def test_a_record_names_what_it_replaces_below_the_table(tmp_path: Path) -> None:
    table = ParquetFiles(tmp_path, sleep=dies)
    fill(table, tmp_path, 3)
    with pytest.raises(Died):
        table.keep_up(Upkeep(older=-3600, grace=5), quiet)
    (path,) = (tmp_path / RECORDS).glob("*.json")
    record = json.loads(path.read_text())
    assert len(record["inputs"]) == 2
    for name in (record["output"], *record["inputs"]):
        assert list(read(location(tmp_path / name)))


def names(*batches: int, query: str = QUERY) -> list[str]:
    return [f"part-{number:06}-{query}-00000.parquet" for number in batches]


def test_the_last_batch_of_each_query_may_be_repeated() -> None:
    found = last_batches([*names(1, 12, 3), *names(4, query=OTHER), compacted_name("x", "y")])
    assert found == {(QUERY, 12), (OTHER, 4)}


def test_files_are_merged_in_the_order_of_batches_up_to_the_size() -> None:
    files = [Candidate(name, 40, 5.0) for name in names(*range(6))]
    files += [
        Candidate(names(6)[0], 80, 5.0),  # large enough
        Candidate(names(7)[0], 1, 20.0),  # young
        Candidate(names(8)[0], 1, 5.0),  # the last batch
    ]
    assert list(groups(files, {(QUERY, 8)}, 100, 10.0)) == [names(0, 1), names(2, 3), names(4, 5)]
    # Merging a single file gains nothing.
    assert list(groups(files[:1], set(), 100, 10.0)) == []
