"""Which queues somebody looks at just now, and when the nodes have told of them."""

from collections.abc import Sequence
from typing import Final

import trio

FOR: Final = 15.0  # s: a page that is open asks again within this
MOST: Final = 500


class Looks:
    """Queues that are looked at. Moments are in seconds."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._new = trio.Event()
        self._told = trio.Event()

    def at(self, names: Sequence[str], now: float) -> bool:
        """Somebody looks at these. Returns whether nobody did before."""
        new = [name for name in names if self._until.get(name, 0.0) <= now]
        for name in names:
            self._until.pop(name, None)  # the newest last
            self._until[name] = now + FOR
        for name in list(self._until)[: max(0, len(self._until) - MOST)]:
            del self._until[name]
        if new:
            self.again()
        return bool(new)

    def names(self, now: float) -> list[str]:
        """All that are looked at."""
        for name in [name for name, until in self._until.items() if until <= now]:
            del self._until[name]
        return list(self._until)

    def again(self) -> None:
        """Something was done: ask once more."""
        self._new.set()
        self._new = trio.Event()

    async def wait(self) -> None:
        """Until there is a new one, or something was done."""
        await self._new.wait()

    def told(self) -> None:
        """A node has told of all of them."""
        self._told.set()
        self._told = trio.Event()

    async def wait_told(self, seconds: float) -> None:
        """Until a node has told, or so long."""
        with trio.move_on_after(seconds):
            await self._told.wait()
