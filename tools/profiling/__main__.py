"""``make profile``: records a loaded node of each form, and measures the steps of its commands.

    python -m tools.profiling                  # prints the tables, writes the graphs to build/
    python -m tools.profiling --write-docs     # tables into docs/performance.md, graphs into docs/

py-spy samples the stacks of the node from outside, those of C code as well: in the compiled form
most of the node is C.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tools.bench import report
from tools.bench.measure import Bench, Setting
from tools.bench.servers import ServerError, disque_server
from tools.profiling.flames import Stack, draw, read_stacks, shares

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
FORMS = ("pure", "compiled")
CLIENTS = 50
PIPELINE = 16
JOBS = 50_000  # a portion of the load
MOST = 12  # functions in the table


class ProfileError(Exception):
    """Nothing could be recorded; the text says why."""


def record(python: Path, seconds: int, rate: int) -> Counter[Stack]:
    """The stacks of a node of the environment of ``python`` under load, of which there are about
    ``rate`` for each of ``seconds``.

    Raises:
        ProfileError: py-spy is not there, or may not look at other processes.
        ServerError: the node did not do its work.
    """
    own = Path(sys.executable).with_name("py-spy")
    spy = str(own) if own.exists() else shutil.which("py-spy")
    if spy is None:
        raise ProfileError("py-spy is missing: pip install py-spy")
    command = (str(python.with_name("disque-server")), "--appendonly", "yes")
    with tempfile.TemporaryDirectory() as directory, disque_server("profiled", command) as server:
        stacks = Path(directory, "stacks")
        options = ["--native", "--format", "raw", "--rate", str(rate), "--duration", str(seconds)]
        bench = Bench(server, 100)
        bench.cycles(Setting(0, PIPELINE, CLIENTS), JOBS)
        with subprocess.Popen(
            [spy, "record", "--pid", str(server.process.pid), *options, "--output", str(stacks)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as recorder:
            while recorder.poll() is None:
                bench.cycles(Setting(0, PIPELINE, CLIENTS), JOBS)
            said = recorder.stdout.read() if recorder.stdout is not None else ""
        if recorder.returncode or not stacks.exists():
            raise ProfileError(f"py-spy recorded nothing:\n{said}")
        return read_stacks(stacks.read_text().splitlines())


def steps(python: Path, rounds: int) -> str:
    """What ``tools.profiling.steps`` prints in the environment of ``python``, which has the package
    in one form or the other.

    Raises:
        ProfileError: it failed.
    """
    with tempfile.TemporaryDirectory() as directory:
        # Not the directory of the sources: there the pure form would be found before all others.
        Path(directory, "tools").symlink_to(ROOT / "tools")
        environ = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": directory}
        done = subprocess.run(
            [python, "-m", "tools.profiling.steps", "--rounds", str(rounds)],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise ProfileError(f"the steps cannot be measured:\n{done.stderr}")
    return done.stdout.strip()


def ends_table(found: dict[str, Counter[Stack]]) -> str:
    """In which functions the time of each form is spent."""
    parts = []
    for form, stacks in found.items():
        rows = [(f"`{name}`", f"{100 * share:.1f}%") for name, share in shares(stacks, MOST)]
        parts.append(report.table([f"{form}: the innermost function", "share of the time"], rows))
    return "\n\n".join(parts)


def main(argv: list[str]) -> int:
    """Record and measure; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.profiling", description="Where the time of a loaded node goes."
    )
    parser.add_argument("--seconds", type=int, default=20, help="of each recording")
    parser.add_argument("--rate", type=int, default=100, help="stacks a second")
    parser.add_argument("--rounds", type=int, default=200, help="of the steps")
    parser.add_argument("--pure", type=Path, default=Path(sys.executable), metavar="PYTHON")
    parser.add_argument(
        "--compiled",
        type=Path,
        default=ROOT / ".venv-compiled" / "bin" / "python",
        metavar="PYTHON",
        help="the interpreter of the environment that has the compiled form",
    )
    parser.add_argument("--write-docs", action="store_true")
    options = parser.parse_args(argv)
    if options.write_docs:
        report.replace_section(PAGE.read_text(), "steps", "")
    pictures = ROOT / ("docs" if options.write_docs else "build")
    pictures.mkdir(exist_ok=True)
    try:
        tables = [steps(python, options.rounds) for python in (options.pure, options.compiled)]
        found = {
            form: record(python, options.seconds, options.rate)
            for form, python in zip(FORMS, (options.pure, options.compiled), strict=True)
        }
    except (ProfileError, ServerError) as problem:
        print(f"profile: {problem}", file=sys.stderr)
        return 1
    for form, stacks in found.items():
        title = (
            f"A loaded node, {form}: ADDJOB, GETJOB, ACKJOB in turn, {CLIENTS} clients, pipelined "
            f"by {PIPELINE}, AOF every second ({stacks.total()} samples)"
        )
        picture = pictures / f"profile-{form}.svg"
        picture.write_text(draw(stacks, title))
        print(f"written: {picture.relative_to(ROOT)}")
    heading = report.heading(argv, report.machine(), "tools.profiling")
    text = "\n\n".join([heading, *tables, ends_table(found)])
    print(text)
    if options.write_docs:
        PAGE.write_text(report.replace_section(PAGE.read_text(), "steps", text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
