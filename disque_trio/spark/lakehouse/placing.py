"""Moves files into a table."""

from disque_trio.spark.files import Location


def placed(source: Location, target: Location) -> None:
    """Move a file, on the disk, in one step; one that has the name is replaced."""
    target.parent.make_directory()
    source.sync()
    source.rename(target)
    target.parent.sync()
