"""What the benchmarks have in common as commands: numbers as arguments, and how they end."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from tools.bench.load import LoadError
from tools.bench.report import DocsError
from tools.bench.servers import ServerError


def number(text: str) -> int:
    """An argument that is 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"a number of 1 or more is needed, not {text}")
    return value


def numbers(text: str) -> tuple[int, ...]:
    """An argument of several of them, with commas."""
    return tuple(map(number, text.split(",")))


def say(text: str) -> None:
    """Tell a person how far it is; the results go to the standard output."""
    print(text, file=sys.stderr, flush=True)


def run(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """End this process with the status of ``main``, which gets the arguments. What can go wrong is
    told in a line; a signal ends the servers on the way out."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        sys.exit(main(sys.argv[1:]))
    except (ServerError, LoadError, DocsError, OSError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _terminated(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)
