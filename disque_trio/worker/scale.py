"""How many processes a worker should have, between two bounds.

More, when jobs wait for long although all slots are busy, and memory allows; fewer, when fewer
would do for a while. A queue that is paused or at a limit of its own has old jobs, too, but then
slots are free.
"""

import math
from dataclasses import dataclass
from typing import Final

SUSTAINED: Final = 2.0
"""Seconds for which jobs have to wait, and memory to be short, until the number changes."""

_BUSY: Final = 0.75  # of the slots; between two short tasks some are free for a moment
_ENOUGH: Final = 0.5  # of the slots that would be left


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker's processes do.

    Attributes:
        oldest: how long ago the oldest queued job was added, in seconds; 0: none is queued.
        slots: how many tasks the serving processes can run at once.
        busy: how many tasks they run.
        starting, ending: whether processes are starting, or finishing their last tasks.
        memory: how much memory all processes use, in bytes.
        largest: how much the largest one of them uses.
    """

    oldest: float
    slots: int
    busy: int
    starting: bool
    ending: bool
    memory: int
    largest: int


class Scale:
    """Decides how many processes there should be.

    Args:
        least, most: the bounds.
        concurrency: slots of a process.
        target: how long a job may wait, in seconds.
        idle: for how long one process less has to be enough, in seconds.
        bound: how much memory all processes may use, in bytes.

    Attributes:
        wanted: how many processes there should be.
    """

    def __init__(
        self,
        least: int,
        most: int,
        *,
        concurrency: int,
        target: float,
        idle: float,
        bound: float,
    ) -> None:
        self.wanted = least
        self._least = least
        self._most = most
        self._concurrency = concurrency
        self._target = target
        self._idle = idle
        self._bound = bound
        self._waiting_since = self._large_since = self._idle_since = math.inf

    def decide(self, load: Load, now: float) -> str:
        """Change ``wanted`` if it is time. Call this about once a second.

        Args:
            now: when (s, by any clock).

        Returns:
            Why it has changed; empty: it has not.
        """
        waiting = load.oldest >= self._target and load.busy >= _BUSY * load.slots > 0
        self._waiting_since = _since(self._waiting_since, waiting, now)
        self._large_since = _since(self._large_since, load.memory > self._bound, now)
        left = _ENOUGH * self._concurrency * (self.wanted - 1)
        self._idle_since = _since(self._idle_since, load.busy <= left and not waiting, now)
        if load.starting:
            return ""
        if now - self._large_since >= SUSTAINED and self.wanted > self._least and not load.ending:
            return self._change(self.wanted - 1, "memory")
        if now - self._waiting_since >= SUSTAINED and (room := self._room(load)) > 0:
            return self._change(self.wanted + min(room, max(1, self.wanted // 2)), "queue")
        if now - self._idle_since >= self._idle and self.wanted > self._least:
            return self._change(self.wanted - 1, "idle")
        return ""

    def _room(self, load: Load) -> int:
        """Return how many more processes there may be."""
        more = self._most - self.wanted
        if math.isinf(self._bound):
            return more
        return int(min(more, (self._bound - load.memory) // max(load.largest, 1)))

    def _change(self, wanted: int, why: str) -> str:
        self.wanted = wanted
        self._waiting_since = self._large_since = self._idle_since = math.inf
        return why


def _since(since: float, holds: bool, now: float) -> float:
    """Return since when something holds; infinite if it does not."""
    return min(since, now) if holds else math.inf
