"""Globs match as they do in Redis."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.config import glob_match
from disque_trio.glob import MAX_PATTERN


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (b"*", b""),
        (b"*", b"maxmemory"),
        (b"**", b"maxmemory"),
        (b"max*", b"maxmemory"),
        (b"*memory", b"maxmemory"),
        (b"*m*m*", b"maxmemory"),
        (b"maxmemor?", b"maxmemory"),
        (b"h[yz]", b"hz"),
        (b"h[a-z]", b"hz"),
        (b"h[z-a]", b"hz"),
        (b"h[^a]", b"hz"),
        (b"h[^]", b"hz"),
        (b"h[z", b"hz"),
        (b"h[\\]]", b"h]"),
        (b"a\\*b", b"a*b"),
        (b"a\\", b"a\\"),
        (b"[a-]]", b"^"),
    ],
)
def test_a_glob_matches(pattern: bytes, value: bytes) -> None:
    assert glob_match(pattern, value)


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (b"", b"hz"),
        (b"hz", b""),
        (b"?", b""),
        (b"h", b"hz"),
        (b"hzz", b"hz"),
        (b"HZ", b"hz"),
        (b"h[^z]", b"hz"),
        (b"h[]", b"hz"),
        (b"h[a-y]", b"hz"),
        (b"a\\*b", b"axb"),
        (b"*x", b"maxmemory"),
    ],
)
def test_a_glob_does_not_match(pattern: bytes, value: bytes) -> None:
    assert not glob_match(pattern, value)


def test_case_can_be_ignored_on_both_sides() -> None:
    assert glob_match(b"MAX[M-N]*", b"maxMemory", ignore_case=True)


def test_many_stars_do_not_take_for_ever() -> None:
    started = time.thread_time()
    assert not glob_match(b"*a" * 40 + b"b", b"a" * 2000)
    assert not glob_match(b"*[ab]" + b"a" * 2000 + b"c*", b"a" * MAX_PATTERN)
    assert glob_match(b"*" * 300_000, b"a" * 2000)
    assert time.thread_time() - started < 5


def matches_slowly(pattern: bytes, value: bytes) -> bool:
    """The same as ``glob_match``, by trying everything, for patterns of ``*?[ab\\``."""
    if not pattern:
        return not value
    if pattern.startswith(b"*"):
        rest = pattern[1:]
        return any(matches_slowly(rest, value[at:]) for at in range(len(value) + 1))
    taken, rest, allowed = pattern[:1], pattern[1:], pattern[:1]
    if taken == b"[":
        inside, _, rest = rest.partition(b"]")
        allowed = inside.removeprefix(b"^")
        if inside.startswith(b"^"):
            allowed = bytes(set(b"abc") - set(allowed))
    elif taken == b"?":
        allowed = b"abc"
    elif taken == b"\\" and rest:
        allowed, rest = rest[:1], rest[1:]
    return value[:1] in [bytes([byte]) for byte in allowed] and matches_slowly(rest, value[1:])


@given(
    st.lists(
        st.sampled_from([b"*", b"?", b"a", b"b", b"ab", b"[ab]", b"[^a]", b"[]", b"\\a"]),
        max_size=8,
    ),
    st.text("abc", max_size=8),
)
def test_a_glob_matches_what_trying_everything_finds(elements: list[bytes], text: str) -> None:
    pattern = b"".join(elements)
    assert glob_match(pattern, text.encode()) == matches_slowly(pattern, text.encode())
