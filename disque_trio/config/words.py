"""Splits a line of disque.conf into words, and joins words so that they can be split again.

The quoting rules are those of Redis (``split_inline``). Text is UTF-8; other bytes are kept as
surrogate escapes, so that a password of any bytes survives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from disque_trio.resp.inline import split_inline

ENCODING = "utf-8"
ERRORS = "surrogateescape"

_PLAIN = re.compile(r"[A-Za-z0-9_./:*@%+,=~-]+")


def to_bytes(text: str) -> bytes:
    """Return the bytes that ``to_text`` was given."""
    return text.encode(ENCODING, ERRORS)


def to_text(data: bytes) -> str:
    """Decode UTF-8; other bytes become surrogate escapes."""
    return data.decode(ENCODING, ERRORS)


def split_words(line: str) -> list[str]:
    """Split a line into words. Raises ``ValueError`` if its quotes are unbalanced."""
    words = split_inline(to_bytes(line))
    if words is None:
        raise ValueError("unbalanced quotes")
    return [to_text(word) for word in words]


def quote_word(word: str, *, always: bool = False) -> str:
    """Return one word for a line: unchanged if that is safe, otherwise in double quotes."""
    if not always and _PLAIN.fullmatch(word):
        return word
    return in_double_quotes(
        word, lambda character: "".join(f"\\x{byte:02x}" for byte in to_bytes(character))
    )


def in_double_quotes(text: str, escape: Callable[[str], str]) -> str:
    """Return ``text`` in double quotes; ``escape`` converts a character that is not printable."""
    escaped = re.sub(r'["\\]', r"\\\g<0>", text)
    quoted = "".join(char if char.isprintable() else escape(char) for char in escaped)
    return f'"{quoted}"'


def join_words(words: Iterable[str]) -> str:
    """Join words so that ``split_words`` restores them."""
    return " ".join(quote_word(word) for word in words)
