"""Health files: the state of a running program as JSON, for monitoring and for checks of it.

The program writes its file often, also when nothing happens: an old file means that the program is
gone or hangs. The file has at least ``pid`` and ``time`` (s since 1970).
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_AHEAD = 60.0  # s; the clock may have been set back by as much


class HealthError(Exception):
    """There is no health file, or it reports trouble; the text says which."""


def _new(path: Path) -> Path:
    """The file that replaces ``path``."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def check_writable(path: Path) -> None:
    """Check that a health file can be written to ``path``. Raises OSError if not."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")
    _new(path).touch()
    _new(path).unlink()


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write a health file, so that readers see the old one or the new one. It is not synced to
    disk: after a crash of the machine it means nothing. Raises OSError."""
    _new(path).write_text(json.dumps(values) + "\n")
    _new(path).replace(path)


def read(path: Path) -> dict[str, Any]:
    """What a health file says.

    Raises:
        HealthError: there is none, or it is none.
    """
    try:
        values: dict[str, Any] = json.loads(path.read_text())
        return values | {"pid": int(values["pid"]), "time": float(values["time"])}
    except OSError as problem:
        raise HealthError(f"{path}: {problem.strerror}") from None
    except (ValueError, KeyError, TypeError) as problem:
        raise HealthError(f"{path}: not a health file: {problem}") from None


def age(written: float, now: float, most: float | None) -> float:
    """The age (s) of a file that was written at ``written``.

    Raises:
        HealthError: it is more than ``most``, if that is not None.
    """
    found = now - written
    if most is not None and not -_AHEAD <= found <= most:
        raise HealthError(f"no sign of life for {found:.0f} s")
    return found


def lives(pid: int) -> bool:
    """Whether there is a process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
