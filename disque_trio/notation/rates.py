"""Rates: how often something may happen in a second, a minute or an hour.

=======  =================
written  means
=======  =================
``50``   50 in a second; so ``50/s``
``30/m`` 30 in a minute, one every two seconds
``5/h``  5 in an hour
=======  =================

The case does not matter. There are no fractions: half a job a second is ``30/m``.
"""

import re
from typing import Final

EXPECTED: Final = "a rate such as 50/s, 30/m or 5/h"

PERIODS: Final = {"s": 1, "m": 60, "h": 3_600}  # seconds, by the unit after the slash
_RATE: Final = re.compile(r"(0|[1-9][0-9]{0,18})(?:/([smh]))?")


def read_rate(text: str) -> tuple[int, int] | None:
    """How often, and in how many seconds; None: ``text`` is no rate."""
    found = _RATE.fullmatch(text.lower())
    return None if found is None else (int(found[1]), PERIODS[found[2] or "s"])


def format_rate(count: int, period: int) -> str:
    """Write a rate that ``read_rate`` has read."""
    (unit,) = [unit for unit, seconds in PERIODS.items() if seconds == period]
    return f"{count}/{unit}"
