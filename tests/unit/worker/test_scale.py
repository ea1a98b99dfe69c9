"""How many processes a worker should have, with a clock that the test moves."""

import math
from dataclasses import replace
from typing import Any

import pytest

from disque_trio.worker.scale import SUSTAINED, Load, Scale

MB = 1 << 20
IDLE = 30


class Work:
    """What there is to do: how many tasks at a time, and how old the oldest queued job is."""

    def __init__(self, tasks: int, oldest: float = 0, *, mb: float = 50, **more: Any) -> None:
        self._tasks = tasks
        self._oldest = oldest
        self._mb = mb
        self._more = more

    def load(self, processes: int) -> Load:
        """What so many processes do then."""
        slots = 8 * processes
        own = int(self._mb * MB)
        busy = min(self._tasks, slots)
        load = Load(self._oldest, slots, busy, False, False, own * processes, own)
        return replace(load, **self._more)


CALM = Work(9)
WAITING = Work(1000, oldest=9)
IDLING = Work(0)


class World:
    """A worker of 2 to 8 processes with 8 slots each, and its clock."""

    def __init__(self, least: int = 2, most: int = 8, bound: float = math.inf) -> None:
        self.now = 1000.0
        self.scale = Scale(least, most, concurrency=8, target=5, idle=IDLE, bound=bound)

    def passes(self, seconds: float, work: Work) -> list[tuple[str, int]]:
        """Let time pass with that work; return the changes."""
        changes = []
        until = self.now + seconds
        while self.now < until:
            if why := self.scale.decide(work.load(self.scale.wanted), self.now):
                changes.append((why, self.scale.wanted))
            self.now += 1
        return changes


def test_nothing_changes_without_a_reason() -> None:
    world = World()
    assert world.passes(600, CALM) == []
    assert world.passes(600, IDLING) == []
    assert world.scale.wanted == 2


def test_more_processes_are_wanted_while_jobs_wait_and_all_slots_are_busy() -> None:
    world = World()
    assert world.passes(SUSTAINED, WAITING) == []
    changes = world.passes(60, WAITING)
    assert changes == [("queue", 3), ("queue", 4), ("queue", 6), ("queue", 8)]
    assert world.passes(60, WAITING) == []


@pytest.mark.parametrize(
    "work",
    [
        Work(10, oldest=9),  # the queue is paused, or at a limit of its own
        Work(1000, oldest=4.9),
        Work(1000, oldest=9, starting=True),
        Work(0, oldest=9, slots=0),
    ],
)
def test_more_would_not_help_or_are_on_their_way(work: Work) -> None:
    world = World()
    assert world.passes(60, work) == []


def test_a_moment_is_no_reason() -> None:
    world = World()
    for _ in range(20):
        assert world.passes(SUSTAINED, WAITING) == []
        assert world.passes(1, CALM) == []


def test_fewer_are_wanted_after_a_while_in_which_fewer_would_do() -> None:
    world = World()
    world.passes(60, WAITING)
    assert world.scale.wanted == 8
    assert world.passes(IDLE, IDLING) == []
    assert world.passes(1, IDLING) == [("idle", 7)]
    assert world.passes(10 * IDLE, IDLING)[-1] == ("idle", 2)
    assert world.passes(10 * IDLE, IDLING) == []


def test_what_is_in_use_is_kept() -> None:
    world = World()
    world.passes(60, WAITING)
    assert world.passes(10 * IDLE, Work(28)) == [("idle", 7)]  # 28 are half of 56
    assert world.passes(10 * IDLE, Work(25)) == []
    for _ in range(10):  # a burst now and then
        assert world.passes(IDLE, IDLING) == []
        assert world.passes(1, Work(50)) == []


def test_no_more_are_wanted_than_fit_into_memory() -> None:
    world = World(bound=240 * MB)
    assert world.passes(60, WAITING) == [("queue", 3), ("queue", 4)]
    assert world.passes(60, Work(1000, oldest=9, mb=31)) == [("queue", 6), ("queue", 7)]


def test_some_end_when_all_together_use_too_much() -> None:
    world = World(bound=240 * MB)
    world.passes(60, WAITING)
    large = Work(1000, oldest=9, mb=100)
    assert world.passes(SUSTAINED, large) == []
    assert world.passes(60, Work(20, mb=100, ending=True)) == []
    assert world.passes(60, large) == [("memory", 3), ("memory", 2)]
    assert world.passes(60, Work(9, mb=200)) == []  # not fewer than wanted


def test_a_process_that_finishes_a_long_task_holds_up_only_what_it_may_relieve() -> None:
    world = World(bound=240 * MB)
    assert world.passes(60, Work(1000, oldest=9, ending=True)) == [("queue", 3), ("queue", 4)]
    assert world.passes(10 * IDLE, Work(0, ending=True)) == [("idle", 3), ("idle", 2)]


def test_one_process_can_be_the_least() -> None:
    world = World(least=1)
    assert world.passes(10, WAITING)[0] == ("queue", 2)
    assert world.passes(30 * IDLE, IDLING)[-1] == ("idle", 1)
