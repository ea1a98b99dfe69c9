"""An audit has the same tables, row by row, whichever engine does the work."""

import gzip
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disque_spark.audit.engine import Engine, LocalEngine
from disque_spark.audit.rules import Rules
from disque_spark.audit.run import audit
from disque_spark.audit.spark_engine import SparkEngine
from disque_spark.audit.store import Store
from disque_spark.audit.tables import COLUMNS
from disque_spark.audit.unread import AuditError
from packages.spark.tests.support.planted_hours import Hours
from packages.spark.tests.support.planted_log import NODES, generate
from packages.spark.tests.support.written_logs import Lines, found, read
from packages.spark.tests.unit.test_audit_aof import aof, job

HOUR = 3_600_000


def assert_equal(one: Path, other: Path) -> None:
    for name in COLUMNS:
        rows = [sorted(map(str, read(output, name))) for output in (one, other)]
        assert rows[0] == rows[1], name
    manifests = [Store(output).manifest for output in (one, other)]
    assert manifests[0].finding_counts == manifests[1].finding_counts
    assert manifests[0].clients == manifests[1].clients
    assert manifests[0].ends == manifests[1].ends


def test_all_that_is_planted_in_a_log_is_in_the_same_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    planted = generate(tmp_path / "log", 20_000, chunk=1_000)
    outputs = tmp_path / "spark", tmp_path / "local"
    results = [
        audit(engine, [str(tmp_path / "log")], output)
        for engine, output in zip((spark, LocalEngine()), outputs, strict=True)
    ]
    assert found(outputs[0]) == found(outputs[1]) == planted
    assert results[0].events == results[1].events > 20_000
    assert results[0].jobs == results[1].jobs
    assert_equal(*outputs)


def test_runs_of_both_engines_go_on_where_the_other_has_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Late lines, days, append-only files and other rules: each run by the other engine."""
    hours = Hours(tmp_path / "log", 500, hour=6 * HOUR, every=6)
    for _ in range(8):
        hours.write()
    hours.end()
    segments = sorted((tmp_path / "log").iterdir(), key=lambda path: path.name.split("-")[2:])
    segments = segments[1::2] + segments[::2]
    aofs = [str(aof(tmp_path / "n1", job(1), job(2), node=NODES[0]))]
    engines: list[Engine] = [SparkEngine(spark), LocalEngine(2)]
    outputs = [tmp_path / "one", tmp_path / "other"]
    for step in range(3):
        (tmp_path / "some").mkdir(exist_ok=True)
        for path in segments[step * len(segments) // 3 : (step + 1) * len(segments) // 3]:
            shutil.copy(path, tmp_path / "some")
        for place, output in enumerate(outputs):
            engine = engines[(step + place) % 2]
            more = aofs if step == 2 else []
            audit(engine, [str(tmp_path / "some")], output, Rules(poison=3 - step), aofs=more)
        assert_equal(*outputs)
    assert read(outputs[0], "held")


def test_a_damaged_segment_is_the_same_error(spark: SparkSession, tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    for number in range(300):
        log.add(NODES[0], f"j{number}")
    log.close()
    (segment,) = log.directory.iterdir()
    packed = gzip.compress(segment.read_bytes())
    segment.with_name(segment.name + ".gz").write_bytes(packed[: len(packed) // 2])
    segment.unlink()
    texts = []
    for engine in (spark, LocalEngine()):
        with pytest.raises(AuditError) as raised:
            audit(engine, [str(log.directory)], tmp_path / "audit")
        texts.append(str(raised.value))
    assert texts[0] == texts[1]
    assert segment.name in texts[0]
