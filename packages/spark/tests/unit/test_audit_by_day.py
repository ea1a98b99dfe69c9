"""Tables of an audit are kept by day: many runs have the same result as one, and each costs only
what is new."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from pyarrow.dataset import dataset

from disque_spark.audit import jobs_table, run
from disque_spark.audit.engine import LocalEngine
from disque_spark.audit.jobs_table import JobsTable
from disque_spark.audit.judging import Judge
from disque_spark.audit.manifest import day_of, start_of
from disque_spark.audit.rules import Rules
from disque_spark.audit.run import audit
from disque_spark.audit.store import Store
from disque_spark.audit.tables import table_files
from packages.spark.tests.support.planted_hours import Hours
from packages.spark.tests.support.planted_lines import START, Key
from packages.spark.tests.support.planted_log import about_of
from packages.spark.tests.support.written_logs import read

ENGINE = LocalEngine(2)

HOUR = 3_600_000
LONG = bool(os.environ.get("DISQUE_SPARK_LONG"))
long = pytest.mark.skipif(not LONG, reason="many runs; set DISQUE_SPARK_LONG")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Key, set[str]]]:
    """A log of three days, in segments of a few hours, and what is planted in it."""
    log = tmp_path_factory.mktemp("days") / "log"
    hours = Hours(log, 500, hour=6 * HOUR, every=6)
    for _ in range(10):
        hours.write()
    hours.end()
    return log, hours.planted


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are merged as soon as there are a few, and clocks are right."""
    monkeypatch.setattr(jobs_table, "MAX_SMALL", 2)
    monkeypatch.setattr(jobs_table, "MAX_MINUTE_FILES", 2)
    monkeypatch.setattr(jobs_table, "SLACK", 60_000)


def rows(output: Path, name: str, since: str = "") -> list[tuple[object, ...]]:
    """Return the rows of a table, from the day ``since`` on. Nodes may be numbered in a different
    order."""
    found = []
    for row in read(output, name):
        if str(row["day"]) < since:
            continue
        values = [
            sorted(value) if isinstance(value, list) else value
            for column, value in row.items()
            if column != "trace"
        ]
        found.append(tuple(map(str, values)))
    return sorted(found)


def same(one: Path, other: Path, *, schedules: bool = True) -> None:
    for name in ("jobs", "queue_minutes", "ticks", "findings"):
        found = [rows(output, name) for output in (one, other)]
        if not schedules:
            found = [without_schedules(name, some) for some in found]
        assert found[0] == found[1], name


def without_schedules(name: str, rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return the rows that are not about schedules, which older programs did not know."""
    if name == "ticks":
        return []
    return [row for row in rows if not str(row[0]).startswith("schedule-")]


def segments_of(log: Path) -> list[Path]:
    return sorted(log.iterdir(), key=lambda path: path.name.split("-")[2:])


def copy(segments: list[Path], directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    for segment in segments:
        shutil.copy(segment, directory)


def test_a_table_has_the_days_on_which_its_jobs_were_last_heard_of(
    planted: tuple[Path, dict[Key, set[str]]], whole: Path
) -> None:
    for row in read(whole, "jobs"):
        assert row["day"] == row["last_event"].date()
    assert len(list((whole / "current" / "jobs").iterdir())) == 4
    found: dict[Key, set[str]] = {}
    for row in read(whole, "findings"):
        found.setdefault((row["kind"], row["reason"] or ""), set()).add(about_of(row))
    assert found == planted[1]
    files = {Path(path.path).resolve() for path in table_files(whole, "jobs")}
    assert {path.resolve() for path in (whole / "current").glob("jobs/*/*")} == files
    # Not every program looks into links to directories for ``**``.
    assert {path.resolve() for path in (whole / "current" / "jobs").rglob("*.parquet")} == files
    there = dataset(whole / "current" / "jobs", partitioning="hive").to_table()
    assert len(there) == Store(whole).manifest.jobs
    assert set(map(str, there.column("day").to_pylist())) == set(
        Store(whole).manifest.files("jobs")
    )


@long
@pytest.mark.parametrize("seed", range(8))
def test_segments_in_any_order_and_any_number_of_runs_come_to_the_same(
    planted: tuple[Path, dict[Key, set[str]]],
    whole: Path,
    tmp_path: Path,
    small_files: None,
    seed: int,
) -> None:
    rng = random.Random(seed)
    segments = segments_of(planted[0])
    if seed % 2:
        rng.shuffle(segments)  # late lines may be days late
    cuts = sorted(rng.sample(range(1, len(segments)), 3 + seed))
    for start, end in zip([0, *cuts], [*cuts, len(segments)], strict=True):
        copy(segments[start:end], tmp_path / "log")
        audit(ENGINE, [str(tmp_path / "log")], tmp_path / "audit")
    same(tmp_path / "audit", whole)
    manifest = Store(tmp_path / "audit").manifest
    assert manifest.jobs == Store(whole).manifest.jobs
    assert manifest.finding_counts == Store(whole).manifest.finding_counts


@long
def test_much_that_is_new_is_read_in_rounds(
    planted: tuple[Path, dict[Key, set[str]]],
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    segments = segments_of(planted[0])
    size = sum(segment.stat().st_size for segment in segments)
    monkeypatch.setattr(run, "ROUND_BYTES", size // 3)
    audit(ENGINE, [str(planted[0])], tmp_path / "audit")
    same(tmp_path / "audit", whole)
    assert Store(tmp_path / "audit").manifest.version == 1
    # Nothing is left of what the rounds have replaced.
    known = {path.name for path in table_files(tmp_path / "audit", "jobs")}
    there = (tmp_path / "audit" / "data" / "jobs").glob("*/*")
    assert {path.name for path in there} == known


@long
def test_a_run_reads_what_is_new_and_what_it_touches_however_much_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_files: None
) -> None:
    tables: list[JobsTable] = []
    judges: list[Judge] = []

    class Table(JobsTable):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            tables.append(self)

    class Judging(Judge):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            judges.append(self)

    monkeypatch.setattr(run, "JobsTable", Table)
    monkeypatch.setattr(run, "Judge", Judging)
    monkeypatch.setattr(jobs_table, "MAX_SMALL", 1000)
    log = tmp_path / "log"
    hours = Hours(log, 400, hour=8 * HOUR, every=1000)
    work = []
    for _ in range(14):
        hours.write()
        audit(ENGINE, [str(log)], tmp_path / "audit")
        table, judge = tables[-1], judges[-1]
        counts = len(table.looked_up), len(table.rewritten), len(table.counted), judge.judged
        work.append(counts)
        shutil.rmtree(log)
        log.mkdir()
    files = len(table_files(tmp_path / "audit", "jobs"))
    assert files > 2 * max(work[-1])
    for counts in work[4:]:
        assert counts <= tuple(2 + most for most in map(max, *work[1:4])), work


def test_old_days_are_dropped_and_are_neither_new_again_nor_missing(
    planted: tuple[Path, dict[Key, set[str]]], whole: Path, tmp_path: Path
) -> None:
    output = tmp_path / "audit"
    segments = segments_of(planted[0])
    copy(segments[:18], tmp_path / "log")
    audit(ENGINE, [str(tmp_path / "log")], output, keep_days=1)
    copy(segments[18:], tmp_path / "log")
    result = audit(ENGINE, [str(tmp_path / "log")], output, keep_days=1)
    assert not result.is_partial
    last = Store(whole).manifest.last
    begin = start_of(day_of(last)) - 24 * HOUR
    for name in ("jobs", "queue_minutes", "ticks", "findings"):
        expected = rows(whole, name, day_of(begin))
        assert 0 < len(expected) < len(rows(whole, name)), name
        assert rows(output, name) == expected, name
    manifest = Store(output).manifest
    assert manifest.jobs == len(read(output, "jobs"))
    assert 0 < len(manifest.segments) < len(segments)
    for place in ("jobs", "queue_minutes", "findings"):
        there = sorted(path.name for path in (output / "current" / place).iterdir())
        assert there[0] >= f"day={day_of(begin)}"
    # They are still in the directory of the log.
    again = audit(ENGINE, [str(tmp_path / "log")], output, Rules(poison=2), keep_days=1)
    assert (again.segments, again.events, again.missing_segments) == (0, 0, {})
    kinds = {(row["kind"], row["reason"]) for row in read(output, "findings")}
    assert not [kind for kind in kinds if kind[1] == "log-gap"]


def test_tables_of_before_there_were_days_are_taken_over_and_go_on_in_any_order(
    planted: tuple[Path, dict[Key, set[str]]],
    whole: Path,
    tmp_path: Path,
    small_files: None,
) -> None:
    segments = segments_of(planted[0])
    random.Random(1).shuffle(segments)  # late lines may be days late
    copy(segments[:20], tmp_path / "log")
    output, first = tmp_path / "audit", tmp_path / "first"
    audit(ENGINE, [str(tmp_path / "log")], first)
    as_before(first, output)
    assert len(read(output, "jobs")) == Store(first).manifest.jobs
    copy(segments[20:], tmp_path / "log")
    audit(ENGINE, [str(tmp_path / "log")], output)
    same(output, whole, schedules=False)
    assert (output / "current").readlink() == Path("views/000002")
    assert Store(output).manifest.jobs == Store(whole).manifest.jobs
    audit(ENGINE, [str(tmp_path / "log")], output, Rules(poison=1))
    assert not list((output / "versions").iterdir())


@long
def test_lines_of_a_job_come_together_if_clocks_are_hours_apart(tmp_path: Path) -> None:
    nodes = ("a" * 40, "c" * 40)
    id = f"D-{nodes[1][:8]}-{'x' * 24}-05a1"
    ahead = 9 * HOUR

    def write(node: int, at: int, *events: dict[str, object]) -> None:
        name = f"events-{nodes[node][:8]}-{at:013}-0.jsonl"
        lines = [{"time": at, "node": nodes[node], **event} for event in events]
        path = tmp_path / "log" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    job = {"id": id, "queue": "q"}
    write(0, START, job | {"event": "acked", "reason": "client", "client": "w"})
    audit(ENGINE, [str(tmp_path / "log")], tmp_path / "audit")
    facts = {"size": 1, "repl": 1, "copies": 0, "retry": 9, "ttl": 99, "delay": 0}
    facts["ctime"] = (START + ahead - 9) * 1_000_000
    write(1, START + ahead, job | {"event": "added"} | facts)
    result = audit(ENGINE, [str(tmp_path / "log")], tmp_path / "audit")
    assert (result.events, result.jobs) == (1, 1)


def as_before(source: Path, output: Path) -> None:
    """The tables as written by an audit that had no days."""
    manifest = Store(source).manifest
    version = output / "versions" / "000001"
    parts = (version / "jobs" / "part=1", version / "jobs" / "part=2")
    for part in parts:
        part.mkdir(parents=True)
    for number, path in enumerate(table_files(source, "jobs")):
        shutil.copy(path.path, parts[number % 2] / f"jobs-{number:05}.parquet")
    for name in ("queue_minutes", "findings"):
        (version / name).mkdir()
        for number, path in enumerate(table_files(source, name)):
            shutil.copy(path.path, version / name / f"part-{number:05}.parquet")
    said = json.loads(manifest.text())
    names = ("nodes", "segments", "events", "dropped", "unknown", "damaged", "first", "last")
    old = {name: said[name] for name in (*names, "jobs", "settings", "ends", "peers", "gone")}
    old |= {"version": 1, "parts": [1, 2], "aofs": 0}
    (version / "manifest.json").write_text(json.dumps(old))
    (output / "current").symlink_to(Path("versions/000001"))


def test_a_day_begins_at_midnight_in_utc() -> None:
    assert day_of(START) == "2026-05-28"
    assert start_of("1970-01-02") == 24 * HOUR
    assert day_of(start_of("2026-11-24")) == "2026-11-24"
