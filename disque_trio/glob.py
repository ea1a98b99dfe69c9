"""Redis glob matching: ``*``, ``?``, ``[a-z]``, ``[^x]`` and backslash escapes, on bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MAX_NAME: Final = 4_096  # bytes: comparing a longer name with many patterns takes too long
MAX_PATTERN: Final = 4_096  # bytes, of a pattern that a client names in a request
MAX_WANTED: Final = 255  # bytes, of a pattern by which jobs are taken, as of a topic
MAX_JOKERS: Final = 32  # stars and classes in such a pattern: each makes it more expensive

_ELEMENT = re.compile(rb"(\*)|(\?)|\[(\^?)((?:\\.|[^\]]-.|[^\]])*)(?:\]|\Z)|\\?(.)", re.DOTALL)
_SPECIAL = re.compile(rb"[*?[\\]")
_MORE = re.compile(rb"[?[\\]")
_ANY: Final = (1 << 256) - 1
_CLASS_MEMBER = re.compile(rb"\\(.)|(.)-(.)|(.)", re.DOTALL)


def glob_match(pattern: bytes, value: bytes, *, ignore_case: bool = False) -> bool:
    """Tell whether the whole of ``value`` matches the glob ``pattern``.

    As in Redis, a class that is never closed ends with the pattern, a reversed range is put right,
    and a backslash at the very end stands for itself.
    """
    if ignore_case:
        pattern = pattern.lower()
        value = value.lower()
    return Glob(pattern).matches(value)


class Glob:
    """A glob to compare many names with.

    The time for that grows with the length of the name, and hardly with the pattern: no client can
    make ``*a*a*a*a*b`` take forever.

    Args:
        pattern: as clients write it.
    """

    def __init__(self, pattern: bytes) -> None:
        # What is between stars, if stars are all that is special.
        self._between = [] if _MORE.search(pattern) else pattern.split(b"*")
        self._prefix = glob_prefix(pattern)
        self._starred = 0  # bit i: a star is before element i, or at the end
        self._literals: dict[int, int] = {}  # the elements that are a byte
        self._others: list[tuple[int, int]] = []  # bits of other elements, and of their bytes
        self._end = 1  # the bit after the last element
        self._taking: dict[int, int] = {}  # cache of ``_elements``
        if not self._between:
            self._read(pattern)

    def _read(self, pattern: bytes) -> None:
        """Take ``pattern`` apart: each element but a star stands for one byte."""
        bit = 1
        for star, any_byte, negated, members, literal in _ELEMENT.findall(pattern):
            if star:
                self._starred |= bit
                continue
            if literal:
                self._literals[literal[0]] = self._literals.get(literal[0], 0) | bit
            else:
                self._others.append((bit, _ANY if any_byte else _class(negated, members)))
            bit <<= 1
        self._end = bit

    def matches(self, name: bytes) -> bool:
        """Tell whether the whole of ``name`` matches."""
        if not name.startswith(self._prefix):
            return False
        if self._between:
            return self._matches_between(name)
        # Bit i: the elements before element i can stand for what of the name was read so far.
        reached = 1
        taking = self._taking
        for byte in name:
            elements = taking.get(byte, -1)
            if elements < 0:
                elements = self._elements(byte)
            reached = (reached & elements) << 1 | reached & self._starred
            if not reached:
                return False
        return reached & self._end != 0

    def cost(self, name: bytes) -> int:
        """About how long it takes to compare ``name``, in microseconds."""
        if self._between:
            return (len(name) * len(self._between) >> 12) + 1
        return (len(name) * (self._end.bit_length() + 512) >> 13) + 1

    def _elements(self, byte: int) -> int:
        """The bits of the elements that may stand for ``byte``."""
        found = self._literals.get(byte, 0)
        for bit, bytes_ in self._others:
            if bytes_ >> byte & 1:
                found |= bit
        self._taking[byte] = found
        return found

    def _matches_between(self, name: bytes) -> bool:
        """The same for a pattern with stars only, whose start matches."""
        first, *rest = self._between
        if not rest:
            return name == first
        last = rest.pop()
        end = len(name) - len(last)
        at = len(first)
        if at > end or not name.endswith(last):
            return False
        for part in rest:
            # As early as possible: another place could gain nothing.
            at = name.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True


def pattern_problem(pattern: bytes) -> str:
    """Return why jobs cannot be taken by ``pattern``; empty: they can."""
    if not 0 < len(pattern) <= MAX_WANTED:
        return f"a pattern must have 1 to {MAX_WANTED} bytes"
    if pattern.count(b"*") + pattern.count(b"[") > MAX_JOKERS:
        return f"a pattern may have at most {MAX_JOKERS} stars and classes"
    return ""


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


def _class(negated: bytes, members: bytes) -> int:
    """The bits of the bytes of a class in brackets."""
    allowed = 0
    for escaped, low, high, single in _CLASS_MEMBER.findall(members):
        first, last = sorted((low or escaped or single, high or escaped or single))
        allowed |= (1 << last[0] + 1) - (1 << first[0])
    return allowed ^ _ANY if negated else allowed


class Globs(Generic[T]):
    """Finds the most specific of several patterns that match a name: the one with the most
    literal characters (if there are several, the first by name), ``*`` last.

    Args:
        patterns: each with its value.
    """

    def __init__(self, patterns: Iterable[tuple[bytes, T]]) -> None:
        found = sorted(patterns, key=_generality)
        self._found = [(Glob(pattern), value) for pattern, value in found]
        self._any = found[-1][1] if found and found[-1][0] == b"*" else None

    def of(self, name: bytes) -> T | None:
        """The value of the most specific pattern that matches ``name``; None: none does. Names of
        more than ``MAX_NAME`` bytes match only ``*``."""
        if len(name) > MAX_NAME:
            return self._any
        for glob, value in self._found:
            if glob.matches(name):
                return value
        return None


def _generality(entry: tuple[bytes, object]) -> tuple[bool, int, bytes]:
    pattern = entry[0]
    return pattern == b"*", -glob_literals(pattern), pattern
