"""Parquet archives on S3, without Spark: batches, compaction, and that one at a time does it."""

import time
from datetime import timedelta

import pytest

from disque_trio.spark import pipeline
from disque_trio.spark.files import location
from disque_trio.spark.lakehouse.alone import STALE_SECONDS, alone
from disque_trio.spark.lakehouse.files import read
from disque_trio.spark.lakehouse.parquet import ParquetFiles
from disque_trio.spark.lakehouse.settings import TableError
from disque_trio.spark.lakehouse.table import Upkeep
from tests.support.jobs_files import DAY, add
from tests.support.s3 import Bucket, s3, s3_server

__all__ = ["s3", "s3_server"]


def ids_of(table: ParquetFiles) -> list[str]:
    return sorted(
        one.as_py() for file in table.files() for rows in read(file.path) for one in rows["id"]
    )


def test_batches_are_there_once_and_are_merged(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    place = location(f"{s3.uri}/archive")
    noon = 1_795_521_600.0  # of that day
    table = ParquetFiles(place)
    for number in range(5):
        add(table, place, number, [f"{number}"], "mail/in ü")
    add(table, place, 4, ["4"], "mail/in ü")
    add(table, place, 5, ["old"], day=DAY - timedelta(9))
    add(table, place, 6, ["last"])
    outcome = table.keep_up(Upkeep(older=-3600, grace=0), lambda text: None)
    assert (outcome.before, outcome.after, outcome.removed) == (5, 1, 5)
    assert ids_of(table) == ["0", "1", "2", "3", "4", "last", "old"]
    assert len(table.files()) == 3
    later = ParquetFiles(place, clock=lambda: noon)
    assert later.keep_up(Upkeep(days=2), lambda text: None).days == ["queue=q/day=2026-11-15"]
    assert ids_of(table) == ["0", "1", "2", "3", "4", "last"]
    assert not [file for file in place.files() if "_staging" in file.path]
    # Keys and endpoint may also be settings of Spark.
    for name in s3.environment:
        monkeypatch.delenv(name)
    settings = [f"--conf={name}={value}" for name, value in s3.settings.items()]
    assert pipeline.main(["compact", f"{s3.uri}/archive", *settings]) == 0


def test_two_at_once_are_refused(s3: Bucket) -> None:
    place = location(f"{s3.uri}/archive/_compactions")
    with alone(place):
        for _ in range(2):
            with pytest.raises(TableError, match="archive: another compaction"), alone(place):
                pass
    with alone(place):
        pass
    assert not place.files() if place.exists() else True


def test_the_lock_of_a_dead_compaction_counts_for_ten_minutes(s3: Bucket) -> None:
    place = location(f"{s3.uri}/archive/_compactions")
    assert (place / "lock.7").put_new(b"\n")
    with pytest.raises(TableError), alone(place):
        pass
    with alone(place, lambda: time.time() + 2 * STALE_SECONDS):
        assert [file.name for file in place.files()] == ["lock.8"]
        with pytest.raises(TableError), alone(place):
            pass
