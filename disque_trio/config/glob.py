"""Redis glob matching: `*`, `?`, `[a-z]`, `[^x]` and backslash escapes, on bytes.

Owns the matching rules and nothing else. A star only ever steps back to the last star before it
(an earlier one could gain nothing that the last cannot), so the time is bounded by the product of
the two lengths: a client cannot make `*a*a*a*a*b` take for ever.
"""

from __future__ import annotations

_STAR = ord("*")
_ANY = ord("?")
_OPEN = ord("[")
_CLOSE = ord("]")
_ESCAPE = ord("\\")
_RANGE = ord("-")


def glob_match(pattern: bytes, value: bytes, *, ignore_case: bool = False) -> bool:
    """Tell whether the whole of `value` matches the glob `pattern`.

    As in Redis, a class that is never closed ends with the pattern, a reversed range is put
    right, and a backslash at the very end stands for itself.
    """
    if ignore_case:
        pattern = pattern.lower()
        value = value.lower()
    at = 0
    here = 0
    star = -1
    retry = 0
    while here < len(value):
        if at < len(pattern) and pattern[at] == _STAR:
            at += 1
            star = at
            retry = here
            continue
        if at < len(pattern):
            matched, after = _match_one(pattern, at, value[here])
            if matched:
                at = after
                here += 1
                continue
        if star < 0:
            return False
        # Let the last star take one byte more and try what follows it again.
        retry += 1
        here = retry
        at = star
    while at < len(pattern) and pattern[at] == _STAR:
        at += 1
    return at == len(pattern)


def _match_one(pattern: bytes, at: int, byte: int) -> tuple[bool, int]:
    """Match one byte with the element at `at`: did it match, and where the next element is."""
    first = pattern[at]
    if first == _ANY:
        return True, at + 1
    if first == _OPEN:
        return _match_class(pattern, at + 1, byte)
    if first == _ESCAPE and at + 1 < len(pattern):
        at += 1
    return pattern[at] == byte, at + 1


def _match_class(pattern: bytes, at: int, byte: int) -> tuple[bool, int]:
    negated = pattern[at : at + 1] == b"^"
    if negated:
        at += 1
    found = False
    while at < len(pattern) and pattern[at] != _CLOSE:
        if pattern[at] == _ESCAPE and at + 1 < len(pattern):
            found = found or pattern[at + 1] == byte
            at += 2
        elif at + 2 < len(pattern) and pattern[at + 1] == _RANGE:
            low, high = sorted((pattern[at], pattern[at + 2]))
            found = found or low <= byte <= high
            at += 3
        else:
            found = found or pattern[at] == byte
            at += 1
    return found != negated, min(at + 1, len(pattern))
