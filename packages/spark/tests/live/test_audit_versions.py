"""An audit continues with tables that an older version has written."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from disque_spark.audit.run import audit
from disque_spark.report import make_report

pytestmark = pytest.mark.timeout(400)

NODE = "a" * 40
START = 1_700_000_000_000


def write(directory: Path, number: int, at: int, ids: list[str], **facts: object) -> None:
    """Write a segment in which jobs are added and delivered."""
    directory.mkdir(exist_ok=True)
    lines = []
    for id in ids:
        about = {"time": START + at, "node": NODE, "id": id, "queue": "q"}
        lines += [
            {**about, "event": "added", "size": 1, "retry": 300, "ttl": 3600, **facts},
            {**about, "event": "queued", "reason": "add"},
            {**about, "event": "delivered"},
        ]
    name = f"events-{NODE[:8]}-{START + at:013d}-{number}.jsonl"
    (directory / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_columns_that_came_later_are_null_for_what_was_there_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    log, output = tmp_path / "log", tmp_path / "audit"
    write(log, 0, 0, ["kept", "again"])
    audit(spark, [str(log)], output)
    new = {"priority", "group", "most_in_a_second", "requeues_disconnect", "requeued_disconnect"}
    for file in (output / "current").resolve().glob("**/*.parquet"):
        old = pq.read_table(file, partitioning=None)
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
        kept = old.drop_columns(sorted(new.intersection(old.column_names)))
        pq.write_table(kept, file, coerce_timestamps="us")
    write(log, 1, 100_000, ["again", "late"], priority=7, group="blue")
    audit(spark, [str(log)], output)
    reader = spark.read.option("mergeSchema", "true")
    jobs = reader.parquet(str(output / "current" / "jobs"))
    told = {row["id"]: (row["priority"], row["group"]) for row in jobs.collect()}
    assert told == {"kept": (None, None), "again": (7, "blue"), "late": (7, "blue")}
    minutes = reader.parquet(str(output / "current" / "queue_minutes")).orderBy("minute")
    assert [row["most_in_a_second"] for row in minutes.collect()][-1] == 2
    (queue,) = make_report(output)["queues"]
    assert queue["most_in_a_second"] == 2
