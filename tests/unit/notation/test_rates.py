"""Rates: a number in a second, a minute or an hour."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.notation.rates import PERIODS, format_rate, read_rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50", (50, 1)),
        ("50/s", (50, 1)),
        ("30/M", (30, 60)),
        ("5/h", (5, 3600)),
        ("0", (0, 1)),
    ],
)
def test_every_form_of_a_rate_is_read(text: str, rate: tuple[int, int]) -> None:
    assert read_rate(text) == rate


@pytest.mark.parametrize(
    "text",
    ["", "/s", "5/", "5/d", "5/min", "0.5/s", "-1", "+5", "5 /s", "5s", "010", "nan", "\u0661"],
)
def test_anything_else_is_no_rate(text: str) -> None:
    assert read_rate(text) is None


@given(st.integers(0, 2**62), st.sampled_from(sorted(PERIODS.values())))
def test_a_rate_is_read_as_it_was_written(count: int, period: int) -> None:
    assert read_rate(format_rate(count, period)) == (count, period)
