"""Values over a time, in steps: counts in each step, and levels at its end."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import pairwise
from math import isnan, nan
from typing import Any, Final, NamedTuple, Self

HELD: Final = 60.0
"""Seconds for which a level that nobody tells again is what it was: idle queues are asked less
often than once a step."""
_BYTES: Final = 4  # of a value
_FORM: Final = "f"
_LEAST: Final = 1.0  # s to know of a step, or half of it: one that has only just begun has no rate


class Point(NamedTuple):
    """One step. start: when it began (s). values: in the order asked for; None if unknown."""

    start: float
    values: tuple[float | None, ...]


class Series:
    """Ring buffers with a common time axis. Those of counts are there once something was counted.

    Args:
        step: length of a step in seconds. count: number of steps to keep.
        levels: names of levels: the last value in a step counts. All other names are of counts.
    """

    __slots__ = ("_covered", "_holds", "_last", "_rings", "_told_at", "count", "levels", "step")

    def __init__(self, step: float, count: int, levels: Iterable[str] = ()) -> None:
        self.step = step
        self.count = count
        self.levels: Set[str] = frozenset(levels)
        self._rings: dict[str, array[float]] = {}
        # For how many seconds of each step counts are known.
        self._covered = self._zeros()
        self._last: int | None = None  # index of the newest step
        self._told_at = 0.0  # end of the last count
        self._holds = True  # whether a level lasts until it is told again

    @property
    def size(self) -> int:
        """How many bytes the values take."""
        return _BYTES * self.count * (1 + len(self._rings))

    @property
    def names(self) -> Set[str]:
        """The names of which there are values."""
        return self._rings.keys()

    def add(
        self,
        now: float,
        counted: Mapping[str, float],
        measured: Mapping[str, float],
        since: float | None = None,
    ) -> None:
        """Add counts from ``since`` until ``now`` (s), spread evenly over the steps between, or all
        at ``now`` if None; and the levels at ``now``."""
        place = self._turn_to(now)
        if counted:
            begun = now if since is None else min(since, now)
            parts = list(self._parts(begun, now))
            for name, count in counted.items():
                if count:
                    ring = self._ring(name)
                    for number, part in parts:
                        ring[number % self.count] += count * part
            untold = max(begun, self._told_at)
            if untold < now:
                for number, part in self._parts(untold, now):
                    self._covered[number % self.count] += part * (now - untold)
                self._told_at = now
        for name, level in measured.items():
            self._ring(name)[place] = level

    def points(self, names: Sequence[str], now: float) -> list[Point]:
        """The steps up to ``now`` (s), oldest first: levels, and counts per second."""
        enough = min(_LEAST, self.step / 2)
        covered = self._window(self._covered, now, 0.0)
        columns: list[list[float | None]] = []
        for name in names:
            values = self._values(name, now)
            if name in self.levels:
                columns.append([None if isnan(value) else value for value in values])
            else:
                columns.append(
                    [
                        value / known if known >= enough else None
                        for value, known in zip(values, covered, strict=True)
                    ]
                )
        rows = zip(*columns, strict=True)
        return [Point(start, row) for start, row in zip(self.starts(now), rows, strict=True)]

    def starts(self, now: float) -> list[float]:
        """When the steps up to ``now`` (s) began, oldest first."""
        return [number * self.step for number in self._numbers(now)]

    def counts(self, names: Sequence[str], now: float) -> list[tuple[float, ...]]:
        """The counts in each step up to ``now`` (s), oldest first."""
        columns = [self._values(name, now) for name in names]
        return list(zip(*columns, strict=True))

    def begun(self, now: float) -> float | None:
        """The start (s) of the first step up to ``now`` (s) of which anything is known."""
        told = [
            self._window(self._covered, now, 0.0),
            *(
                [0.0 if isnan(value) else 1.0 for value in self._values(name, now)]
                for name in self.levels
            ),
        ]
        rows = zip(self.starts(now), zip(*told, strict=True), strict=True)
        return next((start for start, row in rows if any(row)), None)

    def pack(self) -> tuple[dict[str, Any], list[bytes]]:
        """What ``unpack`` needs: words for JSON, and the values."""
        head = {
            "step": self.step,
            "count": self.count,
            "last": self._last,
            "told_at": self._told_at,
            "names": list(self._rings),
        }
        return head, [ring.tobytes() for ring in (self._covered, *self._rings.values())]

    @classmethod
    def unpack(
        cls, head: Mapping[str, Any], values: Sequence[bytes], levels: Iterable[str]
    ) -> Self:
        """A series that was packed. Raises ValueError: it cannot have been."""
        last, names = head["last"], head["names"]
        found = cls(float(head["step"]), int(head["count"]), levels)
        if not (found.step > 0 and found.count > 0 and (last is None or isinstance(last, int))):
            raise ValueError("steps of no length")
        found._last, found._told_at = last, float(head["told_at"])
        found._holds = False  # what was between is unknown
        for name, data in zip((None, *names), values, strict=True):
            ring = array(_FORM)
            ring.frombytes(data)
            if len(ring) != found.count:
                raise ValueError("values are missing")
            if name is None:
                found._covered = ring
            else:
                found._rings[str(name)] = ring
        return found

    def _numbers(self, now: float) -> range:
        newest = int(now // self.step)
        return range(newest - self.count + 1, newest + 1)

    def _values(self, name: str, now: float) -> list[float]:
        return self._window(self._rings.get(name), now, nan if name in self.levels else 0.0)

    def _window(self, ring: "array[float] | None", now: float, empty: float) -> list[float]:
        """The values of the steps up to ``now`` (s), ``empty`` for those that are not there."""
        last = self._last
        if ring is None or last is None:
            return [empty] * self.count
        kept = range(last - self.count + 1, last + 1)
        return [
            ring[number % self.count] if number in kept else empty for number in self._numbers(now)
        ]

    def _zeros(self) -> "array[float]":
        return array(_FORM, bytes(_BYTES * self.count))

    def _ring(self, name: str) -> "array[float]":
        ring = self._rings.get(name)
        if ring is None:
            ring = array(_FORM, [nan]) * self.count if name in self.levels else self._zeros()
            self._rings[name] = ring
        return ring

    def _parts(self, since: float, now: float) -> Iterator[tuple[int, float]]:
        """The steps between two moments that are kept, and the fraction of the time in each."""
        last = int(now // self.step)
        if since >= now:
            yield last, 1.0
            return
        first = max(int(since // self.step), last - self.count + 1)
        edges = [number * self.step for number in range(first + 1, last + 1)]
        begun = max(since, first * self.step)
        for number, (left, right) in enumerate(pairwise((begun, *edges, now)), first):
            yield number, (right - left) / (now - since)

    def _turn_to(self, now: float) -> int:
        """Make the step of ``now`` the newest one; returns its place."""
        number = int(now // self.step)
        last = self._last
        if last is not None and number < last:
            self._go_back(number, now)
        elif last is not None and number > last:
            holds = self._holds and (number - last - 1) * self.step <= HELD
            passed = range(max(last, number - self.count) + 1, number + 1)
            for name, ring in self._rings.items():
                level = name in self.levels
                between = ring[last % self.count] if level and holds else nan if level else 0.0
                for one in passed:
                    ring[one % self.count] = between
                if level:
                    ring[number % self.count] = nan
            for one in passed:
                self._covered[one % self.count] = 0.0
            self._holds = True
        self._last = number
        return number % self.count

    def _go_back(self, number: int, now: float) -> None:
        """Handle a clock that went back: the time from ``now`` on comes again."""
        assert self._last is not None
        for passed in range(max(number, self._last - self.count + 1), self._last + 1):
            for name, ring in self._rings.items():
                ring[passed % self.count] = nan if name in self.levels else 0.0
            self._covered[passed % self.count] = 0.0
        self._told_at = min(self._told_at, now)
