"""Splitting a line of disque.conf into words, and writing words so that they split back.

Owns the quoting rules, which are those of Redis: double quotes with \\n \\r \\t \\b \\a \\xHH,
single quotes with \\', a closing quote ends its word. Text is UTF-8; bytes that are not are kept
as surrogate escapes, so that a password of any bytes survives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ENCODING = "utf-8"
ERRORS = "surrogateescape"

_SPACE = frozenset(b" \t\n\r\v\f\0")
_ESCAPES = {ord("n"): 10, ord("r"): 13, ord("t"): 9, ord("b"): 8, ord("a"): 7}
_DOUBLE = ord('"')
_SINGLE = ord("'")
_BACKSLASH = ord("\\")
_HEX = re.compile(rb"x([0-9a-fA-F]{2})")
_PLAIN = re.compile(r"[A-Za-z0-9_./:*@%+,=~-]+")


def to_bytes(text: str) -> bytes:
    """Give the bytes that `to_text` was given."""
    return text.encode(ENCODING, ERRORS)


def to_text(data: bytes) -> str:
    """Decode UTF-8; other bytes become surrogate escapes."""
    return data.decode(ENCODING, ERRORS)


def split_words(line: str) -> list[str]:
    """Split a line into words. Raises ValueError when its quotes do not balance."""
    data = to_bytes(line)
    words: list[str] = []
    at = 0
    while True:
        while at < len(data) and data[at] in _SPACE:
            at += 1
        if at == len(data):
            return words
        word, at = _read_word(data, at)
        words.append(to_text(word))


def _read_word(data: bytes, at: int) -> tuple[bytes, int]:
    word = bytearray()
    while at < len(data) and data[at] not in _SPACE:
        if data[at] in (_DOUBLE, _SINGLE):
            at = _read_quoted(data, at, word)
            if at < len(data) and data[at] not in _SPACE:
                raise ValueError("unbalanced quotes")
        else:
            word.append(data[at])
            at += 1
    return bytes(word), at


def _read_quoted(data: bytes, at: int, word: bytearray) -> int:
    quote = data[at]
    at += 1
    while at < len(data) and data[at] != quote:
        if data[at] != _BACKSLASH or at + 1 == len(data):
            word.append(data[at])
            at += 1
        elif quote == _SINGLE:
            # Inside single quotes the backslash only protects a single quote.
            escaped = data[at + 1] == _SINGLE
            word.append(_SINGLE if escaped else _BACKSLASH)
            at += 2 if escaped else 1
        elif found := _HEX.match(data, at + 1):
            word.append(int(found[1], 16))
            at += 4
        else:
            word.append(_ESCAPES.get(data[at + 1], data[at + 1]))
            at += 2
    if at >= len(data):
        raise ValueError("unbalanced quotes")
    return at + 1


def quote_word(word: str, *, always: bool = False) -> str:
    """Write one word for a line: as it is where that is safe, else in double quotes."""
    if not always and _PLAIN.fullmatch(word):
        return word
    return '"' + "".join(_quote_character(character) for character in word) + '"'


def _quote_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in to_bytes(character))


def join_words(words: Iterable[str]) -> str:
    """Write words so that `split_words` gives them back."""
    return " ".join(quote_word(word) for word in words)
