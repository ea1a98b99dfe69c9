"""Numbers of bytes as the configuration and rules of users write them: ``1gb``, ``100k``."""

import re
from typing import Final

_UNITS: Final = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1024,
    "m": 1000**2,
    "mb": 1024**2,
    "g": 1000**3,
    "gb": 1024**3,
}
_SIZE: Final = re.compile(r"(0|[1-9][0-9]{0,18})([a-z]{0,2})")


def read_size(text: str) -> int | None:
    """The number of bytes that ``text`` stands for: digits, and maybe a unit; None: it is none."""
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
