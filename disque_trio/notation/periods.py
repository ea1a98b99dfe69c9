"""Periods of time, in seconds.

===========  ===========================================================
written      seconds
===========  ===========================================================
``30``       30; a bare number is seconds, and may have decimals: ``0.5``
``90s``      90
``15m``      900
``2h``       7,200
``7d``       604,800
``1h30m``    5,400
===========  ===========================================================

Units are written in lower case, since an M could be meant for months, and follow whole numbers.
"""

import re
from typing import Final

EXPECTED: Final = "a period such as 30, 0.5, 90s, 15m, 1h30m or 7d"

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SECONDS: Final = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}")
_PARTS: Final = re.compile(r"(?:[0-9]{1,8}[smhd])+")
_PART: Final = re.compile(r"([0-9]+)([smhd])")


def read_period(text: str) -> float | None:
    """The seconds that ``text`` stands for, a whole number if it is written as one; None: it is no
    period."""
    if _SECONDS.fullmatch(text):
        return float(text) if "." in text else int(text)
    return read_units(text)


def read_units(text: str) -> int | None:
    """The same for what has units, and is no bare number. Schedules in a cluster accept this and
    nothing else, since older nodes have to understand them as well."""
    if not _PARTS.fullmatch(text):
        return None
    return sum([int(count) * _UNITS[unit] for count, unit in _PART.findall(text)])
