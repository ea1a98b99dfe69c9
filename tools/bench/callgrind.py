"""Runs programs under valgrind's callgrind, which counts their user-space instructions."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final


class CountError(Exception):
    """Counting failed; the text says why."""


def still_addresses() -> list[str]:
    """A command prefix that fixes memory addresses, so that they are the same in every run: they
    determine the hashes of objects, and so collisions."""
    setarch = shutil.which("setarch")
    if setarch is None or run_quietly([setarch, "-R", "true"]).returncode:
        return []
    return [setarch, "-R"]


def run_quietly(
    command: Sequence[str], environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and capture its output. Raises CountError if the command does not exist."""
    try:
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise CountError(f"{command[0]}: {problem.strerror}") from problem


# The names of valgrind's pipes contain these variables, which redis-server overwrites when it runs.
_NAMELESS: Final = ("env", "-u", "LOGNAME", "-u", "USER", "-u", "HOST")


class Counted:
    """A program whose instructions are counted, in all threads, without the kernel's.

    Args:
        command: starts the program. directory: for callgrind's files.

    Attributes:
        command: starts the program under callgrind. Counting starts with ``begin``.
    """

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self._directory = directory
        self._total = 0
        self.command = [
            *_NAMELESS,
            *still_addresses(),
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--instr-atstart=no",
            "--trace-children=yes",  # also programs that a script executes
            f"--callgrind-out-file={directory}/counts",
            *command,
        ]

    def begin(self, pid: int) -> None:
        """Start counting; ``pid`` is the process id of the running program."""
        self._tell(pid, "instrumentation", "on")

    def total(self, pid: int) -> int:
        """The instructions since ``begin``. Raises CountError if the program does not respond."""
        self._tell(pid, "dump")
        # A dump resets the count; each dump has its own file.
        newest = max(self._directory.glob("counts.*"), key=_number, default=None)
        found = newest and re.search(r"^totals: (\d+)", newest.read_text(), re.MULTILINE)
        if newest is None or not found:
            raise CountError("callgrind counted nothing")
        for old in self._directory.glob("counts.*"):
            if old != newest:
                old.unlink()
        self._total += int(found[1])
        return self._total

    def _tell(self, pid: int, *words: str) -> None:
        done = run_quietly([*_NAMELESS, "vgdb", f"--pid={pid}", *words])
        if done.returncode:
            raise CountError(f"vgdb: {done.stderr.strip()}")


def _number(path: Path) -> int:
    return int(path.suffix[1:])
