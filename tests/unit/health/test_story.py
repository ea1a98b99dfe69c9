"""What becomes of other nodes is told when it changes, and not again and again."""

import pytest

from disque_trio.health.story import (
    BACK,
    EVERY,
    FAILED,
    GONE,
    JOINED,
    LEAVING,
    STAYING,
    Known,
    Story,
)

START = 1_700_000_000_000
A = Known(b"a" * 40, "10.0.0.1:7711", False, False)
B = Known(b"b" * 40, "10.0.0.2:7711", False, False)


class Told:
    def __init__(self) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.story = Story(lambda what, node: self.lines.append((what, node.id)))

    def look(self, *nodes: Known, after: int = 0) -> list[tuple[str, bytes]]:
        """What a look tells, ``after`` ms."""
        self.lines.clear()
        self.story.look(nodes, START + after)
        return list(self.lines)


@pytest.fixture
def told() -> Told:
    return Told()


def test_what_is_known_at_the_start_is_no_news(told: Told) -> None:
    assert told.look(A, B._replace(failed=True)) == []
    assert told.look(A, B._replace(failed=True)) == []


@pytest.mark.parametrize(
    ("change", "began", "ended"), [("failed", FAILED, BACK), ("leaving", LEAVING, STAYING)]
)
def test_a_change_is_told_and_so_is_its_end(
    told: Told, change: str, began: str, ended: str
) -> None:
    changed = B._replace(**{change: True})
    told.look(A, B)
    assert told.look(A, changed) == [(began, B.id)]
    assert told.look(A, changed) == []
    assert told.look(A, B) == [(ended, B.id)]


def test_nodes_come_and_go(told: Told) -> None:
    told.look()
    assert told.look(B, A) == [(JOINED, B.id), (JOINED, A.id)]
    assert told.look(A) == [(GONE, B.id)]
    assert told.look(A, B._replace(failed=True)) == [(FAILED, B.id)]  # joined: less than a minute


def test_a_node_that_wavers_is_told_of_once_a_minute(told: Told) -> None:
    told.look(A)
    lines = []
    for second in range(59):
        lines += told.look(A._replace(failed=second % 2 == 0), after=second * 1000)
    assert lines == [(FAILED, A.id), (BACK, A.id)]
    assert told.look(A, after=EVERY + 1001) == [(BACK, A.id)]
    assert told.look(A._replace(failed=True), after=EVERY + 1002) == [(FAILED, A.id)]


def test_a_new_address_is_no_news(told: Told) -> None:
    told.look(A)
    assert told.look(A._replace(address="10.0.0.9:7711")) == []
