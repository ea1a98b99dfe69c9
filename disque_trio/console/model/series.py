"""The last hour in steps: what was counted in each, and what the levels were at its end."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import isnan, nan
from typing import NamedTuple


class Point(NamedTuple):
    """One step. start: when it began (s). values: by the names of the series; None: not known."""

    start: float
    values: tuple[float | None, ...]


class Series:
    """Ring buffers over the same steps.

    Args:
        step: length of a step in seconds. count: how many of them are kept.
        sums: names of what is counted; their values are per second.
        levels: names of what is measured; the last value in a step counts.
    """

    __slots__ = ("_count", "_last", "_rings", "_since", "count", "levels", "step", "sums")

    def __init__(self, step: float, count: int, sums: Sequence[str], levels: Sequence[str]) -> None:
        self.step = step
        self.count = count
        self.sums = tuple(sums)
        self.levels = tuple(levels)
        self._rings = {name: array("d", [nan]) * count for name in (*sums, *levels)}
        self._last: int | None = None  # number of the newest step
        self._since = 0.0  # when the first value came

    @property
    def empty(self) -> bool:
        """Whether nothing was ever told."""
        return self._last is None

    def add(self, now: float, counted: Mapping[str, float], measured: Mapping[str, float]) -> None:
        """What was counted since the last call, and what is measured at ``now`` (s)."""
        place = self._turn_to(now)
        for name, count in counted.items():
            ring = self._rings[name]
            ring[place] = count if isnan(ring[place]) else ring[place] + count
        for name, level in measured.items():
            self._rings[name][place] = level

    def points(self, now: float, most: int | None = None) -> list[Point]:
        """The steps up to ``now``, the oldest first, from the first one that was told of.

        Args:
            most: put steps together so that there are no more than this.
        """
        if self._last is None:
            return []
        newest = int(now // self.step)
        oldest = max(newest - self.count + 1, int(self._since // self.step))
        together = 1 if most is None else max(1, -(-self.count // most))
        oldest -= oldest % together
        return [
            Point(first * self.step, self._merged(first, together, now))
            for first in range(oldest, newest + 1, together)
        ]

    def _merged(self, first: int, together: int, now: float) -> tuple[float | None, ...]:
        steps = range(first, first + together)
        merged: list[float | None] = []
        for name in self.sums:
            values = list(self._known(name, steps))
            seconds = 0.0
            for number, _ in values:
                begun = max(number * self.step, self._since)
                seconds += max(min(now, (number + 1) * self.step) - begun, 1.0)
            merged.append(sum(value for _, value in values) / seconds if values else None)
        for name in self.levels:
            values = list(self._known(name, steps))
            merged.append(values[-1][1] if values else None)
        return tuple(merged)

    def _known(self, name: str, steps: Sequence[int]) -> Iterator[tuple[int, float]]:
        assert self._last is not None
        ring = self._rings[name]
        for number in steps:
            if self._last - self.count < number <= self._last:
                value = ring[number % self.count]
                if not isnan(value):
                    yield number, value

    def _turn_to(self, now: float) -> int:
        number = int(now // self.step)
        if self._last is None:
            self._since = now
        else:
            for passed in range(max(self._last, number - self.count) + 1, number + 1):
                for ring in self._rings.values():
                    ring[passed % self.count] = nan
        self._last = number if self._last is None else max(number, self._last)
        return number % self.count
