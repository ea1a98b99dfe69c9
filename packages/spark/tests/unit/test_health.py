"""The health file of an archive or a watch, and what its check says."""

import json
import os
from pathlib import Path

import pytest

from disque_spark import pipeline
from disque_spark.health import Health, HealthFile, check_health
from disque_trio.process import health
from disque_trio.process.health import HealthError


class Clock:
    """A clock that stands still."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock(1_800_000_000.0)


def health_of(path: Path) -> Health:
    return Health.of(health.read(path))


def test_the_file_follows_an_archive_from_its_start_to_its_end(
    tmp_path: Path, clock: Clock
) -> None:
    path = tmp_path / "health"
    file = HealthFile(path, clock)
    file.starting("no node answers; waiting for a node")
    found = health_of(path)
    assert (found.state, found.reason) == ("starting", "no node answers; waiting for a node")
    assert (found.batch, found.pid) == (None, os.getpid())
    clock.now += 10
    file.running(3, 70)
    clock.now += 10
    file.running(4, 80)
    found = health_of(path)
    assert (found.state, found.batch, found.jobs) == ("running", 4, 80)
    assert (found.time, found.since) == (clock.now, clock.now - 10)
    file.restarting("WireError: gone", 4.0)
    found = health_of(path)
    assert (found.state, found.restarts, found.error) == ("restarting", 1, "WireError: gone")
    assert found.reason == "WireError: gone; next start in 4 s"
    file.starting()
    file.running(5, 80)
    found = health_of(path)
    # What is over is still known.
    assert (found.state, found.reason, found.error) == ("running", None, "WireError: gone")
    file.stopped()
    assert (health_of(path).state, health_of(path).reason) == ("stopped", None)
    assert json.loads(path.read_text())["time_utc"].startswith("2027-01-15T08:00:20")
    assert list(tmp_path.iterdir()) == [path]


def test_the_check_fails_for_a_silent_or_stopped_command(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "health"
    file = HealthFile(path, clock)
    with pytest.raises(HealthError, match="No such file"):
        check_health(path, 60)
    file.starting()
    file.running(7, 12)
    assert check_health(path, 60, clock.now + 60) == "running, batch 7, 12 jobs, 60 s ago"
    with pytest.raises(HealthError, match="no sign of life for 61 s"):
        check_health(path, 60, clock.now + 61)
    # A clock that was set back far does not make an old file recent.
    with pytest.raises(HealthError, match="sign of life"):
        check_health(path, 60, clock.now - 3600)
    file.restarting("full", 2.0)
    assert "restarting (full; next start in 2 s)" in check_health(path, 60, clock.now)
    file.done()  # like an archive of what is there: there is nothing more to say
    clock.now += 3600
    assert check_health(path, now=clock.now) == (
        "done, batch 7, 12 jobs, 3600 s ago, last error: full"
    )
    with pytest.raises(HealthError, match="done, but no sign of life for 3600 s"):
        check_health(path, 60, clock.now)
    file.stopped("LeaseError: out of date")
    with pytest.raises(HealthError, match=r"stopped \(LeaseError: out of date\)"):
        check_health(path, 60, clock.now)


def test_the_file_follows_a_watch(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "health"
    file = HealthFile(path, clock)
    file.watching()
    file.starting()
    assert check_health(path, 60, clock.now) == "starting, 0 looks, 0 events, 0 s ago"
    file.looked(70, 0, None)
    clock.now += 50
    file.working()  # the next look begins
    assert check_health(path, 60, clock.now + 20) == "running, 1 looks, 70 events, 20 s ago"
    file.looked(5, 3, "webhook: 503 Service Unavailable")
    assert check_health(path, 60, clock.now) == (
        "running, 2 looks, 75 events, 3 rows not delivered, 0 s ago,"
        " last error: webhook: 503 Service Unavailable"
    )
    file.restarting("disk full", 4.0)
    assert "restarting (disk full; next look in 4 s)" in check_health(path, 60, clock.now)
    file.looked(0, 0, None)
    found = health_of(path)
    assert (found.state, found.looks, found.restarts, found.error) == (
        "running",
        3,
        1,
        "disk full",
    )
    with pytest.raises(HealthError, match="running, but no sign of life for 61 s"):
        check_health(path, 60, clock.now + 61)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"time": "now"}', '{"time": null}'])
def test_a_file_that_is_not_a_health_file_is_unhealthy(tmp_path: Path, text: str) -> None:
    path = tmp_path / "health"
    path.write_text(text)
    with pytest.raises(HealthError, match="not a health file"):
        check_health(path, 60)


def test_a_file_that_cannot_be_written_keeps_nobody_from_work(tmp_path: Path) -> None:
    HealthFile(tmp_path / "nowhere" / "health").starting()
    HealthFile(None).running(1, 1)


def test_the_exit_status_of_the_command_tells_the_health(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "health"
    file = HealthFile(path)
    file.running(1, 5)
    assert pipeline.main(["health", str(path)]) == 0
    assert capsys.readouterr().out.startswith("running, batch 1, 5 jobs")
    file.stopped()
    assert pipeline.main(["health", str(path), "--max-age", "5"]) == 1
    assert capsys.readouterr().err == f"disque-pipeline: {path}: stopped\n"
