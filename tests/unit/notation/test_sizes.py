"""Sizes: the forms of Redis, and KiB."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.notation.sizes import format_size, read_size


@pytest.mark.parametrize(
    ("text", "bytes"),
    [
        ("0", 0),
        ("64", 64),
        ("64b", 64),
        ("1k", 1000),
        ("1K", 1000),
        ("2m", 2 * 1000**2),
        ("3g", 3 * 1000**3),
        *((unit, 1024) for unit in ("1kb", "1KB", "1kib", "1KiB", "1ki")),
        *((unit, 1024**2) for unit in ("1mb", "1MB", "1mib", "1MiB", "1Mi")),
        *((unit, 1024**3) for unit in ("1gb", "1Gb", "1gib", "1GiB", "1Gi")),
    ],
)
def test_every_form_of_a_size_is_read(text: str, bytes: int) -> None:
    assert read_size(text) == bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k",
        "-1",
        "+1",
        "1.5k",
        "010",
        "1 kb",
        " 1",
        "1kbb",
        "1kk",
        "1t",
        "0x10",
        "1_000",
        "\u0661",
    ],
)
def test_anything_else_is_no_size(text: str) -> None:
    assert read_size(text) is None


def test_digits_have_a_limit() -> None:
    assert read_size("9" * 19) == 10**19 - 1
    assert read_size("9" * 5000) is None


@given(st.integers(0, 2**62))
def test_a_size_is_read_as_it_was_written(bytes: int) -> None:
    assert read_size(format_size(bytes)) == bytes


@given(st.integers(0, 10**9), st.sampled_from(["k", "m", "g"]), st.sampled_from(["b", "i", "ib"]))
def test_units_are_powers_of_1000_and_with_a_b_or_an_i_of_1024(
    count: int, unit: str, binary: str
) -> None:
    power = "kmg".index(unit) + 1
    assert read_size(f"{count}{unit}") == count * 1000**power
    assert read_size(f"{count}{unit}{binary}".upper()) == count * 1024**power


@given(st.text())
def test_no_text_is_a_surprise(text: str) -> None:
    value = read_size(text)
    assert value is None or (value >= 0 and text.isascii())
