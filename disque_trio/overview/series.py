"""Values over the last hour, in steps: counts in each step, and levels at its end."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import isnan, nan
from typing import NamedTuple


class Point(NamedTuple):
    """One step. start: when it began (s). values: in the order of the series' names; None if
    unknown."""

    start: float
    values: tuple[float | None, ...]


class Series:
    """Ring buffers with a common time axis.

    Args:
        step: length of a step in seconds. count: number of steps to keep.
        sums: names of counts; their values are per second.
        levels: names of levels; the last value in a step counts.
    """

    __slots__ = (
        "_count",
        "_last",
        "_rings",
        "_since",
        "_told_at",
        "count",
        "levels",
        "step",
        "sums",
    )

    def __init__(self, step: float, count: int, sums: Sequence[str], levels: Sequence[str]) -> None:
        self.step = step
        self.count = count
        self.sums = tuple(sums)
        self.levels = tuple(levels)
        self._rings = {name: array("d", [nan]) * count for name in (*sums, *levels)}
        self._last: int | None = None  # index of the newest step
        self._since = 0.0  # when the first value came
        self._told_at = 0.0  # end of the last count

    @property
    def empty(self) -> bool:
        """Whether there are no values."""
        return self._last is None

    @property
    def since(self) -> float:
        """When the first value came (s); 0 while it is empty."""
        return self._since

    def add(
        self,
        now: float,
        counted: Mapping[str, float],
        measured: Mapping[str, float],
        since: float | None = None,
    ) -> None:
        """Add counts from ``since`` until ``now`` (s), spread evenly over the steps between, or all
        at ``now`` if None; and the levels at ``now``."""
        if self._last is None:
            self._since = now if since is None else since
        place = self._turn_to(now)
        if counted:
            self._told_at = max(self._told_at, now)
            for number, part in self._parts(now if since is None else since, now):
                for name, count in counted.items():
                    ring = self._rings[name]
                    before = ring[number % self.count]
                    ring[number % self.count] = count * part + (0.0 if isnan(before) else before)
        for name, level in measured.items():
            self._rings[name][place] = level

    def points(self, now: float, most: int | None = None) -> list[Point]:
        """The steps up to ``now``, oldest first, beginning with the first values.

        Args:
            most: merge steps so that there are no more than this.
        """
        if self._last is None:
            return []
        newest = int(now // self.step)
        oldest = max(newest - self.count + 1, int(self._since // self.step))
        together = 1 if most is None else max(1, -(-self.count // most))
        oldest -= oldest % together
        return [
            Point(first * self.step, self._merged(first, together))
            for first in range(oldest, newest + 1, together)
        ]

    def _merged(self, first: int, together: int) -> tuple[float | None, ...]:
        steps = range(first, first + together)
        merged: list[float | None] = []
        for name in self.sums:
            values = list(self._known(name, steps))
            seconds = 0.0
            for number, _ in values:
                begun = max(number * self.step, self._since)
                seconds += max(min(self._told_at, (number + 1) * self.step) - begun, 0.0)
            # A step that has only just begun has no meaningful rate.
            known = seconds >= min(1.0, self.step / 2)
            merged.append(sum(value for _, value in values) / seconds if known else None)
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

    def _parts(self, since: float, now: float) -> list[tuple[int, float]]:
        """The steps between two moments, and the fraction of the time in each."""
        last = int(now // self.step)
        since = max(since, (last - self.count + 1) * self.step, self._since)
        if since >= now:
            return [(last, 1.0)]
        return [
            (
                number,
                (min(now, (number + 1) * self.step) - max(since, number * self.step))
                / (now - since),
            )
            for number in range(int(since // self.step), last + 1)
        ]

    def _turn_to(self, now: float) -> int:
        number = int(now // self.step)
        if self._last is not None and number < self._last:
            self._go_back(number, now)
        if self._last is not None:
            for passed in range(max(self._last, number - self.count) + 1, number + 1):
                for ring in self._rings.values():
                    ring[passed % self.count] = nan
        self._last = number
        return number % self.count

    def _go_back(self, number: int, now: float) -> None:
        """Handle a clock that went back: the time from ``now`` on comes again."""
        assert self._last is not None
        for passed in range(max(number, self._last - self.count + 1), self._last + 1):
            for ring in self._rings.values():
                ring[passed % self.count] = nan
        self._last = number
        self._since = min(self._since, now)
        self._told_at = min(self._told_at, now)
