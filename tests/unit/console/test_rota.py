"""Which queues are asked about, with moved time."""

from disque_trio.console.model.rota import COLD, HOT, HOT_FOR, PER_SECOND, Rota


def test_new_queues_are_asked_about_at_once_and_resting_ones_rarely() -> None:
    rota = Rota()
    rota.known({"a", "b"})
    assert sorted(rota.next(0.0)) == ["a", "b"]
    rota.answered("a", True, 0.0)
    rota.answered("b", False, 0.0)
    assert rota.next(HOT) == ["a"]
    rota.answered("a", False, HOT)
    assert rota.next(2 * HOT) == ["a"]
    rota.answered("a", False, HOT_FOR + 1)
    assert sorted(rota.next(COLD)) == ["b"]
    assert sorted(rota.next(HOT_FOR + 1 + COLD)) == ["a", "b"]


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


def test_what_somebody_looks_at_goes_first() -> None:
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
