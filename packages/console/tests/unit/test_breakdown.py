"""Whose jobs are in a queue."""

import pytest

from disque_console.model.breakdown import SHOWN, Breakdown, added_up
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ProtocolError

Row = tuple[str, int, int, int, int]


def reply(*rows: Row, others: tuple[int, ...] = (0, -1, 0, 0, 0), unread: int = 0) -> Reply:
    """What a node answers to QTOP."""
    listed: Reply = [[name.encode(), *counts] for name, *counts in rows]
    return [b"by", b"group", b"rows", listed, b"others", list(others), b"unread", unread]


def broken_down(*answers: Reply) -> Breakdown:
    return added_up([(f"n:{number}", answer) for number, answer in enumerate(answers)], (), ())


def test_the_nodes_are_added_up_by_name_and_the_largest_comes_first() -> None:
    found = broken_down(
        reply(("small", -1, 1, 0, 0), ("noisy", -1, 5, 1, 0)),
        reply(("noisy", -1, 2, 0, 3), ("", -1, 0, 1, 1)),
    )
    assert [(row.name, row.jobs) for row in found.rows] == [("noisy", 11), ("", 2), ("small", 1)]
    noisy = found.rows[0]
    assert (noisy.queued, noisy.in_hand, noisy.delayed, noisy.added) == (7, 1, 3, -1)
    assert (found.jobs, found.added, found.names) == (14, -1, 0)


def test_what_was_added_is_a_sum_of_the_nodes_that_count_it() -> None:
    found = broken_down(
        reply(("ann", 10, 0, 0, 0)),
        reply(("ann", -1, 2, 0, 0), ("bob", 30, 0, 0, 0), others=(2, 5, 0, 0, 0)),
    )
    assert {row.name: row.added for row in found.rows} == {"ann": 10, "bob": 30}
    assert found.added == 45


def test_names_that_are_not_shown_are_among_the_others() -> None:
    many = [(f"g{number:03}", -1, 1_000 - number, 0, 0) for number in range(SHOWN + 5)]
    found = broken_down(reply(*many, others=(7, -1, 1, 2, 3), unread=9))
    assert len(found.rows) == SHOWN
    assert found.names == 12
    assert found.others.jobs == 6 + sum(count for _, _, count, _, _ in many[SHOWN:])
    assert found.jobs == 6 + sum(count for _, _, count, _, _ in many)
    assert found.unread == 9


def test_a_node_without_the_queue_adds_nothing() -> None:
    assert broken_down(None, reply(("a", 1, 1, 0, 0))).jobs == 1
    assert broken_down().jobs == 0


def test_names_of_any_bytes_are_names() -> None:
    listed: Reply = [[b"\xff\x00", -1, 1, 0, 0]]
    found = broken_down([b"rows", listed, b"others", [0, -1, 0, 0, 0], b"unread", 0])
    assert [row.name for row in found.rows] == ["\udcff\0"]


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        [b"rows"],
        [b"rows", 1, b"others", [0] * 5, b"unread", 0],
        [b"rows", [[b"a", 1]], b"others", [0] * 5, b"unread", 0],
        [b"rows", [], b"others", [0] * 4, b"unread", 0],
        [b"rows", [], b"others", [0] * 5, b"unread", b"x"],
    ],
)
def test_another_reply_is_refused(wrong: Reply) -> None:
    with pytest.raises(ProtocolError):
        broken_down(wrong)
