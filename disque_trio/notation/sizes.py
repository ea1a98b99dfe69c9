"""Sizes, in bytes, as Redis has them: ``k`` is a thousand and ``kb`` is 1024.

============  =================
written       bytes
============  =================
``64``, 64b   64
``1k``        1,000
``1kb``       1,024; so ``1kib``, ``1ki``
``1m``        1,000,000
``1mb``       1,048,576; so ``1mib``, ``1mi``
``1g``        1,000,000,000
``1gb``       1,073,741,824; so ``1gib``, ``1gi``
============  =================

The case does not matter. There are no fractions, no spaces and no leading zeros (YAML reads 010 as
8, and people read 10).
"""

import re
from typing import Final

EXPECTED: Final = "a size such as 100mb or 1gb"

_UNITS: Final = {
    "": 1,
    "b": 1,
    "k": 1000,
    "m": 1000**2,
    "g": 1000**3,
    **dict.fromkeys(("kb", "ki", "kib"), 1024),
    **dict.fromkeys(("mb", "mi", "mib"), 1024**2),
    **dict.fromkeys(("gb", "gi", "gib"), 1024**3),
}
_SIZE: Final = re.compile(r"(0|[1-9][0-9]{0,18})([a-z]{0,3})")


def read_size(text: str) -> int | None:
    """The number of bytes that ``text`` stands for; None: it is no size."""
    found = _SIZE.fullmatch(text.lower())
    if found is None or found[2] not in _UNITS:
        return None
    return int(found[1]) * _UNITS[found[2]]


def format_size(value: int) -> str:
    """Write bytes in the largest of gb, mb and kb that divides them: 1073741824 is "1gb"."""
    for unit in ("gb", "mb", "kb"):
        if value and value % _UNITS[unit] == 0:
            return f"{value // _UNITS[unit]}{unit}"
    return str(value)
