"""Lines that a program notes one after the other, on any file system.

On this machine that is a file that grows. Elsewhere files cannot grow: it is a directory, with a
file for what was noted at once.
"""

import os
import time
from collections.abc import Iterable
from uuid import uuid4

from disque_trio.spark.files import Location


def note(place: Location, lines: Iterable[bytes]) -> None:
    """Add lines, each without its end, and bring them to the disk."""
    data = b"".join(line + b"\n" for line in lines)
    path = place.local
    if path is None:
        # Sorted by name they come in the order in which they were noted.
        (place / f"{time.time_ns():020}-{uuid4().hex[:8]}.json").write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # half a line, of a run that died
                file.write(b"\n")
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if new:
        place.parent.sync()


def noted(place: Location) -> list[bytes]:
    """All lines. The last one may be a half one, of a run that died."""
    if place.local is not None:
        return place.read_bytes().splitlines() if place.exists() else []
    files = place.files(recursive=False) if place.exists() else []
    return [line for file in files for line in file.read_bytes().splitlines()]
