"""Time buckets."""

import random

import pytest

from disque_bananaq.core.deadlines import Deadlines, Timed

START = 1_700_000_000_000  # ms
ALL = 1 << 40


def test_an_entry_is_due_in_the_first_millisecond_that_is_not_before_it() -> None:
    deadlines = Deadlines()
    deadlines.due(START, ALL)
    for when in (START * 1000, START * 1000 + 1, START * 1000 + 1000, START * 1000 + 1001):
        deadlines.add(Timed(when))
    assert [item.when for item in deadlines.due(START, ALL)] == [START * 1000]
    assert len(deadlines.due(START + 1, ALL)) == 2
    assert deadlines.next_due() == START + 2
    assert len(deadlines.due(START + 2, ALL)) == 1
    assert deadlines.next_due() == 0


def test_a_removed_entry_is_never_due() -> None:
    deadlines = Deadlines()
    found = [Timed((START + ms) * 1000) for ms in (1, 1, 1, 100_000, 100_000)]
    for item in found:
        deadlines.add(item)
    for item in (found[0], found[2], found[3]):
        deadlines.remove(item)
        deadlines.remove(item)
    assert set(deadlines.due(START + 10**6, ALL)) == {found[1], found[4]}


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_every_entry_is_due_on_time_however_little_is_done_per_turn(seed: int, limit: int) -> None:
    rng = random.Random(seed)
    deadlines = Deadlines()
    left: set[Timed] = set()
    now = START
    for _ in range(300):
        for _ in range(rng.randrange(8)):
            ahead = rng.choice([-5, 1, 50, 4096, 10_000, 100_000])
            item = Timed((now + rng.randrange(-10, ahead + 1) if ahead > 0 else now) * 1000 - 7)
            deadlines.add(item)
            left.add(item)
        if left and rng.random() < 0.5:
            item = rng.choice(sorted(left, key=lambda item: item.when))
            deadlines.remove(item)
            left.remove(item)
        now += rng.choice([0, 1, 20, 3000])
        for _ in range(10_000):
            if not 0 < deadlines.next_due() <= now:
                break
            found = deadlines.due(now, limit)
            assert len(found) <= limit
            left.difference_update(found)
            assert all(item.when <= now * 1000 for item in found)
        assert all(item.when > now * 1000 for item in left)
        assert not deadlines.is_due(now)
    assert left


def test_an_entry_that_is_removed_long_before_its_time_leaves_nothing_behind() -> None:
    deadlines = Deadlines()
    for n in range(50_000):
        now = START + n // 10
        deadlines.due(now, ALL)
        item = Timed((now + 3_600_000) * 1000 + n)
        deadlines.add(item)
        deadlines.remove(item)
    assert len(deadlines._near) + len(deadlines._far) < 10


def test_an_hour_needs_few_buckets() -> None:
    deadlines = Deadlines()
    deadlines.due(START, ALL)
    for n in range(100_000):
        deadlines.add(Timed((START + n * 36) * 1000))
    assert len(deadlines._near) + len(deadlines._far) < 1200
    assert len(deadlines.due(START + 3_600_000, ALL)) == 100_000


def test_a_clock_that_goes_back_delays_nothing_that_was_near() -> None:
    deadlines = Deadlines()
    deadlines.due(START, ALL)
    item = Timed((START - 3_000_000) * 1000)
    deadlines.add(item)
    assert deadlines.due(START - 3_000_001, ALL) == []
    assert deadlines.due(START - 3_000_000, ALL) == [item]
