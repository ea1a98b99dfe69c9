"""Inline commands, and integers as C parses them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.resp.inline import quote, quote_all, split_inline
from disque_trio.resp.ints import parse_int, parse_ms


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_what_was_quoted_is_split_into_the_same_words(args: list[bytes]) -> None:
    line = b" ".join(quote(arg) for arg in args)
    assert quote_all(args) == line
    assert split_inline(line) == args
    assert b"\n" not in line
    assert line.isascii()


@given(st.binary(max_size=60))
def test_any_line_is_split_or_refused(line: bytes) -> None:
    args = split_inline(line)
    assert args is None or all(type(arg) is bytes for arg in args)


@pytest.mark.parametrize(
    ("line", "args"),
    [
        (b"", []),
        (b"  \t ", []),
        (b"  \t\r ", []),
        (b"addjob q body 0\r\n", [b"addjob", b"q", b"body", b"0"]),
        (b'"a b" c', [b"a b", b"c"]),
        (b'""', [b""]),
        (b"''", [b""]),
        (rb'"\n\r\t\b\a\\\"\q"', [b'\n\r\t\b\a\\"q']),
        (rb'"\x41\xff\x0"', [b"A\xffx0"]),
        (rb"'it\'s \n'", [b"it's \\n"]),
        (b"\xff\xfe", [b"\xff\xfe"]),
        (b"a b  c", [b"a", b"b", b"c"]),
        (b"  a\tb\r", [b"a", b"b"]),
        (b'a "b c" d', [b"a", b"b c", b"d"]),
        (b"'b c'", [b"b c"]),
        (b'a"b c"', [b"ab c"]),
        (rb'"\n\r\t\b\a\x41\xfF\q\\\""', [b'\n\r\t\b\aA\xffq\\"']),
        (rb'"\xZZ\x4"', [b"xZZx4"]),
        (rb"'\n\x41'", [rb"\n\x41"]),
        (rb"'it\'s'", [b"it's"]),
        (rb"a\nb", [rb"a\nb"]),
        (b'"', None),
        (b'"abc', None),
        (b"'abc", None),
        (b'"abc\\', None),
        (b'"a"b', None),
        (b"'a'b", None),
        (b'a "b" "c', None),
        (b'"a', None),
        (b"'a", None),
        (rb'"a\"', None),
        (b'x "', None),
    ],
)
def test_lines_are_split_as_redis_cli_does(line: bytes, args: list[bytes] | None) -> None:
    assert split_inline(line) == args


# ---- integers -----------------------------------------------------------------------------------


@given(st.integers(-(2**64), 2**64))
def test_an_integer_is_read_when_it_has_64_bits(value: int) -> None:
    text = str(value).encode()
    assert parse_int(text) == (value if -(2**63) <= value < 2**63 else None)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 40), st.booleans())
def test_a_plus_and_leading_zeros_are_allowed(value: int, zeros: int, plus: bool) -> None:
    sign = b"-" if value < 0 else b"+" if plus else b""
    assert parse_int(sign + b"0" * zeros + str(abs(value)).encode()) == value


@given(st.binary(max_size=25))
def test_text_that_is_not_an_integer_gives_none(text: bytes) -> None:
    # What strtoll accepts as a whole, without leading blanks.
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    if text == b"":
        assert parse_int(text) == 0
    elif digits and all(48 <= char <= 57 for char in digits) and len(digits) < 19:
        assert parse_int(text) == int(text)
    elif not digits or not all(48 <= char <= 57 for char in digits):
        assert parse_int(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"", 0),
        (b"0", 0),
        (b"-0", 0),
        (b"+", None),
        (b"-", None),
        (b"--1", None),
        (b" 1", None),
        (b"1 ", None),
        (b"1\n", None),
        (b"1.0", None),
        (b"1e3", None),
        (b"0x10", None),
        (b"1_000", None),
        (b"9223372036854775807", 2**63 - 1),
        (b"9223372036854775808", None),
        (b"-9223372036854775808", -(2**63)),
        (b"-9223372036854775809", None),
        (b"0" * 100_000 + b"7", 7),
        (b"9" * 100_000, None),
        (b"-" + b"9" * 100_000, None),
        ("\u0661".encode(), None),
    ],
)
def test_integers_are_read_as_strtoll_reads_them(text: bytes, value: int | None) -> None:
    assert parse_int(text) == value


def test_times_in_seconds_are_rounded_to_ms() -> None:
    times = {
        b"": 0, b"0": 0, b"5": 5000, b"+5": 5000, b"1.5": 1500, b"0.0004": 0, b"0.0005": 1,
        b"1.0005": 1001, b"1.9999999": 2000, b"007.10": 7100, b"4294967295.999": 4294967295999,
    }  # fmt: skip
    assert {text: parse_ms(text) for text in times} == times
    for text in (
        b"-1",
        b"-1.5",
        b"+1.5",
        b".5",
        b"1.",
        b".",
        b"1e3",
        b"1,5",
        b"1.5.5",
        b"x",
        b"1 ",
    ):
        assert parse_ms(text) < 0
