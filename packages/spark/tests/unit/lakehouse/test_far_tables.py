"""Archives on S3, without Spark: batches, compaction, and old days."""

from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest
from deltalake import DeltaTable

from disque_spark import pipeline
from disque_spark.defaults import DELTA
from disque_spark.files import location
from disque_spark.lakehouse.files import read
from disque_spark.lakehouse.formats import table_of
from disque_spark.lakehouse.iceberg import IcebergFiles
from disque_spark.lakehouse.parquet import ParquetFiles
from disque_spark.lakehouse.settings import TableSettings
from disque_spark.lakehouse.table import Table, Upkeep
from packages.spark.tests.support.jobs_files import COLUMNS, DAY, add
from packages.spark.tests.support.s3 import KEYS, Bucket


def ids_of(table: Table) -> list[str]:
    return sorted(
        one.as_py() for file in table.files() for rows in read(file.path) for one in rows["id"]
    )


def test_batches_are_there_once_and_old_days_go(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = location(f"{s3.uri}/archive")
    noon = 1_795_521_600.0  # of that day
    table = ParquetFiles(place)
    for number in range(5):
        add(table, place, number, [f"{number}"], "mail/in ü")
    add(table, place, 4, ["4"], "mail/in ü")
    add(table, place, 5, ["old"], day=DAY - timedelta(9))
    add(table, place, 6, ["last"])
    assert ids_of(table) == ["0", "1", "2", "3", "4", "last", "old"]
    later = ParquetFiles(place, clock=lambda: noon)
    assert later.keep_up(Upkeep(days=2), lambda text: None).days == ["q, 2026-11-15"]
    assert ids_of(table) == ["0", "1", "2", "3", "4", "last"]
    assert not [file for file in place.files() if "_staging" in file.path]
    # Keys and endpoint may also be settings of Spark.
    for name in s3.environment:
        monkeypatch.delenv(name)
    settings = [f"--conf={name}={value}" for name, value in s3.settings.items()]
    keeping = ["--keep-days", "99999"]
    assert pipeline.main(["compact", f"{s3.uri}/archive", *settings, *keeping]) == 0


def test_an_iceberg_table_is_where_its_catalog_says(
    s3: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the keys of the catalog, and no others."""
    for name in s3.environment:
        monkeypatch.delenv(name)
    noon = 1_795_521_600.0 + 30 * 86400
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
        "warehouse": f"s3://{s3.name}/warehouse",
        "s3.endpoint": s3.endpoint,
        "s3.region": KEYS["AWS_REGION"],
        "s3.access-key-id": KEYS["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": KEYS["AWS_SECRET_ACCESS_KEY"],
    }
    table = IcebergFiles(tmp_path, "shop.orders", properties)
    table.create(COLUMNS)
    for number in range(4):
        add(table, tmp_path, number, [f"{number}"])
    add(table, tmp_path, 4, ["old"], day=DAY - timedelta(40))
    assert table.keep_up(Upkeep(), lambda text: None).before == 4
    later = IcebergFiles(tmp_path, "shop.orders", properties, clock=lambda: noon)
    place = location(f"{s3.uri}/warehouse/shop/orders/data", s3.settings)
    assert len(place.files()) == 6
    # A week later, the earlier versions are gone, and so are the files that only they had.
    assert later.keep_up(Upkeep(days=60), lambda text: None).days == ["q, 2026-10-15"]
    left = [file.path for file in table.files()]
    assert [file.path for file in place.files()] == [file.path for file in left]
    assert sorted(one.as_py() for rows in read(left[0]) for one in rows["id"]) == list("0123")


def test_a_delta_table_is_on_s3(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    place = location(f"{s3.uri}/archive, ü")
    settings = TableSettings(DELTA)
    settings.keep(place)
    table = table_of(place, settings)
    table.create(COLUMNS)
    table.create(COLUMNS)
    for number in range(1, 5):
        add(table, place, number, [f"{number}"], "mail/ü")
    others = [
        Thread(
            target=add,
            args=(table_of(place, settings), place, 0, [query], "mail/ü", DAY, query),
        )
        for query in ("one", "another", "third")
    ]
    for other in others:
        other.start()
    for other in others:
        other.join()
    add(table, place, 4, ["4"], "mail/ü")
    assert ids_of(table) == ["1", "2", "3", "4", "another", "one", "third"]
    outcome = table.keep_up(Upkeep(history=0), lambda text: None)
    assert (outcome.before, outcome.after) == (7, 1)
    assert outcome.removed >= 7
    assert ids_of(table) == ["1", "2", "3", "4", "another", "one", "third"]
    # Read it with only the address; keys and endpoint are in the environment.
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert DeltaTable(f"s3://{s3.name}/archive, ü").to_pyarrow_table().num_rows == 7
    assert not [file for file in place.files() if "_staging" in file.path]
    assert pipeline.main(["compact", str(place)]) == 0
