"""Counters that only grow, as long as the node lives that has them."""

from collections.abc import Mapping


class Counters:
    """The counters of one source as they were last, and how fast they grow.

    Attributes:
        moment: when they were read (s); None: never.
        rates: by name, per second; empty until they were read twice.
    """

    __slots__ = ("_values", "moment", "rates")

    def __init__(self) -> None:
        self.moment: float | None = None
        self.rates: dict[str, float] = {}
        self._values: dict[str, int] = {}

    def read(self, values: Mapping[str, int], now: float) -> dict[str, int]:
        """Take new values, read at ``now``.

        Returns:
            By how much each has grown. One that went back was begun anew: what it shows has been
            added since. The first values ever say nothing.
        """
        grown: dict[str, int] = {}
        if self.moment is not None and now > self.moment:
            passed = now - self.moment
            for name, value in values.items():
                before = self._values.get(name, 0)
                grown[name] = value - before if value >= before else value
            self.rates = {name: count / passed for name, count in grown.items()}
        self.moment = now
        self._values = dict(values)
        return grown

    def forget(self) -> None:
        """The source is away: its rates are not known, what happens meanwhile is not counted."""
        self.moment = None
        self.rates = {}
