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
    """

    rows: Sequence[T]
    number: int
    pages: int
    count: int

    @property
    def first(self) -> int:
        """The number of the first row on it, from 1 on; 0: there is none."""
        return (self.number - 1) * SIZE + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """That of the last one."""
        return max(self.first + len(self.rows) - 1, 0)


def page_of(found: Sequence[T], number: int) -> Paging[T]:
    """Page ``number``, or the last one where there are not so many."""
    pages = max(1, -(-len(found) // SIZE))
    number = min(max(number, 1), pages)
    return Paging(found[(number - 1) * SIZE : number * SIZE], number, pages, len(found))
