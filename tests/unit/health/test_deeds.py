"""What people do is told once a minute at most, and none of it is lost."""

import pytest

from disque_trio.health.deeds import (
    EVERY,
    JOBS_CANCELLED,
    MOST_KEPT,
    MOST_NAMES,
    PAUSED,
    QUEUE_PURGED,
    DeedKeeper,
    Deeds,
    DeedTeller,
)

START = 1_700_000_000_000


class Told(DeedTeller):
    def __init__(self) -> None:
        self.lines: list[Deeds] = []

    def did(self, deeds: Deeds) -> None:
        self.lines.append(deeds)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def keeper(told: Told) -> DeedKeeper:
    return DeedKeeper(told)


def test_the_first_time_is_told_at_once(told: Told, keeper: DeedKeeper) -> None:
    keeper.done(QUEUE_PURGED, "ann", "10.0.0.1:555", "mail", START)
    assert told.lines == [Deeds(QUEUE_PURGED, "ann", "10.0.0.1:555", ("mail",), 1, 0)]


def test_the_rest_of_the_minute_is_one_line(told: Told, keeper: DeedKeeper) -> None:
    for number in range(21):
        keeper.done(PAUSED, "ann", f"10.0.0.1:{number}", f"q{number}", START + number)
        keeper.look(START + number)
    assert len(told.lines) == 1
    keeper.look(START + EVERY)
    names = tuple(f"q{number}" for number in range(1, 1 + MOST_NAMES))
    assert told.lines[1:] == [Deeds(PAUSED, "ann", "10.0.0.1:1", names, 20, 0)]
    keeper.look(START + 2 * EVERY)
    assert len(told.lines) == 2
    keeper.done(PAUSED, "ann", "10.0.0.1:1", "q", START + 3 * EVERY)
    keeper.look(START + 3 * EVERY)
    keeper.done(PAUSED, "ann", "10.0.0.1:1", "q", START + 3 * EVERY)
    assert [line.times for line in told.lines] == [1, 20, 1]


def test_kinds_users_and_machines_are_told_apart(told: Told, keeper: DeedKeeper) -> None:
    for what in PAUSED, QUEUE_PURGED:
        for user in "ann", "bob":
            for address in "10.0.0.1:1", "[::1]:1":
                keeper.done(what, user, address, "mail", START)
    assert len(told.lines) == len({line[:3] for line in told.lines}) == 8


def test_jobs_are_added_up(told: Told, keeper: DeedKeeper) -> None:
    for jobs in 100, 200, 300:
        keeper.done(JOBS_CANCELLED, "ann", "10.0.0.1:1", "", START, jobs)
    keeper.look(START + EVERY)
    assert [(line.names, line.times, line.jobs) for line in told.lines] == [
        ((), 1, 100), ((), 2, 500),
    ]  # fmt: skip


def test_an_end_tells_what_waits(told: Told, keeper: DeedKeeper) -> None:
    for _ in range(3):
        keeper.done(PAUSED, "ann", "10.0.0.1:1", "mail", START)
    keeper.end()
    keeper.end()
    assert [line.times for line in told.lines] == [1, 2]


def test_strangers_cannot_fill_the_log_or_the_memory(told: Told, keeper: DeedKeeper) -> None:
    for number in range(MOST_KEPT + 1000):
        keeper.done(PAUSED, "ann", f"h{number}:1", "mail", START)
    assert len(told.lines) == MOST_KEPT + 1
    keeper.look(START + EVERY)
    assert sum(line.times for line in told.lines) == MOST_KEPT + 1000


def test_a_clock_that_is_set_back_keeps_nothing_back(told: Told, keeper: DeedKeeper) -> None:
    for _ in range(2):
        keeper.done(PAUSED, "ann", "10.0.0.1:1", "mail", START)
    keeper.look(START - 10 * EVERY)
    assert [line.times for line in told.lines] == [1, 1]
