"""Findings about the ticks of schedules, and how their table grows."""

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from disque_spark.audit.engine import LocalEngine
from disque_spark.audit.manifest import DAY, FINDINGS, TICKS, Manifest, day_of, start_of
from disque_spark.audit.partial_jobs import read
from disque_spark.audit.stages import Target, _write_ticks
from disque_spark.audit.store import Store
from disque_spark.audit.ticks import TICK_SCHEMA, Tick, tick_findings, ticks_in
from disque_spark.audit.ticks_table import TicksTable
from disque_spark.files import location
from disque_spark.segments import Piece
from disque_trio.eventlog.lines import LineWriter
from disque_trio.eventlog.schema import Event

A, B = "a" * 40, "b" * 40
NOON = start_of("2026-11-01") + DAY // 2


def ticked(job: str, node: str = A, at: int = NOON, name: str = "s") -> Tick:
    return Tick(name, at, "ticked", job, "q", None, None, node, at + 5)


def missed(node: str = A, at: int = NOON, why: str = "down", until: int | None = None) -> Tick:
    return Tick("s", at, "missed", None, "q", why, until, node, at + 61_000)


def rows_of(ticks: Iterable[Tick]) -> pa.Table:
    return pa.Table.from_pylist([tick._asdict() for tick in ticks], schema=TICK_SCHEMA)


def found(*ticks: Tick) -> list[tuple[str, str | None, str | None, int | None, list[str]]]:
    return [
        (one.kind, one.reason, one.job, one.time, one.nodes)
        for one in tick_findings(rows_of(ticks))
    ]


def test_a_tick_that_added_its_job_is_no_finding_whoever_says_so() -> None:
    assert found(ticked("1"), ticked("1", B)) == []
    assert found(ticked("1"), missed(B)) == []
    assert found(ticked("1"), ticked("2", at=NOON + 1000), ticked("3", name="other")) == []


def test_a_tick_that_added_none_is_found_once() -> None:
    assert found(missed(), missed(B)) == [("schedule-missed", "down", None, NOON, [A, B])]
    (one, _) = tick_findings(rows_of([missed(until=NOON + 9), missed(at=NOON + 9, why="refused")]))
    assert (one.time, one.queue) == (NOON, "q")
    assert "those that followed" in one.detail


def test_a_tick_that_added_two_jobs_is_found() -> None:
    twice = [("schedule-doubled", None, "2", NOON, [A, B])]
    assert found(ticked("1"), ticked("2", B)) == twice
    assert found(missed(), ticked("2", B), ticked("1"), ticked("1", B)) == twice


def lines(node: str, *events: Event) -> bytes:
    return LineWriter(node).lines(list(events))


def test_lines_about_ticks_are_read_and_are_no_events_of_jobs(tmp_path: Path) -> None:
    id = b"D-" + b"a" * 38
    text = lines(
        A,
        (NOON + 5, "ticked", b"\xffs", NOON, b"q", "", -1, id),
        (NOON + 6, "missed", b"s", NOON, b"q", "refused", NOON + 9, b""),
        (NOON + 7, "delivered", b"q", ""),
        id,
    )
    told = [json.loads(line) for line in text.splitlines()]
    assert told[0] == {
        "time": NOON + 5, "node": A, "event": "ticked", "id": id.decode(), "queue": "q",
        "schedule": "\\xffs", "tick": NOON,
    }  # fmt: skip
    path = location(tmp_path / "events-aaaaaaaa-1-1.jsonl")
    path.write_bytes(text)
    partial, seen, notes = read([Piece(path, 0, len(text))], [A])
    assert (len(partial), seen.events, seen.unknown, seen.damaged) == (1, 3, 0, 0)
    assert ticks_in(pa.concat_tables(notes.ticks)) == [
        Tick("\\xffs", NOON, "ticked", id.decode(), "q", None, None, A, NOON + 5),
        Tick("s", NOON, "missed", None, "q", "refused", NOON + 9, A, NOON + 6),
    ]


# ---- the table ----------------------------------------------------------------------------------


class Table:
    """An audit that has only ticks."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory)

    def run(self, ticks: Iterable[Tick], keep_days: int | None = None) -> Manifest:
        manifest = Manifest.of(self.store.manifest.text())
        manifest.changed = []
        manifest.last = NOON + 10 * DAY
        stamp = self.store.stamp()
        place = Target(self.store.place("jobs"), self.store.place(TICKS), stamp)
        new: dict[str, list[str]] = {}
        for some in ticks, ():  # as two tasks
            for day, name in _write_ticks([rows_of(some)] if some else [], place):
                new.setdefault(day, []).append(name)
        TicksTable(LocalEngine(1), self.store, manifest, stamp).add(new)
        manifest.drop_days(keep_days)
        self.store.commit(manifest, {TICKS: TICK_SCHEMA})
        return manifest

    def rows(self) -> list[Tick]:
        return sorted(
            (
                tick
                for path in self.store.paths(TICKS)
                for tick in ticks_in(pq.read_table(path.path))
            ),
            key=str,
        )

    def findings(self) -> list[dict[str, object]]:
        tables = [pq.read_table(path.path) for path in self.store.paths(FINDINGS)]
        return sorted((row for table in tables for row in table.to_pylist()), key=str)


LATER = NOON + DAY
EVERY = [
    ticked("1"), missed(B), ticked("2", B, LATER), ticked("3", A, LATER), missed(at=NOON + 9),
    missed(at=LATER + 9, why="refused", until=LATER + 99),
]  # fmt: skip


@pytest.mark.parametrize("cut", range(1, len(EVERY)))
def test_many_runs_have_the_table_of_one(tmp_path: Path, cut: int) -> None:
    one, many = Table(tmp_path / "one"), Table(tmp_path / "many")
    whole = one.run(EVERY)
    many.run(EVERY[cut:])
    last = many.run(EVERY[:cut])
    assert many.rows() == one.rows() == sorted(EVERY, key=str)
    assert many.findings() == one.findings()
    assert last.finding_counts == whole.finding_counts
    assert whole.finding_counts == {
        "schedule-missed down": 1,
        "schedule-missed refused": 1,
        "schedule-doubled ": 1,
    }
    assert (tmp_path / "many" / "current" / TICKS / f"day={day_of(NOON)}").is_dir()


def test_days_without_new_ticks_are_left_as_they_are_and_old_ones_are_dropped(
    tmp_path: Path,
) -> None:
    table = Table(tmp_path)
    first = table.run(EVERY)
    second = table.run([ticked("9", at=LATER + 500)])
    assert second.ticks[day_of(NOON)] == first.ticks[day_of(NOON)]
    assert second.ticks[day_of(LATER)] != first.ticks[day_of(LATER)]
    assert len(table.run([], keep_days=9).ticks) == 1
    assert {row.tick >= LATER for row in table.rows()} == {True}
    assert len(table.findings()) == 2
