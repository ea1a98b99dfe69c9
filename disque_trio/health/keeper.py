"""Keeps the list of what is wrong with a server now, and decides what of it to log.

It does no I/O and has no clock: whoever looks at the server passes in what is wrong, and when.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from disque_trio.health.table import CONDITIONS, SEVERITIES, Condition

QUIET: Final = 60_000  # ms between two lines about the beginning of one condition


class Fact(NamedTuple):
    """Something that is wrong now.

    Attributes:
        kind: of the condition, in ``CONDITIONS``.
        cause: what is wrong, as a sentence without its full stop.
        about: which of several things of the kind it is; empty: there is only one.
    """

    kind: str
    cause: str
    about: str = ""


class Alarm(NamedTuple):
    """A condition that holds.

    Attributes:
        kind, cause, about: as in ``Fact``.
        since: when it began, in ms since the epoch.
    """

    kind: str
    cause: str
    about: str
    since: int

    @property
    def condition(self) -> Condition:
        """Its row of the table."""
        return CONDITIONS[self.kind]

    @property
    def severity(self) -> str:
        """CRITICAL or WARNING."""
        return self.condition.severity


class Teller:
    """Interface to the log."""

    def begins(self, alarm: Alarm, times: int) -> None:
        """``alarm`` holds; ``times``: how often it has begun since this was told last."""
        raise NotImplementedError

    def ends(self, alarm: Alarm, now: int) -> None:
        """``alarm``, which was told, holds no more."""
        raise NotImplementedError


class _Kept:
    """What is kept of a condition, also for a while after it has ended.

    Attributes:
        since: when it began; 0: it does not hold.
        listed: it has held for long enough to count.
        told_at: when its beginning was told last; 0: never.
        told: it was told that it holds.
        times: how often it has begun since then.
    """

    __slots__ = ("cause", "listed", "since", "times", "told", "told_at")

    def __init__(self) -> None:
        self.cause = ""
        self.since = 0
        self.listed = False
        self.told_at = 0
        self.told = False
        self.times = 0


class Keeper:
    """The conditions that hold.

    Args:
        teller: told of what begins and ends: each at once, but no condition is told to begin more
            than once a minute, and only what was told to begin is told to end.
    """

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self._kept: dict[tuple[str, str], _Kept] = {}

    def look(self, facts: Iterable[Fact], now: int) -> None:
        """Take all that is wrong at ``now``, in ms since the epoch."""
        found = {(fact.kind, fact.about): fact for fact in facts}
        for key, kept in list(self._kept.items()):
            if key in found:
                continue
            if kept.since:
                self._end(key, kept, now)
            if not 0 <= now - kept.told_at < QUIET:
                del self._kept[key]
        for key, fact in found.items():
            self._hold(key, fact, now)

    def _hold(self, key: tuple[str, str], fact: Fact, now: int) -> None:
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept()
        if not kept.since or kept.since > now:  # the clock was set back
            kept.since = max(now, 1)
        kept.cause = fact.cause
        condition = CONDITIONS[fact.kind]
        if not kept.listed and now - kept.since >= condition.patience:
            kept.listed = True
            kept.times += 1
        if kept.listed and not kept.told and not 0 <= now - kept.told_at < QUIET:
            kept.told = True
            kept.told_at = now
            times, kept.times = kept.times, 0
            if not condition.said:
                self._teller.begins(_alarm(key, kept), times)

    def _end(self, key: tuple[str, str], kept: _Kept, now: int) -> None:
        if kept.told and not CONDITIONS[key[0]].said:
            self._teller.ends(_alarm(key, kept), now)
        kept.since = 0
        kept.listed = kept.told = False

    def alarms(self) -> list[Alarm]:
        """The conditions that hold: the worst first, then the oldest."""
        found = [_alarm(key, kept) for key, kept in self._kept.items() if kept.listed]
        return sorted(found, key=rank)


def rank(alarm: Alarm) -> tuple[int, int, str, str]:
    """The place of ``alarm`` among others: the worst come first, then the oldest."""
    return SEVERITIES.index(alarm.severity), alarm.since, alarm.kind, alarm.about


def _alarm(key: tuple[str, str], kept: _Kept) -> Alarm:
    return Alarm(key[0], kept.cause, key[1], kept.since)


class Recently:
    """Whether a counter has grown within the last ``period`` ms."""

    def __init__(self, period: int) -> None:
        self._period = period
        self._count = 0
        self._until = 0

    def grew(self, count: int, now: int) -> bool:
        """Take the counter at ``now`` (ms); it may have been set to 0 meanwhile."""
        if count > self._count:
            self._until = now + self._period
        self._count = count
        return now < self._until <= now + self._period
