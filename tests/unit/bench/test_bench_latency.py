"""The arithmetic of the latency benchmark: histograms, pauses, arrivals, what is shown."""

import random
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.bench.latency.generator import Order, Result, arrivals, order_text
from tools.bench.latency.histogram import PARTS, Histogram, bucket, upper_end
from tools.bench.latency.pauses import Pause, Watched, judge, overlap
from tools.bench.latency.plot import RAREST, plot, points
from tools.bench.latency.situations import EXPIRY, Finding
from tools.bench.latency.stage import Measurement
from tools.bench.latency.tables import aims_table, latency_table
from tools.bench.load import percentile


def histogram(*seconds: float) -> Histogram:
    found = Histogram()
    found.record(seconds)
    return found


@given(st.integers(0, 10**12))
def test_a_bucket_is_no_wider_than_a_part_of_its_times(nanoseconds: int) -> None:
    number = bucket(nanoseconds)
    assert nanoseconds <= upper_end(number)
    assert upper_end(number) - nanoseconds <= nanoseconds / PARTS
    assert bucket(upper_end(number)) == number
    assert bucket(upper_end(number) + 1) == number + 1


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0, 1))
def test_a_percentile_is_that_of_the_times_but_for_the_width_of_a_bucket(
    times: list[float], fraction: float
) -> None:
    exact = percentile(sorted(times), fraction)
    found = histogram(*times).percentile(fraction)
    assert exact - 1e-9 <= found <= exact * (1 + 1 / PARTS) + 2e-9


def test_the_worst_time_is_exact_and_an_empty_histogram_has_no_percentiles() -> None:
    found = histogram(0.1, 12.3456789, 0.2)
    assert found.percentile(1) == found.worst == 12.3456789
    with pytest.raises(ValueError, match="empty"):
        histogram().percentile(0.5)


def test_a_histogram_survives_as_data() -> None:
    found = histogram(0.001, 0.002, 0.002, -0.0001)
    data = found.as_data()
    counts, worst = data["counts"], data["worst"]
    assert isinstance(counts, dict)
    assert isinstance(worst, float)
    again = Histogram.from_data(counts, worst)
    assert (again.counts, again.total, again.worst) == (found.counts, 4, 0.002)


def test_cycles_are_due_at_random_times_of_the_wanted_rate() -> None:
    due = arrivals(1000, 20, random.Random(1))
    assert len(due) == 20_000
    assert due == sorted(due)
    assert 19 < due[-1] < 21
    gaps = [b - a for a, b in pairwise(due)]
    # Independent arrivals: a part of 1/e of the gaps is longer than the mean.
    assert 0.35 < sum(gap > 0.001 for gap in gaps) / len(gaps) < 0.39


def test_only_what_both_spans_cover_is_an_overlap() -> None:
    assert overlap((1.0, 2.0), [(0.0, 0.5), (0.5, 1.25), (1.5, 1.75), (1.9, 3.0)]) == pytest.approx(
        0.25 + 0.25 + 0.1
    )
    assert overlap((1.0, 2.0), []) == 0


def test_a_pause_is_the_nodes_own_where_neither_others_nor_the_machine_kept_it() -> None:
    found = [
        {"start": 10.0, "end": 10.05, "cpu": 0.01, "waited": 0.02},
        {"start": 20.0, "end": 20.05, "cpu": 0.05, "waited": 0.0},
        {"start": 30.0, "end": 30.05, "cpu": 0.0, "waited": 0.05},
    ]
    others, computing, stall = judge(found, [(29.0, 30.04)])
    assert (others.length, others.foreign) == pytest.approx((0.05, 0.02))
    assert others.own == pytest.approx(0.03)
    assert (computing.foreign, computing.own) == (0, pytest.approx(0.05))
    assert (stall.stalled, stall.waited) == pytest.approx((0.04, 0.01))
    assert stall.own == pytest.approx(0)
    watched = Watched(histogram(0.001), 0.004, [others, computing, stall])
    assert watched.longest_own == pytest.approx(0.05)
    assert Watched(histogram(0.001), 0.004, [stall]).longest_own == 0.004


def finding(situation: str, load: float, *seconds: float, note: str = "") -> Finding:
    cycles = histogram(*seconds)
    result = Result(2.0, 1.0, cycles, histogram(0.0001), histogram(0.0002))
    pause = Pause(0.03, 0.001, 0.02, 0.0)
    watched = Watched(histogram(0.001), 0.001, [pause])
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
    line = points(histogram(*(number / 1000 for number in range(1, 1001))))
    parts = [part for part, _ in line]
    times = [time for _, time in line]
    assert parts == sorted(parts, reverse=True)
    assert parts[-1] == pytest.approx(1 / 1000)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(0.999, rel=0.01)
    assert points(histogram(*[0.5] * 100_000))[-1][0] == pytest.approx(RAREST)


def test_the_picture_is_svg_with_a_line_for_each_histogram() -> None:
    root = ElementTree.fromstring(plot(FOUND))
    names = [element.tag.rpartition("}")[2] for element in root.iter()]
    # Two panels: the loads without a file, and half load in all situations.
    assert names.count("polyline") == 2 + 2
    texts = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert EXPIRY in texts


def test_an_order_goes_to_its_process_with_the_cpus() -> None:
    text = order_text(Order(1, 2, 3.5, 4.0), frozenset({1, 0}), False)
    assert '"rate": 3.5' in text
    assert '"cpus": [0, 1]' in text
