"""What it costs to take a job from a queue with few or many, and how long a node stops for commands
about all of them.

Jobs are taken, acknowledged and added again, without a network, while the rest of the queue stays:
from a queue without options, from one whose jobs have priorities, and from queues with groups. In
nodes of their own all jobs of a queue are then looked at, counted, let in, moved and purged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import hiredis

from tools.bench.cli import COMPILED, Findings, option, say, size, table
from tools.bench.dialects import QUEUE, copied, encode, timed
from tools.bench.filler import Filler
from tools.bench.guard import count, run_there
from tools.bench.load import LoadError, dial, receive
from tools.bench.memory import MANY, Step, steps_table
from tools.bench.queues_paths import COMMANDS, GROUP_JOBS, KINDS
from tools.bench.scripts import SERIAL_DIGITS
from tools.bench.servers import disque_server
from tools.bench.stops import pinger, watches

PAGE = "performance.md"
SECTION = "queues"
PARTS = ("time", "instructions", "stops")
PATIENCE = 900.0  # s, until a command about all jobs is given up
PORTION = 10_000
NAMES = {
    "plain": "no options",
    "priorities": "`PRIORITY` 0 to 7",
    "fair": f"`GROUPS fair`, groups of {GROUP_JOBS}",
    "fifo": f"`GROUPS fifo`, groups of {GROUP_JOBS}",
}
_PATHS = "tools.bench.queues_paths"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    parts: tuple[str, ...] = option(PARTS, "what", choices=PARTS, quick=("time", "stops"))
    kinds: tuple[str, ...] = option(tuple(KINDS), "of queues", choices=tuple(KINDS))
    jobs: tuple[int, ...] = option((10_000, 1_000_000), "in the queue", quick=(500, 5_000))
    rounds: int = option(9, "how often the time is measured", quick=2)
    stops: int = option(1_000_000, "jobs that a command is about", quick=3_000)
    size: int = option(100, "bytes of a job's body", parse=size(SERIAL_DIGITS))
    compiled: str = option(str(COMPILED), "the Python that has the compiled form, if it is there")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command costs with ``jobs`` in a queue of a ``kind``: ns of CPU time, or None, and
    instructions."""

    kind: str
    jobs: int
    command: str
    time: float | None
    instructions: float | None


def run(plan: Plan) -> Findings:
    """Measures the parts. Raises CountError or ServerError when that is not possible."""
    python = plan.compiled if Path(plan.compiled).exists() else sys.executable
    texts = []
    samples: list[Cost | Step] = []
    if "time" in plan.parts or "instructions" in plan.parts:
        costs = measure(plan, python)
        samples += costs
        texts.append(costs_table(costs))
    if "stops" in plan.parts:
        steps = in_steps(plan, python)
        samples += steps
        texts.append(steps_table(steps))
    form = "compiled" if python == plan.compiled else "pure Python"
    return Findings("\n\n".join(texts), samples, facts={"form": form})


def measure(plan: Plan, python: str) -> list[Cost]:
    """What the commands cost in queues of all kinds."""
    what = (",".join(plan.kinds), *map(str, plan.jobs))
    times: dict[str, float] = {}
    instructions: dict[str, int] = {}
    if "time" in plan.parts:
        say("CPU time")
        times = json.loads(run_there(python, [], _PATHS, "main", "", str(plan.rounds), *what))
    if "instructions" in plan.parts:
        say("instructions")
        instructions = count(python, _PATHS, "1", *what)
    found = []
    for kind in plan.kinds:
        for command in COMMANDS:
            for jobs in plan.jobs:
                path = f"{kind}/{jobs}/{command}"
                found.append(Cost(kind, jobs, command, times.get(path), instructions.get(path)))
    return found


def costs_table(found: Sequence[Cost]) -> str:
    """A row for each command in each kind of queue; ratios are to the fewest jobs."""
    levels = list(dict.fromkeys(one.jobs for one in found))
    titles = ["queue", "command"]
    columns: list[tuple[str, Callable[[Cost], float | None]]] = [
        ("CPU µs", lambda one: None if one.time is None else one.time / 1000),
        ("instructions", lambda one: one.instructions),
    ]
    columns = [one for one in columns if any(one[1](cost) is not None for cost in found)]
    for name, _ in columns:
        titles += [f"{name}, {level:,} jobs" for level in levels] + ["ratio"]
    rows = []
    for kind in dict.fromkeys(one.kind for one in found):
        for command in COMMANDS:
            mine = [one for one in found if (one.kind, one.command) == (kind, command)]
            row = [NAMES[kind], command]
            for name, value in columns:
                values = [value(one) for one in mine]
                digits = 2 if name == "CPU µs" else 0
                row += ["" if each is None else f"{each:,.{digits}f}" for each in values]
                first, last = values[0], values[-1]
                row.append(f"**{last / first:.2f}**" if first and last else "")
            rows.append(row)
    return table(titles, rows)


# ---- stops -----------------------------------------------------------------------------------


def in_steps(plan: Plan, python: str) -> list[Step]:
    """One node, and what commands about all jobs of a queue do to those who wait."""
    found: list[Step] = []
    jobs = plan.stops
    command = (str(Path(python).with_name("disque-server")),)
    with watches(1) as (watch,), disque_server(command=watch.command(command)) as server:
        filler = Filler(server, plan.size)
        plain = copied(plan.size, QUEUE, 1, False)
        filler.warm(plain)
        with pinger(server.port) as pings:
            pings.ask()  # it is connected

            def step(what: str, work: Callable[[], object]) -> None:
                say(what)
                pings.ask()
                watch.reset()
                work()
                found.append(Step(what, jobs, watch.read(pings.ask())))

            def ask(*words: bytes) -> object:
                with server.blamed():
                    return reply_to(server.port, *words)

            def scan() -> None:
                cursor = b"0"
                while True:
                    # No job is of this group, so all are looked at and none is answered.
                    options = (b"COUNT", b"%d" % PORTION, b"GROUP", b"none")
                    reply = ask(b"JSCAN", cursor, *options)
                    assert isinstance(reply, list)
                    cursor = reply[0]
                    if cursor == b"0":
                        return

            later = timed(plan.size, b"DELAY", b"86400")
            filler.add(jobs, later, keep=True)
            step(f"PROMOTE, {MANY:,} ids each", lambda: filler.end(b"PROMOTE", MANY))
            step(f"JSCAN COUNT {PORTION:,}, to the end", scan)
            step("QSTAT FULL", lambda: ask(b"QSTAT", QUEUE, b"FULL"))
            step("QMOVE", lambda: ask(b"QMOVE", QUEUE, b"other"))
            step("QPURGE", lambda: ask(b"QPURGE", b"other"))
    return found


def reply_to(port: int, *words: bytes) -> object:
    """What a node says to one command. Raises LoadError when it is an error, or says nothing."""
    reader = hiredis.Reader()
    with dial(port) as sock:
        sock.settimeout(PATIENCE)
        sock.sendall(encode(*words))
        while (reply := reader.gets()) is False:
            reader.feed(receive(sock, bool))
    if isinstance(reply, hiredis.ReplyError):
        raise LoadError(f"{words[0].decode()}: {reply}")
    return reply
