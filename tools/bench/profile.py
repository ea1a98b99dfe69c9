"""Where the time of a loaded node goes: profiles a node of each build, and measures its steps.

py-spy samples the node's stacks from outside, including C code: in the compiled build most of the
node is C. The graphs go to build/, or with ``--write-docs`` to docs/.
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
JOBS = 50_000  # per portion of the load
MOST = 12  # functions in the table


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to record and measure."""

    seconds: int = option(20, "seconds of each recording", quick=1)
    rate: int = option(100, "stacks per second")
    rounds: int = option(200, "rounds of the steps", quick=2)
    pure: str = option(sys.executable, "the Python that has the pure build")
    compiled: str = option(str(COMPILED), "the Python that has the compiled build")


def run(plan: Plan) -> Findings:
    """Records and measures both builds. Raises ServerError if that fails."""
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
    """The stacks of a loaded node in the environment of ``python``, about ``rate`` per second for
    ``seconds``.

    Raises:
        ServerError: the node failed, or py-spy is missing or may not inspect other processes.
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
    """The output of the run ``steps`` in the environment of ``python``.

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
