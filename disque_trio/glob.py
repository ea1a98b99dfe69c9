"""Redis glob matching: ``*``, ``?``, ``[a-z]``, ``[^x]`` and backslash escapes, on bytes."""

from __future__ import annotations

import re

_ELEMENT = re.compile(rb"(\*)|(\?)|\[(\^?)((?:\\.|[^\]]-.|[^\]])*)(?:\]|\Z)|\\?(.)", re.DOTALL)
_SPECIAL = re.compile(rb"[*?[\\]")
_CLASS_MEMBER = re.compile(rb"\\(.)|(.)-(.)|(.)", re.DOTALL)


def glob_match(pattern: bytes, value: bytes, *, ignore_case: bool = False) -> bool:
    """Tell whether the whole of ``value`` matches the glob ``pattern``.

    As in Redis, a class that is never closed ends with the pattern, a reversed range is put
    right, and a backslash at the very end stands for itself.
    """
    if ignore_case:
        pattern = pattern.lower()
        value = value.lower()
    return compile_glob(pattern).fullmatch(value) is not None


def compile_glob(pattern: bytes) -> re.Pattern[bytes]:
    """What matches the whole of a value (``fullmatch``) where ``glob_match`` says that it does."""
    return re.compile(glob_expression(pattern), re.DOTALL)


def is_glob(pattern: bytes) -> bool:
    """Whether ``pattern`` has characters that mean more than themselves."""
    return _SPECIAL.search(pattern) is not None


def glob_literals(pattern: bytes) -> int:
    """How many characters of ``pattern`` stand for just themselves."""
    return sum(1 for *_, literal in _ELEMENT.findall(pattern) if literal)


def glob_prefix(pattern: bytes) -> bytes:
    """What all that ``pattern`` matches begins with: its characters up to the first that means more
    than itself."""
    special = _SPECIAL.search(pattern)
    return pattern if special is None else pattern[: special.start()]


def glob_expression(pattern: bytes) -> bytes:
    """The regular expression (with DOTALL) that the whole of what ``pattern`` matches, matches."""
    segments = [b""]  # regular expressions of what is between the stars
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
        # Each segment but the last matches as early as it can, for good (an atomic group): another
        # place could gain nothing, and a client cannot make ``*a*a*a*a*b`` take for ever.
        middle = [b"(?>.*?%b)" % segment for segment in segments[1:-1]]
        expression = b"".join([expression, *middle, b".*", segments[-1]])
    return expression


def _class(negated: bytes, members: bytes) -> bytes:
    """The regular expression of a class in brackets."""
    allowed: set[int] = set()
    for escaped, low, high, single in _CLASS_MEMBER.findall(members):
        first, last = sorted((low or escaped or single, high or escaped or single))
        allowed.update(range(first[0], last[0] + 1))
    chosen = [byte for byte in range(256) if (byte in allowed) != bool(negated)]
    return b"[%b]" % re.escape(bytes(chosen)) if chosen else b"(?!)"
