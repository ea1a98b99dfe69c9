"""Speeds up the imports of a program that has to start quickly."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from disque_trio.lazily import lazily

# What Trio imports for TLS, names of hosts, and to look for a library with a compiler; structlog
# for programs that use ``logging`` or asyncio; and we for what a server may never do. They would
# cost it a sixth of its start.
SELDOM = (
    "asyncio",
    "gzip",
    "hmac",
    "idna",
    "shutil",
    "ssl",
    "structlog.stdlib",
    "structlog.threadlocal",
    "tempfile",
)


@contextmanager
def to_stay() -> Iterator[None]:
    """For a block that imports what a server needs; SELDOM is left until it is used.

    What the block makes stays until the end of the process: to look through it for garbage, again
    and again as it grows, would take a tenth of the start.
    """
    gc.disable()
    try:
        with lazily(*SELDOM):
            yield
    finally:
        gc.freeze()
        gc.enable()
