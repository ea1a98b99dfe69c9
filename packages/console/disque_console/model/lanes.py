"""The history of a job as drawn: a lane for each node with the events there, and the periods in
which the job was queued, with a worker, or paused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import log1p
from typing import Final

from disque_console.model.life import LifeEvent


class Kind(Enum):
    """What an event means for the job."""

    COMES = "comes"  # the node has the job
    QUEUED = "queued"
    TAKEN = "taken"  # a worker has it
    KEPT = "kept"  # still in progress, or changed
    BACK = "back"  # returned or paused
    GOOD = "good"  # done
    BAD = "bad"  # ended in any other way


class LaneState(Enum):
    """A state of a job that lasts."""

    QUEUED = "queued"
    HAND = "in hand"
    PAUSE = "paused"


_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("added", "replicated", "copied", "imported"), Kind.COMES),
    "queued": Kind.QUEUED,
    "delivered": Kind.TAKEN,
    **dict.fromkeys(("working", "updated"), Kind.KEPT),
    **dict.fromkeys(("nacked", "paused", "dequeued", "exported"), Kind.BACK),
    "acked": Kind.GOOD,
}
_STATES: Final[Mapping[str, LaneState]] = {
    "queued": LaneState.QUEUED,
    "delivered": LaneState.HAND,
    "paused": LaneState.PAUSE,
}
_STAY: Final = ("added", "replicated", "copied", "working", "updated")
"""Events that do not change the state."""


def kind_of(event: str) -> Kind:
    """What an event means; unknown events are taken as an end."""
    return _KINDS.get(event, Kind.BAD)


@dataclass(frozen=True, slots=True)
class Span:
    """A period, in seconds since the epoch. open: the logs do not show its end."""

    state: LaneState
    start: float
    end: float
    open: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """The events at one moment on one node, in order; the last one decides the kind."""

    time: float
    events: tuple[LifeEvent, ...]

    @property
    def kind(self) -> Kind:
        """What it means."""
        return kind_of(self.events[-1].event)


@dataclass(slots=True)
class Lane:
    """The events on one node (its id)."""

    node: str
    marks: list[Mark] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


def lanes(events: Sequence[LifeEvent], until: float) -> list[Lane]:
    """A lane for each node, in order of appearance.

    Args:
        events: in order of time.
        until: the end of spans that no event ends (s).
    """
    by_node: dict[str, list[LifeEvent]] = {}
    for event in events:
        by_node.setdefault(event.node, []).append(event)
    return [Lane(node, _marks(mine), _spans(mine, until)) for node, mine in by_node.items()]


def _marks(events: Sequence[LifeEvent]) -> list[Mark]:
    found: dict[float, list[LifeEvent]] = {}
    for event in events:
        found.setdefault(event.time, []).append(event)
    return [Mark(time, tuple(mine)) for time, mine in found.items()]


def _spans(events: Sequence[LifeEvent], until: float) -> list[Span]:
    found: list[Span] = []
    state, start = None, 0.0
    for event in events:
        if event.event in _STAY:
            continue
        if state is not None and event.time > start:
            found.append(Span(state, start, event.time))
        state, start = _STATES.get(event.event), event.time
    if state is not None:
        found.append(Span(state, start, max(until, start), open=True))
    return found


class Axis:
    """Positions of moments: in order, at distances that grow with the logarithm of the time between
    them, so that milliseconds remain visible next to pauses of hours.

    Args:
        times: all moments (s), at least one.
    """

    def __init__(self, times: Sequence[float]) -> None:
        self.times = sorted(set(times))
        places = [0.0]
        for earlier, later in zip(self.times, self.times[1:], strict=False):
            places.append(places[-1] + 1.0 + log1p((later - earlier) * 1000) / 2)
        whole = places[-1] or 1.0
        self._places = {time: place / whole for time, place in zip(self.times, places, strict=True)}

    def place(self, time: float) -> float:
        """The position of one of ``times``, from 0 to 1."""
        return self._places[time]
