"""Which segments a period needs."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_spark.options import OptionError
from disque_spark.periods import LATE_MS, Period, moment

HOUR = 3_600_000


def log(node: str, *starts: int) -> list[Path]:
    return [Path(f"/log/events-{node}-{start:013d}-0.jsonl") for start in starts]


def test_an_hour_needs_the_segments_of_that_hour() -> None:
    segments = log("aaaaaaaa", *(n * HOUR for n in range(10)))
    found = Period(4 * HOUR + 2 * LATE_MS, 5 * HOUR - 2 * LATE_MS).segments(segments)
    assert found == segments[4:5]
    # Late events may be in the next one, and a clock may be set back.
    assert Period(4 * HOUR, 5 * HOUR).segments(segments) == segments[3:6]


def test_segments_of_several_nodes_and_directories_are_no_neighbours() -> None:
    one, other = log("aaaaaaaa", 0), log("bbbbbbbb", 9 * HOUR)
    assert Period(5 * HOUR, 6 * HOUR).segments([*one, *other]) == one
    copy = [Path("/copy") / path.name for path in log("aaaaaaaa", 2 * HOUR)]
    assert Period(5 * HOUR).segments([*one, *copy]) == [*one, *copy]


@pytest.mark.parametrize("end", ["", ".gz", ".open"])
def test_the_endings_of_names_do_not_matter(end: str) -> None:
    path = Path(f"/log/events-aaaaaaaa-{9 * HOUR}-3.jsonl{end}")
    assert Period(until=HOUR).segments([path]) == []


def test_other_files_may_have_anything() -> None:
    files = [Path("/log/mine.jsonl"), *log("aaaaaaaa", 9 * HOUR)]
    assert Period(until=HOUR).segments(files) == files[:1]
    assert Period().segments(files) == files


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 600)), min_size=1, max_size=8),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_no_event_is_missed_that_was_written_in_time(
    begun: list[tuple[int, int]], since: int, until: int
) -> None:
    """A segment has events from when it is begun, or up to ten minutes before, until the next one
    is begun."""
    starts = sorted({start for start, _ in begun})
    segments = log("aaaaaaaa", *(start * HOUR // 2 for start in starts))
    period = Period(since * HOUR // 2, until * HOUR // 2)
    kept = period.segments(segments)
    ends = [*(start * HOUR // 2 for start in starts[1:]), 99 * HOUR]
    for segment, start, end in zip(segments, starts, ends, strict=True):
        for event in (start * HOUR // 2 - LATE_MS + 1, start * HOUR // 2, end):
            if period.since <= event < period.until:  # type: ignore[operator]
                assert segment in kept


def test_rows_are_those_of_the_time() -> None:
    table = pa.table({"time_ms": [1, 2, 3, None]})
    assert Period(2, 3).rows(table).column(0).to_pylist() == [2]
    assert Period().rows(table).num_rows == 4


def test_ranges_narrow_each_other() -> None:
    assert Period(1, None).within(Period(None, 9)).within(Period(3, 12)) == (3, 9)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1000", 1000),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01", 0),
        (" 1970-01-01 01:00:01+01:00 ", 1000),
        ("1970-01-01T00:00:00.250Z", 250),
    ],
)
def test_a_time_is_iso_or_a_number(text: str, ms: int) -> None:
    assert moment("since", text) == ms
    assert moment("since", None) is None


def test_an_invalid_time_is_refused() -> None:
    with pytest.raises(OptionError, match="until: expected a time"):
        moment("until", "yesterday")
