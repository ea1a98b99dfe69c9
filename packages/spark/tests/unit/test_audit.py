"""The audit of event logs: it finds what is planted in a log, and nothing else, in one run or
many."""

import gzip
import shutil
from pathlib import Path

import pytest

from disque_spark.audit.engine import LocalEngine
from disque_spark.audit.rules import Rules
from disque_spark.audit.run import audit
from disque_spark.audit.store import Store, StoreError
from packages.spark.tests.support.planted_log import NODES, Key, generate
from packages.spark.tests.support.written_logs import Lines, audited, found, same, table

ENGINE = LocalEngine(2)

A, B, C = NODES


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Key, set[str]]]:
    """A log with some segments for each node, and what is planted in it."""
    directory = tmp_path_factory.mktemp("small") / "log"
    return directory, generate(directory, 12_000, anomalies=3, chunk=300, seed=7)


# ---- findings -----------------------------------------------------------------------------------


def test_all_that_is_planted_in_a_long_log_is_found_and_nothing_else(tmp_path: Path) -> None:
    planted = generate(tmp_path / "log", 20_000, chunk=1_000)
    result = audit(ENGINE, [str(tmp_path / "log")], tmp_path / "audit")
    assert found(tmp_path / "audit") == planted
    assert result.events > 20_000
    assert sum(result.findings.values()) == sum(map(len, planted.values()))


def test_nothing_is_found_in_the_log_of_a_cluster_that_is_well(tmp_path: Path) -> None:
    assert generate(tmp_path / "log", 5_000, anomalies=0, skew=0) == {}
    result = audit(ENGINE, [str(tmp_path / "log")], tmp_path / "audit")
    assert not result.findings


def test_the_life_of_a_job_on_all_nodes_is_one_row(tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    facts = {"size": 77, "repl": 2, "retry": 30, "ttl": 3600, "delay": 0, "ctime": 1}
    log.say(A, "added", client="shop", priority=7, group="blue", **facts)
    log.say(B, "copied", peer=A, size=77, retry=30, ttl=3600)
    log.say(A, "replicated", copies=2)
    log.say(A, "queued", reason="add")
    log.say(A, "exported", peer=C)
    log.say(C, "imported", peer=A)
    log.say(C, "queued", reason="import")
    log.say(C, "delivered", after=200, client="worker")
    log.say(C, "nacked", nacks=1)
    log.say(C, "queued", after=0, reason="nack")
    log.say(C, "delivered", after=0, nacks=1)
    log.say(C, "acked", after=500, reason="client")
    log.say(A, "acked", reason="peer", peer=C)
    for node in NODES:
        log.say(node, "deleted", reason="collected")
    audited(log, tmp_path / "audit")
    (job,) = table(tmp_path / "audit", "jobs")
    facts = [job[name] for name in ("id", "queue", "size", "repl", "copies", "retry", "ended")]
    assert facts == ["j", "q", 77, 2, 2, 30, "acked"]
    assert (job["priority"], job["group"]) == (7, "blue")
    counts = [job[name] for name in ("deliveries", "requeues_nack", "requeues_retry", "nacks_said")]
    assert counts == [2, 1, 0, 1]
    assert (job["wait_ms"], job["processing_ms"]) == (230, 500)
    assert job["complete"]
    where = {name: job[name] for name in job if name.endswith(("_on", "_from", "_to"))}
    assert where == {
        "added_on": [A],
        "copied_on": [B],
        "queued_on": [A, C],
        "delivered_on": [C],
        "acked_on": [A, C],
        "exported_from": [A],
        "imported_to": [C],
    }
    (minute,) = table(tmp_path / "audit", "queue_minutes")
    shown = [minute[name] for name in ("added", "delivered", "acked", "nacked", "depth")]
    assert shown == [1, 2, 1, 1, 0]
    assert minute["most_in_a_second"] == 2
    assert (minute["wait_p50"], minute["processing_p99"], minute["nack_rate"]) == (230, 500, 0.5)


def test_a_job_is_young_until_the_log_goes_on_for_a_while(tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "lost")
    log.say(A, "dequeued", "lost", reason="command", after=0)
    log.add(A, "late", delay=3600)
    log.say(A, "stopped", None, after=0)
    log.say(B, "dequeued", None, after=59_000)
    log.close()
    rules = Rules(settled=60)
    audit(ENGINE, [str(log.directory)], tmp_path / "audit", rules)
    assert found(tmp_path / "audit") == {}
    log.say(B, "dequeued", None, after=2_000)
    log.close(1)
    audit(ENGINE, [str(log.directory)], tmp_path / "audit", rules)
    assert found(tmp_path / "audit") == {("never-delivered", ""): {"lost"}}


def test_a_job_that_was_evicted_before_its_delivery_is_lost(tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "evicted")
    log.say(A, "evicted", "evicted")
    log.add(A, "deleted")
    log.say(A, "deleted", "deleted", reason="command")
    log.add(A, "acked")
    log.say(A, "acked", "acked", reason="client")
    log.say(A, "dequeued", None, after=100_000)
    audited(log, tmp_path / "audit")
    assert found(tmp_path / "audit") == {
        ("never-delivered", ""): {"evicted"},
        ("acknowledged-unseen", ""): {"acked"},
    }


def test_nodes_that_do_not_hear_of_each_other_both_retry(tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "split")
    log.say(A, "delivered", "split")
    log.say(A, "queued", "split", after=30_000, reason="retry")
    log.say(A, "delivered", "split")
    log.say(B, "queued", "split", after=400, reason="retry")
    log.say(B, "delivered", "split")
    log.say(B, "acked", "split", reason="client")
    audited(log, tmp_path / "audit")
    assert found(tmp_path / "audit") == {
        ("delivered-twice", "retry"): {"split"},
        ("delivered-twice", "partition"): {"split"},
    }


def test_other_rules_make_other_findings_of_the_same_log(tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "j")
    for n in range(2):
        log.say(A, "delivered", nacks=n)
        log.say(A, "nacked", nacks=n + 1)
        log.say(A, "queued", reason="nack")
    log.close()
    first = audit(ENGINE, [str(log.directory)], tmp_path / "audit", Rules(poison=2))
    second = audit(ENGINE, [str(log.directory)], tmp_path / "audit", Rules(poison=1))
    assert (first.findings["poison"], second.findings["poison"]) == (0, 1)


# ---- several runs -------------------------------------------------------------------------------


def test_runs_over_more_and_more_segments_come_to_the_same_as_one_run(
    planted: tuple[Path, dict[Key, set[str]]], whole: Path, tmp_path: Path
) -> None:
    log, anomalies = planted
    segments = sorted(log.iterdir(), key=lambda path: path.name.split("-")[2:])
    growing = tmp_path / "log"
    growing.mkdir()
    events = 0
    for start in range(0, len(segments), 5):
        for segment in segments[start : start + 5]:
            shutil.copy(segment, growing)
        events += audit(ENGINE, [str(growing)], tmp_path / "audit").events
    same(tmp_path / "audit", whole)
    assert events == Store(whole).manifest.events
    assert found(whole) == anomalies


def test_the_log_of_a_node_may_come_late(
    planted: tuple[Path, dict[Key, set[str]]], whole: Path, tmp_path: Path
) -> None:
    log, _ = planted
    order = (B, A, C)  # nodes are numbered differently than in the audit of everything
    for node in order:
        audit(ENGINE, [str(log / f"events-{node[:8]}-*")], tmp_path / "audit")
    (jobs, other) = (table(path, "jobs") for path in (tmp_path / "audit", whole))
    assert [row["id"] for row in jobs] == [row["id"] for row in other]
    for name in ("deliveries", "wait_ms", "processing_ms", "ended", "acked_at", "first_queued"):
        assert [row[name] for row in jobs] == [row[name] for row in other], name
    late = table(tmp_path / "audit", "queue_minutes")
    assert late == table(whole, "queue_minutes")
    assert found(tmp_path / "audit").keys() == found(whole).keys()


def test_a_segment_that_was_read_is_not_read_again_not_even_when_it_was_compressed(
    planted: tuple[Path, dict[Key, set[str]]], whole: Path, tmp_path: Path
) -> None:
    before = Store(whole).manifest
    packed = tmp_path / "packed"
    packed.mkdir()
    for segment in planted[0].iterdir():
        (packed / f"{segment.name}.gz").write_bytes(gzip.compress(segment.read_bytes()))
    result = audit(ENGINE, [str(packed)], whole)
    assert (result.segments, result.events) == (0, 0)
    assert Store(whole).manifest == before


@pytest.mark.parametrize("moment", ["before the findings", "before it is current"])
def test_a_run_that_dies_leaves_the_tables_of_the_one_before(
    planted: tuple[Path, dict[Key, set[str]]],
    whole: Path,
    tmp_path: Path,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, _ = planted
    output = tmp_path / "audit"
    audit(ENGINE, [str(log / "events-aaaaaaaa-*")], output)
    before = [table(output, name) for name in ("jobs", "queue_minutes", "findings")]

    class Died(Exception):
        pass

    def die(*args: object, **options: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        if moment == "before the findings":
            patch.setattr("disque_spark.audit.judging.clocks_by_id", die)
        else:
            patch.setattr(Path, "symlink_to", die)
        with pytest.raises(Died):
            audit(ENGINE, [str(log)], output)
    assert before == [table(output, name) for name in ("jobs", "queue_minutes", "findings")]
    audit(ENGINE, [str(log)], output)
    same(output, whole)


def test_two_audits_do_not_write_to_one_directory(tmp_path: Path) -> None:
    log = Lines(tmp_path / "log")
    log.add(A, "j")
    log.close()
    with Store(tmp_path / "audit").locked(), pytest.raises(StoreError):
        audit(ENGINE, [str(log.directory)], tmp_path / "audit")
