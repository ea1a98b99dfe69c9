"""Counts the lines of Python that are run: as a measure of work, one that no load changes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

Words = tuple[bytes | str | int, ...]


def lines_of(work: Callable[[], object]) -> int:
    """The number of lines that ``work`` runs."""
    count = 0

    # Called for each line, this takes most of the time of such a test: a closure is the fastest.
    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        if event == "line":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def name_of(request: Words) -> str:
    """A name for a test about ``request``."""
    return " ".join(str(word)[:12] for word in request[:5])
