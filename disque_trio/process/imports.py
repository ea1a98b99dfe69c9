"""Speeds up the imports of a program that has to start quickly."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def to_stay() -> Iterator[None]:
    """For a block that imports. What it makes stays until the end of the process: to look through
    it for garbage, again and again as it grows, would take a tenth of the start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
