"""Watches the source files of the worker processes for changes."""

from collections.abc import Iterable
from pathlib import Path


class Sources:
    """Source files and the times of their last changes."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def add(self, files: Iterable[str]) -> None:
        """Also watch these files."""
        for name in files:
            if name not in self._times:
                self._times[name] = _changed(name)

    def changed(self) -> list[str]:
        """Return files that were changed, removed or restored since the last call."""
        found: list[str] = []
        for name, before in self._times.items():
            now = _changed(name)
            if now != before:
                self._times[name] = now
                found.append(name)
        return found


def _changed(name: str) -> int:
    try:
        return Path(name).stat().st_mtime_ns
    except OSError:
        return 0
