"""Spark Connect: a session without a JVM of its own."""

import ast
import zipfile
from pathlib import Path

import pytest

import disque_trio.spark
from disque_trio.spark import pipeline
from disque_trio.spark.package import is_remote, packed

PACKAGE = Path(disque_trio.spark.__file__).parent
CLASSIC = "classic.py"
# What only a classic session has.
NAMES = {"sparkContext", "_sc", "_jvm", "_jsc", "_jsparkSession", "_jdf", "_gateway", "rdd"}


def test_only_one_module_needs_a_classic_session() -> None:
    found = {
        f"{path.name}: {node.attr}"
        for path in PACKAGE.rglob("*.py")
        if path.name != CLASSIC
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in NAMES
    }
    assert found == set()


def test_sessions_are_told_apart_without_pyspark_connect() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    classic = type("SparkSession", (), {"__module__": "pyspark.sql.session"})
    assert is_remote(remote())
    assert not is_remote(classic())


def test_the_same_package_makes_the_same_file(tmp_path: Path) -> None:
    first = packed(tmp_path).read_bytes()
    assert packed(tmp_path).read_bytes() == first
    with zipfile.ZipFile(tmp_path / "disque_trio.zip") as file:
        assert {"disque_trio/__init__.py", "disque_trio/spark/classic.py"} <= set(file.namelist())


@pytest.mark.parametrize(
    ("remote", "status", "told"),
    [
        ("http://127.0.0.1:15002", 2, "expected sc://HOST:PORT"),
        ("sc://", 2, "expected sc://HOST:PORT"),
        ("sc://127.0.0.1:many", 2, "expected sc://HOST:PORT"),
        ("sc://127.0.0.1:1", 1, "no Spark Connect at 127.0.0.1:1"),
        ("sc://127.0.0.1:1/;user_id=me", 1, "no Spark Connect at 127.0.0.1:1"),
    ],
)
def test_a_server_that_is_none_is_told_at_once(
    remote: str, status: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pipeline.main(["report", str(tmp_path), "--remote", remote]) == status
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
