"""Which queues are asked about, with a clock that the test moves."""

from disque_trio.overview.rota import COLD, HOT, HOT_FOR, PER_SECOND, RESTING, Rota


def test_new_queues_are_asked_about_at_once_and_resting_ones_rarely() -> None:
    rota = Rota()
    rest = [f"q{number}" for number in range(int(COLD * RESTING))]
    rota.known({"a", "b", *rest})
    for name in rest:
        rota.answered(name, False, 1_000.0)
    assert sorted(rota.next(0.0)) == ["a", "b"]
    rota.answered("a", True, 0.0)
    rota.answered("b", False, 0.0)
    assert rota.next(HOT) == ["a"]
    rota.answered("a", False, HOT)
    assert rota.next(2 * HOT) == ["a"]
    rota.answered("a", False, HOT_FOR + 1)
    assert sorted(rota.next(COLD)) == ["b"]
    assert sorted(rota.next(HOT_FOR + 1 + COLD)) == ["a", "b"]


def test_of_few_queues_the_resting_ones_are_asked_about_as_often() -> None:
    rota = Rota(1.0)
    rota.known({"a", "b"})
    assert not rota.complete
    rota.answered("a", True, 0.5)
    rota.answered("b", False, 0.5)
    assert rota.complete
    assert sorted(rota.next(1.5)) == ["a", "b"]


def test_a_node_is_not_asked_more_than_so_much_and_everything_gets_its_turn() -> None:
    rota = Rota()
    rota.known({f"q{number}" for number in range(10_000)})
    asked: set[str] = set()
    for turn in range(6):
        now = turn * 2.0
        chosen = rota.next(now)
        assert len(chosen) <= PER_SECOND
        for name in chosen:
            rota.answered(name, True, now)
        asked |= set(chosen)
    assert len(asked) == 10_000


def test_queues_that_somebody_looks_at_are_polled_first() -> None:
    rota = Rota()
    rota.known({f"q{number}" for number in range(10_000)})
    assert rota.next(0.0, ["q9999", "gone"])[0] == "q9999"


def test_a_queue_that_is_gone_is_not_asked_about() -> None:
    rota = Rota()
    rota.known({"a", "b"})
    assert rota.known({"b", "c"}) == ["a"]
    rota.forget("b")
    assert rota.next(0.0) == ["c"]
    rota.answered("a", True, 0.0)
    assert len(rota) == 1
