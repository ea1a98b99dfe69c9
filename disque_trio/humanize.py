"""Formats numbers for display."""

from datetime import UTC, datetime

NONE = "\N{EN DASH}"


def count(value: float | None) -> str:
    """A whole number, with commas."""
    return NONE if value is None else f"{value:,.0f}"


def jobs(number: int) -> str:
    """A number of jobs: 1 job, 2,000 jobs."""
    return "1 job" if number == 1 else f"{number:,} jobs"


def short(value: float | None) -> str:
    """A short form of a number: 999, 12.3k, 4.5M."""
    if value is None:
        return NONE
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            divided = value / {"G": 1e9, "M": 1e6, "k": 1e3}[unit]
            return f"{divided:.1f}{unit}" if divided < 100 else f"{divided:.0f}{unit}"
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    """A rate per second: one decimal below ten, two below one."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    if value < 0.01:
        return "<0.01"
    if value < 1:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 10 else short(value)


def seconds(value: float | None) -> str:
    """A duration: 0.3 s, 12 s, 4 min, 3 h 20 min, 5 d 2 h."""
    if value is None:
        return NONE
    if value < 1:
        return "0 s" if value <= 0 else f"{value:.1f} s"
    whole = int(value)
    if whole < 120:
        return f"{whole} s"
    if whole < 7_200:
        return f"{whole // 60} min"
    if whole < 172_800:
        hours, rest = divmod(whole, 3_600)
        return f"{hours} h {rest // 60} min" if rest >= 60 else f"{hours} h"
    days, rest = divmod(whole, 86_400)
    return f"{days} d {rest // 3_600} h" if rest >= 3_600 else f"{days} d"


def size(value: float | None) -> str:
    """Bytes: 512 B, 1.5 KiB, 3.0 GiB."""
    if value is None:
        return NONE
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError(value)


def moment(value: float | None) -> str:
    """A time (s since the epoch), in UTC."""
    if value is None:
        return NONE
    return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
