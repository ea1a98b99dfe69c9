"""Keys by their end: those that end first are found without a look at all of them.

They are kept in spans of about a minute; within a span, the one that came last is found first. So a
node with a million keys pays little for this order.
"""

from heapq import heappop, heappush
from typing import Final

_SPAN: Final = 16  # bits of a time in ms: a span has about 65 s


class KeyEnds:
    """The places of keys (see ``uniques.place``), by the time at which they end."""

    def __init__(self) -> None:
        self._spans: dict[int, dict[bytes, None]] = {}
        self._numbers: list[int] = []  # of the spans, as a heap

    def add(self, place: bytes, until: int) -> None:
        """Add a key that ends at ``until`` (ms since the epoch), unless it is there."""
        number = until >> _SPAN
        span = self._spans.get(number)
        if span is None:
            span = self._spans[number] = {}
            heappush(self._numbers, number)
        span[place] = None

    def remove(self, place: bytes, until: int) -> None:
        """Remove a key that ends at ``until``, if it is there."""
        span = self._spans.get(until >> _SPAN)
        if span is not None:
            span.pop(place, None)

    def pop(self) -> bytes:
        """Remove one of those that end first, and return it; empty: there is none."""
        numbers = self._numbers
        while numbers:
            span = self._spans[numbers[0]]
            if span:
                # The first would be found behind the gaps of all that were removed before it.
                return span.popitem()[0]
            del self._spans[heappop(numbers)]
        return b""

    def forget(self, now: int) -> None:
        """Forget the spans before that of ``now`` (ms since the epoch)."""
        numbers = self._numbers
        while numbers and numbers[0] < now >> _SPAN:
            del self._spans[heappop(numbers)]

    def clear(self) -> None:
        """Forget everything."""
        self._spans.clear()
        self._numbers.clear()
