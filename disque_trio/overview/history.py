"""What happened in the last hour, in 8 and in 24 hours, each with points of its own."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from disque_trio.log_times import quantile
from disque_trio.overview.series import Series


class Range(NamedTuple):
    """A time that charts show. name: in addresses. title: for people. seconds: its length. step: s
    between two points. mark: s between two marks of the axis."""

    name: str
    title: str
    seconds: float
    step: float
    mark: float


RANGES: Final = (
    Range("1h", "hour", 3_600.0, 10.0, 600.0),
    Range("8h", "8 hours", 28_800.0, 60.0, 3_600.0),
    Range("24h", "24 hours", 86_400.0, 180.0, 10_800.0),
)
LEVELS: Final = frozenset({"length", "jobs"})
TIMES: Final = ("wait", "processing")
"""The two times of a job. Their counts by length, as ``log_times`` has them, are named ``wait:0``,
``wait:1`` and so on."""


def of_length(times: str, counts: Sequence[int]) -> dict[str, int]:
    """The counts of one of ``TIMES`` by length, by name."""
    return {f"{times}:{place}": count for place, count in enumerate(counts) if count}


class History:
    """Of the cluster or of a queue.

    Attributes:
        ranges: by name.
        changed: when something last happened, or somebody looked (s).
    """

    __slots__ = ("_levels", "changed", "ranges")

    def __init__(self) -> None:
        self.ranges = {
            each.name: Series(each.step, round(each.seconds / each.step), LEVELS) for each in RANGES
        }
        self.changed = 0.0
        self._levels: dict[str, float] = {}

    @property
    def size(self) -> int:
        """How many bytes the values take."""
        return sum(series.size for series in self.ranges.values())

    def add(
        self,
        now: float,
        counted: Mapping[str, float],
        measured: Mapping[str, float],
        since: float | None = None,
    ) -> None:
        """See ``Series.add``."""
        for series in self.ranges.values():
            series.add(now, counted, measured, since)
        if any(counted.values()) or any(
            self._levels.get(name) != level for name, level in measured.items()
        ):
            self.changed = now
            self._levels.update(measured)

    def empty(self, now: float) -> bool:
        """Whether nothing is known of the longest range up to ``now`` (s)."""
        return self.ranges[RANGES[-1].name].begun(now) is None

    def pack(self) -> tuple[dict[str, Any], list[bytes]]:
        """What ``unpack`` needs: words for JSON, and the values."""
        heads, values = [], []
        for series in self.ranges.values():
            head, data = series.pack()
            heads.append(head)
            values += data
        return {"changed": self.changed, "ranges": heads}, values

    @classmethod
    def unpack(cls, head: Mapping[str, Any], values: Sequence[bytes]) -> Self:
        """A history that was packed. Raises ValueError: it cannot have been, or it has other
        ranges."""
        found = cls()
        found.changed = float(head["changed"])
        rest = list(values)
        for (name, known), one in zip(found.ranges.items(), head["ranges"], strict=True):
            mine, rest = rest[: len(one["names"]) + 1], rest[len(one["names"]) + 1 :]
            series = Series.unpack(one, mine, LEVELS)
            if (series.step, series.count) != (known.step, known.count):
                raise ValueError("its points are of other lengths")
            found.ranges[name] = series
        return found


SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
"""The quantiles that are told of times, and the share of jobs that took no longer."""


def quantiles(counts: Sequence[float]) -> dict[str, float | None]:
    """The quantiles of counts by length, in s; None: there are none."""
    found = {name: quantile(counts, share) for name, share in SHARES.items()}
    return {name: None if ms is None else ms / 1_000 for name, ms in found.items()}


def times_of(series: Series, times: str, now: float) -> list[list[float]]:
    """The counts by length of one of ``TIMES`` in each step up to ``now`` (s); empty lists if there
    are none at all."""
    start = f"{times}:"
    places = [int(name.removeprefix(start)) for name in series.names if name.startswith(start)]
    names = [f"{start}{place}" for place in range(max(places, default=-1) + 1)]
    return [list(row) for row in series.counts(names, now)] if names else []


def together(steps: Sequence[Sequence[float]]) -> list[float]:
    """The sums of several steps of ``times_of``."""
    return [sum(column) for column in zip(*steps, strict=True)]
