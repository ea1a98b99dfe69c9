"""What nodes spend on knowing each other, by the size of their cluster: virtual time, no sockets.

All nodes meet the first one at the same moment. When they all know each other, their packets and
the CPU time of their memberships are counted for a while. Then some die in silence, one after the
other.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import partial
from statistics import median

from disque_trio.cluster.links import Link
from disque_trio.form import form
from disque_trio.protocol.bus import NODE_FAIL
from tests.support.cluster_bench import Machine, Wires
from tools.bench.cli import Findings, numbers, option, say, table

PATIENCE = 200  # s that all may take to know each other, and that one is dead
CALM = 20  # s until nothing of the joining is left
TITLES = (
    "nodes",
    "join, s",
    "packets/s sent by a node",
    "KB/s",
    "CPU of a node, ms/s",
    "all know a death, s",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to simulate."""

    nodes: tuple[int, ...] = option(
        (10, 50, 100, 200), "sizes of the clusters", quick=(3, 10), parse=numbers
    )
    seconds: int = option(15, "virtual seconds that are counted", quick=5)
    deaths: int = option(3, "nodes that die, less than half of them", quick=1)


@dataclass(frozen=True, slots=True)
class Sample:
    """One cluster. Rates are those of one node; times are virtual."""

    nodes: int
    join_seconds: float
    packets: float
    bytes: float
    cpu: float
    """s of CPU time a second."""
    death_seconds: list[float]


class _Spent:
    """The CPU time and the packets of all memberships."""

    def __init__(self, machines: list[Machine]) -> None:
        self.cpu = 0.0
        self.packets = self.bytes = 0
        for machine in machines:
            machine.receive = partial(self._receive, machine.receive)  # type: ignore[method-assign]
            machine.cron = partial(self._cron, machine.cron)  # type: ignore[method-assign]

    def _receive(self, receive: object, link: Link, packet: bytes, now: int) -> None:
        self.packets += 1
        self.bytes += len(packet)
        self._run(receive, link, packet, now)

    def _cron(self, cron: object, elapsed: int) -> None:
        self._run(cron, elapsed)

    def _run(self, action: object, *arguments: object) -> None:
        began = time.thread_time()
        action(*arguments)  # type: ignore[operator]
        self.cpu += time.thread_time() - began


def run(plan: Plan) -> Findings:
    """Simulate clusters of all sizes."""
    samples = []
    for nodes in plan.nodes:
        say(f"{nodes} nodes")
        samples.append(_simulate(nodes, plan))
    return Findings(table(TITLES, map(_row, samples)), samples, facts={"build": form()})


def _simulate(nodes: int, plan: Plan) -> Sample:
    wires = Wires()
    first, *others = machines = wires.add(nodes)
    spent = _Spent(machines)
    for other in others:
        other.member.meet(first.ip, first.port)
    began = wires.now
    while any(machine.member.links_up() < nodes - 1 for machine in machines):
        if wires.now - began > PATIENCE * 1000:
            raise RuntimeError("the nodes do not know each other")
        wires.run(0.1)
    joined = wires.now - began
    wires.run(CALM)
    before = spent.packets, spent.bytes, spent.cpu
    wires.run(plan.seconds)
    packets, size, cpu = (
        (now - then) / (nodes * plan.seconds)
        for now, then in zip((spent.packets, spent.bytes, spent.cpu), before, strict=True)
    )
    rng = random.Random(nodes)
    deaths = [_die(wires, rng) for _ in range(min(plan.deaths, (nodes - 1) // 2))]
    return Sample(nodes, joined / 1000, packets, size, cpu, deaths)


def _die(wires: Wires, rng: random.Random) -> float:
    """Let a node die at any time; return after how many seconds all know."""
    wires.run(CALM + rng.random() * 10)
    dead = wires.machines.pop()
    for other in wires.machines:
        wires.block((dead, other), (other, dead))
    died = wires.now
    rest = [machine.member._known[dead.id] for machine in wires.machines]
    wires.wait(lambda: all(member.flags & NODE_FAIL for member in rest), PATIENCE)
    return (wires.now - died) / 1000


def _row(sample: Sample) -> list[str]:
    return [
        str(sample.nodes),
        f"{sample.join_seconds:.1f}",
        f"{sample.packets:.1f}",
        f"{sample.bytes / 1000:.1f}",
        f"{sample.cpu * 1000:.2f}",
        f"{median(sample.death_seconds):.1f}" if sample.death_seconds else "",
    ]
