"""The cost of protecting the cluster bus.

Runs the life of replicated jobs in four clusters in turn: with an open bus, a secret
(cluster-secret), TLS (tls-cluster), and both. Compares the CPU time of all nodes together.
Certificates are made with openssl.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from tools.bench.cli import Findings, grouped, middle, option, say, spread, table, words
from tools.bench.nodes import ClusterBench, Result, Way, cluster
from tools.bench.servers import DISQUE_COMMAND

PAGE = "performance-details.md"
SECTION = "bus"
WARM_UP_JOBS = 1_000
SECRET: Final = ["--cluster-secret", "0123456789abcdef0123456789abcdef"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how much."""

    rounds: int = option(5, "how often everything is measured", quick=1)
    nodes: int = option(3, "nodes in each cluster, and copies of a job")
    clients: int = option(50, "clients of all nodes together")
    pipelines: tuple[int, ...] = option((1, 16), "pipeline depths", quick=(16,))
    sizes: tuple[int, ...] = option((100, 10_000), "bytes of a job's body", quick=(100,))
    jobs: int = option(6_000, "jobs in one run", quick=200)
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Guarded:
    """A result, and how the bus was protected."""

    guard: str
    size: int
    result: Result


def run(plan: Plan) -> Findings:
    """Measures all kinds of protection in each round."""
    found: list[Guarded] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        tls = _certificates(directory)
        guards = {"open": [], "secret": SECRET, "TLS": tls, "both": [*SECRET, *tls]}
        clusters = {
            guard: stack.enter_context(cluster([[*plan.server, *options]] * plan.nodes, name=guard))
            for guard, options in guards.items()
        }
        for body in plan.sizes:
            benches = {guard: ClusterBench(nodes, body) for guard, nodes in clusters.items()}
            for pipeline in plan.pipelines:
                way = Way("cycle", plan.nodes, False, pipeline, plan.clients)
                jobs = max(1, plan.jobs // pipeline) * pipeline
                for bench in benches.values():
                    bench.measure(way, min(WARM_UP_JOBS, jobs))
                for round in range(plan.rounds):
                    say(f"{body} bytes, pipelined by {pipeline}, round {round + 1}")
                    for guard, bench in benches.items():
                        found.append(Guarded(guard, body, bench.measure(way, jobs, round)))
    return Findings(guards_table(found), found)


def guards_table(found: list[Guarded]) -> str:
    """One row for each kind of protection; ratios are to the open bus in the same round."""
    titles = ["body", "pipelined", "bus", "CPU s/100k jobs, all nodes", "(range)"]
    titles += ["CPU ratio", "(range)", "jobs/s", "packets a job"]
    rows = []
    for (body, pipeline), kind in grouped(found, lambda g: (g.size, g.result.way.pipeline)).items():
        by_guard = grouped(kind, lambda g: g.guard)
        plain = [g.result.cpu_per_100k for g in by_guard["open"]]
        for guard, mine in by_guard.items():
            cpu = [g.result.cpu_per_100k for g in mine]
            ratios = [one / beside for one, beside in zip(cpu, plain, strict=True)]
            row = [f"{body:,}", str(pipeline), guard, *spread(cpu), f"{median(ratios):.2f}"]
            row += [f"{min(ratios):.2f}-{max(ratios):.2f}", middle(mine, lambda g: g.result.rate)]
            row.append(middle(mine, lambda g: g.result.usage.packets / g.result.jobs, 1))
            rows.append(row)
    return table(titles, rows)


def _certificates(directory: Path) -> list[str]:
    """Make a CA and a certificate; returns the options of a node that uses them."""

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", *key, "-subj", "/CN=node", "-keyout", "node.key", "-out", "node.csr")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
    openssl("x509", "-req", "-in", "node.csr", *signed, "-out", "node.pem")
    return [
        *("--tls-cluster", "yes"),
        *("--tls-cert-file", str(directory / "node.pem")),
        *("--tls-key-file", str(directory / "node.key")),
        *("--tls-ca-cert-file", str(directory / "ca.pem")),
    ]
