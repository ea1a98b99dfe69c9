"""An append-only list of lines on any file system.

On a local file system, it is a file. On others, where files cannot grow, it is a directory with a
file for each call of ``note``.
"""

import os
import time
from collections.abc import Iterable
from uuid import uuid4

from disque_spark.files import Location


def note(place: Location, lines: Iterable[bytes]) -> None:
    """Append lines (without newlines), and sync them to disk."""
    data = b"".join(line + b"\n" for line in lines)
    path = place.local
    if path is None:
        # The names sort in the order of the calls.
        (place / f"{time.time_ns():020}-{uuid4().hex[:8]}.json").write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a partial line of a run that died
                file.write(b"\n")
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if new:
        place.parent.sync()


def noted(place: Location) -> list[bytes]:
    """All lines. The last one may be partial, if a run died."""
    if place.local is not None:
        return place.read_bytes().splitlines() if place.exists() else []
    files = place.files(recursive=False) if place.exists() else []
    return [line for file in files for line in file.read_bytes().splitlines()]
