"""Whose fault a pause of the node was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tools.bench.latency.histogram import Histogram

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Pause:
    """An answer that took long; all times in s.

    ``cpu``: that the node's process used meanwhile. ``waited``: the node's main thread, or the one
    that asked, could run, but others had the CPU. ``stalled``: nobody of this machine had the CPU.
    """

    length: float
    cpu: float
    waited: float
    stalled: float

    @property
    def foreign(self) -> float:
        """The part that the node can do nothing about."""
        return min(self.length, self.waited + self.stalled)

    @property
    def own(self) -> float:
        """The rest: it computed, or waited for a disk or another lock."""
        return self.length - self.foreign


@dataclass(frozen=True, slots=True)
class Watched:
    """What PINGs found: ``times`` of all, the longest that was no pause (s), and the ``pauses``."""

    times: Histogram
    short: float
    pauses: Sequence[Pause]

    @property
    def longest_own(self) -> float:
        """The longest pause of the node's own doing, s. Whatever was too short for a pause is
        taken for the node's own."""
        return max(self.short, max((pause.own for pause in self.pauses), default=0.0))

    @property
    def longest(self) -> Pause | None:
        """The longest pause whoever made it; None: there was none."""
        return max(self.pauses, key=lambda pause: pause.length, default=None)


def overlap(span: Span, others: Iterable[Span]) -> float:
    """How long ``span`` and any of ``others``, which do not overlap each other, are both."""
    start, end = span
    return sum(max(0.0, min(end, b) - max(start, a)) for a, b in others)


def judge(found: Iterable[Mapping[str, float]], stalls: Sequence[Span]) -> list[Pause]:
    """The pauses that one watcher saw, by what the other one saw of the machine."""
    pauses = []
    for one in found:
        span = (one["start"], one["end"])
        length = span[1] - span[0]
        stalled = overlap(span, stalls)
        # Where the machine stood still, the kernel may take that for waiting as well.
        waited = min(one["waited"], length - stalled)
        pauses.append(Pause(length, one["cpu"], max(0.0, waited), stalled))
    return pauses
