"""Decides which queues of a node to poll next, without overloading the node."""

from collections.abc import Iterable, Set
from typing import Final

HOT: Final = 2.0  # s between two polls of an active queue
COLD: Final = 30.0  # maximum s between two polls of an idle queue
RESTING: Final = 200  # polls of idle queues per second, unless COLD demands more
HOT_FOR: Final = 30.0  # s for which a queue counts as active after a change
PER_SECOND: Final = 2_000  # polls


class PollScheduler:
    """The queues of one node, and when each is due. Times are in seconds.

    Args:
        hot: s between two polls of an active queue.
    """

    def __init__(self, hot: float = HOT) -> None:
        self._hot = hot
        self._due: dict[str, float] = {}
        self._hot_until: dict[str, float] = {}
        self._credit = float(PER_SECOND)
        self._moment: float | None = None

    def __len__(self) -> int:
        return len(self._due)

    @property
    def complete(self) -> bool:
        """Whether all queues have been polled."""
        return all(self._due.values())

    def known(self, names: Set[str]) -> list[str]:
        """Take all queues that the node has now. Returns those that are gone."""
        gone = [name for name in self._due if name not in names]
        for name in gone:
            self.forget(name)
        for name in names:
            self._due.setdefault(name, 0.0)
        return gone

    def forget(self, name: str) -> None:
        """Remove a queue."""
        self._due.pop(name, None)
        self._hot_until.pop(name, None)

    def answered(self, name: str, changed: bool, now: float) -> None:
        """Note a reply about a queue. ``changed``: whether anything has changed."""
        if name not in self._due:
            return
        if changed:
            self._hot_until[name] = now + HOT_FOR
        rest = min(COLD, max(self._hot, len(self._due) / RESTING))
        self._due[name] = now + (self._hot if self._hot_until.get(name, 0.0) > now else rest)

    def next(self, now: float, first: Iterable[str] = ()) -> list[str]:
        """The queues to poll now: those due, most overdue first, within the limit on polls since
        the last call. ``first``: queues that somebody is looking at."""
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
