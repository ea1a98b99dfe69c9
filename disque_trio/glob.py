"""Redis glob matching: ``*``, ``?``, ``[a-z]``, ``[^x]`` and backslash escapes, on bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MAX_NAME: Final = 4_096  # bytes: a longer name could take seconds to compare

_ELEMENT = re.compile(rb"(\*)|(\?)|\[(\^?)((?:\\.|[^\]]-.|[^\]])*)(?:\]|\Z)|\\?(.)", re.DOTALL)
_SPECIAL = re.compile(rb"[*?[\\]")
_ALL_BYTES: Final = frozenset(range(256))
_CLASS_MEMBER = re.compile(rb"\\(.)|(.)-(.)|(.)", re.DOTALL)


def glob_match(pattern: bytes, value: bytes, *, ignore_case: bool = False) -> bool:
    """Tell whether the whole of ``value`` matches the glob ``pattern``.

    As in Redis, a class that is never closed ends with the pattern, a reversed range is put right,
    and a backslash at the very end stands for itself.
    """
    if ignore_case:
        pattern = pattern.lower()
        value = value.lower()
    return compile_glob(pattern).fullmatch(value) is not None


def compile_glob(pattern: bytes) -> re.Pattern[bytes]:
    """Return a compiled pattern whose ``fullmatch`` agrees with ``glob_match``."""
    return re.compile(glob_expression(pattern), re.DOTALL)


def is_glob(pattern: bytes) -> bool:
    """Whether ``pattern`` has special characters."""
    return _SPECIAL.search(pattern) is not None


def glob_literals(pattern: bytes) -> int:
    """How many characters of ``pattern`` stand for themselves."""
    return sum(1 for *_, literal in _ELEMENT.findall(pattern) if literal)


def glob_prefix(pattern: bytes) -> bytes:
    """The start of everything that ``pattern`` matches: its characters up to the first special
    one."""
    special = _SPECIAL.search(pattern)
    return pattern if special is None else pattern[: special.start()]


def glob_expression(pattern: bytes) -> bytes:
    """The regular expression (with DOTALL) for full matches that is equivalent to ``pattern``."""
    segments = [b""]  # regular expressions for what is between the stars
    for star, any_byte, negated, members, literal in _ELEMENT.findall(pattern):
        if star:
            segments.append(b"")
        elif any_byte:
            segments[-1] += b"."
        elif literal:
            segments[-1] += re.escape(literal)
        else:
            segments[-1] += _class(negated, members)
    expression = segments[0]
    if len(segments) > 1:
        # Each segment but the last matches as early as possible, for good (an atomic group):
        # another position could gain nothing, and a client cannot make ``*a*a*a*a*b`` take forever.
        middle = [b"(?>.*?%b)" % segment for segment in segments[1:-1]]
        expression = b"".join([expression, *middle, b".*", segments[-1]])
    return expression


def _class(negated: bytes, members: bytes) -> bytes:
    """The regular expression of a class in brackets."""
    allowed: set[int] = set()
    for escaped, low, high, single in _CLASS_MEMBER.findall(members):
        first, last = sorted((low or escaped or single, high or escaped or single))
        allowed.update(range(first[0], last[0] + 1))
    if negated:
        allowed ^= _ALL_BYTES
    return b"[%b]" % re.escape(bytes(sorted(allowed))) if allowed else b"(?!)"


class Globs(Generic[T]):
    """Finds the most specific of several patterns that match a name: the one with the most
    literal characters (if there are several, the first by name), ``*`` last.

    Args:
        patterns: each with its value.
    """

    def __init__(self, patterns: Iterable[tuple[bytes, T]]) -> None:
        found = sorted(patterns, key=_generality)
        self._found = [(compile_glob(pattern), value) for pattern, value in found]
        self._any = found[-1][1] if found and found[-1][0] == b"*" else None

    def of(self, name: bytes) -> T | None:
        """The value of the most specific pattern that matches ``name``; None: none does. Names of
        more than ``MAX_NAME`` bytes match only ``*``."""
        if len(name) > MAX_NAME:
            return self._any
        for expression, value in self._found:
            if expression.fullmatch(name) is not None:
                return value
        return None


def _generality(entry: tuple[bytes, object]) -> tuple[bool, int, bytes]:
    pattern = entry[0]
    return pattern == b"*", -glob_literals(pattern), pattern
