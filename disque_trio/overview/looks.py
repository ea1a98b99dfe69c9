"""What somebody is looking at now, and when nodes have reported it."""

from collections.abc import Callable, Sequence, Set
from typing import Final

import trio

FOR: Final = 15.0  # s; an open page asks again within this time
MOST: Final = 500


class Look:
    """Whether somebody is looking at something. Times are in seconds."""

    def __init__(self) -> None:
        self._until = 0.0
        self._new = trio.Event()

    def at(self, now: float) -> None:
        """Note that somebody is."""
        new = not self.lasts(now)
        self._until = now + FOR
        if new:
            self._new.set()
            self._new = trio.Event()

    def lasts(self, now: float) -> bool:
        """Whether somebody still is."""
        return _lasts(self._until, now)

    async def wait(self, clock: Callable[[], float]) -> None:
        """Wait until somebody is."""
        while not self.lasts(clock()):
            await self._new.wait()


class Looks:
    """What somebody is looking at. Times are in seconds.

    Attributes:
        counts: the counts of all queues.
        running: the jobs in hand that say how far they are.
        round: increases when nodes have to be asked again, about single queues.
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self.round = 0
        self._new = trio.Event()
        self._reported = trio.Event()
        self._reporters: set[str] = set()  # nodes that have reported in this round
        self.counts = Look()
        self.running = Look()

    def at(self, names: Sequence[str], now: float) -> bool:
        """Note that somebody is looking at these. Returns whether any of them is new."""
        new = [name for name in names if not _lasts(self._until.get(name, 0.0), now)]
        for name in names:
            self._until.pop(name, None)  # the newest last
            self._until[name] = now + FOR
        for name in list(self._until)[: max(0, len(self._until) - MOST)]:
            del self._until[name]
        if new:
            self.again()
        return bool(new)

    def names(self, now: float) -> list[str]:
        """All queues that somebody is looking at."""
        for name in [name for name, until in self._until.items() if not _lasts(until, now)]:
            del self._until[name]
        return list(self._until)

    def again(self) -> None:
        """Ask again, because of a new queue or an action."""
        self.round += 1
        self._reporters.clear()
        self._new.set()
        self._new = trio.Event()

    async def wait(self, round: int) -> None:
        """Wait for a later round than ``round``."""
        while self.round == round:
            await self._new.wait()

    def reported(self, node: str, round: int) -> None:
        """Note that a node has reported what somebody is looking at, asked in ``round``."""
        if round == self.round:
            self._reporters.add(node)
        self._reported.set()
        self._reported = trio.Event()

    async def wait_reported(self, seconds: float, nodes: Set[str] = frozenset()) -> None:
        """Wait until ``nodes`` have reported in this round, or for ``seconds``. Without nodes,
        wait until one has."""
        with trio.move_on_after(seconds):
            await self._reported.wait()
            while not nodes <= self._reporters:
                await self._reported.wait()


def _lasts(until: float, now: float) -> bool:
    """Whether somebody is still looking. If ``until`` is too far off, the clock has gone back."""
    return now < until <= now + FOR
