"""Programs under valgrind's callgrind, which counts their machine instructions in user space."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class CountError(Exception):
    """Nothing could be counted; the text says why."""


def still_addresses() -> list[str]:
    """What a command is put behind so that its objects are where they were in the last run: where
    they are decides about hashes of objects, so about collisions."""
    setarch = shutil.which("setarch")
    if setarch is None or run_quietly([setarch, "-R", "true"]).returncode:
        return []
    return [setarch, "-R"]


def run_quietly(
    command: Sequence[str], environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and keep what it says. Raises CountError when there is no such command."""
    try:
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise CountError(f"{command[0]}: {problem.strerror}") from problem


class Counted:
    """A program that counts its own instructions, of all its threads, the kernel's not included.

    Args:
        command: starts it. directory: for the files of callgrind.

    Attributes:
        command: starts it so that it is counted. It does not count before ``begin``.
    """

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self._directory = directory
        self._total = 0
        self.command = [
            *still_addresses(),
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--instr-atstart=no",
            "--trace-children=yes",  # also what a script starts in its place
            f"--callgrind-out-file={directory}/counts",
            *command,
        ]

    def begin(self, pid: int) -> None:
        """Count from now on; ``pid`` is that of the running program."""
        self._tell(pid, "instrumentation", "on")

    def total(self, pid: int) -> int:
        """The instructions since ``begin``. Raises CountError when the program does not answer."""
        self._tell(pid, "dump")
        # A dump begins to count anew; each is in a file of its own.
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
        done = run_quietly(["vgdb", f"--pid={pid}", *words])
        if done.returncode:
            raise CountError(f"vgdb: {done.stderr.strip()}")


def _number(path: Path) -> int:
    return int(path.suffix[1:])
