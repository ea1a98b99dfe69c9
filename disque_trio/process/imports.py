"""Speeds up the imports of a program that has to start quickly."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from disque_trio.lazily import lazily

# What Trio imports for TLS, host names, and to look for a library with a compiler; what structlog
# imports for programs that use ``logging`` or asyncio; and what we import for features that a
# server may never use. Together they would take a fifth of its start.
SELDOM = (
    "argparse",
    "asyncio",
    "gzip",
    "hashlib",
    "hmac",
    "idna",
    "shutil",
    "ssl",
    "structlog.stdlib",
    "structlog.threadlocal",
    "tempfile",
    "zoneinfo",
)


@contextmanager
def to_stay() -> Iterator[None]:
    """For a block that imports what a server needs; the modules in SELDOM wait until they are used.

    Everything that the block creates lives until the end of the process: repeated garbage
    collections over it as it grows would take a tenth of the start.
    """
    gc.disable()
    try:
        with lazily(*SELDOM):
            yield
    finally:
        gc.freeze()
        gc.enable()
