"""A page of a list."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

SIZE: Final = 50

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Paging(Generic[T]):
    """Page ``number`` of a list, from 1 on.

    Attributes:
        rows: what is on it. number, pages: which one, of how many. count: of the whole list.
        size: of a full page.
    """

    rows: Sequence[T]
    number: int
    pages: int
    count: int
    size: int = SIZE

    @property
    def first(self) -> int:
        """The number of the first row on it, from 1 on; 0: there is none."""
        return (self.number - 1) * self.size + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """That of the last one."""
        return max(self.first + len(self.rows) - 1, 0)


def page_of(found: Sequence[T], number: int, size: int = SIZE) -> Paging[T]:
    """Page ``number``, or the last one where there are not so many."""
    pages = max(1, -(-len(found) // size))
    number = min(max(number, 1), pages)
    return Paging(found[(number - 1) * size : number * size], number, pages, len(found), size)
