"""A page of a list."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

SIZE: Final = 50

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Paging(Generic[T]):
    """A page of a list.

    Attributes:
        rows: of this page. number, pages: which page, from 1, and of how many.
        count: rows in the list. size: rows of a full page.
    """

    rows: Sequence[T]
    number: int
    pages: int
    count: int
    size: int = SIZE

    @property
    def first(self) -> int:
        """The number of its first row, from 1; 0 if there is none."""
        return (self.number - 1) * self.size + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """The number of its last row."""
        return max(self.first + len(self.rows) - 1, 0)


def page_of(found: Sequence[T], number: int, size: int = SIZE) -> Paging[T]:
    """Page ``number``, or the last page if there are fewer."""
    pages = max(1, -(-len(found) // size))
    number = min(max(number, 1), pages)
    return Paging(found[(number - 1) * size : number * size], number, pages, len(found), size)
