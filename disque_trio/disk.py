"""Writes files and the names of files to disk, so that they survive a crash."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def replace_file(path: str, data: bytes) -> None:
    """Replace the contents of a file so that a crash leaves either the old or the new ones, never
    a part. Follows a symlink, which stays one.

    Keeps mode and owner as far as the process may. Raises ``OSError``; then the old file is
    unchanged, and no temporary one is left.
    """
    real = Path(path).resolve()
    descriptor, temporary = tempfile.mkstemp(".tmp", f".{real.name}.", real.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _copy_owner_and_mode(real, descriptor)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(real)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    sync_directory(real.parent)


def _copy_owner_and_mode(source: Path, descriptor: int) -> None:
    try:
        old = source.stat()
    except FileNotFoundError:
        return  # a new file stays readable only by its owner: it may contain the password
    # One at a time: a process that may not give a file away may still set a group it is in.
    for user, group in ((-1, old.st_gid), (old.st_uid, -1)):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, user, group)
    os.fchmod(descriptor, old.st_mode & 0o7777)


def sync_file(path: Path) -> None:
    """Sync the contents of a file. Raises ``OSError``."""
    _sync(path, os.O_RDONLY)


def sync_directory(path: Path) -> None:
    """Sync the names in a directory. Raises ``OSError``."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
