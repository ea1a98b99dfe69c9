"""How nodes that know of each other divide the jobs that may be in hand at once."""

from itertools import product

import pytest

from disque_trio.node.core.queues.shares import Limit, User

MOST = 5  # jobs in hand on one node


def rooms(active: int, in_hand: tuple[int, ...], wants: tuple[bool, ...]) -> list[int]:
    """Return how many jobs each of the nodes that want some may have in hand."""
    ids = [bytes([number]) for number in range(len(in_hand))]
    found = []
    for own, wanted in zip(ids, wants, strict=True):
        limit = Limit(b"q")
        limit.users = {
            id: User(0, wants[number], in_hand[number])
            for number, id in enumerate(ids)
            if id != own and (wants[number] or in_hand[number])
        }
        if wanted:
            found.append(limit.room(own, active))
    return found


@pytest.mark.parametrize("active", [1, 2, 5, 10])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_limit_is_reached_and_never_exceeded_whatever_the_nodes_have(
    active: int, count: int
) -> None:
    for in_hand in product(range(MOST + 1), repeat=count):
        for wants in product((False, True), repeat=count):
            if not any(wants):
                continue
            held = sum(in_hand)
            mine = [number for number, wanted in zip(in_hand, wants, strict=True) if wanted]
            full = sum(map(max, mine, rooms(active, in_hand, wants))) + held - sum(mine)
            assert full == max(active, held), (in_hand, wants)


def test_equal_nodes_get_equal_shares_but_for_the_rest() -> None:
    assert rooms(10, (0, 0, 0), (True, True, True)) == [4, 3, 3]
    assert rooms(10, (0, 5, 0), (True, True, True)) == [3, 3, 2]
    assert rooms(10, (4, 3, 3), (True, False, True)) == [4, 3]
