"""When a schedule ticks: five fields as in cron, names such as ``@daily``, or ``@every 10s``.

cronsim reads the five fields, in the same way as Debian's cron. It is imported when first needed,
since most nodes have no schedules.
"""

import zoneinfo
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from disque_trio.node.core.shared.versions import SharedError
from disque_trio.notation.periods import read_units

MAX_SPEC: Final = 256  # bytes
MAX_ZONE: Final = 64  # bytes
MAX_PERIOD: Final = 366 * 86_400  # s
_CACHED: Final = 256  # times: a schedule that was just set is looked at a moment later
_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Times:
    """The ticks of one schedule, in ms since the epoch.

    Args:
        spec: five fields, a name, or ``@every`` and a period (``90s``, ``1h30m``). Its ticks are
            whole multiples of the period since the epoch, so they are the same on all nodes.
        zone: name of the fields' time zone in the tz database; empty: UTC.

    Raises:
        SharedError: one of the two is invalid; or cronsim, or the zone, is not installed.
    """

    def __init__(self, spec: bytes, zone: bytes) -> None:
        text = " ".join(spec.decode("ascii", "replace").split())
        if len(spec) > MAX_SPEC or not text:
            raise SharedError(f"the times must have 1 to {MAX_SPEC} bytes")
        self._period = 0
        self._fields = ""
        self._zone = _zone(zone)
        self._sim: Any = None
        self._asked = -1  # in the last call of ``next`` that had to compute something
        self._found = 0
        if text.lower().startswith("@every "):
            self._period = _period(text[7:]) * 1000
            return
        fields = _NAMED.get(text.lower(), text)
        if fields.count(" ") != 4:
            raise SharedError(
                "the times must be five fields (minute, hour, day, month, weekday), "
                f"{', '.join(_NAMED)}, or @every and a period such as 90s or 1h30m"
            )
        try:
            cronsim: Any = import_module("cronsim")
        except ImportError:
            raise SharedError(
                "the five fields need cronsim, which is not installed: "
                "pip install cronsim tzdata (the extra cron); @every needs nothing"
            ) from None
        self._fields = fields
        self._sim = cronsim.CronSim
        try:
            self._sim(fields, datetime.fromtimestamp(0, self._zone))
        except cronsim.CronSimError as problem:
            raise SharedError(f"the times {fields!r}: {problem}") from problem

    def next(self, after: int) -> int:
        """The first tick after ``after``; 0: there is none in the next 50 years."""
        if self._period:
            return (after // self._period + 1) * self._period
        if after != self._asked:
            self._asked, self._found = after, self._compute(after)
        return self._found

    def _compute(self, after: int) -> int:
        """The same for the five fields."""
        try:
            start = datetime.fromtimestamp(after // 1000, self._zone)
            # In the hour that comes twice, cronsim may start in the first one.
            for tick in self._sim(self._fields, start):
                time = int(tick.timestamp()) * 1000
                if time > after:
                    return time
        except (OverflowError, ValueError, OSError):
            pass  # beyond the last possible date
        return 0

    def last(self, after: int, until: int) -> int:
        """The last tick after ``after`` and not after ``until``; 0: there is none."""
        found = 0
        time = self.next(after)
        high = until
        while 0 < time <= high:
            found = time
            middle = (time + high) // 2
            later = self.next(middle)
            if 0 < later <= high:
                found = later
            else:
                high = middle
            time = self.next(found)
        return found


@lru_cache(_CACHED)
def times_of(spec: bytes, zone: bytes) -> Times:
    """The times of a schedule, which schedules may share; the arguments and errors of ``Times``."""
    return Times(spec, zone)


def _zone(name: bytes) -> tzinfo:
    """The time zone ``name``. Raises ``SharedError``."""
    if name in (b"", b"UTC"):
        return UTC  # cronsim is faster with this one
    text = name.decode("ascii", "replace")
    if len(name) <= MAX_ZONE:
        try:
            return zoneinfo.ZoneInfo(text)
        except (KeyError, ValueError, OSError):
            pass
    raise SharedError(
        f"there is no time zone {text[:MAX_ZONE]!r}: it must be one such as Europe/Berlin "
        "(Debian has them in the package tzdata)"
    )


def _period(text: str) -> int:
    """The seconds in a period. Raises ``SharedError``."""
    seconds = read_units(text) or 0
    if not 0 < seconds <= MAX_PERIOD:
        raise SharedError(
            "@every must be followed by a period from 1s to 366d, such as 90s, 15m, 1h30m or 2d"
        )
    return seconds
