"""Gaps in logs."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from disque_spark.audit.gaps import (
    FOR_EVER,
    Ends,
    Gap,
    Head,
    ends_of,
    gaps_of,
    head_of,
    holes_of,
)
from disque_spark.audit.lacks import (
    EARLIER,
    KILLED,
    LATE,
    NO_STOP,
    NO_TIME,
    OFF,
    SEGMENT,
    Lack,
)
from disque_spark.audit.partial_jobs import Notes, read
from disque_spark.files import location
from disque_spark.segments import Piece

A, B = "a" * 40, "b" * 40


def missing_between(log: dict[str, Ends], names: Sequence[str] = ()) -> dict[str, int]:
    """The segments that are missing or incomplete, with the number of missing lines."""
    holes = holes_of(log, [A], names)
    return {hole.segment: hole.amount for hole in holes if hole.kind == SEGMENT}


def segment(directory: Path, *events: tuple[int, str], packed: bool = False) -> Path:
    lines = b"".join(
        json.dumps({"time": time, "node": A, "event": event}).encode() + b"\n"
        for time, event in events
    )
    path = directory / f"events-{A[:8]}-0000000000001-0.jsonl"
    if packed:
        path = path.with_name(path.name + ".gz")
        path.write_bytes(gzip.compress(lines))
    else:
        path.write_bytes(lines)
    return path


def log(*segments: tuple[int, int, bool, bool], node: str = A) -> dict[str, Ends]:
    """Return segments: first and last time, started, stopped."""
    return {
        f"events-{node[:8]}-{number:013}-0.jsonl": Ends(node, *ends, [])
        for number, ends in enumerate(segments)
    }


def ends(path: Path, block: int = 1 << 20) -> Ends | None:
    """Like ``counted``, without the number of lines."""
    found = counted(path, block)
    return found and found._replace(lines=-1)


def counted(path: Path, block: int = 1 << 20) -> Ends | None:
    """Return the combined results of tasks that read the segment in pieces of this size."""
    size = path.stat().st_size
    whole = path.name.endswith(".gz")
    starts = [0] if whole else range(0, max(size, 1), block)
    notes = Notes()
    for start in reversed(starts):
        piece = Piece(location(path), start, size if whole else min(start + block, size))
        notes.add(read([piece], [A])[2].text())
    head = head_of(location(path))
    return None if head is None else ends_of(head, notes.segments()[str(path)])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("block", [1 << 20, 3000])
def test_the_ends_of_a_segment_are_its_first_and_last_line(
    tmp_path: Path, packed: bool, block: int
) -> None:
    events = [(1, "started"), *((2 + n, "queued") for n in range(300)), (4000, "stopped")]
    path = segment(tmp_path, *events, packed=packed)
    assert ends(path, block) == Ends(A, 1, 4000, True, True, [])
    path = segment(tmp_path, *events[1:-1], packed=packed)
    assert ends(path, block) == Ends(A, 2, 301, False, False, [])


def test_a_segment_of_one_line_ends_with_it(tmp_path: Path) -> None:
    assert ends(segment(tmp_path, (5, "stopped"))) == Ends(A, 5, 5, False, True, [])
    assert ends(segment(tmp_path, (5, "started"))) == Ends(A, 5, 5, True, False, [])


@pytest.mark.parametrize("block", [40, 70, 100, 150, 300])
def test_events_are_missing_between_the_line_that_says_so_and_the_one_before(
    tmp_path: Path, block: int
) -> None:
    path = segment(tmp_path, (1, "queued"), (4, "queued"), (9, "dropped"), (12, "queued"))
    assert ends(path, block) == Ends(A, 1, 12, False, False, [(4, 9)])
    path = segment(tmp_path, (3, "dropped"), (12, "queued"))
    assert ends(path, block) == Ends(A, 3, 12, False, False, [(3, 3)])


@pytest.mark.parametrize("block", [10, 50, 70, 90, 120, 300])
def test_lines_that_are_not_events_are_a_gap_where_they_are_seen(
    tmp_path: Path, block: int
) -> None:
    path = segment(tmp_path, (3, "queued"), (4, "stopped"))
    line, end = path.read_bytes().splitlines(True)
    path.write_bytes(b"nonsense\n" + line + b"[]\n{}\n" + end + b'{"time":5,"no')
    found = ends(path, block)
    assert found is not None
    # If two pieces have it, it is there twice.
    assert found._replace(dropped=[]) == Ends(A, 3, 4, False, True, [])
    assert {tuple(pair) for pair in found.dropped} == {(3, 3), (3, 4), (4, 4)}
    path.write_bytes(b"")
    assert ends(path) is None


def test_a_segment_may_have_nothing_but_damage_in_a_piece(tmp_path: Path) -> None:
    path = segment(tmp_path, (3, "queued"), (9, "queued"))
    line, end = path.read_bytes().splitlines(True)
    path.write_bytes(line + b"nonsense\n" * 100 + end)
    found = ends(path, 200)
    assert found is not None
    assert {tuple(pair) for pair in found.dropped} == {(3, 9)}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("block", [10, 70, 100, 1000, 1 << 20])
def test_lines_are_counted_as_the_log_counts_them(tmp_path: Path, packed: bool, block: int) -> None:
    def lines(text: bytes) -> int:
        path.write_bytes(gzip.compress(text) if packed else text)
        found = counted(path, block)
        assert found is not None
        return found.lines

    path = segment(tmp_path, *((n, "queued") for n in range(30)), packed=packed)
    own = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    head = json.dumps({"time": 1, "node": A, "event": "segment", "name": "two"}).encode() + b"\n"
    assert lines(own) == lines(head + own) == 30
    assert lines(head + own[:-5]) == 29
    # A damaged line is one.
    assert lines(head + own.replace(b'"time"', b'"tim', 1)) == 30


def test_a_segment_says_who_wrote_it_and_what_is_before_it(tmp_path: Path) -> None:
    path = segment(tmp_path, (3, "queued"))
    said = {"name": "two", "after": "one", "events": 7}
    head = json.dumps({"time": 1, "node": A, "event": "segment", **said}).encode() + b"\n"
    path.write_bytes(head + path.read_bytes())
    assert head_of(location(path)) == Head(A, "two", "one", 7)
    assert ends(path) == Ends(A, 3, 3, False, False, [], "one", 7)
    assert read([Piece(location(path), 0, 1000)], [A])[1].unknown == 0


def test_a_log_that_is_whole_has_no_gap() -> None:
    whole = log((1, 5, True, False), (5, 9, False, True), (12, 20, True, True))
    assert gaps_of(whole, [A]) == []


def test_a_node_that_died_leaves_a_gap_up_to_its_next_start() -> None:
    assert gaps_of(log((1, 5, True, False), (12, 20, True, True)), [A]) == [Gap(0, 5, 12)]


def test_a_log_that_goes_on_or_is_cut_off_is_silent_from_there() -> None:
    assert gaps_of(log((1, 5, True, False)), [B, A]) == [Gap(1, 5, FOR_EVER)]


def test_the_clock_may_be_set_back_between_two_starts() -> None:
    assert gaps_of(log((1, 50, True, False), (12, 60, True, True)), [A]) == [Gap(0, 12, 50)]


def test_the_order_of_segments_is_that_of_their_names_as_numbers() -> None:
    name = f"events-{A[:8]}-0000000000007"
    segments = {
        f"{name}-10.jsonl": Ends(A, 30, 40, False, True, []),
        f"{name}-9.jsonl": Ends(A, 20, 30, True, False, []),
    }
    assert gaps_of(segments, [A]) == []


def test_dropped_events_that_the_log_reports_are_a_gap() -> None:
    ends = {"events-aaaaaaaa-1-0.jsonl": Ends(A, 1, 20, True, True, [(4, 9)])}
    assert gaps_of(ends, [A]) == [Gap(0, 4, 9)]


def chained(*places: int, started: bool = False) -> dict[str, Ends]:
    """Return those at ``places`` among the segments 0, 1, 2, ... of a log, each with ten lines."""
    names = [f"events-{A[:8]}-{place:013}-0.jsonl" for place in range(9)]
    return {
        names[place]: Ends(
            A,
            10 * place,
            10 * place + 9,
            started or not place,
            place == 8,
            [],
            names[place - 1] if place else "",
            10 if place else -1,
        )
        for place in places
    }


def test_a_segment_that_is_missing_between_others_is_a_gap() -> None:
    assert gaps_of(chained(*range(9)), [A]) == []
    assert missing_between(chained(*range(9))) == {}
    log = chained(0, 1, 2, 5, 6, 7, 8)
    assert gaps_of(log, [A]) == [Gap(0, 29, 50)]
    assert missing_between(log) == {f"events-{A[:8]}-{4:013}-0.jsonl": 10}
    # It is there, and nothing says that it had any lines.
    name = f"events-{A[:8]}-{5:013}-0.jsonl"
    log[name] = log[name]._replace(events=-1)
    assert gaps_of(log, [A], list(chained(4))) == []
    assert missing_between(log, list(chained(4))) == {}


def test_a_segment_that_has_lost_its_end_is_a_gap() -> None:
    log = chained(*range(9))
    name = f"events-{A[:8]}-{4:013}-0.jsonl"
    assert missing_between(log | {name: log[name]._replace(lines=10)}) == {}
    log[name] = log[name]._replace(lines=7, last=46)
    assert gaps_of(log, [A]) == [Gap(0, 46, 50)]
    assert missing_between(log) == {name: 3}
    # Older versions did not count the lines that they read.
    log[name] = log[name]._replace(lines=-1)
    assert gaps_of(log, [A]) == []
    assert missing_between(log) == {}


def test_a_segment_that_has_lost_all_its_lines_is_a_gap() -> None:
    log = chained(0, 1, 2, 3, 5, 6, 7, 8)
    name = f"events-{A[:8]}-{4:013}-0.jsonl"
    assert gaps_of(log, [A], [name]) == [Gap(0, 39, 50)]
    assert missing_between(log, [name]) == {name: 10}


def test_segments_that_were_removed_because_they_are_old_are_not_missing() -> None:
    log = chained(*range(3, 9))
    assert gaps_of(log, [A]) == [Gap(0, 0, 29)]
    assert missing_between(log) == {}
    log = chained(*range(3, 9), started=True)
    assert Gap(0, 0, 29) in gaps_of(log, [A])


def run(*segments: tuple[int, int, bool, str], up: int = NO_TIME) -> dict[str, Ends]:
    """Return segments: first and last time, started, reason of its stop ("-": none)."""
    return {
        f"events-{A[:8]}-{number:013}-0.jsonl": Ends(
            *(A, first, last, started, reason != "-", []),
            reason=reason.strip("-"),
            run="" if up == NO_TIME else "ab12",
            up=up,
            since=first,
        )
        for number, (first, last, started, reason) in enumerate(segments)
    }


@pytest.mark.parametrize(
    ("segments", "up", "kinds"),
    [
        ([(3, 5, True, "shutdown")], 3, []),
        ([(5, 9, True, "shutdown")], 3, [LATE]),
        ([(3, 5, True, "switched-off"), (7, 9, True, "shutdown")], 3, [OFF]),
        ([(3, 5, True, "switched-off")], 3, [OFF]),
        ([(3, 5, True, "-")], 3, [NO_STOP]),
        ([(3, 5, True, "-"), (7, 9, True, "shutdown")], 3, [KILLED]),
        ([(3, 5, False, "shutdown")], 3, [EARLIER]),
        # Nodes of the last release do not say why they stop.
        ([(3, 5, True, ""), (7, 9, True, "")], NO_TIME, []),
        ([(3, 5, True, ""), (7, 9, True, "")], 3, [OFF]),
    ],
)
def test_what_the_log_of_a_node_lacks(
    segments: list[tuple[int, int, bool, str]], up: int, kinds: list[str]
) -> None:
    log = run(*segments, up=up)
    assert [hole.kind for hole in holes_of(log, [A])] == kinds


def test_a_node_that_stopped_and_began_its_log_late_the_next_time_lacks_only_that_time() -> None:
    log = run((3, 5, True, "shutdown"), (9, 12, True, "shutdown"), up=3)
    log[max(log)] = log[max(log)]._replace(up=7, run="cd34")
    assert holes_of(log, [A]) == [Lack(LATE, A, 7, 9)]
    assert gaps_of(log, [A]) == [Gap(0, 7, 9)]


@pytest.mark.parametrize("block", [60, 100, 250, 1 << 20])
def test_a_log_that_was_switched_off_and_on_within_a_segment_has_a_gap(
    tmp_path: Path, block: int
) -> None:
    lines = [(1, "started"), (2, "queued"), (4, "stopped"), (9, "started"), (12, "stopped")]
    found = ends(segment(tmp_path, *lines), block)
    assert found is not None
    assert [tuple(pair) for pair in found.off] == [(4, 9)]
    assert gaps_of({"events-aaaaaaaa-1-0.jsonl": found}, [A]) == [Gap(0, 4, 9)]


@pytest.mark.parametrize("block", [100, 1 << 20])
def test_a_segment_says_why_it_stops_and_which_nodes_there_are(tmp_path: Path, block: int) -> None:
    said = {"name": "two", "run": "ab12", "up": 1, "since": 2, "nodes": [A, B]}
    more = {"time": 5, "node": A, "event": "segment", "nodes": ["c"]}
    stop = {"time": 9, "node": A, "event": "stopped", "reason": "shutdown"}
    queued = {"time": 4, "node": A, "event": "queued"}
    lines = [{"time": 1, "node": A, "event": "segment", **said}, queued, more, stop]
    path = tmp_path / "events-aaaaaaaa-1-0.jsonl"
    path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in lines))
    assert head_of(location(path)) == Head(A, "two", run="ab12", up=1, since=2)
    found = counted(path, block)
    assert found is not None
    assert (found.reason, found.run, found.up, found.since, found.lines) == (
        *("shutdown", "ab12", 1, 2),
        3,
    )
    size = path.stat().st_size
    _, seen, notes = read([Piece(location(path), 0, size)], [A])
    assert notes.peers == {A, B, "c"}
    assert seen.unknown == 0
