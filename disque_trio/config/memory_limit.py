"""Sizes that may be given as a percentage of maxmemory."""

from __future__ import annotations

from typing import Final, NamedTuple

from disque_trio.config.types import Word, parse_integer, parse_size
from disque_trio.notation.sizes import format_size

LEAST_WHOLE: Final = 32 << 20  # bytes: what a node may create for one client in one turn


class MemoryLimit(NamedTuple):
    """A number of bytes, or a percentage of another size. That size counts as ``LEAST_WHOLE`` if it
    is less, or a lone client with an ordinary batch would exceed the limit. 0 of either means no
    limit."""

    size: int = 0
    percent: int = 0

    def of(self, whole: int) -> int:
        """Return the bytes if the other size is ``whole`` bytes; 0, no limit, if that is 0."""
        if self.percent and whole:
            return max(whole, LEAST_WHOLE) * self.percent // 100
        return self.size


class MemoryOrPercent(Word[MemoryLimit]):
    """A number of bytes like ``Memory``, or a percentage of maxmemory."""

    expected = "a size such as 100mb, or a percentage of maxmemory such as 5%"

    def parse_word(self, word: str) -> MemoryLimit:
        if word.endswith("%"):
            return MemoryLimit(percent=parse_integer(word[:-1], 0, 100))
        return MemoryLimit(parse_size(word))

    def show(self, value: MemoryLimit) -> str:
        return f"{value.percent}%" if value.percent else str(value.size)

    def words(self, value: MemoryLimit) -> list[str]:
        return [self.show(value) if value.percent else format_size(value.size)]
