"""An event log that grows hour by hour."""

from __future__ import annotations

from pathlib import Path

from packages.spark.tests.support.planted_lines import START, Key
from packages.spark.tests.support.planted_log import Log

HOUR = 3_600_000


class Hours:
    """A log that grows hour by hour, with few anomalies, in a directory from which written files
    may be taken: a job of one hour may be done in the next.

    Args:
        events: per hour, approximately.
        hour: ms. every: one in this many jobs is an anomaly.
    """

    def __init__(
        self, directory: Path, events: int, *, hour: int = HOUR, every: int = 2_000
    ) -> None:
        self._log = Log(directory, 1, 0)
        self._jobs = max(events // 9, 1)
        self._hour = hour
        self._every = every
        self._at = START
        self._log.all_say("started", START)

    @property
    def planted(self) -> dict[Key, set[str]]:
        """What an audit must find, once it is old enough."""
        return self._log.planted

    def write(self) -> None:
        """Close the segments of the next hour. Jobs that begin in it may end after it."""
        log = self._log
        odd = [
            *(log.never_delivered, log.retried, log.nacked_once, log.taken_once, log.expired),
            *(log.scheduled, log.missed_while_down, log.doubled),
        ]
        for number in range(self._jobs):
            at = self._at + number * self._hour // self._jobs
            log.healthy(at)
            if number % self._every == self._every - 1:
                odd[number // self._every % len(odd)](at)
        self._at += self._hour
        for node in range(len(log.nodes)):
            log.close(node, before=self._at)

    def end(self) -> None:
        """Close the segments with the remaining events."""
        self._log.all_say("stopped", self._at + self._hour)
        self._log.flush()
