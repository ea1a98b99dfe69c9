"""Adds up the CPU time that tests spend, folder by folder, with all processes that they start.

``pytest --spent FILE`` writes it there, as JSON: a folder and its CPU seconds. What belongs to no
test, such as imports, collection and the end of servers that tests share, is under
``(no test)``. A process counts as long as it, or a process that has waited for it, descends from
the test process.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import ROOT

OTHER = "(no test)"
_TICKS = os.sysconf("SC_CLK_TCK")
_WAITED_FOR = slice(11, 15)  # utime, stime, cutime and cstime in /proc/PID/stat, after the name


def _children(pid: str) -> list[str]:
    found: list[str] = []
    with suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += (thread / "children").read_text().split()
    return found


def _ticks(pid: str) -> int:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[_WAITED_FOR]))
    return 0


def cpu_seconds() -> float:
    """CPU time of this process, its descendants, and those that they have waited for."""
    total = 0
    pids = [str(os.getpid())]
    while pids:
        pid = pids.pop()
        total += _ticks(pid)
        pids += _children(pid)
    return total / _TICKS


def folder(path: Path) -> str:
    """The folder whose budget a test file is in: ``tests/unit/node``, ``tests/sim``,
    ``packages/spark/tests/unit``."""
    parents = path.relative_to(ROOT).parent.parts
    return "/".join(parents[: 4 if parents[0] == "packages" else 3])


class Spent:
    """A pytest plugin. Processes of pytest-xdist hand what they have counted to the one that
    started them, which writes the file.

    Args:
        file: where to write.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: Counter[str] = Counter()
        self._counted: float | None = None  # CPU seconds that are some folder's already

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        if self._counted is None:
            self._counted = cpu_seconds()
        result = yield
        here = folder(item.path)
        # Not after each test: it takes a millisecond for each hundred threads of what runs.
        if nextitem is None or folder(nextitem.path) != here:
            now = cpu_seconds()
            self._seconds[here] += max(now - self._counted, 0.0)
            self._counted = now
        return result  # type: ignore[return-value]

    @pytest.hookimpl(optionalhook=True)  # of pytest-xdist
    def pytest_testnodedown(self, node: object) -> None:
        """Take over what a process of pytest-xdist has counted."""
        counted = getattr(node, "workeroutput", {}).get("spent", {})
        self._seconds.update(counted)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over, or write, what was counted."""
        output = getattr(session.config, "workeroutput", None)
        # What has counted may have ended since, with nobody to wait for it.
        self._seconds[OTHER] += max(cpu_seconds() - sum(self._seconds.values()), 0.0)
        if output is not None:
            output["spent"] = dict(self._seconds)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(dict(sorted(self._seconds.items())), indent=1) + "\n")
