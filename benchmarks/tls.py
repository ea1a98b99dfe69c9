"""The cost of TLS per command, compared with redis-server's TLS.

Both servers are up at the same time, each with one port with TLS and one without, and take turns in
rounds. redis-benchmark sends the same requests to all four ports: PING, ECHO of a text, and PING on
a new connection, which is mostly a handshake. The run measures the CPU time of the server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tools.bench.cli import Findings, option, say, table, words
from tools.bench.servers import (
    DISQUE_COMMAND,
    GENERATOR_CPUS,
    Server,
    ServerError,
    disque_server,
    redis_server,
)
from tools.ports import free_port

PAGE = "performance-details.md"
SECTION = "TLS"
CLIENTS = 50
NAMES = ("redis", "disque")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    rounds: int = option(7, "how often everything is measured, after a warm-up", quick=1)
    work: float = option(1.0, "scales the number of commands", quick=0.05)
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of load.

    Attributes:
        options: of redis-benchmark. commands: how many.
    """

    name: str
    commands: int
    options: Sequence[str]


WORKS = (
    Work("PING", 40_000, ("PING",)),
    Work("PING, pipelined by 16", 160_000, ("-P", "16", "PING")),
    Work("ECHO of 1 KB", 40_000, ("ECHO", "x" * 1_000)),
    Work("ECHO of 1 KB, pipelined by 16", 80_000, ("-P", "16", "ECHO", "x" * 1_000)),
    Work("ECHO of 100 KB", 4_000, ("ECHO", "x" * 100_000)),
    Work("a connection and a PING", 2_000, ("-k", "0", "PING")),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds of a server for ``commands`` commands in one round."""

    round: int
    work: str
    server: str
    tls: bool
    commands: int
    cpu: float


@dataclass(frozen=True, slots=True)
class Side:
    """A server, and its port for TLS."""

    server: Server
    tls_port: int


def run(plan: Plan) -> Findings:
    """Measures both servers."""
    program = shutil.which("redis-benchmark")
    if program is None:
        raise ServerError("redis-benchmark is not installed: apt-get install redis-tools")
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as directory, _sides(plan, Path(directory)) as sides:
        for number in range(plan.rounds + 1):
            say(f"round {number} of {plan.rounds}")
            for work in WORKS:
                for side in sides if number % 2 else sides[::-1]:
                    for tls in (False, True):
                        sample = _measure(program, side, work, number, plan.work, tls)
                        if number:
                            samples.append(sample)
    return Findings(_table(samples), samples)


@contextmanager
def _sides(plan: Plan, directory: Path) -> Iterator[list[Side]]:
    """Redis and a node, with a certificate created in ``directory``."""
    certificate, key = directory / "server.pem", directory / "server.key"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run(
        ["openssl", "req", "-x509", *kind, "-subj", "/CN=x", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    ports = [free_port(), free_port()]
    theirs, ours = [["--tls-port", str(port), *files, "--tls-auth-clients", "no"] for port in ports]
    with redis_server(options=theirs) as redis, disque_server(command=[*plan.server, *ours]) as our:
        yield [Side(redis, ports[0]), Side(our, ports[1])]


def _measure(program: str, side: Side, work: Work, number: int, scale: float, tls: bool) -> Sample:
    server = side.server
    commands = max(round(work.commands * scale), 10 * CLIENTS)
    port = side.tls_port if tls else server.port
    options = ["-p", str(port), "-c", str(CLIENTS), "-n", str(commands), "-q"]
    before = server.cpu_seconds()
    done = subprocess.run(
        [program, *options, *(["--tls", "--insecure"] if tls else []), *work.options],
        capture_output=True,
        preexec_fn=_among_generators,
    )
    if done.returncode:
        raise server.failure(done.stderr.decode(errors="replace"))
    cpu = server.cpu_seconds() - before
    return Sample(number, work.name, server.name, tls, commands, cpu)


def _among_generators() -> None:
    os.sched_setaffinity(0, GENERATOR_CPUS)


def _table(samples: Sequence[Sample]) -> str:
    def cost(work: Work, server: str, tls: bool) -> list[float]:
        """CPU µs per command in each round."""
        return [
            1e6 * one.cpu / one.commands
            for one in samples
            if (one.work, one.server, one.tls) == (work.name, server, tls)
        ]

    def ratio(ours: list[float], theirs: list[float]) -> str:
        """The median of the ratios per round; empty if a round appears to have cost nothing."""
        if min(theirs) <= 0:
            return ""
        return f"**{median(a / b for a, b in zip(ours, theirs, strict=True)):.2f}**"

    rows = []
    for work in WORKS:
        redis, disque = ([cost(work, name, tls) for tls in (False, True)] for name in NAMES)
        rows.append(
            [
                work.name,
                *(f"{median(each):.1f}" for each in (redis[0], disque[0])),
                ratio(disque[0], redis[0]),
                *(f"{median(each):.1f}" for each in (redis[1], disque[1])),
                ratio(disque[1], redis[1]),
            ]
        )
    heads = ["CPU µs a command", "redis-server", "disque-trio", "ratio"]
    return table([*heads, "redis-server, TLS", "disque-trio, TLS", "ratio"], rows)
