"""Tables whose writers, compactions and readers are killed: each job is there exactly once."""

import os
import time
from pathlib import Path

import pytest

from packages.spark.tests.support.tables_killed import QUEUES, check, found, ids, run, write_one

LONG = bool(os.environ.get("DISQUE_SPARK_LONG"))
SECONDS = float(os.environ.get("TABLE_SECONDS", "60"))

pytestmark = [pytest.mark.live, pytest.mark.timeout(300 + SECONDS)]


# Iceberg takes most of a minute for its few kills.
_ICEBERG = pytest.param("iceberg", marks=pytest.mark.skipif(not LONG, reason="DISQUE_SPARK_LONG"))


@pytest.mark.parametrize("format", ["parquet", "delta", _ICEBERG])
def test_nothing_is_lost_or_duplicated_whichever_process_is_killed(
    tmp_path: Path, format: str
) -> None:
    end = time.monotonic() + SECONDS

    def enough(kills: int, batches: int, readers: int) -> bool:
        some = kills >= 4 and batches >= 2 and readers > 0
        return some and (not LONG or time.monotonic() > end)

    seed = time.time_ns()
    print(f"seed {seed}")
    place = run(tmp_path, format, enough, seed)
    table = place.table()
    write_one(place, table)  # the one that may have begun
    outcome = table.keep_up(place.upkeep(), lambda text: None)
    assert outcome.waiting == []
    jobs = found(table)
    print(f"{place.done} batches, {len(table.files())} files")
    check(place, jobs, place.done)
    assert sorted(jobs) == sorted(one for number in range(place.done) for one in ids(number))
    assert len(table.files()) == len(QUEUES) * (place.done if format == "parquet" else 1)
