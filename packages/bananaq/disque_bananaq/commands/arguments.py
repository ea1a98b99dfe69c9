"""Parses arguments that several commands take: times and event ids."""

from typing import Final

from disque_bananaq.core.requests import MAX_TIME, Time, from_now, is_event_id
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX

DEFAULT_HOLD: Final = from_now(30_000_000)

MAX_NAMES: Final = 1_000  # queues to wait for, or groups to tell about, in one command

_NUMBER: Final = b"0123456789+-.eE"
_USUAL: Final = 9  # digits of a number of seconds that need no rounding


def check_number(queues: list[bytes]) -> None:
    """Raise ``CommandError`` if a client cannot wait for so many ``queues``."""
    if len(queues) > MAX_NAMES:
        raise CommandError(f"ERR a client may wait for events of at most {MAX_NAMES} queues")


def parse_time(text: bytes) -> Time:
    """Parse a time: seconds with fractions from now, or, after an @, since the epoch.

    May be negative. Times beyond what can be stored are cut to the limit.
    """
    if len(text) <= _USUAL and text.isdigit():
        return int(text) * 1_000_000, False
    absolute = text.startswith(b"@")
    digits = text[1:] if absolute else text
    if not digits or digits.strip(_NUMBER) or len(digits) > 64:
        raise CommandError("ERR value is not a valid float")
    try:
        seconds = float(digits)
    except ValueError:
        raise CommandError("ERR value is not a valid float") from None
    limit = MAX_TIME / 1e6
    return round(min(max(seconds, -limit), limit) * 1e6), absolute


def parse_hold(text: bytes) -> Time:
    """Parse until when a consumer has an event: seconds from delivery, or since the epoch."""
    us, absolute = parse_time(text)
    if us < 0:
        raise CommandError("ERR the time to acknowledge is negative")
    # A deadline at the epoch has passed, like one a microsecond later.
    return (max(us, 1), True) if absolute else (us, False)


def parse_wait(text: bytes) -> int:
    """Parse how long to wait, in seconds with fractions. Returns ms; 0: do not wait."""
    us, absolute = parse_time(text)
    if absolute:
        raise CommandError(SYNTAX)
    if us < 0:
        raise CommandError("ERR timeout is negative")
    return (us + 999) // 1000


def check_id(id: bytes) -> bytes:
    """Check and return an event's id, as QGET returned it."""
    if not is_event_id(id):
        raise CommandError("ERR invalid ID string")
    return id
