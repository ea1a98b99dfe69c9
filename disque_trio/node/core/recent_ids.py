"""Remembers a bounded number of job ids, the latest ones."""


class RecentIds:
    """The ids that were added last: no fewer than ``count`` of them, and no more than twice as
    many.

    Args:
        count: how many ids are remembered in any case.
    """

    def __init__(self, count: int) -> None:
        # To take the oldest one out of a dict is to look for it behind all that were there before.
        self._count = count
        self._ids: dict[bytes, None] = {}
        self._older: dict[bytes, None] = {}

    def add(self, id: bytes) -> None:
        """Remember ``id``."""
        if len(self._ids) >= self._count:
            self._older = self._ids
            self._ids = {}
        self._ids[id] = None

    def has(self, id: bytes) -> bool:
        """Whether ``id`` was added, and not too many others since."""
        return id in self._ids or id in self._older
