"""The last hour, with a clock that the test moves."""

from disque_trio.overview.series import Series


def made(step: float = 5.0, count: int = 12) -> Series:
    return Series(step, count, ("added",), ("length",))


def test_what_is_counted_in_a_step_becomes_a_rate_and_the_last_level_counts() -> None:
    series = made()
    series.add(100.0, {"added": 10}, {"length": 1})
    series.add(104.0, {"added": 15}, {"length": 9})
    series.add(107.0, {"added": 0}, {})
    assert [point.values for point in series.points(109.9)] == [(5.0, 9.0), (0.0, None)]


def test_what_was_counted_over_several_steps_is_spread_over_them() -> None:
    series = made()
    series.add(100.0, {}, {"length": 0})
    series.add(117.5, {"added": 35}, {}, since=100.0)
    assert [point.values[0] for point in series.points(118.0)] == [2.0, 2.0, 2.0, 2.0]


def test_the_step_that_has_just_begun_is_no_dip() -> None:
    series = made()
    series.add(100.0, {"added": 50}, {})
    series.add(106.0, {"added": 10}, {})
    assert [point.values[0] for point in series.points(106.0)] == [10.0, 10.0]


def test_steps_in_which_nothing_was_told_are_gaps() -> None:
    series = made()
    series.add(100.0, {"added": 5}, {"length": 1})
    series.add(115.0, {"added": 5}, {"length": 1})
    assert [point.values[1] for point in series.points(118.0)] == [1.0, None, None, 1.0]


def test_what_is_older_than_the_ring_is_forgotten_also_after_a_long_silence() -> None:
    series = made()
    series.add(0.0, {"added": 5}, {"length": 1})
    series.add(10_000.0, {"added": 5}, {"length": 2})
    points = series.points(10_000.0)
    assert len(points) == 12
    assert [point.values[1] for point in points] == [None] * 11 + [2.0]


def test_points_can_be_put_together_at_places_that_do_not_move() -> None:
    series = made(count=12)
    for moment in range(0, 60, 5):
        counted = {"added": 5 * (moment % 10 == 0)}
        series.add(moment + 4.99, counted, {"length": moment}, since=moment)
    points = series.points(59.9, most=6)
    assert [round(value or 0, 1) for point in points for value in point.values[:1]] == [0.5] * 6
    assert [point.start for point in points] == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    assert [point.start for point in series.points(64.0, most=6)][:2] == [0.0, 10.0]


def test_a_clock_that_goes_back_breaks_nothing() -> None:
    series = made()
    series.add(100.0, {"added": 5}, {"length": 1})
    series.add(50.0, {"added": 5}, {"length": 2})
    series.add(101.0, {"added": 5}, {"length": 3})
    assert series.points(101.0)[-1].values[1] == 3.0


def test_without_anything_told_there_are_no_points() -> None:
    assert made().empty
    assert made().points(100.0) == []


def test_a_clock_that_goes_back_counts_nothing_twice() -> None:
    series = made()
    for moment in range(1_000, 1_040, 5):
        series.add(float(moment), {"added": 10}, {"length": 7}, since=moment - 5.0)
    series.add(1_015.0, {}, {"length": 3})
    for moment in range(1_020, 1_045, 5):
        series.add(float(moment), {"added": 10}, {"length": 3}, since=moment - 5.0)
    assert {point.values[0] for point in series.points(1_039.0)} == {2.0}
    assert series.points(1_039.0)[-1].values[1] == 3.0


def test_a_clock_that_goes_back_by_more_than_the_ring_begins_anew() -> None:
    series = made()
    series.add(10_000.0, {"added": 10}, {"length": 7})
    series.add(2_001.0, {"added": 0}, {"length": 1})
    series.add(2_004.0, {"added": 15}, {"length": 2}, since=2_001.0)
    assert [point.values for point in series.points(2_004.0)] == [(5.0, 2.0)]
