"""Globs match as they do in Redis."""

from __future__ import annotations

import time

import pytest

from disque_trio.config import glob_match


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
    assert time.thread_time() - started < 5
