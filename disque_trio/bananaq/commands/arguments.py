"""Arguments that several commands share: times, event ids."""

from typing import Final

from disque_trio.bananaq.core.ids import is_event_id
from disque_trio.bananaq.core.ops import MAX_TIME
from disque_trio.commands.parse import SYNTAX
from disque_trio.core.command import CommandError

DEFAULT_HOLD: Final = 30_000_000  # µs

_NUMBER: Final = b"0123456789+-.eE"


def parse_time(text: bytes) -> tuple[int, bool]:
    """A time in seconds with fractions, or with an @ before it one since the epoch.

    Returns it in µs, and whether it is one since the epoch. May be negative; what is beyond what
    can be kept is cut to that.
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


def parse_hold(text: bytes) -> tuple[int, int]:
    """How long a consumer has an event: µs from when it gets it, or until when since the epoch;
    the other one is 0."""
    time, absolute = parse_time(text)
    if time < 0:
        raise CommandError("ERR the time to acknowledge is negative")
    # What was over at the epoch is over now.
    return (0, max(time, 1)) if absolute else (time, 0)


def parse_wait(text: bytes) -> int:
    """For how long to wait, in seconds with fractions; returns ms, 0: not at all."""
    time, absolute = parse_time(text)
    if absolute:
        raise CommandError(SYNTAX)
    if time < 0:
        raise CommandError("ERR timeout is negative")
    return (time + 999) // 1000


def check_id(id: bytes) -> bytes:
    """An event's id, as QGET gave it."""
    if not is_event_id(id):
        raise CommandError("ERR invalid ID string")
    return id
