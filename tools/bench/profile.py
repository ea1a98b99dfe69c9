"""Where the time of a loaded node goes: records a node of each form, and measures its steps.

py-spy samples the stacks of the node from outside, those of C code as well: in the compiled form
most of the node is C. The graphs go to build/, or with ``--write-docs`` to docs/.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tools.bench.cli import COMPILED, Findings, Picture, environment_of, option, table
from tools.bench.flames import Stack, draw, read_stacks, shares
from tools.bench.measure import Bench, Setting
from tools.bench.servers import ServerError, disque_server

PAGE = "performance-tables.md"
SECTION = "steps"
PINNED = False
CLIENTS = 50
PIPELINE = 16
JOBS = 50_000  # a portion of the load
MOST = 12  # functions in the table


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is recorded and measured."""

    seconds: int = option(20, "of each recording", quick=1)
    rate: int = option(100, "stacks a second")
    rounds: int = option(200, "of the steps", quick=2)
    pure: str = option(sys.executable, "the Python that has the pure form")
    compiled: str = option(str(COMPILED), "the Python that has the compiled form")


def run(plan: Plan) -> Findings:
    """Records and measures both forms. Raises ServerError when that is not possible."""
    forms = {"pure": Path(plan.pure), "compiled": Path(plan.compiled)}
    texts = [steps(python, plan.rounds) for python in forms.values()]
    pictures = []
    for form, python in forms.items():
        stacks = record(python, plan.seconds, plan.rate)
        title = (
            f"A loaded node, {form}: ADDJOB, GETJOB, ACKJOB in turn, {CLIENTS} clients, pipelined "
            f"by {PIPELINE}, AOF every second ({stacks.total()} samples)"
        )
        pictures.append(Picture(f"profile-{form}.svg", draw(stacks, title)))
        rows = [(f"`{name}`", f"{100 * share:.1f}%") for name, share in shares(stacks, MOST)]
        texts.append(table([f"{form}: the innermost function", "share of the time"], rows))
    return Findings("\n\n".join(texts), pictures=pictures)


def record(python: Path, seconds: int, rate: int) -> Counter[Stack]:
    """The stacks of a node of the environment of ``python`` under load, of which there are about
    ``rate`` for each of ``seconds``.

    Raises:
        ServerError: the node did not do its work, or py-spy is not there, or may not look at other
            processes.
    """
    own = Path(sys.executable).with_name("py-spy")
    spy = str(own) if own.exists() else shutil.which("py-spy")
    if spy is None:
        raise ServerError("py-spy is missing: pip install py-spy")
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
            raise ServerError(f"py-spy recorded nothing:\n{said}")
        return read_stacks(stacks.read_text().splitlines())


def steps(python: Path, rounds: int) -> str:
    """What the run ``steps`` prints in the environment of ``python``, which has the package in one
    form or the other.

    Raises:
        ServerError: it failed.
    """
    with environment_of(str(python)) as environ:
        done = subprocess.run(
            [python, "-m", "tools.bench", "steps", "--rounds", str(rounds)],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise ServerError(f"the steps cannot be measured:\n{done.stderr}")
    return done.stdout.strip()
