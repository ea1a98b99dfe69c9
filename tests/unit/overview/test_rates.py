"""Counters that are read repeatedly, with a clock that the test moves."""

from disque_trio.overview.rates import Counters


def test_a_rate_is_the_average_since_the_read_before() -> None:
    counters = Counters()
    assert counters.read({"added": 100}, 10.0) == {}
    assert counters.rates == {}
    assert counters.read({"added": 130}, 12.0) == {"added": 30}
    assert counters.rates == {"added": 15.0}


def test_a_burst_between_two_reads_in_a_row_is_no_rate() -> None:
    counters = Counters()
    counters.read({"added": 0}, 10.0)
    counters.read({"added": 20}, 12.0)
    assert counters.read({"added": 40}, 12.05) == {"added": 20}  # not 400 per second
    assert counters.rates == {"added": 10.0}
    assert counters.read({"added": 40}, 14.0) == {"added": 0}
    assert counters.rates == {"added": 10.0}


def test_a_counter_that_went_back_was_started_again() -> None:
    counters = Counters()
    counters.read({"added": 100}, 10.0)
    assert counters.read({"added": 5}, 11.0) == {"added": 5}
    assert counters.rates == {"added": 5.0}


def test_what_happens_while_its_source_is_away_is_not_counted() -> None:
    counters = Counters()
    counters.read({"added": 0}, 10.0)
    counters.read({"added": 9}, 11.0)
    counters.forget()
    assert counters.rates == {}
    assert counters.read({"added": 99}, 20.0) == {}
    counters.read({"added": 101}, 21.0)
    assert counters.rates == {"added": 2.0}


def test_a_clock_that_goes_back_stops_no_rate_and_makes_none_too_high() -> None:
    counters = Counters()
    counters.read({"added": 0}, 5_000.0)
    counters.read({"added": 20}, 5_002.0)
    counters.read({"added": 40}, 1_000.0)
    assert counters.read({"added": 42}, 1_002.0) == {"added": 2}
    assert counters.rates == {"added": 1.0}
