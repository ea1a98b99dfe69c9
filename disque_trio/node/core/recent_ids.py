"""Remembers a bounded number of job ids, the latest ones."""


class RecentIds:
    """The ids that were added last: no fewer than ``count`` of them, and no more than twice as
    many.

    Args:
        count: how many ids are remembered in any case.

    Attributes:
        latest, older: the ids.
    """

    def __init__(self, count: int) -> None:
        # To take the oldest one out of a dict is to look for it behind all that were there before.
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
