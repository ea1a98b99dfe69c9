"""Options that several commands have, and types of their values."""

import argparse
from collections.abc import Callable


def add_log_options(add: Callable[..., object]) -> None:
    """Add the options for the log. ``add`` is a parser's ``add_argument``."""
    add(
        "--log-level",
        choices=("debug", "verbose", "notice", "warning"),
        default="notice",
        help="the lowest level to log (default: notice)",
    )
    add(
        "--log-format",
        choices=("auto", "console", "json"),
        default="auto",
        help="auto: readable text on a terminal, otherwise JSON",
    )


def count(text: str) -> int:
    """An integer of 1 or more."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a number of 1 or more, not {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """A time in seconds, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, not {text!r}")
    return value
