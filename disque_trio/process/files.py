"""Operations on file names."""

import os
from pathlib import Path

from disque_trio.disk import sync_directory


class Files:
    """Renames and removes files by means of the operating system. All methods raise
    ``OSError``."""

    def replace(self, old: str, new: str) -> None:
        """Rename the file ``old`` to ``new``, replacing any file of that name."""
        os.replace(old, new)

    def sync_directory(self, path: str) -> None:
        """Return once the names in the directory of ``path`` are on disk."""
        sync_directory(Path(path).parent)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def close(self, fd: int) -> None:
        """Close the file."""
        os.close(fd)
