"""Parses arguments that several commands have."""

from disque_trio.resp.ints import parse_int
from disque_trio.respserver.words import SYNTAX as SYNTAX
from disque_trio.respserver.words import CommandError


def wrong_arity(name: str) -> CommandError:
    """The error for a number of arguments that only the handler can judge."""
    return CommandError(f"ERR wrong number of arguments for '{name}' command")


def parse_timeout(text: bytes) -> int:
    """Parse a time-out in ms; 0: forever."""
    value = parse_int(text)
    if value is None:
        raise CommandError("ERR timeout is not an integer or out of range")
    if value < 0:
        raise CommandError("ERR timeout is negative")
    return value


def parse_integer(text: bytes) -> int:
    """Parse a signed 64-bit integer."""
    value = parse_int(text)
    if value is None:
        raise CommandError("ERR value is not an integer or out of range")
    return value


def parse_size(text: bytes) -> int:
    """Parse a number of bytes that is not negative."""
    value = parse_integer(text)
    if value < 0:
        raise CommandError("ERR value is out of range, must be positive")
    return value
