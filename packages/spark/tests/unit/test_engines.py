"""Where the command does an audit: in its own process, or on Spark."""

from pathlib import Path

import pytest

from disque_spark.audit.engine import LocalEngine
from disque_spark.cli import engines
from disque_spark.cli.arguments import parser
from disque_spark.cli.checks import UsageError
from disque_spark.cli.engines import local_engine
from packages.spark.tests.support.written_logs import Lines

NEEDS_SPARK = [
    ["--master", "local[2]"],
    ["--remote", "sc://127.0.0.1:1"],
    ["--explain"],
    ["--conf", "spark.driver.memory=1g"],
]


@pytest.fixture(autouse=True)
def no_spark_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)


def engine(tmp_path: Path, *more: str, command: str = "audit") -> LocalEngine | None:
    if not (tmp_path / "log").exists():
        log = Lines(tmp_path / "log")
        log.add("a" * 40, "j")
        log.close()
    words = [command, str(tmp_path / "log"), "--output", str(tmp_path / "audit"), *more]
    found = local_engine(parser().parse_args(words))
    assert found is None or isinstance(found, LocalEngine)
    return found


@pytest.mark.parametrize("command", ["audit", "watch"])
def test_a_small_log_needs_no_spark(tmp_path: Path, command: str) -> None:
    assert engine(tmp_path, command=command) is not None
    assert engine(tmp_path, "--engine", "local", command=command) is not None
    assert engine(tmp_path, "--engine", "spark", command=command) is None


def test_a_large_one_does_unless_it_has_been_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "LOCAL_BYTES", 10)
    assert engine(tmp_path) is None
    assert engine(tmp_path, "--engine", "local") is not None
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert engine(tmp_path) is not None  # PySpark is not installed
    monkeypatch.undo()
    monkeypatch.setattr(engines, "LOCAL_BYTES", 10)
    from disque_spark.audit.run import audit

    audit(LocalEngine(1), [str(tmp_path / "log")], tmp_path / "audit")
    assert engine(tmp_path) is not None


@pytest.mark.parametrize("more", NEEDS_SPARK, ids=lambda more: more[0])
def test_what_says_how_spark_runs_needs_it(tmp_path: Path, more: list[str]) -> None:
    assert engine(tmp_path, *more) is None
    with pytest.raises(UsageError, match=f"--engine local: not with {more[0]}"):
        engine(tmp_path, "--engine", "local", *more)


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"])
def test_under_spark_submit_spark_does_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    assert engine(tmp_path) is None
    assert engine(tmp_path, "--engine", "local") is not None


def test_settings_of_file_systems_are_for_both(tmp_path: Path) -> None:
    setting = "spark.hadoop.fs.s3a.endpoint=http://127.0.0.1:1"
    found = engine(tmp_path, "--conf", setting)
    assert found is not None
    assert found.settings == dict([setting.split("=", 1)])


def test_a_watch_whose_log_does_not_exist_yet_needs_no_spark(tmp_path: Path) -> None:
    words = ["watch", str(tmp_path / "none"), "--output", str(tmp_path / "audit")]
    assert local_engine(parser().parse_args(words)) is not None
