"""Writes numbers, sizes, durations, moments and long names for people: alike on every screen.

INFO writes its sizes as Redis does, and the configuration as its files do (sizes.py).
"""

from datetime import UTC, datetime

NONE = "\N{EN DASH}"


def count(value: float | None) -> str:
    """A whole number, with commas."""
    return NONE if value is None else f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """A number of things: 1 job, 2,000 jobs."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def jobs(number: int) -> str:
    """A number of jobs."""
    return counted(number, "job")


def short(value: float | None) -> str:
    """A short form of a number: 0.25, 999, 12.3k, 4.5M."""
    if value is None:
        return NONE
    if abs(value) < 9_999.5:
        return f"{value:.2g}" if abs(value) < 10 and value % 1 else f"{value:,.0f}"
    for unit in "kM":
        value /= 1000
        if abs(value) < 999.5:
            return _decimal(value) + unit
    return _decimal(value / 1000) + "G"


def rate(value: float | None) -> str:
    """A rate per second: one decimal below ten, two below one."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    if value < 0.01:
        return "<0.01"
    if value < 0.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 9.95 else short(value)


def percent(part: float, whole: float) -> str:
    """A part of a whole: 0 %, <1 %, 37 %, >99 %."""
    if not whole:
        return NONE
    share = 100 * part / whole
    if 0 < share < 1:
        return "<1 %"
    return ">99 %" if 99 < share < 100 else f"{share:.0f} %"


def duration(seconds: float | None) -> str:
    """A duration: 30 µs, 250 ms, 1.5 s, 77 s, 4 min 5 s, 20 min, 3 h 20 min, 5 d 2 h."""
    if seconds is None:
        return NONE
    if seconds <= 0:
        return "0 s"
    if seconds < 0.000_999_5:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.999_5:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 600:
        return _parts(whole, (60, "min"), (1, "s"))
    if whole < 7_200:
        return f"{whole // 60} min"
    if whole < 172_800:
        return _parts(whole, (3_600, "h"), (60, "min"))
    return _parts(whole, (86_400, "d"), (3_600, "h"))


def _parts(seconds: int, large: tuple[int, str], small: tuple[int, str]) -> str:
    """A duration in two units; in one if the rest is less than the other one."""
    whole, rest = divmod(seconds, large[0])
    rest //= small[0]
    return f"{whole} {large[1]}" + (f" {rest} {small[1]}" if rest else "")


def size(value: float | None) -> str:
    """Bytes: 512 B, 1.5 KiB, 64 KiB, 3 GiB."""
    if value is None:
        return NONE
    if abs(value) < 1024:
        return f"{value:.0f} B"
    for unit in ("KiB", "MiB"):
        value /= 1024
        if abs(value) < 1023.95:
            return f"{_decimal(value)} {unit}"
    return f"{_decimal(value / 1024)} GiB"


def _decimal(value: float) -> str:
    """With one decimal, unless it is 0 or there are three digits before it."""
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.1f}".removesuffix(".0")


def moment(seconds: float | None, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time (s since the epoch), in UTC. One that no calendar has, as from a node whose clock is
    far off, is its number."""
    if seconds is None:
        return NONE
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s"


def shortened(name: str, most: int) -> str:
    """A name, cut to at most ``most`` characters."""
    return name if len(name) <= most else name[: most - 1] + "…"
