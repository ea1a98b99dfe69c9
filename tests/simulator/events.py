"""Virtual time: the next events of the whole simulated world."""

from collections.abc import Callable
from heapq import heappop, heappush

MS = 1000  # µs
SECOND = 1_000_000  # µs
_BEHIND_ALL = 1 << 62  # more than all numbers of events


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
        # What comes behind all events until then; each event costs no comparison.
        last = (max(self.now, end), _BEHIND_ALL, _no_action)
        heappush(heap, last)
        while True:
            self.now, _, action = heappop(heap)
            if action is _no_action:
                break
            action()


def _no_action() -> None:
    """Ends ``run_until``."""
