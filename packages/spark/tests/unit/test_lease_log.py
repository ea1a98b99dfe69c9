"""The lease directory: which attempt wins, what is kept, and what is finished."""

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from disque_spark.leases.directory import (
    LeaseFile,
    LeaseLog,
    batch_path,
    leased_ids,
    leased_jobs,
    read_plan,
)
from disque_spark.leases.store import LeaseError, PartitionPlan

SHARES = [PartitionPlan("a:1", 10), PartitionPlan("b:2", 0)]


def jobs(*ids: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids), "body": [id.encode() for id in ids]})


def lease(batch: Path, number: int, *ids: str) -> bool:
    """Return whether this lease won."""
    file = LeaseFile(batch, jobs().schema if not ids else jobs(*ids).schema)
    try:
        file.append(jobs(*ids))
        return file.publish(number)
    finally:
        file.close()


@pytest.fixture
def log(tmp_path: Path) -> LeaseLog:
    return LeaseLog(tmp_path / "leases")


def test_a_batch_has_its_plan(log: LeaseLog) -> None:
    log.begin(1, SHARES, None)
    assert log.open_batches() == [1]
    assert read_plan(batch_path(log.directory, 1)) == SHARES
    assert read_plan(batch_path(log.directory, 2)) is None


def test_the_first_attempt_wins_and_leaves_nothing_behind(log: LeaseLog) -> None:
    log.begin(1, SHARES, None)
    batch = batch_path(log.directory, 1)
    assert leased_jobs(batch, 0) is None
    assert leased_ids(batch, 0) == []
    slow = LeaseFile(batch, jobs("x").schema)
    slow.append(jobs("slow"))
    assert lease(batch, 0, "one", "two")
    assert not slow.publish(0)
    assert leased_ids(batch, 0) == ["one", "two"]
    found = leased_jobs(batch, 0)
    assert found is not None
    assert [rows.to_pydict() for rows in found] == [jobs("one", "two").to_pydict()]
    assert sorted(path.name for path in batch.iterdir()) == ["0.arrow", "plan.json"]


def test_a_job_that_two_nodes_delivered_is_once_in_a_batch(log: LeaseLog) -> None:
    log.begin(1, SHARES, jobs("one", "two"))
    batch = batch_path(log.directory, 1)
    assert lease(batch, 1, "two", "three", "one", "four")
    assert leased_ids(batch, 1) == ["three", "four"]
    found = leased_jobs(batch, 1)
    assert found is not None
    assert [rows.to_pydict() for rows in found] == [jobs("three", "four").to_pydict()]
    assert lease(batch, 2, "four", "three")
    assert leased_ids(batch, 2) == []
    assert leased_jobs(batch, 2) == []


def test_a_late_task_adds_nothing_to_a_finished_batch(log: LeaseLog) -> None:
    log.begin(1, SHARES, None)
    batch = batch_path(log.directory, 1)
    late = LeaseFile(batch, jobs("x").schema)
    late.append(jobs("late"))
    log.finish(1)
    assert not late.publish(1)
    assert leased_ids(log.done_path(1), 1) == []
    with pytest.raises(LeaseError, match="share"):
        LeaseFile(batch, jobs("x").schema)


def test_a_batch_is_acknowledged_after_it_is_over_and_then_forgotten(log: LeaseLog) -> None:
    log.begin(1, SHARES, jobs("one"))
    assert log.to_acknowledge() == []
    log.finish(1)
    assert log.open_batches() == []
    assert log.to_acknowledge() == [1]
    assert leased_ids(log.done_path(1), 0) == ["one"]
    log.clear(1)
    assert log.to_acknowledge() == []


def test_a_number_is_never_used_again(log: LeaseLog) -> None:
    for number in (1, 2):
        log.begin(number, SHARES, None)
        log.finish(number)
        log.clear(number)
    assert log.highest() == 2
    log.close()
    with LeaseLog(log.directory) as again:
        assert again.highest() == 2
        assert again.identity == log.identity
    assert len(list(log.directory.glob("done-*"))) == 1


def test_jobs_stay_readable_when_their_lease_is_cleared(log: LeaseLog) -> None:
    log.begin(1, SHARES, jobs("one"))
    found = leased_jobs(batch_path(log.directory, 1), 0)
    log.finish(1)
    log.clear(1)
    assert found is not None
    assert found[0].to_pydict() == jobs("one").to_pydict()


def test_a_directory_that_was_lost_is_another_one(log: LeaseLog) -> None:
    log.close()
    shutil.rmtree(log.directory)
    with LeaseLog(log.directory) as other:
        assert other.identity != log.identity


def test_a_directory_has_one_user(log: LeaseLog) -> None:
    with pytest.raises(LeaseError, match="in use"):
        LeaseLog(log.directory, seconds=0)
    log.close()
    LeaseLog(log.directory, seconds=0).close()


def test_a_killed_user_leaves_no_lock(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from disque_spark.leases.directory import LeaseLog\n"
        "log = LeaseLog(pathlib.Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(LeaseError):
            LeaseLog(tmp_path, seconds=0)
        process.kill()
    LeaseLog(tmp_path, seconds=0).close()


def test_leftovers_of_a_killed_planner_are_removed(log: LeaseLog) -> None:
    (log.directory / ".new-1").mkdir()
    log.close()
    LeaseLog(log.directory).close()
    assert not (log.directory / ".new-1").exists()
