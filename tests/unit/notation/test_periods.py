"""Periods: seconds, or whole numbers with units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.notation.periods import read_period, read_units

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
PARTS = st.lists(st.tuples(st.integers(0, 10**8 - 1), st.sampled_from("smhd")), min_size=1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("30", 30),
        ("0.5", 0.5),
        (".5", 0.5),
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("7d", 604_800),
        ("1h30m", 5400),
        ("1m1h", 3660),
    ],
)
def test_every_form_of_a_period_is_read(text: str, seconds: float) -> None:
    assert read_period(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "-1",
        "+1",
        "1e3",
        "nan",
        "inf",
        "1.5h",
        "1 s",
        "5S",
        "1M",
        "1h30",
        "1w",
        "1.",
        "1_0",
        "\u0661",
    ],
)
def test_anything_else_is_no_period(text: str) -> None:
    assert read_period(text) is None


@pytest.mark.parametrize("text", ["30", "0.5", ".5"])
def test_schedules_need_a_unit(text: str) -> None:
    assert read_units(text) is None


def test_digits_have_a_limit() -> None:
    assert read_period("9" * 5000) is None
    assert read_period("9" * 5000 + "s") is None


@given(PARTS)
def test_parts_add_up(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in parts)
    seconds = sum(count * UNITS[unit] for count, unit in parts)
    assert read_units(text) == read_period(text) == seconds


@given(st.integers(0, 10**10 - 1), st.integers(0, 999))
def test_a_bare_number_is_seconds(seconds: int, thousandths: int) -> None:
    assert read_period(str(seconds)) == seconds
    assert read_period(f"{seconds}.{thousandths:03}") == pytest.approx(seconds + thousandths / 1000)
