"""A log for events that strangers can cause often: writes a few lines per period, and how many were
left out."""

from disque_trio.process.logs import Log


class SparseLog:
    """Writes a few warnings per period.

    Args:
        most: lines in ``seconds``.
    """

    def __init__(self, log: Log, most: int, seconds: int = 1) -> None:
        self._log = log
        self._most = most
        self._seconds = seconds
        self._while = 0  # the period of the last line
        self._lines = 0
        self._not_logged = 0

    def warning(self, now: int, event: str, **fields: object) -> None:
        """Write a line, unless there were enough in the same period as ``now`` (ms)."""
        current = now // 1000 // self._seconds
        if current != self._while:
            self._while = current
            self._lines = 0
        self._lines += 1
        if self._lines > self._most:
            self._not_logged += 1
            return
        self._log.warning(event, **fields, not_logged=self._not_logged)
        self._not_logged = 0
