"""Which queues of a node are asked about next, so that no node is asked too much."""

from collections.abc import Iterable, Set
from typing import Final

HOT: Final = 2.0  # s between two questions about a queue with which something happens
COLD: Final = 30.0  # s between those about a queue that rests
HOT_FOR: Final = 30.0  # s that a queue stays hot after something happened
PER_SECOND: Final = 2_000  # questions


class Rota:
    """The queues of one node, and when each is due. Moments are in seconds."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._hot_until: dict[str, float] = {}
        self._credit = float(PER_SECOND)
        self._moment: float | None = None

    def __len__(self) -> int:
        return len(self._due)

    def known(self, names: Set[str]) -> list[str]:
        """All queues that the node has now. Returns those that are gone."""
        gone = [name for name in self._due if name not in names]
        for name in gone:
            self.forget(name)
        for name in names:
            self._due.setdefault(name, 0.0)
        return gone

    def forget(self, name: str) -> None:
        """It is gone."""
        self._due.pop(name, None)
        self._hot_until.pop(name, None)

    def answered(self, name: str, changed: bool, now: float) -> None:
        """The node has told of it. ``changed``: something has happened to it."""
        if name not in self._due:
            return
        if changed:
            self._hot_until[name] = now + HOT_FOR
        self._due[name] = now + (HOT if self._hot_until.get(name, 0.0) > now else COLD)

    def next(self, now: float, first: Iterable[str] = ()) -> list[str]:
        """What to ask now: those that are due, the most overdue first, as many as the node may be
        asked since the last call. ``first``: somebody looks at these."""
        if self._moment is not None:
            gained = (now - self._moment) * PER_SECOND
            self._credit = min(float(PER_SECOND), self._credit + gained)
        self._moment = now
        wanted = [name for name in first if name in self._due]
        seen = set(wanted)
        due = [
            (moment, name)
            for name, moment in self._due.items()
            if moment <= now and name not in seen
        ]
        due.sort()
        wanted += [name for _, name in due]
        chosen = wanted[: int(self._credit)]
        self._credit -= len(chosen)
        return chosen
