"""The arithmetic of latencies: pauses, arrivals, and the output."""

import random
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from tools.bench.latency import AIM_P99, EXPIRY, LEVELS, Finding, aims_table, latency_table
from tools.bench.latency_load import Order, Result, arrivals
from tools.bench.latency_plot import RAREST, plot, points
from tools.bench.latency_stage import Measurement
from tools.bench.latency_watch import Pause, Wait, Watched, judge, overlap


def test_cycles_are_due_at_random_times_of_the_wanted_rate() -> None:
    due = arrivals(1000, 20, random.Random(1))
    assert len(due) == 20_000
    assert due == sorted(due)
    assert 19 < due[-1] < 21
    gaps = [b - a for a, b in pairwise(due)]
    # Independent arrivals: a fraction of 1/e of the gaps is longer than the mean.
    assert 0.35 < sum(gap > 0.001 for gap in gaps) / len(gaps) < 0.39


def test_only_what_both_spans_cover_is_an_overlap() -> None:
    assert overlap((1.0, 2.0), [(0.0, 0.5), (0.5, 1.25), (1.5, 1.75), (1.9, 3.0)]) == pytest.approx(
        0.25 + 0.25 + 0.1
    )
    assert overlap((1.0, 2.0), []) == 0


def test_a_pause_is_the_nodes_own_where_neither_others_nor_the_machine_kept_it() -> None:
    found = [
        Wait(10.0, 10.05, 0.01, 0.02),
        Wait(20.0, 20.05, 0.05, 0.0),
        Wait(30.0, 30.05, 0.0, 0.05),
    ]
    others, computing, stall = judge(found, [(29.0, 30.04)])
    assert (others.length, others.foreign) == pytest.approx((0.05, 0.02))
    assert others.own == pytest.approx(0.03)
    assert (computing.foreign, computing.own) == (0, pytest.approx(0.05))
    assert (stall.stalled, stall.waited) == pytest.approx((0.04, 0.01))
    assert stall.own == pytest.approx(0)
    watched = Watched(1, 0.004, [others, computing, stall])
    assert watched.longest_own == pytest.approx(0.05)
    assert Watched(1, 0.004, [stall]).longest_own == 0.004


def finding(situation: str, load: float, *seconds: float, note: str = "") -> Finding:
    result = Result(2.0, 1.0, sorted(seconds), [0.0001])
    pause = Pause(0.03, 0.001, 0.02, 0.0)
    watched = Watched(1, 0.001, [pause])
    order = Order(1, 1, 1000 * load, 2.0)
    return Finding(situation, load, 1000, Measurement(order, result, watched, 0.5), note)


FOUND = [
    finding("no file", 0.1, 0.0001, 0.0002),
    finding("no file", 0.5, 0.001, 0.003),
    finding(EXPIRY, 0.5, 0.002, 0.0019, note="many <jobs>"),
]


def test_the_table_has_a_row_for_each_finding() -> None:
    rows = latency_table(FOUND).splitlines()[2:]
    assert len(rows) == len(FOUND)
    assert rows[1].startswith(
        "| no file | 50% of 1,000 | 1 | 1.00 / **3.00** / 3.00 / 3.00 | 25% |"
    )
    assert "| **10.0** | 30.0 (20.0) |" in rows[1]
    assert "many <jobs>" in rows[2]


def test_the_aims_are_judged_at_half_load() -> None:
    titles, _, p99, pause = aims_table(FOUND).splitlines()
    assert titles.endswith(f"{EXPIRY} |")
    assert "| 3.0 ms: missed | not measured | not measured | 2.0 ms |" in p99
    assert "| 10.0 ms | not measured | not measured | 10.0 ms |" in pause


def test_a_line_of_the_picture_falls_from_all_cycles_to_the_rarest() -> None:
    line = points([number / 1000 for number in range(1, 1001)])
    parts = [part for part, _ in line]
    times = [time for _, time in line]
    assert parts == sorted(parts, reverse=True)
    assert parts[-1] == pytest.approx(1 / 1000)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(0.999, rel=0.01)
    assert points([0.5] * 100_000)[-1][0] == pytest.approx(RAREST)


def test_the_picture_is_svg_with_a_line_for_each_finding() -> None:
    lines = [(one.situation, one.load, one.measured.load.cycles) for one in FOUND]
    root = ElementTree.fromstring(plot(lines, LEVELS, AIM_P99))
    names = [element.tag.rpartition("}")[2] for element in root.iter()]
    # Two panels: the loads without a file, and half load in all situations.
    assert names.count("path") == 2 + 2
    texts = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert EXPIRY in texts
