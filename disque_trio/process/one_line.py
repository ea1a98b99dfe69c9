"""Has commands print one line for an error that nobody expected, and the traceback if asked to.

Loads nothing that ``--help`` does not need.
"""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final

DEBUG: Final = "--debug"

Main = Callable[..., int]


def one_line(prog: str) -> Callable[[Main], Main]:
    """Return a decorator for the ``main`` of the command ``prog``: what it raises becomes one line
    on standard error and the exit status 1, unless ``--debug`` is among the arguments."""

    def decorate(main: Main) -> Main:
        @wraps(main)
        def run(arguments: Sequence[str] | None = None, *others: Any) -> int:
            try:
                return main() if arguments is None else main(arguments, *others)
            except Exception as error:
                if DEBUG in (sys.argv[1:] if arguments is None else arguments):
                    raise
                print(f"{prog}: {line_of(error)} ({DEBUG} shows where)", file=sys.stderr)
                return 1

        return run

    return decorate


def line_of(error: BaseException) -> str:
    """Describe an error, or the only one in its group, in one line."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}".removesuffix(": ")


def without_debug(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a server but for ``--debug``: all others are settings."""
    return [word for word in arguments if word != DEBUG]


def show_traceback(debug: bool) -> None:
    """Print the traceback of the exception that is being handled, if ``debug``."""
    if debug:
        from traceback import print_exc

        print_exc()


def add_debug_option(add: Callable[..., Any]) -> None:
    """Add ``--debug``; ``add`` is the ``add_argument`` of a parser or a group."""
    add(DEBUG, action="store_true", help="show the traceback of an error")
