"""The source files of the worker processes, and which of them have changed."""

from collections.abc import Iterable
from pathlib import Path


class Sources:
    """Files, and when they were last changed."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def add(self, files: Iterable[str]) -> None:
        """Watch these, too."""
        for name in files:
            if name not in self._times:
                self._times[name] = _changed(name)

    def changed(self) -> list[str]:
        """Those that have changed since this was asked last, or are gone or back."""
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
