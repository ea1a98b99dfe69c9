"""Parses arguments that several commands take: times and event ids."""

from typing import Final

from disque_trio.bananaq.core.requests import MAX_TIME, Time, from_now, is_event_id
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX

DEFAULT_HOLD: Final = from_now(30_000_000)

_NUMBER: Final = b"0123456789+-.eE"


def parse_time(text: bytes) -> Time:
    """A time in seconds with fractions, or with an @ before it one since the epoch.

    May be negative; what is beyond what can be kept is cut to that.
    """
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
    """Until when a consumer has an event: from when it gets it, or since the epoch."""
    us, absolute = parse_time(text)
    if us < 0:
        raise CommandError("ERR the time to acknowledge is negative")
    # What was over at the epoch is over now.
    return (max(us, 1), True) if absolute else (us, False)


def parse_wait(text: bytes) -> int:
    """For how long to wait, in seconds with fractions; returns ms, 0: not at all."""
    us, absolute = parse_time(text)
    if absolute:
        raise CommandError(SYNTAX)
    if us < 0:
        raise CommandError("ERR timeout is negative")
    return (us + 999) // 1000


def check_id(id: bytes) -> bytes:
    """An event's id, as QGET gave it."""
    if not is_event_id(id):
        raise CommandError("ERR invalid ID string")
    return id
