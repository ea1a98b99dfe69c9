"""Counts the bytes that several holders hold together, such as clients with buffers or links with
incomplete packets, against a limit."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Holdings(Generic[T]):
    """The bytes of each holder, and their sum.

    Only holders of something are included, so that it is cheap to find the largest ones among
    thousands of connections.

    Attributes:
        limit: bytes that all may hold together; 0: no limit.
        total: bytes that they hold.
        sizes: bytes that each of them holds, never 0.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.total = 0
        self.sizes: dict[T, int] = {}

    def note(self, holder: T, size: int) -> None:
        """Set the bytes of ``holder`` to ``size``."""
        before = self.sizes.get(holder, 0)
        if size:
            self.sizes[holder] = size
        elif before:
            del self.sizes[holder]
        self.total += size - before

    @property
    def over(self) -> bool:
        """Whether the sum is above the limit."""
        return self.total > self.limit > 0

    def excess(self, spared: Callable[[T], bool] = lambda holder: False) -> list[T]:
        """The holders to remove so that the sum is within the limit, the largest first. Those that
        are ``spared`` stay, but count."""
        chosen: list[T] = []
        left = self.total
        if self.over:
            for holder in sorted(self.sizes, key=self.sizes.__getitem__, reverse=True):
                if left <= self.limit:
                    break
                if not spared(holder):
                    chosen.append(holder)
                    left -= self.sizes[holder]
        return chosen
