"""Which queue a free slot polls first."""

from collections import Counter

import pytest

from disque_trio.worker.round_robin import QueueWeight, RoundRobin, parse_queues


def firsts(round_robin: RoundRobin, count: int) -> str:
    return "".join(round_robin.orders[round_robin.next()][0] for _ in range(count))


def test_a_name_has_weight_one_unless_one_is_given() -> None:
    assert parse_queues("mail,sms:5, a:b,c:2:1") == [
        ("mail", 1),
        ("sms", 5),
        ("a:b", 1),
        ("c:2", 1),
    ]


@pytest.mark.parametrize("text", ["", "a,", "a:0", "a:1001", "a,a:2", ":5", ","])
def test_an_invalid_list_of_queues_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="queue"):
        parse_queues(text)


def test_each_queue_comes_first_as_often_as_its_weight_says() -> None:
    round_robin = RoundRobin([QueueWeight("a", 1), QueueWeight("b", 5), QueueWeight("c", 2)])
    assert Counter(firsts(round_robin, 80)) == {"a": 10, "b": 50, "c": 20}


def test_the_turns_are_spread_evenly() -> None:
    assert firsts(RoundRobin([QueueWeight("a", 1), QueueWeight("b", 5)]), 12) == "bbabbbbbabbb"


def test_equal_queues_alternate() -> None:
    assert firsts(RoundRobin([QueueWeight("a", 3), QueueWeight("b", 3)]), 6) == "ababab"


def test_the_remaining_queues_are_ordered_by_weight() -> None:
    round_robin = RoundRobin([QueueWeight("a", 1), QueueWeight("b", 5), QueueWeight("c", 9)])
    assert round_robin.orders == [("a", "c", "b"), ("b", "c", "a"), ("c", "b", "a")]


def test_strict_order_is_always_the_same() -> None:
    round_robin = RoundRobin([QueueWeight("a", 1), QueueWeight("b", 5)], strict=True)
    assert round_robin.orders == [("a", "b")]
    assert {round_robin.next() for _ in range(5)} == {0}
