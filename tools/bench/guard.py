"""Fails if a hot path takes more machine instructions than before.

Instruction counts do not depend on the load of the machine, so 10% more means 10% more. They do
depend on the interpreter, and in the compiled build on the compiler: the baseline file has counts
for each build and version, and a build without a matching baseline is not judged. valgrind's
callgrind does the counting. The exit status is 1 if a path is more than 10% more expensive.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from disque_trio.form import form
from tools.bench.callgrind import CountError, run_quietly, still_addresses
from tools.bench.cli import COMPILED, child, environment_of, option
from tools.bench.guard_paths import BASE

BASELINE = Path(__file__).with_name("guard_baseline.json")
FORMS = ("pure", "compiled")
LIMIT = 1.10
PINNED = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do."""

    forms: tuple[str, ...] = option(FORMS, "the builds to count", choices=FORMS)
    compiled: str = option(str(COMPILED), "the Python that has the compiled build")
    update: bool = option(False, "make the new counts the baseline")


Counts = dict[str, int]
"""Instructions per command of each path."""

_MARKS = """\
#include <valgrind/callgrind.h>
void guard_start(void) { CALLGRIND_START_INSTRUMENTATION; }
void guard_toggle(void) { CALLGRIND_TOGGLE_COLLECT; }
void guard_dump(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
"""


def circumstances() -> str:
    """The versions, besides the sources, on which the counts of the build installed here depend."""
    if form() != "compiled":
        return _interpreter()
    try:
        compilers = Path(sys.prefix, "compiled-by").read_text().strip()
    except OSError:
        compilers = "unknown compilers"
    return f"compiled by {compilers}: {_interpreter()}"


def _interpreter() -> str:
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


def known_as(python: str) -> str:
    """The ``circumstances`` of the build that this Python has.

    Raises:
        CountError: it has none.
    """
    done = run_there(python, [], "tools.bench.guard", "print_circumstances")
    return done.strip()


def print_circumstances() -> None:
    """For ``known_as``."""
    print(circumstances())


def count(python: str, module: str = "tools.bench.guard_paths", *arguments: str) -> Counts:
    """Count the instructions of all paths in the ``main`` of a module, in the build that this
    Python has. ``main`` gets the library that controls callgrind, and ``arguments``.

    Raises:
        CountError: counting failed.
    """
    with tempfile.TemporaryDirectory() as directory:
        marks = _compile_marks(Path(directory))
        command = [
            *still_addresses(),
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--instr-atstart=no",
            "--collect-atstart=no",
            f"--callgrind-out-file={directory}/counts",
        ]
        run_there(python, command, module, "main", str(marks), *arguments)
        return read_counts([path.read_text() for path in Path(directory).glob("counts.*")])


def run_there(python: str, under: list[str], module: str, function: str, *arguments: str) -> str:
    """The output of a module's ``function`` in another Python's environment, run ``under`` a
    command. Raises CountError if it fails."""
    command = [*under, *child(module, *arguments, function=function, python=python)]
    with environment_of(python) as environ:
        # Fix the hashes, and so the collisions in dictionaries.
        environ |= {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        done = run_quietly(command, environ)
    if done.returncode:
        raise CountError(f"{python} fails:\n{done.stdout}{done.stderr}")
    return done.stdout


def _compile_marks(directory: Path) -> Path:
    """Compile the library with which a program controls callgrind."""
    source = directory / "marks.c"
    source.write_text(_MARKS)
    library = directory / "marks.so"
    done = run_quietly(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)])
    if done.returncode:
        raise CountError(f"the marks for callgrind cannot be compiled:\n{done.stderr}")
    return library


def read_counts(parts: list[str]) -> Counts:
    """The counts in callgrind's files, minus the cost of counting itself."""
    found: dict[str, tuple[int, int, int]] = {}
    for part in parts:
        name = re.search(r"^desc: Trigger: Client Request: (.+)\|(\d+)\|(\d+)$", part, re.MULTILINE)
        total = re.search(r"^(?:totals|summary): (\d+)", part, re.MULTILINE)
        if name is not None and total is not None:
            found[name[1]] = int(name[2]), int(name[3]), int(total[1])
    if BASE not in found:
        raise CountError("callgrind counted nothing")
    _, turns, total_of_nothing = found.pop(BASE)
    once = total_of_nothing / turns
    return {
        path: round((total - turns * once) / commands)
        for path, (commands, turns, total) in sorted(found.items())
    }


def judge(counts: Counts, baseline: Counts) -> tuple[list[str], list[str]]:
    """Compare with the baseline. Returns the lines of a table, and the problems."""
    lines = []
    wrong = []
    width = max(map(len, [*counts, *baseline]))
    for path in sorted({*counts, *baseline}):
        now, before = counts.get(path), baseline.get(path)
        if now is None:
            wrong.append(f"{path}: in the baseline, but not counted")
            continue
        if before is None:
            wrong.append(f"{path}: not in the baseline")
            continue
        ratio = now / before
        remark = ""
        if ratio > LIMIT:
            remark = "  more expensive"
            wrong.append(f"{path}: {before:,} instructions before, {now:,} now")
        elif ratio < 1 / LIMIT:
            remark = "  cheaper: use --update to lock this in"
        lines.append(f"{path:{width}} {before:>9,} {now:>9,} {ratio:6.3f}{remark}")
    return lines, wrong


def run(plan: Plan, file: Path = BASELINE) -> int:
    """Count and judge each build; returns the exit status."""
    pythons = {"pure": sys.executable, "compiled": plan.compiled}
    wrong = False
    for name in plan.forms:
        python = pythons[name]
        if not Path(python).exists():
            print(f"guard: the {name} build is missing (make {name}): not judged")
            continue
        try:
            wrong |= not _look_at(name, python, plan.update, file)
        except CountError as problem:
            print(f"guard: {problem}", file=sys.stderr)
            wrong = True
    return int(wrong)


def _look_at(name: str, python: str, update: bool, file: Path) -> bool:
    """Count one build, and judge it or make it the baseline. Returns False if a path got more
    expensive.

    Raises:
        CountError: counting failed.
    """
    known: dict[str, Counts] = json.loads(file.read_text()) if file.exists() else {}
    key = known_as(python)
    if not update and key not in known:
        print(f"guard: there is no baseline for {key}: the {name} build is not judged")
        print(f"guard: baselines exist for {'; '.join(known) or 'none'}")
        return True
    counts = count(python)
    if update:
        known[key] = counts
        file.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
        print(f"guard: {len(counts)} counts for {key} written to {file.name}")
        return True
    lines, wrong = judge(counts, known[key])
    print("\n".join([f"{name}, instructions for one command: before, now, ratio", *lines]))
    for text in wrong:
        print(f"guard: {name}: {text}", file=sys.stderr)
    if wrong:
        print(
            "guard: if this is intended, run `make guard ARGS=--update` to update the baseline",
            file=sys.stderr,
        )
    return not wrong
