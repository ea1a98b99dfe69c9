"""The cluster recovers from any sequence of node and connection failures."""

import random
from collections.abc import Callable

import pytest

from tests.support.cluster_bench import Machine, Wires


class Chaos:
    """Failures of a cluster, drawn from a seed."""

    def __init__(self, wires: Wires, seed: int) -> None:
        self.wires = wires
        self.rng = random.Random(seed)
        self.ids = {machine: machine.id for machine in wires.machines}

    def trouble(self) -> None:
        """Cause one more failure or recovery."""
        rng = self.rng
        machine, other = rng.sample(self.wires.machines, 2)
        events: list[Callable[[], object]] = [
            lambda: self.crash(machine),
            lambda: self.restart(machine, False),
            lambda: self.restart(machine, True),
            lambda: self.wires.block((machine, other)),
            lambda: self.wires.block((machine, other), (other, machine)),
            lambda: self.wires.isolate(machine),
            self.wires.blocked.clear,
            lambda: self.flap(machine),
            self.jump,
            lambda: machine.member.set_leaving(rng.random() < 0.5),
            lambda: machine.member.meet(other.ip, other.port),
        ]
        rng.choice(events)()

    def crash(self, machine: Machine) -> None:
        if machine.up:
            machine.crash()

    def restart(self, machine: Machine, move: bool) -> None:
        self.crash(machine)
        if move:
            machine.port = self.rng.choice([7711, 8811, 9911])
        machine.boot(self.ids[machine])

    def flap(self, machine: Machine) -> None:
        for link in list(machine.links):
            if self.rng.random() < 0.5:
                link.close()
                machine.member.lost(link, self.wires.now)

    def jump(self) -> None:
        self.wires.now += self.rng.choice([-100_000, -1000, 1000, 100_000])

    def heal(self) -> None:
        """End all failures."""
        self.wires.blocked.clear()
        for machine in self.wires.machines:
            if not machine.up:
                machine.boot(self.ids[machine])
            machine.member.set_leaving(False)


def assert_nobody_is_looked_at_too_late(machine: Machine) -> None:
    for member in machine.member._known.values():
        assert member.due <= machine.member.heartbeat._when(member)


@pytest.mark.parametrize("seed", range(15))
def test_a_cluster_is_whole_again_after_any_troubles(seed: int) -> None:
    wires = Wires(3000)
    machines = wires.join(3 + seed % 4)
    wires.run(1)
    chaos = Chaos(wires, seed)
    ids = [machine.id for machine in machines]
    for _ in range(60):
        chaos.trouble()
        wires.run(chaos.rng.choice([0.05, 0.5, 2, 4]))
        for machine in filter(lambda machine: machine.up, machines):
            assert_nobody_is_looked_at_too_late(machine)
    chaos.heal()
    wires.wait(wires.meshed, 20)
    assert [machine.id for machine in machines] == ids
    wires.run(10)
    assert wires.meshed()


def test_the_same_seed_gives_the_same_history() -> None:
    histories = []
    for _ in range(2):
        wires = Wires(3000)
        machines = wires.join(5)
        chaos = Chaos(wires, 1)
        for _ in range(40):
            chaos.trouble()
            wires.run(1)
        histories.append([machine.member.describe() for machine in machines])
    assert histories[0] == histories[1]
