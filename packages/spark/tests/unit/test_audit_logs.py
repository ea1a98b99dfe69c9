"""Audits of faulty logs: damaged, truncated, copied, without an end."""

import gzip
import json
from pathlib import Path

import pytest

from disque_spark.audit.engine import LocalEngine
from disque_spark.audit.run import audit
from disque_spark.audit.store import Store
from disque_spark.audit.unread import AuditError
from packages.spark.tests.support.planted_log import NODES, START
from packages.spark.tests.support.written_logs import Lines, audited, found, table

ENGINE = LocalEngine(2)

A, B, C = NODES


def test_an_empty_log_gives_empty_tables_that_later_runs_fill(tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    (log.directory / f"events-{A[:8]}-{START:013d}-0.jsonl").touch()
    result = audit(ENGINE, [str(log.directory)], tmp_path / "audit")
    assert (result.segments, result.events, result.jobs) == (1, 0, 0)
    assert not result.findings
    log.add(A, "j")
    log.close(1)
    assert audit(ENGINE, [str(log.directory)], tmp_path / "audit").jobs == 1
    assert len(table(tmp_path / "audit", "queue_minutes")) == 1


def test_segments_that_are_not_closed_are_left_for_a_later_run(tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "done")
    log.close()
    log.add(B, "open")
    log.close(1)
    (closed,) = log.directory.glob("events-bbbbbbbb-*")
    opened = closed.with_name(closed.name + ".open")
    text = closed.read_text()
    opened.write_text(text[: len(text) // 2])
    closed.unlink()
    assert audit(ENGINE, [str(log.directory)], tmp_path / "audit").jobs == 1
    opened.write_text(text)
    opened.rename(closed)
    assert audit(ENGINE, [str(log.directory)], tmp_path / "audit").jobs == 2


def test_lost_and_unknown_events_are_counted(tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "j")
    log.say(A, "dropped", None, count=17)
    log.say(A, "painted", "j", reason="blue")
    log.close()
    (segment,) = log.directory.iterdir()
    segment.write_text(segment.read_text() + '{"time": 1, "node": "aa\n')
    result = audit(ENGINE, [str(log.directory)], tmp_path / "audit")
    assert (result.dropped, result.unknown, result.damaged, result.jobs) == (17, 1, 1, 1)


def test_a_segment_with_events_of_two_nodes_is_refused(tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "j")
    log.close()
    (segment,) = log.directory.iterdir()
    segment.write_text(segment.read_text() + segment.read_text().replace(A, B))
    with pytest.raises(AuditError):
        audit(ENGINE, [str(log.directory)], tmp_path / "audit")
    assert Store(tmp_path / "audit").current is None


def test_segments_of_one_name_in_two_directories_are_refused(tmp_path: Path) -> None:
    for node in "ab":
        log = Lines(tmp_path / node)
        log.add(node * 40, f"job of {node}")
        log.close()
        (segment,) = log.directory.iterdir()
        segment.rename(log.directory / "log.jsonl")
    with pytest.raises(AuditError):
        audit(ENGINE, [str(tmp_path / node / "log.jsonl") for node in "ab"], tmp_path / "audit")


def test_a_segment_that_was_still_being_copied_is_an_error_when_it_is_complete(
    tmp_path: Path,
) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "one")
    log.add(A, "two")
    log.close()
    (segment,) = log.directory.iterdir()
    whole = segment.read_text()
    segment.write_text("".join(whole.splitlines(keepends=True)[:2]))
    assert audit(ENGINE, [str(log.directory)], tmp_path / "audit").jobs == 1
    segment.write_text(whole)
    with pytest.raises(AuditError):
        audit(ENGINE, [str(log.directory)], tmp_path / "audit")


def test_a_directory_without_a_segment_is_an_error_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with pytest.raises(AuditError):
        audit(ENGINE, [str(tmp_path / "logs")], tmp_path / "audit")
    log = Lines(tmp_path / "elsewhere")
    log.add(A, "j")
    log.close()
    (tmp_path / "logs" / "node").symlink_to(log.directory)
    (log.directory / "back").symlink_to(tmp_path / "logs")
    assert audit(ENGINE, [str(tmp_path / "logs")], tmp_path / "audit").jobs == 1


def test_damaged_lines_are_counted_and_a_job_that_lacks_them_is_found_with_a_mark(
    tmp_path: Path,
) -> None:
    log = Lines(tmp_path / "log")
    log.say(A, "started", None)
    log.add(A, "torn")
    log.say(A, "delivered", "torn")
    log.say(A, "acked", "torn", reason="client")
    log.say(A, "dequeued", None)
    log.add(A, "whole")
    log.say(A, "dequeued", "whole", reason="command")
    log.at += 100_000
    log.stop()
    log.close()
    (segment,) = log.directory.glob(f"events-{A[:8]}-*")
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"torn", b"to\xffn")
    lines[4] = lines[4].replace(b"torn", b"to\\ud800n")
    lines[3:3] = [b"[" * 100_000 + b"\n", b'{"time":1,"node":null}\n']
    segment.write_bytes(b"".join(lines))
    result = audit(ENGINE, [str(log.directory)], tmp_path / "audit")
    assert (result.damaged, result.jobs) == (4, 2)
    assert found(tmp_path / "audit") == {
        ("never-delivered", "log-gap"): {"torn"},
        ("never-delivered", ""): {"whole"},
    }


def test_a_compressed_segment_that_is_cut_off_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / f"events-{A[:8]}-{START:013d}-0.jsonl.gz"
    line = json.dumps({"time": START, "node": A, "event": "added", "id": "j"}) + "\n"
    path.write_bytes(gzip.compress(line.encode() * 1000)[:-20])
    with pytest.raises(AuditError, match=path.name):
        audit(ENGINE, [str(tmp_path)], tmp_path / "audit")


def test_a_log_of_which_the_beginning_was_removed_makes_no_finding_without_a_mark(
    tmp_path: Path,
) -> None:
    log = Lines(tmp_path / "log")
    log.say(A, "started", None)
    log.say(A, "added", repl=2, retry=30, ttl=60, delay=0)
    log.at += 60_000
    log.say(A, "expired")
    log.say(B, "expired")  # it was delivered there, in a segment that is gone
    log.stop()
    audited(log, tmp_path / "audit")
    assert found(tmp_path / "audit") == {("expired-undelivered", "log-gap"): {"j"}}


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        audit(ENGINE, [str(tmp_path / "nowhere")], tmp_path / "audit")
