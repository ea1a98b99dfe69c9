"""Counts the lines of Python that are run: as a measure of work, one that no load changes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

Words = tuple[bytes | str | int, ...]


class Lines:
    """Counts the lines that are run."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self.count += 1
        return self

    def of(self, work: Callable[[], object]) -> int:
        """The number of lines that ``work`` runs."""
        self.count = 0
        before = sys.gettrace()
        sys.settrace(self)
        try:
            work()
        finally:
            sys.settrace(before)
        return self.count


def name_of(request: Words) -> str:
    """A name for a test about ``request``."""
    return " ".join(str(word)[:12] for word in request[:5])
