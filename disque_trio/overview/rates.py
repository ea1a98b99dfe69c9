"""Counters that only grow until their node restarts."""

from collections.abc import Mapping
from typing import Final

LEAST: Final = 0.9
"""Minimum seconds to average a rate over: a burst between two reads is not a rate."""


class Counters:
    """The latest counters of one source, and their rates.

    Attributes:
        moment: when they were read (s); None if never.
        rates: by name, per second; empty until the reads span ``LEAST`` seconds.
    """

    __slots__ = ("_since", "_sums", "_values", "moment", "rates")

    def __init__(self) -> None:
        self.moment: float | None = None
        self.rates: dict[str, float] = {}
        self._values: dict[str, int] = {}
        self._since = 0.0  # start of the current interval
        self._sums: dict[str, int] = {}  # growth since then

    def read(self, values: Mapping[str, int], now: float) -> dict[str, int]:
        """Take values read at ``now``.

        Returns:
            How much each one has grown. A counter that decreased was restarted, so its value is the
            growth. The first values yield nothing, and neither do the first ones after the clock
            went back.
        """
        grown: dict[str, int] = {}
        if self.moment is None or now < self.moment:
            # The clock has gone back: the interval is unknown, so count nothing.
            self._since, self._sums = now, {}
        elif now > self.moment:
            for name, value in values.items():
                before = self._values.get(name, 0)
                grown[name] = value - before if value >= before else value
                self._sums[name] = self._sums.get(name, 0) + grown[name]
            if (passed := now - self._since) >= LEAST:
                self.rates = {name: count / passed for name, count in self._sums.items()}
                self._since, self._sums = now, {}
        self.moment = now
        self._values = dict(values)
        return grown

    def forget(self) -> None:
        """Forget the rates of an unreachable source; what it counts meanwhile is left out."""
        self.moment = None
        self.rates = {}
