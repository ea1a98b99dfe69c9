"""Compaction of archives as Delta and Iceberg tables."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import _ManifestEvalVisitor
from pyiceberg.table import Transaction

import disque_spark.lakehouse.table
from disque_spark.files import location
from disque_spark.lakehouse.delta import DeltaFiles
from disque_spark.lakehouse.files import read
from disque_spark.lakehouse.iceberg import IcebergFiles
from disque_spark.lakehouse.merging import REPLACED
from disque_spark.lakehouse.table import StreamBatch, Table, Upkeep
from packages.spark.tests.support.jobs_files import COLUMNS, DAY, QUERY, rows, written
from packages.spark.tests.support.version_tables import (
    after,
    at_noon,
    directory_of,
    failing,
    failing_after,
    ids_of,
    put,
    quiet,
    table,
)

__all__ = ["table"]


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
    # Readers of an older version have its files until the history expires.
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


def test_old_days_are_removed(tmp_path: Path, table: Table) -> None:
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


def at_the_same_time(
    table: Table, patch: pytest.MonkeyPatch, *others: Callable[[], object]
) -> None:
    """Others commit between a compaction's look-up and its commit."""
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
    assert (outcome.before, outcome.waiting) == (0, [f"q, {DAY}: {REPLACED}"])
    assert ids_of(table) == ["0", "1", "2", "3"]
    assert len(table.files()) == 1


def test_old_files_are_removed_though_another_compaction_commits_at_that_moment(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        put(table, number, f"{number}")
    monkeypatch.setattr(disque_spark.lakehouse.table, "_PAUSE", 0)
    busy = [CommitFailedError("a concurrent transaction deleted data")] * 2
    monkeypatch.setattr(DeltaTable, "vacuum", failing(DeltaTable.vacuum, *busy))
    outcome = table.keep_up(Upkeep(history=0), quiet)
    assert (outcome.before, outcome.after, outcome.waiting) == (4, 1, [])
    assert ids_of(table) == ["0", "1", "2", "3"]


def test_a_merge_that_is_given_up_is_told_with_its_cause(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        put(table, number, f"{number}", queue="a" if number % 2 else "b")
    monkeypatch.setattr(disque_spark.lakehouse.table, "_PAUSE", 0)
    with monkeypatch.context() as patch:
        one = failing(DeltaTable.create_write_transaction, *[CommitFailedError("busy")] * 10)
        patch.setattr(DeltaTable, "create_write_transaction", one)
        other = failing(Transaction.commit_transaction, *[CommitFailedException("busy")] * 10)
        patch.setattr(Transaction, "commit_transaction", other)
        outcome = table.keep_up(Upkeep(), quiet)
    assert (outcome.before, outcome.after) == (2, 1)
    assert outcome.waiting == [f"a, {DAY}: 10 commits failed, the last: busy"]
    assert ids_of(table) == ["0", "1", "2", "3"]
    lost = [file.path for file in table.files() if next(read(file.path))["id"][0].as_py() == "1"]
    lost[0].delete()
    put(table, 4, "4", queue="a")
    put(table, 5, "5", queue="b")
    outcome = table.keep_up(Upkeep(), quiet)
    assert outcome.before == 2
    assert [text[: len(f"a, {DAY}")] for text in outcome.waiting] == [f"a, {DAY}"]
    assert lost[0].name in outcome.waiting[0]


def test_iceberg_merges_though_its_threads_mistake_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share the object that compares partitions: a thread that is overtaken looks at another's
    files."""
    table = IcebergFiles(tmp_path, "disque.archive", {})
    table.create(COLUMNS)
    for number in range(6):
        put(table, number, f"{number}", queue="a" if number % 2 else "b")
    overtaken, first = threading.Event(), threading.Lock()

    class Partitions:
        """By the time that a thread reads the value that it set, the next thread has replaced
        it."""

        def __set__(self, visitor: _ManifestEvalVisitor, partitions: object) -> None:
            vars(visitor)["partitions"] = partitions
            if isinstance(visitor.partition_filter, AlwaysTrue):
                return
            if first.acquire(blocking=False):
                overtaken.wait(60)
            else:
                overtaken.set()

        def __get__(self, visitor: _ManifestEvalVisitor, kind: object) -> object:
            return vars(visitor)["partitions"]

    monkeypatch.setattr(_ManifestEvalVisitor, "partition_fields", Partitions(), raising=False)
    outcome = table.keep_up(Upkeep(), quiet)
    assert overtaken.is_set()
    assert (outcome.before, outcome.after, outcome.waiting) == (6, 2, [])
    assert ids_of(table) == ["0", "1", "2", "3", "4", "5"]


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
    """Nor are files merged twice that it removes while they are merged."""
    for number in range(4):
        put(table, number, f"{number}", back=number // 2)
    at_the_same_time(table, monkeypatch, lambda: at_noon(table).keep_up(Upkeep(days=0), quiet))
    outcome = table.keep_up(Upkeep(), quiet)
    assert (outcome.before, len(outcome.waiting)) == (0, 2)
    assert ids_of(table) == ["0", "1"]


def test_a_batch_that_was_written_for_hours_is_not_old_when_it_is_placed(table: Table) -> None:
    """A concurrent compaction removes old files that are in no version."""
    put(table, 0, "0")
    staging = location(directory_of(table)) / "_staging-1"
    files = written(staging, table.whole, rows(["1"]))
    for file in files:
        os.utime((staging / file.name).path, (1, 1))
    with pytest.MonkeyPatch.context() as patch:
        for kind, name in (
            (DeltaTable, "create_write_transaction"),
            (Transaction, "commit_transaction"),
        ):
            patch.setattr(kind, name, after(getattr(kind, name), table))
        table.add(StreamBatch(QUERY, 1), files, staging)
    assert [len(list(read(file.path))) for file in table.files()] == [1, 1]
    assert ids_of(table) == ["0", "1"]


@pytest.mark.parametrize("way", [failing, failing_after])
def test_a_compaction_whose_commit_fails_is_tried_again(
    table: Table, monkeypatch: pytest.MonkeyPatch, way: Callable[..., Callable[..., object]]
) -> None:
    """Also if the commit had succeeded, and the answer was lost."""
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
    """They are in directories whose names are escaped, and escaped twice in Delta's log."""
    table = DeltaFiles(location(tmp_path))
    table.create(COLUMNS)
    for number in range(3):
        put(table, number, f"{number}", queue="mail/in ü%2F")
    DeltaTable(str(tmp_path)).optimize.compact()
    put(table, 3, "3", queue="mail/in ü%2F")
    assert table.keep_up(Upkeep(), quiet).before == 2
    assert ids_of(table) == ["0", "1", "2", "3"]
    assert len(table.files()) == 1


def test_merged_files_are_not_larger_than_they_should_be(table: Table) -> None:
    for number in range(9):
        put(table, number, f"{number}")
    size = table.files()[0].path.size()
    table.keep_up(Upkeep(target=round(3.5 * size)), quiet)
    assert ids_of(table) == [f"{number}" for number in range(9)]
    assert len(table.files()) == 3
