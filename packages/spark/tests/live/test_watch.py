"""Watching: a node writes its log, and news is reported while it does."""

import argparse
import json
import time
from functools import partial
from io import StringIO
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disque_spark import pipeline
from disque_spark.audit.run import audit
from disque_spark.watch import loop
from disque_spark.watch.loop import Watch
from disque_spark.watch.receivers import Lines
from tests.support.harness import LiveNode, NodeFactory, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def watch(spark: SparkSession, capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Return what one look prints."""

    def session(options: argparse.Namespace) -> SparkSession:
        return spark

    capsys.readouterr()
    arguments = ["watch", *map(str, words), "--settled", "0", "--looks", "1"]
    assert pipeline.main(arguments, session) == 0
    return capsys.readouterr().out


def logged(directory: Path, text: str) -> bool:
    """Return whether a segment that is still being written has it."""
    return any(text in path.read_text() for path in directory.glob("*.open"))


def notices(node: LiveNode) -> list[dict[str, object]]:
    """Take the jobs out of the queue, and return them."""
    jobs = node.ask("GETJOB", "NOHANG", "COUNT", "100", "FROM", "notices")
    found = []
    for _, id, body in jobs if isinstance(jobs, list) else ():  # type: ignore[misc]
        assert isinstance(body, bytes)
        found.append(json.loads(body))
        node.ask("ACKJOB", id)
    return found


def test_new_findings_are_reported_while_the_node_writes(
    spark: SparkSession,
    disque_server: NodeFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = disque_server("--event-log", "yes")
    events, page = node.directory / "events", tmp_path / "live.html"
    words = (events, "--output", tmp_path / "live")
    words += ("--to-queue", "notices", "--nodes", f"127.0.0.1:{node.port}")
    words += ("--health-file", tmp_path / "health")
    lost = node.ask("ADDJOB", "orders", "one", 0, "RETRY", 0)
    assert isinstance(lost, bytes)
    id = lost.decode()
    added = time.time()
    wait_until(lambda: time.time() > added + 0.002)  # logs have milliseconds
    last = node.ask("ADDJOB", "orders", "two", 0, "RETRY", 0)
    assert isinstance(last, bytes)
    jobs = node.ask("GETJOB", "NOHANG", "COUNT", "2", "FROM", "orders")
    assert isinstance(jobs, list)
    for job in (id, last.decode()):
        wait_until(partial(logged, events, f'"event":"delivered","id":"{job}"'))
    waiting = node.ask("ADDJOB", "orders", "three", 0, "RETRY", 600)
    assert isinstance(waiting, bytes)
    wait_until(lambda: logged(events, waiting.decode()))

    out = watch(spark, capsys, *words, "--html", page)
    assert " found lost-with-worker" in out
    assert id in out
    assert waiting.decode() not in out
    assert "Disque audit" in page.read_text()
    (notice,) = notices(node)
    found = notice["found"]
    assert isinstance(found, list)
    assert {row["job"] for row in found} >= {id}

    assert node.ask("ACKJOB", id, last) == 2
    for job in (id, last.decode()):
        wait_until(partial(logged, events, f'"event":"acked","id":"{job}"'))
    out = watch(spark, capsys, *words)
    assert "gone lost-with-worker" in out
    assert id in out
    told = notices(node)
    assert [row["job"] for row in told[0]["gone"]].count(id) == 1  # type: ignore[attr-defined]
    # Nobody is told twice.
    assert id not in watch(spark, capsys, *words)
    assert pipeline.main(["health", str(tmp_path / "health")]) == 0
    assert capsys.readouterr().out.startswith("done, 1 looks, ")


def test_a_lost_job_is_found_even_if_nothing_else_happens(
    spark: SparkSession,
    disque_server: NodeFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = disque_server("--event-log", "yes")
    events, later = node.directory / "events", tmp_path / "later"
    lost = node.ask("ADDJOB", "orders", "one", 0, "RETRY", 0)
    assert isinstance(lost, bytes)
    assert node.ask("GETJOB", "FROM", "orders")
    wait_until(partial(logged, events, f'"event":"delivered","id":"{lost.decode()}"'))
    seconds = count(0, 100)
    monkeypatch.setattr(loop, "monotonic", lambda: float(next(seconds)))
    out, told = StringIO(), list[str]()
    watch = Watch([str(events), str(later)], tmp_path / "live", [Lines(out)])
    watch.run(spark, tell=told.append, looks=2)
    assert "found lost-with-worker (log-end)" in out.getvalue()
    assert lost.decode() in out.getvalue()
    assert told == [f"no event log at {later}; waiting for it"]
    # A new watch does not forget how long the log was quiet; an audit knows only what is in the
    # log.
    Watch([str(events)], tmp_path / "live", [Lines(out)]).run(spark, tell=told.append, looks=1)
    assert "gone" not in out.getvalue()
    assert audit(spark, [str(events)], tmp_path / "live").serious == 0
