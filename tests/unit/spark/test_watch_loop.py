"""Looking again and again: what ends a watch, and what does not."""

import argparse
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from disque_trio.spark.audit.manifest import Manifest
from disque_trio.spark.audit.run import Result
from disque_trio.spark.audit.unread import AuditError, NoLogError
from disque_trio.spark.cli.checks import UsageError
from disque_trio.spark.cli.watching import headers_of
from disque_trio.spark.files import location
from disque_trio.spark.restarts import Restarts
from disque_trio.spark.watch import loop
from disque_trio.spark.watch.loop import Watch
from disque_trio.spark.watch.notices import Notice
from disque_trio.spark.watch.receivers import ReceiverError

SPARK = cast(SparkSession, None)


class Looks:
    """What each look does, and how long the watch waits after each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *what: Exception | None) -> None:
        self.pauses: list[float] = []
        self.told: list[str] = []
        self.left = list(what)
        self.watch = Watch(["log"], "out", [], every=10)
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
        self.watch.run(SPARK, tell=self.told.append, **more)


def test_it_looks_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, None, None, None)
    looks.run()
    assert looks.pauses == [10, 10, 10]


def test_it_looks_as_often_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, None, None, None)
    looks.run(looks=2)
    assert (len(looks.left), looks.pauses) == (1, [10])


def test_what_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, OSError("No space left on device"), None, NoLogError("none"), None)
    looks.run()
    assert looks.pauses == [1, 10, 10, 10]
    assert [line.partition(":")[0] for line in looks.told] == ["No space left on device", "none"]


def test_what_does_not_pass_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuditError, match="two segments"):
        Looks(monkeypatch, AuditError("two segments"), None).run()
    with pytest.raises(OSError, match="gone"):
        Looks(monkeypatch, OSError("gone"), None).run(restarts=Restarts(0))


class Hears:
    """A receiver, which refuses as often as it is told to."""

    def __init__(self, name: str, refuses: int) -> None:
        self.name = name
        self._refuses = refuses
        self.heard: list[list[str]] = []

    def tell(self, notice: Notice) -> None:
        if self._refuses:
            self._refuses -= 1
            raise ReceiverError(f"{self.name}: no")
        self.heard.append([row["job"] for row in notice.found])


def test_each_receiver_is_told_once_and_who_was_not_there_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "000001.json").write_text(Manifest(version=1).text())
    row = {"kind": "poison", "reason": None, "queue": "q", "time": 5, "nodes": [], "detail": ""}
    jobs = ["D-1"]
    monkeypatch.setattr(Watch, "_findings", lambda *_: [{**row, "job": job} for job in jobs])
    result = Result(tmp_path, 0, 0, 0, 0, 0, 0, Counter())
    one, other = Hears("one", 0), Hears("other", 1)
    told: list[str] = []
    for more in ([], ["D-2"], []):
        jobs += more
        watch = Watch(["log"], tmp_path, [one, other])  # as after a kill
        watch._tell(result, location(tmp_path), told.append)
    assert one.heard == [["D-1"], ["D-2"]]
    assert other.heard == [["D-1", "D-2"]]
    assert told == ["other: no: tells again with the next look"]
    (tmp_path / loop.STATE).write_text("[]")
    with pytest.raises(ValueError, match=loop.STATE):
        watch._tell(result, location(tmp_path), told.append)


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
