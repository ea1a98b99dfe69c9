"""Which queues somebody is looking at now, and when nodes have reported them."""

from collections.abc import Callable, Sequence
from typing import Final

import trio

FOR: Final = 15.0  # s; an open page asks again within this time
MOST: Final = 500


class Looks:
    """The queues that somebody is looking at. Times are in seconds."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._new = trio.Event()
        self._reported = trio.Event()
        self._all_until = 0.0
        self._all_new = trio.Event()

    def at_all(self, now: float) -> None:
        """Note that somebody is looking at the counts of all queues."""
        new = not self.all_wanted(now)
        self._all_until = now + FOR
        if new:
            self._all_new.set()
            self._all_new = trio.Event()

    def all_wanted(self, now: float) -> bool:
        """Whether somebody is looking at the counts of all queues."""
        return _lasts(self._all_until, now)

    async def wait_all(self, clock: Callable[[], float]) -> None:
        """Wait until somebody looks at the counts of all queues."""
        while not self.all_wanted(clock()):
            await self._all_new.wait()

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
        """Ask again, because of an action."""
        self._new.set()
        self._new = trio.Event()

    async def wait(self) -> None:
        """Wait for a new queue or an action."""
        await self._new.wait()

    def reported(self) -> None:
        """Note that a node has reported what somebody is looking at."""
        self._reported.set()
        self._reported = trio.Event()

    async def wait_reported(self, seconds: float) -> None:
        """Wait until a node has reported, or for ``seconds``."""
        with trio.move_on_after(seconds):
            await self._reported.wait()


def _lasts(until: float, now: float) -> bool:
    """Whether somebody is still looking. If ``until`` is too far off, the clock has gone back."""
    return now < until <= now + FOR
