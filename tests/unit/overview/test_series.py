"""Values over a time, with a clock that the test moves."""

from math import isnan

from disque_trio.overview.series import HELD, Series


def made(step: float = 5.0, count: int = 12) -> Series:
    return Series(step, count, ["length"])


def rates(series: Series, now: float, name: str = "added") -> list[float | None]:
    """The values up to ``now``, from the first one that is known."""
    found = [point.values[0] for point in series.points([name], now)]
    while found and found[0] is None:
        del found[0]
    return found


def test_what_is_counted_in_a_step_becomes_a_rate_and_the_last_level_counts() -> None:
    series = made()
    series.add(104.0, {"added": 20}, {"length": 1}, since=100.0)
    series.add(105.0, {"added": 5}, {"length": 9}, since=104.0)
    series.add(107.0, {"added": 0}, {}, since=105.0)
    assert rates(series, 109.9) == [5.0, 0.0]
    assert rates(series, 109.9, "length") == [1.0, 9.0]


def test_what_was_counted_over_several_steps_is_spread_over_them() -> None:
    series = made()
    series.add(117.5, {"added": 35}, {}, since=100.0)
    assert rates(series, 118.0) == [2.0, 2.0, 2.0, 2.0]


def test_a_rate_is_over_the_time_of_which_something_is_known() -> None:
    series = made(step=60.0)
    series.add(1_010.0, {"added": 30}, {}, since=1_000.0)
    assert rates(series, 1_015.0) == [3.0]


def test_nodes_that_are_asked_in_turn_count_together() -> None:
    series = made(step=10.0)
    for moment in range(1_000, 1_030, 2):
        series.add(moment + 1.5, {"added": 4}, {}, since=moment - 0.5)
        series.add(moment + 2.0, {"added": 2}, {}, since=float(moment))
    assert rates(series, 1_019.0)[-2:] == [3.0, 3.0]


def test_the_step_that_has_just_begun_is_no_dip() -> None:
    series = made()
    series.add(105.0, {"added": 50}, {}, since=100.0)
    series.add(105.5, {"added": 0}, {}, since=105.0)
    assert rates(series, 105.5) == [10.0, None]


def test_a_level_that_nobody_tells_again_lasts_for_a_minute() -> None:
    series = made(count=30)
    series.add(100.0, {}, {"length": 1})
    series.add(115.0, {}, {"length": 2})
    assert rates(series, 118.0, "length") == [1.0, 1.0, 1.0, 2.0]
    series.add(115.0 + HELD + 10.0, {}, {"length": 3})
    assert rates(series, 185.0, "length") == [1.0, 1.0, 1.0, 2.0, *[None] * 13, 3.0]


def test_steps_in_which_nothing_was_counted_are_gaps() -> None:
    series = made()
    series.add(105.0, {"added": 5}, {}, since=100.0)
    series.add(120.0, {"added": 5}, {}, since=115.0)
    assert rates(series, 119.0) == [1.0, None, None, 1.0]


def test_what_is_older_than_the_ring_is_forgotten_also_after_a_long_silence() -> None:
    series = made()
    series.add(0.0, {"added": 5}, {"length": 1})
    series.add(10_000.0, {"added": 5}, {"length": 2})
    assert len(series.points(["length"], 10_000.0)) == 12
    assert rates(series, 10_000.0, "length") == [2.0]
    assert rates(series, 20_000.0, "length") == []


def test_of_what_was_counted_over_a_longer_time_than_is_kept_only_a_part_is_taken() -> None:
    series = made()
    series.add(1_000.0, {"added": 1_000}, {}, since=0.0)
    assert set(rates(series, 1_000.0)) == {1.0, None}


def test_a_name_that_is_new_was_not_counted_before() -> None:
    series = made()
    series.add(105.0, {"added": 5}, {}, since=100.0)
    series.add(110.0, {"added": 5, "failed": 10}, {}, since=105.0)
    assert rates(series, 109.0, "failed") == [0.0, 2.0]
    assert series.names == {"added", "failed"}


def test_what_is_kept_takes_as_much_as_is_said() -> None:
    series = made()
    assert series.size == 4 * 12
    series.add(105.0, {"added": 5, "failed": 0}, {"length": 1}, since=100.0)
    assert series.size == 3 * 4 * 12


def test_the_beginning_is_the_first_step_of_which_something_is_known() -> None:
    series = made()
    assert series.begun(100.0) is None
    series.add(107.0, {}, {"length": 0})
    assert series.begun(110.0) == 105.0
    series.add(112.0, {"added": 0}, {}, since=103.0)
    assert series.begun(112.0) == 100.0
    assert series.begun(1_000.0) is None


def test_a_clock_that_goes_back_breaks_nothing() -> None:
    series = made()
    series.add(100.0, {"added": 5}, {"length": 1})
    series.add(50.0, {"added": 5}, {"length": 2})
    series.add(101.0, {"added": 5}, {"length": 3})
    assert rates(series, 101.0, "length")[-1] == 3.0


def test_without_anything_told_all_is_unknown() -> None:
    assert {point.values for point in made().points(["added", "length"], 100.0)} == {(None, None)}


def test_a_clock_that_goes_back_counts_nothing_twice() -> None:
    series = made()
    for moment in range(1_000, 1_040, 5):
        series.add(float(moment), {"added": 10}, {"length": 7}, since=moment - 5.0)
    series.add(1_015.0, {}, {"length": 3})
    for moment in range(1_020, 1_045, 5):
        series.add(float(moment), {"added": 10}, {"length": 3}, since=moment - 5.0)
    assert set(rates(series, 1_039.0)) == {2.0}
    assert rates(series, 1_039.0, "length")[-1] == 3.0


def test_a_clock_that_goes_back_within_a_step_knows_of_no_more_time() -> None:
    series = made(step=60.0)
    series.add(1_030.0, {"added": 30}, {}, since=1_020.0)
    series.add(1_025.0, {"added": 5}, {}, since=1_024.0)
    assert rates(series, 1_031.0) == [3.5]


def test_what_was_packed_goes_on_after_a_gap() -> None:
    series = made(count=6)
    series.add(105.0, {"added": 5}, {"length": 4}, since=100.0)
    head, values = series.pack()
    found = Series.unpack(head, values, ["length"])
    assert rates(found, 109.0) == rates(series, 109.0)
    found.add(122.0, {"added": 4}, {"length": 5}, since=121.0)
    assert rates(found, 122.0) == [1.0, None, None, None, 4.0]
    # Nobody knows what was between, although it was less than a minute.
    assert rates(found, 122.0, "length") == [4.0, None, None, 5.0]


def test_counts_of_each_step_can_be_added_up() -> None:
    series = made(count=3)
    series.add(105.0, {"a": 2}, {}, since=100.0)
    series.add(110.0, {"a": 1, "b": 3}, {}, since=105.0)
    counts = series.counts(["a", "b", "c"], 109.0)
    assert counts == [(0.0, 0.0, 0.0), (2.0, 0.0, 0.0), (1.0, 3.0, 0.0)]
    assert not any(isnan(value) for row in counts for value in row)
