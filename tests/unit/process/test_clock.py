"""A node's clock does not follow jumps of the machine's clock."""

import time

import pytest

from disque_trio.process.clock import Clock

SECOND = 1_000_000_000  # ns


class Machine:
    """The clocks of the machine, in nanoseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.boot = 1_000 * SECOND
        self.wall = 1_700_000_000 * SECOND
        monkeypatch.setattr(time, "clock_gettime_ns", lambda which: self.boot)
        monkeypatch.setattr(time, "time_ns", lambda: self.wall)

    def run(self, seconds: int) -> None:
        self.boot += seconds * SECOND
        self.wall += seconds * SECOND


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_it_drifts_towards_a_clock_that_was_set(machine: Machine) -> None:
    clock = Clock()
    before = clock.now()
    machine.wall += 3_600 * SECOND
    machine.run(1)
    assert clock.now() == before + 1_000
    assert clock.slew() == 3_600
    assert clock.now() == before + 1_050


def test_it_does_not_jump_when_it_was_not_looked_at_for_long(machine: Machine) -> None:
    clock = Clock()
    before = clock.now()
    machine.wall += 3_600 * SECOND
    machine.run(10_000)
    clock.slew()
    assert clock.now() == before + 10_000_000 + 50
