"""Where logs say nothing."""

import gzip
import json
from pathlib import Path

import pytest

from disque_trio.spark.audit_gaps import FOR_EVER, Ends, Gap, ends_of, gaps_of

A, B = "a" * 40, "b" * 40


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
    """Segments: first and last time, started, stopped."""
    return {
        f"events-{node[:8]}-{number:013}-0.jsonl": Ends(node, *ends, [])
        for number, ends in enumerate(segments)
    }


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dropped", [False, True])
def test_the_ends_of_a_segment_are_its_first_and_last_line(
    tmp_path: Path, packed: bool, dropped: bool
) -> None:
    events = [(1, "started"), *((2 + n, "queued") for n in range(3000)), (4000, "stopped")]
    path = segment(tmp_path, *events, packed=packed)
    assert path.stat().st_size > (1 << 16) or packed
    assert ends_of(path, dropped) == Ends(A, 1, 4000, True, True, [])
    path = segment(tmp_path, *events[1:-1], packed=packed)
    assert ends_of(path, dropped) == Ends(A, 2, 3001, False, False, [])


def test_a_segment_of_one_line_ends_with_it(tmp_path: Path) -> None:
    assert ends_of(segment(tmp_path, (5, "stopped"))) == Ends(A, 5, 5, False, True, [])
    assert ends_of(segment(tmp_path, (5, "started"))) == Ends(A, 5, 5, True, False, [])


def test_events_are_missing_between_the_line_that_says_so_and_the_one_before(
    tmp_path: Path,
) -> None:
    path = segment(tmp_path, (1, "queued"), (4, "queued"), (9, "dropped"), (12, "queued"))
    assert ends_of(path, True) == Ends(A, 1, 12, False, False, [(4, 9)])


def test_lines_that_are_no_events_are_a_gap_where_they_are_seen(tmp_path: Path) -> None:
    path = segment(tmp_path, (3, "queued"), (4, "stopped"))
    path.write_bytes(b"nonsense\n" + path.read_bytes() + b'{"time":5,"no')
    assert ends_of(path) == Ends(A, 3, 4, False, True, [(3, 3)])
    assert ends_of(path, True) == Ends(A, 3, 4, False, True, [(3, 3), (4, 4)])
    path.write_bytes(b"")
    assert ends_of(path) is None


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


def test_what_the_log_says_it_dropped_is_a_gap() -> None:
    ends = {"events-aaaaaaaa-1-0.jsonl": Ends(A, 1, 20, True, True, [(4, 9)])}
    assert gaps_of(ends, [A]) == [Gap(0, 4, 9)]
