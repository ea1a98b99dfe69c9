"""Writes files and the names of files to disk, so that they survive a crash."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import tempfile
from pathlib import Path


def replace_file(path: str, data: bytes) -> None:
    """Replace the contents of a file so that a crash leaves either the old or the new ones, never
    a part. Follows a symlink, which stays one.

    Keeps mode and owner as far as the process may. Raises ``OSError``; then the old file is
    unchanged, and no temporary one is left.
    """
    remove_leftovers(path)
    real = Path(path).resolve()
    descriptor, temporary = _locked_temporary(real)
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


def append_to_file(path: str, data: bytes) -> None:
    """Append to a file, which must be there, and sync it. Raises ``OSError``; then a part of
    ``data`` may be in the file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(path: str) -> None:
    """Remove the temporary files of processes that were killed while they replaced a file."""
    real = Path(path).resolve()
    for leftover in real.parent.glob(f".{glob.escape(real.name)}.*.tmp"):
        with contextlib.suppress(OSError):
            descriptor = os.open(leftover, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()
            finally:
                os.close(descriptor)


def _locked_temporary(real: Path) -> tuple[int, str]:
    """A new file beside ``real``, open, and locked so that it is no leftover to others."""
    while True:
        descriptor, temporary = tempfile.mkstemp(".tmp", f".{real.name}.", real.parent)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # another process has just found it
        except OSError:
            return descriptor, temporary  # nobody can lock files here
        if os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        os.close(descriptor)


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


def has_moved(descriptor: int, path: str) -> bool:
    """Whether the open file ``descriptor`` was renamed or removed, so that it is no longer at
    ``path``."""
    try:
        return not os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return True
    except OSError:
        return False


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
