"""Processes that wait for a task."""

from disque_trio.worker.warm import Warm


def test_the_one_that_was_used_last_is_used_again() -> None:
    warm: Warm[str] = Warm(60)
    assert warm.take() is None
    warm.put("a", 0)
    warm.put("b", 1)
    assert [*warm] == ["a", "b"]
    assert (warm.take(), warm.take(), warm.take()) == ("b", "a", None)


def test_one_that_was_not_needed_for_a_while_ends() -> None:
    warm: Warm[str] = Warm(60)
    for second in range(10):
        warm.put("a", second)
        warm.put("b", second)
        assert warm.expired(second) == []
        assert warm.take() == "b"
        if second < 9:
            assert warm.take() == "a"
    warm.put("b", 30)
    assert warm.expired(68.9) == []
    assert warm.expired(69) == ["a"]
    assert (len(warm), warm.clear(), len(warm)) == (1, ["b"], 0)
