"""Remembers a bounded number of job ids, the most recent ones."""


class RecentIds:
    """The most recently added ids: at least ``count`` of them, at most twice as many.

    Args:
        count: how many ids to remember at least.

    Attributes:
        latest, older: the ids.
    """

    def __init__(self, count: int) -> None:
        # Two dicts, since finding the oldest entry of one means skipping all removed ones.
        self._count = count
        self.latest: dict[bytes, None] = {}
        self.older: dict[bytes, None] = {}

    def add(self, id: bytes) -> None:
        """Remember ``id``."""
        if len(self.latest) >= self._count:
            self.older = self.latest
            self.latest = {}
        self.latest[id] = None

    def has(self, id: bytes) -> bool:
        """Whether ``id`` was added, and not too many others since."""
        return id in self.latest or id in self.older
