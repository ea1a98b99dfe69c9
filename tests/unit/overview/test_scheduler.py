"""Which queues are asked about, with a clock that the test moves."""

from disque_trio.overview.scheduler import COLD, HOT, HOT_FOR, PER_SECOND, RESTING, PollScheduler


def test_new_queues_are_asked_about_at_once_and_resting_ones_rarely() -> None:
    scheduler = PollScheduler()
    rest = [f"q{number}" for number in range(int(COLD * RESTING))]
    scheduler.known({"a", "b", *rest})
    for name in rest:
        scheduler.answered(name, False, 1_000.0)
    assert sorted(scheduler.next(0.0)) == ["a", "b"]
    scheduler.answered("a", True, 0.0)
    scheduler.answered("b", False, 0.0)
    assert scheduler.next(HOT) == ["a"]
    scheduler.answered("a", False, HOT)
    assert scheduler.next(2 * HOT) == ["a"]
    scheduler.answered("a", False, HOT_FOR + 1)
    assert sorted(scheduler.next(COLD)) == ["b"]
    assert sorted(scheduler.next(HOT_FOR + 1 + COLD)) == ["a", "b"]


def test_of_few_queues_the_resting_ones_are_asked_about_as_often() -> None:
    scheduler = PollScheduler(1.0)
    scheduler.known({"a", "b"})
    assert not scheduler.complete
    scheduler.answered("a", True, 0.5)
    scheduler.answered("b", False, 0.5)
    assert scheduler.complete
    assert sorted(scheduler.next(1.5)) == ["a", "b"]


def test_a_node_is_not_asked_more_than_so_much_and_everything_gets_its_turn() -> None:
    scheduler = PollScheduler()
    scheduler.known({f"q{number}" for number in range(10_000)})
    asked: set[str] = set()
    for turn in range(6):
        now = turn * 2.0
        chosen = scheduler.next(now)
        assert len(chosen) <= PER_SECOND
        for name in chosen:
            scheduler.answered(name, True, now)
        asked |= set(chosen)
    assert len(asked) == 10_000


def test_queues_that_somebody_looks_at_are_polled_first() -> None:
    scheduler = PollScheduler()
    scheduler.known({f"q{number}" for number in range(10_000)})
    assert scheduler.next(0.0, ["q9999", "gone"])[0] == "q9999"


def test_a_queue_that_is_gone_is_not_asked_about() -> None:
    scheduler = PollScheduler()
    scheduler.known({"a", "b"})
    assert scheduler.known({"b", "c"}) == ["a"]
    scheduler.forget("b")
    assert scheduler.next(0.0) == ["c"]
    scheduler.answered("a", True, 0.0)
    assert len(scheduler) == 1
