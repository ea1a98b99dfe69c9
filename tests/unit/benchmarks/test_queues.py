"""Queues of several kinds are measured in this process, with the test's own counter."""

import pytest

from benchmarks.queues import Cost, costs_table
from benchmarks.queues_paths import BATCH, BATCHES, COMMANDS, KINDS, Clock, Subject, run
from tools.bench.guard_paths import BASE


class Names:
    """Records what was counted; ``on``: it is counting."""

    def __init__(self) -> None:
        self.on = False
        self.turns = 0
        self.found: dict[str, tuple[int, int]] = {}

    def toggle(self) -> None:
        self.on = not self.on
        self.turns += self.on

    def name(self, path: str, commands: int, turns: int) -> None:
        assert not self.on
        assert self.turns == turns
        self.turns = 0
        self.found[path] = commands, turns


@pytest.mark.slow
def test_each_command_is_counted_by_itself_in_queues_of_all_kinds_and_sizes() -> None:
    counter = Names()
    run(counter, list(KINDS), [BATCH, 2 * BATCH], 1)
    paths = [f"{k}/{n}/{c}" for k in KINDS for n in (BATCH, 2 * BATCH) for c in COMMANDS]
    assert list(counter.found) == [BASE, *paths]
    assert all(counter.found[path] == (BATCH * BATCHES, BATCHES) for path in paths)


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_jobs_as_before_are_queued_after_a_round(kind: str) -> None:
    subject = Subject(kind, 300)
    subject.measure(Names())
    assert subject.queue.length == 300
    in_groups = subject.queue.groups.length if subject.queue.groups is not None else 0
    assert in_groups == (300 if kind in ("fair", "fifo") else 0)


def test_the_clock_counts_what_is_between_two_toggles() -> None:
    clock = Clock()
    for _ in range(2):
        clock.toggle()
        sum(range(1000))
        clock.toggle()
    clock.name("sum", 2, 2)
    assert clock.found["sum"][0] > 0


def test_ratios_are_those_to_the_fewest_jobs() -> None:
    costs = [
        Cost("fair", jobs, command, time, 100)
        for command in COMMANDS
        for jobs, time in ((10, 2000.0), (1000, 3000.0))
    ]
    rows = costs_table(costs).splitlines()
    assert rows[0].startswith("| queue | command | CPU µs, 10 jobs | CPU µs, 1,000 jobs | ratio |")
    assert "| GETJOB | 2.00 | 3.00 | **1.50** | 100 | 100 | **1.00** |" in rows[2]


def test_what_was_not_counted_is_left_out_of_the_table() -> None:
    costs = [Cost("plain", jobs, command, None, 5) for command in COMMANDS for jobs in (1, 2)]
    rows = costs_table(costs).splitlines()
    assert rows[0] == "| queue | command | instructions, 1 jobs | instructions, 2 jobs | ratio |"
    assert rows[2] == "| no options | GETJOB | 5 | 5 | **1.00** |"
