"""Moves files into a table."""

from pathlib import Path

from disque_trio.disk import sync_directory, sync_file


def placed(source: Path, target: Path) -> None:
    """Move a file, on the disk, in one step; one that has the name is replaced."""
    target.parent.mkdir(parents=True, exist_ok=True)
    sync_file(source)
    source.rename(target)
    sync_directory(target.parent)
