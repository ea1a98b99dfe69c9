"""What has to be on the disk before something else happens."""

import os
from pathlib import Path


def sync_file(path: Path) -> None:
    """Bring what is in a file to the disk. Raises OSError."""
    _sync(path, os.O_RDONLY)


def sync_directory(path: Path) -> None:
    """Bring the names in a directory to the disk. Raises OSError."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
