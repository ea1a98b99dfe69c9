"""Which processes that wait for a task are used again, and which end."""

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Warm(Generic[T]):
    """Processes that wait for a task. Callers pass in the time, in seconds of any clock.

    Args:
        keep: seconds for which one waits.
    """

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._waiting: list[tuple[float, T]] = []  # since when, the last one last

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[T]:
        return iter([one for _, one in self._waiting])

    def put(self, one: T, now: float) -> None:
        """Add a process."""
        self._waiting.append((now, one))

    def take(self) -> T | None:
        """Remove and return the one that was used last, so that what is not needed ends; None:
        there is none."""
        return self._waiting.pop()[1] if self._waiting else None

    def expired(self, now: float) -> list[T]:
        """Remove and return those that have waited for too long."""
        last = now - self._keep
        found = [one for since, one in self._waiting if since <= last]
        self._waiting = [each for each in self._waiting if each[0] > last]
        return found

    def clear(self) -> list[T]:
        """Remove and return all."""
        found = list(self)
        self._waiting.clear()
        return found
