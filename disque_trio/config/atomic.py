"""Replacing a file so that a crash leaves either the old or the new one, never a part.

Owns the order of system calls: temporary file in the same directory, write, fsync, rename, fsync of
the directory.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def replace_file(path: str, data: bytes) -> None:
    """Replace the contents of a file atomically; a symlink is followed and stays one.

    Keeps mode and owner as far as the process may. Raises OSError, and then leaves the old file as
    it was and no temporary one behind.
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
    _sync_directory(real.parent)


def _copy_owner_and_mode(source: Path, descriptor: int) -> None:
    try:
        old = source.stat()
    except FileNotFoundError:
        return  # a new file stays readable by its owner only: it may hold the password
    # One at a time: a process that may not give a file away may still set a group it is in.
    for user, group in ((-1, old.st_gid), (old.st_uid, -1)):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, user, group)
    os.fchmod(descriptor, old.st_mode & 0o7777)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
