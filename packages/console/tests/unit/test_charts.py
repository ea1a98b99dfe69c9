"""The charts."""

import re

import pytest

from disque_console.web.charts import (
    JOBS,
    LEFT,
    RIGHT,
    WIDTH,
    Line,
    chart,
    range_named,
    times_chart,
)
from disque_trio.overview.history import RANGES, History, Range, of_length

NOW = 1_700_000_005.0
ADDED = [Line("added", "added")]


def lines_of(drawn: str) -> list[list[float]]:
    """The positions across of the parts of the line."""
    found = re.search(r'<path d="([^"]*)"', drawn)
    parts = found[1].split("M")[1:] if found else []
    return [[float(place.split()[0]) for place in part.split("L")] for part in parts]


def place(ago: float, seconds: float) -> float:
    return LEFT + (1 - ago / seconds) * (WIDTH - RIGHT - LEFT)


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("1h", ["60 min", "50 min", "40 min", "30 min", "20 min", "10 min"]),
        ("8h", ["8 h", "7 h", "6 h", "5 h", "4 h", "3 h", "2 h", "1 h"]),
        ("24h", ["24 h", "21 h", "18 h", "15 h", "12 h", "9 h", "6 h", "3 h"]),
    ],
)
def test_a_chart_shows_its_range_with_marks_at_even_times(name: str, marks: list[str]) -> None:
    drawn = chart(None, range_named(name), ADDED, NOW, "Jobs per second")
    found = re.findall("\N{MINUS SIGN}([^<]*)<", drawn)
    assert found == marks
    assert ">now<" in drawn
    assert ">jobs/s<" in drawn


def test_a_range_that_there_is_not_is_the_shortest() -> None:
    assert range_named("7 weeks") is range_named("") is RANGES[0]


@pytest.mark.parametrize("each", RANGES)
def test_a_line_has_a_gap_where_nothing_is_known(each: Range) -> None:
    history = History()
    for begin, end in ((0.9, 0.6), (0.3, 0.0)):
        moment = NOW - begin * each.seconds
        while moment < NOW - end * each.seconds:
            moment += each.step / 2
            history.add(moment, {"added": each.step}, {}, since=moment - each.step / 2)
    drawn = chart(history, each, ADDED, NOW, "Jobs per second")
    first, second = lines_of(drawn)
    wide = 3 * each.step / each.seconds * WIDTH
    assert first[0] == pytest.approx(place(0.9, 1), abs=wide)
    assert first[-1] == pytest.approx(place(0.6, 1), abs=wide)
    assert second[0] == pytest.approx(place(0.3, 1), abs=wide)
    assert second[-1] == pytest.approx(place(0, 1), abs=wide)
    assert "ago: added 2.0 jobs/s" in drawn


def test_a_level_line_needs_two_points() -> None:
    history = History()
    for ago in range(3_000, 0, -2):
        level = 7 if ago > 600 else 9
        history.add(NOW - ago, {}, {"length": level}, None)
    [line] = lines_of(chart(history, RANGES[0], [Line("queued", "length")], NOW, "Queued", JOBS))
    assert len(line) == 4


def test_the_values_of_a_moment_are_told_with_a_line_there() -> None:
    history = History()
    history.add(NOW - 600, {}, {"length": 12_345}, None)
    drawn = chart(history, RANGES[0], [Line("queued", "length")], NOW, "Queued", JOBS)
    assert re.findall(r"<title>([^<]*)</title>", drawn) == ["10 min ago: queued 12.3k jobs"]
    [x] = re.findall(r'<path d="M(\d+) 34V186" class="cursor"', drawn)
    assert float(x) == pytest.approx(place(595, 3600), abs=2)


def test_how_long_jobs_took_is_drawn_on_an_axis_of_durations() -> None:
    history = History()
    for moment, long in ((NOW - 300, 4), (NOW - 30, 17)):
        counts = [0] * long + [100]
        history.add(moment, of_length("wait", counts), {}, since=moment - 1)
    drawn = times_chart(history, RANGES[0], "wait", NOW, "Waiting")
    titles = re.findall(r"<title>([^<]*)</title>", drawn)
    assert [title.partition(": ")[2] for title in titles] == [
        "p50 12 ms, p95 16 ms, p99 16 ms",
        "p50 98 s, p95 2 min 7 s, p99 2 min 10 s",
    ]
    assert re.findall(r">([^<]*) (?:ms|s|min)</text>", drawn)[:5] == ["10", "100", "1", "10", "60"]


def test_without_times_the_axis_is_there_all_the_same() -> None:
    drawn = times_chart(History(), RANGES[0], "wait", NOW, "Waiting")
    assert "100 ms" in drawn
    assert "<path" not in drawn
