"""Spark Connect: a session without its own JVM."""

import ast
import zipfile
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

import disque_spark
from disque_spark import classic, package, pipeline
from disque_spark.package import is_remote, packed, send_package

PACKAGE = Path(disque_spark.__file__).parent
CLASSIC = "classic.py"
# Only a classic session has these.
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
    with zipfile.ZipFile(tmp_path / "disque_spark.zip") as file:
        assert {"disque_trio/__init__.py", "disque_spark/classic.py"} <= set(file.namelist())


def test_other_packages_have_other_names_on_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []

    class Session:
        def addArtifacts(self, path: str, *, pyfile: bool) -> None:
            assert pyfile
            names.append(Path(path).name)

    def other(directory: Path) -> Path:
        path = directory / "disque_spark.zip"
        path.write_bytes(b"another version")
        return path

    send_package(cast(SparkSession, Session()))
    send_package(cast(SparkSession, Session()))
    monkeypatch.setattr(package, "packed", other)
    send_package(cast(SparkSession, Session()))
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("disque_spark-")


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
def test_an_invalid_server_is_reported_at_once(
    remote: str,
    status: int,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A session that existed before, such as that of other tests, is not ended.
    monkeypatch.setattr(classic, "end_java", lambda: pytest.fail("ended a JVM of others"))
    assert pipeline.main(["report", str(tmp_path), "--remote", remote]) == status
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
