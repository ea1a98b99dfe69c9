"""Fails when a hot path got dearer, told in machine instructions.

Instructions do not depend on what else the machine does, so a tenth more is a tenth more. They do
depend on the interpreter: the baseline file has counts for each one that it was written with, and
where there are none for the one at hand nothing is judged. valgrind's callgrind counts.
The exit status is 1 when a path is more than 10% dearer.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.bench.cli import child, option
from tools.bench.guard_paths import BASE

BASELINE = Path(__file__).with_name("guard_baseline.json")
LIMIT = 1.10
PINNED = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done."""

    update: bool = option(False, "what is counted now is the baseline from now on")


Counts = dict[str, int]
"""Instructions for one command of each path."""

_MARKS = """\
#include <valgrind/callgrind.h>
void guard_start(void) { CALLGRIND_START_INSTRUMENTATION; }
void guard_toggle(void) { CALLGRIND_TOGGLE_COLLECT; }
void guard_dump(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
"""


class GuardError(Exception):
    """Nothing could be counted; the text says why."""


def interpreter() -> str:
    """What the counts depend on beside the sources."""
    variables = sysconfig.get_config_vars("CONFIG_ARGS", "Py_ENABLE_SHARED")
    optimized = "--enable-optimizations" in str(variables[0])
    return ", ".join(
        (
            f"{platform.python_implementation()} {platform.python_version()}",
            platform.machine(),
            platform.python_compiler(),
            "optimized" if optimized else "plain",
            "shared" if variables[1] else "static",
        )
    )


def count() -> Counts:
    """Count the instructions of all paths.

    Raises:
        GuardError: that is not possible.
    """
    with tempfile.TemporaryDirectory() as directory:
        marks = _compile_marks(Path(directory))
        command = [
            *_still_addresses(),
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--instr-atstart=no",
            "--collect-atstart=no",
            f"--callgrind-out-file={directory}/counts",
            *child("tools.bench.guard_paths", str(marks)),
        ]
        # The same hashes, so the same collisions in dictionaries, each time.
        environ = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        done = _run(command, environ)
        if done.returncode:
            raise GuardError(f"the paths cannot be taken:\n{done.stdout}{done.stderr}")
        return read_counts([path.read_text() for path in Path(directory).glob("counts.*")])


def _compile_marks(directory: Path) -> Path:
    """The library by which a program tells callgrind what to count."""
    source = directory / "marks.c"
    source.write_text(_MARKS)
    library = directory / "marks.so"
    done = _run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)])
    if done.returncode:
        raise GuardError(f"the marks for callgrind cannot be compiled:\n{done.stderr}")
    return library


def _still_addresses() -> list[str]:
    """Where objects are decides about hashes of objects, so about collisions."""
    setarch = shutil.which("setarch")
    if setarch is None or _run([setarch, "-R", "true"]).returncode:
        return []
    return [setarch, "-R"]


def _run(
    command: list[str], environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise GuardError(f"{command[0]}: {problem.strerror}") from problem


def read_counts(parts: list[str]) -> Counts:
    """The counts in the files that callgrind wrote, less what counting itself costs."""
    found: dict[str, tuple[int, int, int]] = {}
    for part in parts:
        name = re.search(r"^desc: Trigger: Client Request: (.+)\|(\d+)\|(\d+)$", part, re.MULTILINE)
        total = re.search(r"^(?:totals|summary): (\d+)", part, re.MULTILINE)
        if name is not None and total is not None:
            found[name[1]] = int(name[2]), int(name[3]), int(total[1])
    if BASE not in found:
        raise GuardError("callgrind counted nothing")
    _, turns, total_of_nothing = found.pop(BASE)
    once = total_of_nothing / turns
    return {
        path: round((total - turns * once) / commands)
        for path, (commands, turns, total) in sorted(found.items())
    }


def judge(counts: Counts, baseline: Counts) -> tuple[list[str], list[str]]:
    """Compare with the baseline: a table's lines, and what is wrong."""
    lines = []
    wrong = []
    width = max(map(len, [*counts, *baseline]))
    for path in sorted({*counts, *baseline}):
        now, before = counts.get(path), baseline.get(path)
        if now is None:
            wrong.append(f"{path}: is in the baseline and was not counted")
            continue
        if before is None:
            wrong.append(f"{path}: is not in the baseline")
            continue
        ratio = now / before
        remark = ""
        if ratio > LIMIT:
            remark = "  dearer"
            wrong.append(f"{path}: {before:,} instructions before, {now:,} now")
        elif ratio < 1 / LIMIT:
            remark = "  cheaper: --update keeps it so"
        lines.append(f"{path:{width}} {before:>9,} {now:>9,} {ratio:6.3f}{remark}")
    return lines, wrong


def run(plan: Plan, file: Path = BASELINE) -> int:
    """Count and judge; returns the exit status."""
    known: dict[str, Counts] = json.loads(file.read_text()) if file.exists() else {}
    key = interpreter()
    if not plan.update and key not in known:
        print(f"guard: there is no baseline for {key}: nothing is judged")
        print(f"guard: known are {'; '.join(known) or 'none'}")
        return 0
    try:
        counts = count()
    except GuardError as problem:
        print(f"guard: {problem}", file=sys.stderr)
        return 1
    if plan.update:
        known[key] = counts
        file.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
        print(f"guard: {len(counts)} counts for {key} written to {file.name}")
        return 0
    lines, wrong = judge(counts, known[key])
    print("\n".join(["instructions for one command: before, now, ratio", *lines]))
    for text in wrong:
        print(f"guard: {text}", file=sys.stderr)
    if wrong:
        print(
            "guard: if that is meant, `make guard ARGS=--update` makes it the baseline",
            file=sys.stderr,
        )
    return 1 if wrong else 0
