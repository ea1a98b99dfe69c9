"""The history of a job in event logs: which files and lines are read, and the limits."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from disque_console.io.timelines import EVENTS, Timelines
from disque_console.model.life import Life, files_of, read_event

ID = "D-aaaaaaaa-" + "0" * 24 + "-05a1"
OTHER = "D-bbbbbbbb-" + "0" * 24 + "-05a1"


def name(start: int, node: str = "aaaaaaaa", number: int = 0, end: str = "") -> str:
    return f"events-{node}-{start:013d}-{number}.jsonl{end}"


def line(time: int, event: str, id: str = ID, **more: object) -> str:
    return json.dumps({"time": time, "node": "a" * 40, "event": event, "id": id, **more}) + "\n"


def of(directory: Path, since: float | None, limit: int = 1 << 20) -> Life:
    return trio.run(Timelines(str(directory)).of, ID, since, limit)


def happened(life: Life) -> Sequence[str]:
    return [event.event for event in life.events]


def test_files_are_chosen_by_the_times_in_their_names() -> None:
    names = [
        name(1_000_000), name(2_000_000, end=".gz"), name(3_000_000, end=".open"),
        name(1_500_000, "bbbbbbbb"), "other", name(1, end=".gz.open"), name(1, end=".tmp"),
    ]  # fmt: skip
    assert files_of(names, 2500.0) == [
        name(1_500_000, "bbbbbbbb"), name(2_000_000, end=".gz"), name(3_000_000, end=".open"),
    ]  # fmt: skip
    assert files_of(names, 500.0)[0] == name(1_000_000)
    newest = files_of(names, None)
    assert (newest[0], newest[-1]) == (name(3_000_000, end=".open"), name(1_000_000))
    assert len(newest) == 4


def test_a_file_that_exists_twice_is_read_once() -> None:
    names = [name(1, end=".open"), name(1, end=".gz"), name(2, end=".open"), name(2)]
    assert files_of(names, 0.0) == [name(1, end=".gz"), name(2)]


def test_only_lines_of_the_job_are_its_life() -> None:
    text = line(1500, "paused", reason="nack", peer="p", nacks=2, until=9000).encode()
    event = read_event(text, ID)
    assert event is not None
    assert (event.time, event.event, event.reason, event.by) == (1.5, "paused", "nack", "p")
    assert (event.nacks, event.until) == (2, 9.0)
    for bad in (line(1, "added", OTHER, client=ID), "[", f'"{ID}"', '{"id": 1}', "[" * 100_000):
        assert read_event(bad.encode(), ID) is None


def test_events_of_all_files_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    (tmp_path / name(1000)).write_text(line(1000, "added") + line(1001, "added", OTHER))
    with gzip.open(tmp_path / name(500, "bbbbbbbb", end=".gz"), "wt") as file:
        file.write(line(3000, "acked") + line(2000, "copied"))
    (tmp_path / name(2500, end=".open")).write_text(line(2600, "delivered") + line(9, "x")[:30])
    life = of(tmp_path, 1.0)
    assert happened(life) == ["added", "copied", "delivered", "acked"]
    assert (life.files, life.left, life.stopped, life.problem) == (3, 0, "", "")


def test_it_stops_at_its_limit_and_says_so(tmp_path: Path) -> None:
    filler = line(1, "added", OTHER) * 10_000
    for start in (1, 2, 3):
        (tmp_path / name(start)).write_text(line(start, f"in {start}") + filler)
    life = of(tmp_path, 0.0, limit=1 << 20)
    assert happened(life) == ["in 1"]
    assert (life.stopped, life.left) == ("after 1 MiB", 3)
    assert life.size < 3 << 20
    assert happened(of(tmp_path, None, limit=1 << 20)) == ["in 3"]
    assert happened(of(tmp_path, 0.0, limit=100 << 20)) == ["in 1", "in 2", "in 3"]


def test_a_job_with_very_many_events_is_cut(tmp_path: Path) -> None:
    (tmp_path / name(1)).write_text(line(1, "working") * (EVENTS * 2))
    assert of(tmp_path, 0.0, limit=100 << 20).stopped == f"after {EVENTS:,} events"


@pytest.mark.parametrize(
    "broken",
    [b"\x1f\x8b broken", b"", gzip.compress(b"x" * 1000, mtime=0)[:-20]],
    ids=["damaged", "empty", "cut"],
)
def test_a_broken_file_is_reported_and_the_others_are_read(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / name(1, end=".gz")).write_bytes(broken)
    (tmp_path / name(2)).write_text(line(2, "added"))
    life = of(tmp_path, 0.0)
    assert happened(life) == ["added"]
    assert bool(life.problem) is bool(broken)


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    assert "none" in of(tmp_path / "none", None).problem


def test_a_line_without_end_is_not_kept_together(tmp_path: Path) -> None:
    endless = b"x" * (40 << 20)
    (tmp_path / name(1_000_000, end=".gz")).write_bytes(gzip.compress(endless, 1))
    life = of(tmp_path, 1000.0, limit=8 << 20)
    assert life.stopped
    assert life.size < 16 << 20


@pytest.mark.parametrize("time", [-200_000_000_000_000, 1 << 70])
def test_a_time_outside_the_calendar_is_dropped(time: int) -> None:
    event = read_event(line(time, "paused", until=time).encode(), ID)
    assert event is not None
    assert (event.time, event.until) == (0.0, 0.0)
