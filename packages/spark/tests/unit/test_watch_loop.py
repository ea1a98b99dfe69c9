"""Repeated looks: what ends a watch, and what does not."""

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from disque_spark.audit.engine import LocalEngine
from disque_spark.audit.manifest import Manifest
from disque_spark.audit.result import Result
from disque_spark.audit.store import BusyError, Store, StoreError
from disque_spark.audit.unread import AuditError, NoLogError
from disque_spark.classic import is_gone
from disque_spark.cli.checks import UsageError
from disque_spark.cli.watching import headers_of
from disque_spark.files import Location, location
from disque_spark.restarts import Restarts
from disque_spark.watch import loop
from disque_spark.watch.loop import Observer, Watch
from disque_spark.watch.notices import MINUTE, Findings, Notice, Row
from disque_spark.watch.receivers import ReceiverError
from disque_spark.watch.state import STATE, WatchState, alone
from packages.spark.tests.unit.test_watch_notices import SCHEMA


class Looks:
    """What each look does, and how long the watch waits afterwards."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, output: Path, *what: Exception | None
    ) -> None:
        self.engine = LocalEngine(1)
        self.pauses: list[float] = []
        self.told: list[str] = []
        self.left = list(what)
        self.watch = Watch(["log"], output, [], every=10)
        monkeypatch.setattr(Watch, "look", lambda *_: self._look())
        monkeypatch.setattr(loop, "wait", lambda seconds, stop: self.pauses.append(seconds))
        monkeypatch.setattr(loop, "monotonic", lambda: 0.0)

    def _look(self) -> Result:
        what = self.left.pop(0)
        if what is not None:
            raise what
        return cast(Result, None)

    def run(self, **more: Any) -> None:
        more.setdefault("stop", lambda: not self.left)
        self.watch.run(self.engine, tell=self.told.append, **more)


def test_it_looks_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks = Looks(monkeypatch, tmp_path, None, None, None)
    looks.run()
    assert looks.pauses == [10, 10, 10]


def test_it_looks_as_often_as_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks = Looks(monkeypatch, tmp_path, None, None, None)
    looks.run(looks=2)
    assert (len(looks.left), looks.pauses) == (1, [10])


def test_temporary_failures_are_retried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks = Looks(
        monkeypatch, tmp_path, OSError("No space left on device"), None, NoLogError("none"), None
    )
    looks.run()
    assert looks.pauses == [1, 10, 10, 10]
    assert [line.partition(";")[0] for line in looks.told] == ["No space left on device", "none"]


def test_a_permanent_failure_ends_the_watch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match="damaged"):
        Looks(monkeypatch, tmp_path, StoreError("damaged"), None).run()
    with pytest.raises(OSError, match="gone"):
        Looks(monkeypatch, tmp_path, OSError("gone"), None).run(restarts=Restarts(0))
    looks = Looks(monkeypatch, tmp_path, *[AuditError("two segments")] * 6)
    with pytest.raises(AuditError, match="two segments"):
        looks.run()
    assert len(looks.left) == 1  # it may have been half of a copy


def test_an_audit_that_is_writing_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks = Looks(monkeypatch, tmp_path, *[BusyError("another audit")] * 60, None)
    looks.run()
    assert looks.pauses == [10] * 61


def test_without_a_jvm_it_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks = Looks(monkeypatch, tmp_path, ConnectionRefusedError("Connection refused"), None)
    monkeypatch.setattr(looks.engine, "is_gone", lambda: True)
    with pytest.raises(ConnectionRefusedError):
        looks.run()


def test_a_session_is_gone_when_its_jvm_does_not_answer_or_its_context_has_stopped() -> None:
    def session(answer: Callable[[], bool]) -> SparkSession:
        java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=answer))
        return cast(SparkSession, SimpleNamespace(_sc=SimpleNamespace(_jsc=java)))

    def refused() -> bool:
        raise ConnectionRefusedError

    assert is_gone(session(refused))
    assert is_gone(session(lambda: True))
    assert not is_gone(session(lambda: False))
    assert not is_gone(cast(SparkSession, SimpleNamespace()))  # that of Spark Connect


def test_only_one_watch_looks_for_a_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with alone(location(tmp_path)):
        looks = Looks(monkeypatch, tmp_path, None)
        with pytest.raises(StoreError, match="another watch"):
            looks.run()
    looks.run()
    assert looks.left == []


class Heard(Observer):
    """Records what an observer hears."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, float]] = []
        self.notices: list[tuple[str, str | None, int]] = []

    def failed(self, error: str, seconds: float) -> None:
        self.failures.append((error, seconds))

    def told(self, receiver: str, problem: str | None, left: int) -> None:
        self.notices.append((receiver, problem, left))


def test_an_observer_hears_of_looks_that_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks = Looks(monkeypatch, tmp_path, NoLogError("none"), OSError("No space left on device"))
    looks.watch.observer = heard = Heard()
    looks.run()
    assert heard.failures == [("none", 10), ("No space left on device", 1)]


class Hears:
    """A receiver that refuses as often as it is told to."""

    def __init__(self, name: str, refuses: int) -> None:
        self.name = self.key = name
        self.refuses = refuses
        self.heard: list[list[str]] = []
        self.minutes: list[int] = []

    def tell(self, notice: Notice) -> None:
        if self.refuses:
            self.refuses -= 1
            raise ReceiverError(f"{self.name}: no")
        self.heard.append([row["job"] for row in notice.found])
        self.minutes += [row["minute"] for row in notice.queues]


class Told:
    """What a watch of a directory reports about jobs that have findings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, output: Path, last: int = 0) -> None:
        self.jobs: list[str] = []
        self.minutes: list[int] = []
        self.output = output
        self.now = 1e9
        self.lines: list[str] = []
        self.heard = Heard()
        (output / "manifests").mkdir()
        text = Manifest(version=1, last=last).text()
        (output / "manifests" / "000001.json").write_text(text)
        monkeypatch.setattr(Watch, "_found", lambda *_: [self._table()])
        monkeypatch.setattr(loop, "_minutes", lambda store, since: self._rows())

    def _table(self) -> Findings:
        row = {"kind": "poison", "reason": None, "queue": "q", "time": 5, "nodes": []}
        return Findings(pa.Table.from_pylist([{**row, "job": job} for job in self.jobs], SCHEMA))

    def _rows(self) -> list[Row]:
        return [{"minute": at, "added": 1, "delivered": 0, "depth": 0} for at in self.minutes]

    def look(self, *receivers: Hears, quiet: int = 0) -> None:
        """Report like a watch that has just been started, and knows that there were no lines for
        ``quiet`` ms."""
        result = Result(self.output, 0, 0, 0, 0, 0, 0, Counter())
        watch = Watch(["log"], self.output, receivers, observer=self.heard, clock=lambda: self.now)
        store = Store(self.output)
        watch._tell(result, store, store.manifest.end + quiet, self.lines.append)


def test_each_receiver_is_told_once_and_who_was_not_there_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = Told(monkeypatch, tmp_path)
    one, other = Hears("one", 0), Hears("other", 1)
    for more in (["D-1"], ["D-2"], []):
        told.jobs += more
        told.look(one, other)
    assert one.heard == [["D-1"], ["D-2"]]
    assert other.heard == [["D-1", "D-2"]]
    assert told.lines == ["other: no; will try again after the next look"]
    assert told.heard.notices == [
        ("one", None, 0),
        ("other", "other: no", 1),
        ("one", None, 0),
        ("other", None, 0),
    ]
    (tmp_path / STATE).write_text("[]")
    with pytest.raises(StoreError, match=STATE):
        told.look(one, other)


def test_who_is_told_before_another_one_is_lost_is_not_told_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = Told(monkeypatch, tmp_path)
    told.jobs = ["D-1"]
    one, other = Hears("one", 0), Hears("other", 0)

    def dies(notice: Notice) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(other, "tell", dies)
    with pytest.raises(KeyboardInterrupt):
        told.look(one, other)
    told.look(one)
    assert one.heard == [["D-1"]]


def test_all_are_told_though_it_cannot_be_noted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = Told(monkeypatch, tmp_path)
    told.jobs = ["D-1"]
    one, other = Hears("one", 0), Hears("other", 0)
    (tmp_path / STATE).mkdir()  # as good as a full disk
    monkeypatch.setattr(WatchState, "__init__", lambda state, output: _empty(state, output / STATE))
    with pytest.raises(OSError, match=STATE):
        told.look(one, other)
    assert one.heard == other.heard == [["D-1"]]


def _empty(state: WatchState, file: Location) -> None:
    state._file, state._kept, state.told = file, b"", {}


def test_a_node_whose_clock_is_ahead_does_not_end_minutes_that_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = 10_000 * MINUTE
    told = Told(monkeypatch, tmp_path, last=now + 600 * MINUTE)  # a clock that was set
    one = Hears("one", 0)
    told.minutes = [now - MINUTE, now, now + 600 * MINUTE]
    for minutes in range(3):
        told.now = (now + minutes * MINUTE) / 1000
        told.look(one)
    assert one.minutes == [now - MINUTE, now]


def test_logs_may_come_later_and_those_that_are_there_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    told: list[str] = []
    paths = [str(tmp_path / name) for name in ("one", "other")]
    watch = Watch(paths, tmp_path, [])
    assert watch._present({}, told.append) == paths[:1]
    assert watch._present({}, told.append) == paths[:1]
    (tmp_path / "other").mkdir()
    assert watch._present({}, told.append) == paths
    assert told == [
        f"no event log at {paths[1]}; waiting for it",
        f"{paths[1]} exists now",
    ]
    for name in ("one", "other"):
        (tmp_path / name).rmdir()
    with pytest.raises(NoLogError, match="no event log at"):
        watch._present({}, told.append)


def test_headers_of_a_webhook() -> None:
    def headers(*texts: str) -> dict[str, str]:
        return headers_of(argparse.Namespace(webhook_header=list(texts)))

    assert headers("Authorization: Bearer a:b ", "X-A:1") == {
        "Authorization": "Bearer a:b",
        "X-A": "1",
    }
    for wrong in ("", "no colon", ": x", "a b: c", "A: b\r\nC: d", "A:"):
        with pytest.raises(UsageError, match="expected"):
            headers(wrong)


def test_a_minute_is_over_with_time_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = 10_000 * MINUTE
    told = Told(monkeypatch, tmp_path, last=now)
    one = Hears("one", 0)
    told.minutes, told.now = [now], now / 1000 + 3600
    told.look(one, quiet=MINUTE - 1)
    assert one.minutes == []
    told.look(one, quiet=MINUTE)
    assert one.minutes == [now]
