"""The counts of all queues: added up over a walk, kept, and used for sorting."""

import pytest

from disque_trio.overview.census import Sum
from disque_trio.overview.looks import Looks
from disque_trio.overview.queues import QueueTable
from disque_trio.respclient.errors import DisqueError, ProtocolError, ReplyError
from tests.unit.overview.test_queues import A, B, names, stat


def waiting(table: QueueTable, queue: str) -> tuple[int | None, int | None, int | None]:
    row = table.row(queue)
    assert row is not None
    return row.delayed, row.in_hand, row.dead


def test_the_steps_of_a_walk_are_summed_up() -> None:
    walk = Sum()
    assert walk.add([b"7", [[b"a", 1, 2, 3], [b"b", 0, 1, 0]]]) == b"7"
    assert walk.add([b"0", [[b"a", 1, 0, 1]]]) == b"0"
    assert walk.counts == {"a": (2, 2, 4), "b": (0, 1, 0)}


def test_a_node_that_does_not_count_says_so() -> None:
    with pytest.raises(DisqueError):
        Sum().add(ReplyError("ERR", "Invalid REPLY type, try ID or ALL"))


def test_ids_are_no_counts() -> None:
    with pytest.raises(ProtocolError):
        Sum().add([b"0", [b"D-00000000-"]])


def test_all_queues_are_sorted_by_what_was_counted() -> None:
    table = QueueTable()
    for name in ("a", "b", "c"):
        table.take(A, name, stat(), 0.0)
    table.take(B, "b", stat(), 0.0)
    table.counted(A, {"c": (1, 5, 0), "b": (2, 0, 0)}, 1.0, 3.0, 60.0)
    assert names(table, key="delayed", down=True) == ["b", "c", "a"]
    assert names(table, key="in_hand", down=True) == ["c", "a", "b"]
    table.counted(B, {"b": (0, 9, 1)}, 2.0, 3.0, 60.0)
    assert names(table, key="in_hand", down=True) == ["b", "c", "a"]
    assert table.with_letters() == {"b"}


def test_what_was_told_after_the_walk_began_is_newer() -> None:
    table = QueueTable()
    table.take(A, "q", stat(jobs_delayed=9, jobs_in_hand=9, jobs_dead=9), 2.0)
    table.counted(A, {}, 1.0, 3.0, 60.0)
    row = table.row("q")
    assert row is not None
    assert row.dead == 9


def test_a_count_is_forgotten_when_it_is_old() -> None:
    table = QueueTable()
    table.take(A, "q", stat(), 0.0)
    table.counted(A, {}, 1.0, 3.0, 60.0)
    for moment, dead in ((62.0, 0), (64.0, None)):
        table.take(A, "q", stat(), moment)
        row = table.row("q")
        assert row is not None
        assert row.dead == dead


def test_all_is_known_since_the_oldest_count_of_the_nodes_that_are_here() -> None:
    table = QueueTable()
    assert table.counted_since([]) is None
    table.counted(A, {}, 5.0, 6.0, 60.0)
    assert table.counted_since([A, B]) is None
    table.counted(B, {}, 3.0, 6.0, 60.0)
    assert table.counted_since([A, B]) == 3.0
    table.node_lost(B)
    assert table.counted_since([A]) == 5.0
    assert table.counted_since([A, B]) is None


def test_a_clock_that_goes_back_keeps_no_count_of_before() -> None:
    table = QueueTable()
    table.take(A, "q", stat(), 5_000.0)
    table.counted(A, {"q": (9, 9, 9)}, 5_000.0, 5_003.0, 60.0)
    table.take(A, "q", stat(), 1_000.0)
    assert waiting(table, "q") == (None, None, None)
    table.counted(A, {"q": (1, 0, 0)}, 1_001.0, 1_002.0, 60.0)
    assert waiting(table, "q") == (1, 0, 0)


def test_nobody_looks_for_long_by_a_clock_that_went_back() -> None:
    looks = Looks()
    looks.counts.at(5_000.0)
    looks.at(["q"], 5_000.0)
    assert looks.counts.lasts(5_001.0)
    assert not looks.counts.lasts(1_000.0)
    assert looks.names(1_000.0) == []
