"""Remembers what was logged about other nodes, so that nobody can fill the log."""


class Told:
    """What was logged in this period.

    Args:
        most: texts in a period.
        period: ms.
    """

    def __init__(self, most: int, period: int) -> None:
        self._most = most
        self._period = period
        self._since = 0
        self._told: set[tuple[str, str]] = set()

    def renew(self, now: int) -> None:
        """Begin another period if this one is over at ``now`` (ms)."""
        if not 0 <= now - self._since < self._period:
            self._told.clear()
            self._since = now

    def is_new(self, text: str, address: str) -> bool:
        """Whether to log ``text`` about ``address``: it was not in this period, and there is room
        for it."""
        if (text, address) in self._told or self.full:
            return False
        self._told.add((text, address))
        return True

    @property
    def full(self) -> bool:
        """Whether nothing else will be logged in this period."""
        return len(self._told) >= self._most
