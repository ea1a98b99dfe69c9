"""Numbers for people."""

import pytest

from disque_trio import humanize
from disque_trio.humanize import NONE


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, NONE), (0, "0"), (0.25, "0.25"), (2.5, "2.5"), (999, "999"), (9_999, "9,999"),
        (9_999.9, "10k"), (12_345, "12.3k"), (99_999, "100k"), (999_499, "999k"),
        (999_999, "1M"), (4_500_000, "4.5M"), (2_000_000_000, "2G"), (3e12, "3000G"),
        (-12_345, "-12.3k"),
    ],
)  # fmt: skip
def test_a_short_number_is_rounded_to_the_next_unit(value: float | None, text: str) -> None:
    assert humanize.short(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, NONE), (0.0, "0"), (0.001, "<0.01"), (0.5, "0.50"), (0.999, "1.0"), (9.9, "9.9"),
        (9.96, "10"), (12.4, "12"), (123_456.0, "123k"),
    ],
)  # fmt: skip
def test_a_low_rate_has_decimals(value: float | None, text: str) -> None:
    assert humanize.rate(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, NONE), (-1, "0 s"), (0, "0 s"), (0.000_1, "100 µs"),
        (0.000_999_9, "1 ms"), (0.007, "7 ms"),
        (0.9996, "1 s"), (1.5, "1.5 s"), (9.96, "10 s"), (77, "77 s"), (119.9, "119 s"),
        (120, "2 min"), (245, "4 min 5 s"), (1_200, "20 min"), (7_199, "119 min"),
        (7_200, "2 h"), (12_000, "3 h 20 min"), (172_800, "2 d"), (439_200, "5 d 2 h"),
    ],
)  # fmt: skip
def test_a_duration_has_at_most_two_units(seconds: float | None, text: str) -> None:
    assert humanize.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, NONE), (0, "0 B"), (512, "512 B"), (1024, "1 KiB"), (1536, "1.5 KiB"),
        (1_048_570, "1 MiB"), (250 << 10, "250 KiB"), (3 << 30, "3 GiB"), (9 << 40, "9216 GiB"),
    ],
)  # fmt: skip
def test_a_size_is_in_units_of_1024_that_say_so(size: float | None, text: str) -> None:
    assert humanize.size(size) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        *((0, 5, "0 %"), (1, 3, "33 %"), (5, 5, "100 %"), (1, 0, "\u2013")),
        *((1, 1_000, "<1 %"), (999, 1_000, ">99 %")),
    ],
)
def test_a_part_is_in_percent(part: float, whole: float, text: str) -> None:
    assert humanize.percent(part, whole) == text


def test_things_are_counted() -> None:
    assert humanize.count(1_234_567.8) == "1,234,568"
    assert [humanize.jobs(number) for number in (0, 1, 2_000)] == ["0 jobs", "1 job", "2,000 jobs"]
    assert humanize.counted(1, "node") == "1 node"


def test_a_moment_is_in_utc_and_one_of_a_wrong_clock_is_its_number() -> None:
    assert humanize.moment(None) == NONE
    assert humanize.moment(3.9) == "1970-01-01 00:00:03"
    assert humanize.moment(3_600, "%H:%M") == "01:00"
    assert humanize.moment(1e15) == "1000000000000000 s"


def test_a_long_name_is_cut() -> None:
    assert humanize.shortened("abcdef", 6) == "abcdef"
    assert humanize.shortened("abcdefg", 6) == "abcde…"
