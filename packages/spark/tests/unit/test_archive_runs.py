"""How an archive continues after a failure, with fake streams."""

from pathlib import Path
from typing import ClassVar, cast

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from disque_spark.archive import Archive
from disque_spark.health import HealthFile
from disque_spark.lakehouse.settings import TableFailedError
from disque_spark.restarts import Restarts

SPARK = cast("SparkSession", None)


class Threw(Py4JJavaError):  # type: ignore[misc]
    """An error that can no longer be asked for its text."""

    def __init__(self) -> None:
        pass

    def __str__(self) -> str:
        raise ConnectionRefusedError


class Query:
    """A stream that processes batches with these numbers of jobs, and then fails or ends."""

    def __init__(self, *rows: int, fails: bool = False) -> None:
        self.isActive = True
        self.recentProgress = [
            {"batchId": place, "timestamp": f"{place}", "numInputRows": count}
            for place, count in enumerate(rows, 1)
        ]
        self._fails = fails
        self._asked = 0

    def awaitTermination(self, seconds: float) -> bool:
        self._asked += 1
        if self._fails and self._asked > 1:
            raise Threw
        self.isActive = self._fails
        return not self._fails

    def stop(self) -> None:
        self.isActive = False


class Busy(Query):
    """A stream of Spark Connect that is never between two batches."""

    __module__ = "pyspark.sql.connect.streaming.query"
    status: ClassVar = {"isTriggerActive": True}

    def awaitTermination(self, seconds: float) -> bool:
        self._asked += 1
        if self._asked % 3 == 0:
            number = len(self.recentProgress) + 1
            self.recentProgress.append(
                {"batchId": number, "timestamp": f"{number}", "numInputRows": 10}
            )
        return not self.isActive


class Asked(Restarts):
    """Records what it is told, and allows restarts at once."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__(most)
        self.batches = 0
        self.failures: list[tuple[str, str]] = []

    def progress(self) -> None:
        self.batches += 1

    def pause(self, text: str, line: str) -> float | None:
        self.failures.append((text, line))
        return None if super().pause(text, line) is None else 0.0


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(["127.0.0.1:1"], ["q"], tmp_path)


def streams(monkeypatch: pytest.MonkeyPatch, *queries: Query) -> None:
    """Let archives start these streams, one after the other, none while another one runs."""
    left = iter(queries)
    begun: list[Query] = []

    def start(self: Archive, spark: SparkSession) -> Query:
        assert not [query for query in begun if query.isActive]
        begun.append(next(left))
        return begun[-1]

    monkeypatch.setattr(Archive, "start", start)


def run(archive: Archive, restarts: Restarts) -> int:
    return archive.run(SPARK, lambda text: None, lambda text: None, restarts=restarts)


def test_a_stream_that_still_runs_is_stopped_before_the_next_one(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarts = Asked()
    streams(monkeypatch, Query(3, fails=True), Query(4))
    assert run(archive, restarts) == 7
    # An error without a text still has a name.
    assert restarts.failures == [("Threw", "Threw")]


def test_a_stream_that_still_runs_is_stopped_also_when_there_is_no_next_one(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(fails=True)
    streams(monkeypatch, query)
    with pytest.raises(Threw):
        run(archive, Asked(0))
    assert not query.isActive


def test_a_batch_without_jobs_does_not_say_that_all_is_well(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarts = Asked()
    streams(monkeypatch, Query(0, 0, 5, 0))
    assert run(archive, restarts) == 5
    assert restarts.batches == 1


def test_rows_are_counted_also_when_the_stream_was_idle_before(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's report about an idle stream has the number of the next batch."""
    query = Query(0, 2)
    query.recentProgress[1]["batchId"] = 1
    streams(monkeypatch, query)
    assert run(archive, Asked()) == 2


def test_a_stream_elsewhere_that_is_never_idle_ends_after_a_batch(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Busy(10)
    streams(monkeypatch, query)
    assert archive.run(SPARK, lambda text: None, lambda text: None, lambda: query._asked > 1) == 20
    assert not query.isActive


def test_a_catalog_that_fails_at_a_start_is_asked_again(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [TableFailedError("shop: ServiceUnavailableError: later")] * 2
    streams(monkeypatch, Query(3))
    start = Archive.start

    def fails(self: Archive, spark: SparkSession) -> object:
        if failures:
            raise failures.pop()
        return start(self, spark)

    monkeypatch.setattr(Archive, "start", fails)
    restarts = Asked()
    assert run(archive, restarts) == 3
    assert len(restarts.failures) == 2


class Noted(HealthFile):
    """Records what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[str] = []

    def _write(self, state: str, reason: str | None = None) -> None:
        super()._write(state, reason)
        self.states.append(state)


def test_the_health_file_hears_of_starts_batches_and_failures(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams(monkeypatch, Query(3, fails=True), Query(4))
    health = Noted()
    quick = Asked()
    archive.run(SPARK, lambda text: None, lambda text: None, restarts=quick, health=health)
    assert health.states == ["starting", "running", "restarting", "starting", "running"]
    assert (health.health.batch, health.health.jobs, health.health.error) == (1, 7, "Threw")
