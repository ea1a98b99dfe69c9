"""Virtual time: the next events of the whole simulated world."""

from collections.abc import Callable
from heapq import heappop, heappush

MS = 1000  # µs
SECOND = 1_000_000  # µs


class EventLoop:
    """Calls the requested actions in the order of their times; those with the same time in the
    order of the requests.

    Attributes:
        now: virtual time, µs since the world began.
    """

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0

    @property
    def count(self) -> int:
        """The number of events so far."""
        return self._number - len(self._heap)

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Call ``action`` at ``time`` µs, or now if that has passed."""
        self._number += 1
        heappush(self._heap, (time if time > self.now else self.now, self._number, action))

    def after(self, delay: int, action: Callable[[], None]) -> None:
        """Call ``action`` ``delay`` µs from now."""
        self._number += 1
        heappush(self._heap, (self.now + delay, self._number, action))

    def run_until(self, end: int) -> None:
        """Let time pass until ``end`` µs."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, action = heappop(heap)
            action()
        self.now = max(self.now, end)
