"""Types of arguments of ``disque-pipeline``, as ``argparse`` expects them: functions of the text.

They raise ``argparse.ArgumentTypeError`` or ``ValueError`` for a text that does not fit.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

_SIZE = re.compile(r"([0-9]+)(?:([KMG])I?)?B?", re.IGNORECASE)
_PERIOD = re.compile(r"([0-9]+)([smhd]?)")
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LONGEST = 36500 * 86400  # s; dates have a limit
_PERIODS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def number(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """The type of a whole number from ``least`` to ``most``."""

    def parse(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            limit = f"from {least} to {most}" if value > most else f"of at least {least}"
            raise argparse.ArgumentTypeError(f"{text}: expected a number {limit}")
        return value

    parse.__name__ = "number"  # argparse uses it in errors
    return parse


def rate(text: str) -> float:
    """A finite number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return value


def address(text: str) -> tuple[str, int]:
    """The host and port of ``HOST:PORT`` or ``PORT``."""
    from disque_spark.client import split_address  # imports hiredis, which is slow

    host, port = split_address(text if ":" in text else f":{text}")
    return host or "127.0.0.1", port


def given(text: str) -> str:
    """A path that is not empty: an unset shell variable would otherwise mean this directory."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got an empty string")
    return text


def path(text: str) -> Path | str:
    """A ``Path``; a URI stays a string."""
    text = given(text)
    return text if "://" in text or text.startswith("file:") else Path(text)


def size(text: str) -> int:
    """Bytes: a number with K, M or G (KB and KiB are the same), or without."""
    found = _SIZE.fullmatch(text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text}: expected bytes, such as 64MB")
    return int(found[1]) * _SIZES[(found[2] or "").upper()]


def period(text: str) -> int:
    """Seconds: a number with s, m, h or d, or without."""
    found = _PERIOD.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text}: expected a time, such as 90s, 30m, 1h, 7d")
    seconds = int(found[1]) * _PERIODS[found[2]]
    if seconds > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text}: expected at most 36500d")
    return seconds
