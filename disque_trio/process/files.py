"""Operations on the names of files."""

import os
from pathlib import Path

from disque_trio.disk import sync_directory


class Files:
    """Gives files other names and removes them, as the operating system has it. All methods raise
    OSError."""

    def replace(self, old: str, new: str) -> None:
        """Give the file ``old`` the name ``new``, whatever had it before."""
        os.replace(old, new)  # noqa: PTH105

    def sync_directory(self, path: str) -> None:
        """Return when the names in the directory of ``path`` are on the disk."""
        sync_directory(Path(path).parent)

    def remove(self, path: str) -> None:
        """Remove a file that may not be there."""
        try:
            os.unlink(path)  # noqa: PTH108
        except FileNotFoundError:
            pass

    def close(self, fd: int) -> None:
        """Close the file."""
        os.close(fd)
