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
        self._last: int | None = None  # number of the newest step
        self._since = 0.0  # when the first value came
        self._told_at = 0.0  # until when something was counted

    @property
    def empty(self) -> bool:
        """Whether nothing was ever told."""
        return self._last is None

    def add(
        self,
        now: float,
        counted: Mapping[str, float],
        measured: Mapping[str, float],
        since: float | None = None,
    ) -> None:
        """What was counted from ``since`` until ``now`` (s), which is spread evenly over the steps
        between; None: just now. And what is measured at ``now``."""
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
            # A step that has hardly begun says nothing yet.
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
        """The steps between two moments, and how much of the time is in each."""
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
        if self._last is not None:
            for passed in range(max(self._last, number - self.count) + 1, number + 1):
                for ring in self._rings.values():
                    ring[passed % self.count] = nan
        self._last = number if self._last is None else max(number, self._last)
        return number % self.count
