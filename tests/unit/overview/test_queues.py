"""What is known about queues, with a clock that the test moves."""

from typing import Any

import pytest

from disque_trio.client import Policy
from disque_trio.overview.histories import Histories
from disque_trio.overview.history import times_of, together
from disque_trio.overview.policies import Policies
from disque_trio.overview.queues import FULL_FOR, QueueTable

A, B = "a:1", "b:1"


def stat(length: int = 0, **more: Any) -> dict[bytes, Any]:
    fields: dict[bytes, Any] = {
        b"len": length,
        b"pause": b"none",
        b"blocked": 0,
        b"jobs-in": 0,
        b"jobs-out": 0,
        b"jobs-acked": 0,
        b"jobs-expired": 0,
        b"oldest-job-age": 0,
    }
    return fields | {name.replace("_", "-").encode(): value for name, value in more.items()}


def names(table: QueueTable, search: str = "", key: str = "name", down: bool = False) -> list[str]:
    return [row.name for row in table.find(search, key, down)]


def test_a_queue_is_the_sum_of_what_the_nodes_say() -> None:
    table = QueueTable()
    for moment, jobs_in in ((0.0, 0), (2.0, 10)):
        table.take(A, "q", stat(3, jobs_in=jobs_in, blocked=1, oldest_job_age=5000), moment)
        table.take(B, "q", stat(4, jobs_in=jobs_in, oldest_job_age=7000), moment)
    row = table.row("q")
    assert row is not None
    assert (row.length, row.blocked, row.oldest, row.added, row.nodes) == (7, 1, 7.0, 10.0, (A, B))
    assert table.length == 7


def test_a_node_that_goes_away_takes_its_share_with_it() -> None:
    table = QueueTable()
    table.take(A, "q", stat(3), 0.0)
    table.take(B, "q", stat(4), 0.0)
    table.take(B, "only there", stat(4), 0.0)
    table.node_lost(B)
    row = table.row("q")
    assert row is not None
    assert row.length == 3
    assert names(table) == ["q"]


@pytest.mark.parametrize(
    ("pauses", "said"),
    [((b"none", b"none"), ""), ((b"in", b"in"), "in"), ((b"all", b"none"), "partly")],
)
def test_a_pause_of_some_nodes_is_one_in_part(pauses: tuple[bytes, bytes], said: str) -> None:
    table = QueueTable()
    for node, pause in zip((A, B), pauses, strict=True):
        table.take(node, "q", stat(pause=pause), 0.0)
    row = table.row("q")
    assert row is not None
    assert row.paused == said


def test_what_takes_a_look_at_all_jobs_is_forgotten_when_it_is_old() -> None:
    table = QueueTable()
    table.take(A, "q", stat(jobs_delayed=1, jobs_in_hand=2, jobs_dead=3), 0.0)
    table.take(A, "q", stat(), FULL_FOR - 1)
    row = table.row("q")
    assert row is not None
    assert (row.delayed, row.in_hand, row.dead) == (1, 2, 3)
    table.take(A, "q", stat(), FULL_FOR + 1)
    row = table.row("q")
    assert row is not None
    assert (row.delayed, row.in_hand, row.dead) == (None, None, None)


def test_queues_are_sorted_by_what_is_asked_for_and_then_by_name() -> None:
    table = QueueTable()
    for name, length in (("c", 1), ("a", 1), ("b", 9)):
        table.take(A, name, stat(length), 0.0)
    assert names(table) == ["a", "b", "c"]
    assert names(table, key="length", down=True) == ["b", "a", "c"]
    table.take(A, "a", stat(10), 2.0)
    assert names(table, key="length", down=True) == ["a", "b", "c"]


@pytest.mark.parametrize("key", ["delayed", "in_hand", "dead", "added", "delivered", "acked"])
def test_queues_whose_values_are_unknown_come_last_in_both_directions(key: str) -> None:
    table = QueueTable()
    for name, count in (("few", 0), ("many", 9)):
        fields = {"jobs_delayed": count, "jobs_in_hand": count, "jobs_dead": count}
        table.take(A, name, stat(), 0.0)
        more = {"jobs_in": count, "jobs_out": count, "jobs_acked": count}
        table.take(A, name, stat(**fields, **more), 2.0)
    table.take(A, "a new one", stat(), 2.0)
    assert names(table, key=key) == ["few", "many", "a new one"]
    assert names(table, key=key, down=True) == ["many", "few", "a new one"]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("MAIL", ["mail.in", "mail.out", "x-mail"]),
        ("mail.*", ["mail.in", "mail.out"]),
    ],
)
def test_a_search_is_for_a_part_of_the_name_or_a_pattern(search: str, found: list[str]) -> None:
    table = QueueTable()
    for name in ("mail.in", "mail.out", "x-mail", "other"):
        table.take(A, name, stat(), 0.0)
    assert names(table, search) == found


def test_a_queue_that_no_node_knows_is_gone_but_its_history_is_not() -> None:
    histories = Histories()
    table = QueueTable(histories)
    table.take(A, "q", stat(1), 0.0)
    assert histories.get("q") is not None
    table.gone(A, "q")
    table.gone(A, "q")
    assert table.row("q") is None
    assert histories.get("q") is not None
    assert len(table) == 0


def test_a_queue_with_which_nothing_happens_has_no_history() -> None:
    histories = Histories()
    table = QueueTable(histories)
    table.take(A, "q", stat(), 0.0)
    assert not table.take(A, "q", stat(), 30.0)
    assert histories.get("q") is None
    assert table.take(A, "q", stat(jobs_in=1), 60.0)
    assert histories.get("q") is not None


def newer(length: int = 0, added: int = 0, delivered: int = 0, **more: Any) -> dict[bytes, Any]:
    """QSTAT of a node that tells what clients did apart from moves."""
    moves = {"jobs_in": 1_000 + 7 * added, "jobs_out": 1_000 + 7 * delivered}
    return stat(length, jobs_added=added, jobs_delivered=delivered, **(moves | more))


def test_rates_are_of_what_clients_did_and_moves_are_apart() -> None:
    table = QueueTable()
    for moment, count in ((0.0, 0), (2.0, 10)):
        for node in (A, B):
            imported = 3 * count if node == B else 0
            table.take(
                node, "q", newer(added=count, delivered=count, jobs_imported=imported), moment
            )
    row = table.row("q")
    assert row is not None
    assert (row.added, row.delivered, row.moved, row.older) == (10.0, 10.0, 15.0, ())


def test_nodes_that_do_not_tell_moves_apart_are_named() -> None:
    table = QueueTable()
    for moment, count in ((0.0, 0), (2.0, 10)):
        table.take(A, "q", newer(added=count), moment)
        table.take(B, "q", stat(jobs_in=count), moment)
    row = table.row("q")
    assert row is not None
    assert (row.added, row.older) == (10.0, (B,))


def test_a_queue_from_which_only_nodes_took_jobs_was_never_asked_for() -> None:
    table = QueueTable()
    table.take(A, "q", newer(5, jobs_out=9), 0.0)
    row = table.row("q")
    assert row is not None
    assert row.unasked
    table.take(A, "q", newer(5, delivered=1), 2.0)
    row = table.row("q")
    assert row is not None
    assert not row.unasked


def test_how_long_jobs_took_is_the_sum_of_the_nodes() -> None:
    table = QueueTable()
    table.take(A, "q", newer(wait_recent=[1, 0, 3], processing_recent=[]), 0.0)
    table.take(B, "q", newer(wait_recent=[1], processing_recent=[0, 5]), 0.0)
    row = table.row("q")
    assert row is not None
    assert (row.wait, row.processing) == ((2, 0, 3), (0, 5))


def test_how_long_jobs_took_is_in_the_history_from_the_first_answer_on() -> None:
    histories = Histories()
    table = QueueTable(histories)
    for moment, total in ((0.0, [90, 1]), (2.0, [90, 3, 1]), (4.0, [1])):
        table.take(A, "q", newer(1, wait_total=total), moment)
    history = histories.get("q")
    assert history is not None
    counts = together(times_of(history.ranges["1h"], "wait", 4.0))
    assert counts == [1, 2, 1]  # the node started again before the last answer


@pytest.mark.parametrize("value", [None, 7, [b"x", 1], list(range(1_000))])
def test_nonsense_in_place_of_times_is_no_failure(value: object) -> None:
    table = QueueTable()
    for moment in (0.0, 2.0):
        table.take(A, "q", newer(1, wait_total=value, wait_recent=value), moment)
    row = table.row("q")
    assert row is not None
    assert sum(row.wait) <= 1


def test_policies_are_found_as_the_node_finds_them() -> None:
    policies = Policies(
        Policy(name, ttl=number)
        for number, name in enumerate(["*", "mail.*", "mail.urgent*", "mail.urgent.now", "a\\*b"])
    )

    def of(queue: str) -> str:
        found = policies.of(queue)
        assert found is not None
        return found.name

    assert of("other") == "*"
    assert of("mail.x") == "mail.*"
    assert of("mail.urgent.x") == "mail.urgent*"
    assert of("mail.urgent.now") == "mail.urgent.now"
    assert of("a*b") == "a\\*b"
    assert of("mail." + "x" * 5000) == "*"
    assert Policies().of("q") is None


def test_an_answer_older_than_the_last_one_makes_no_rate() -> None:
    table = QueueTable()
    table.take(A, "q", stat(5, jobs_in=1_000), 10.0, asked=9.9)
    table.take(A, "q", stat(7, jobs_in=1_002), 12.0, asked=11.9)
    late = stat(6, jobs_in=1_001, jobs_delayed=3, jobs_in_hand=2, jobs_dead=1)
    assert not table.take(A, "q", late, 12.1, asked=11.0)
    table.take(A, "q", stat(8, jobs_in=1_004), 14.0, asked=13.9)
    row = table.row("q")
    assert row is not None
    assert (row.length, row.added, row.delayed, row.in_hand, row.dead) == (8, 1.0, 3, 2, 1)


def test_after_the_clock_went_back_answers_are_taken() -> None:
    table = QueueTable()
    table.take(A, "q", stat(5), 1_000.0, asked=999.9)
    table.take(A, "q", stat(6), 10.0, asked=9.9)
    row = table.row("q")
    assert row is not None
    assert row.length == 6


def test_a_queue_without_queued_jobs_is_there_while_others_are_counted() -> None:
    table = QueueTable()
    table.listed(A, {"q"}, 0.0)
    table.counted(A, {"later": (3, 0, 0), "q": (1, 0, 0)}, 1.0, 2.0, keep=60.0)
    assert names(table) == ["later"]  # the node has not told yet how long q is
    table.listed(A, set(), 3.0)
    row = table.row("later")
    assert row is not None
    assert (row.length, row.delayed, row.added) == (0, 3, None)
    table.counted(A, {}, 5.0, 6.0, keep=60.0)
    table.listed(A, set(), 7.0)
    assert names(table) == []


def test_a_queue_whose_count_is_too_old_is_gone() -> None:
    table = QueueTable()
    table.listed(A, set(), 0.0)
    table.counted(A, {"later": (3, 0, 0)}, 1.0, 2.0, keep=60.0)
    assert names(table) == ["later"]
    table.listed(A, set(), 62.1)
    assert names(table) == []


def test_a_queue_that_only_somebody_who_looked_at_it_knew_is_gone() -> None:
    table = QueueTable()
    full = stat(0, jobs_delayed=0, jobs_in_hand=2, jobs_dead=0)
    table.take(A, "q", full, 1.0)
    table.listed(A, {"other"}, 2.0)
    assert names(table) == ["q"]
    table.listed(A, {"other"}, 2.0 + FULL_FOR)
    assert names(table) == []


def test_what_a_node_no_longer_lists_has_no_queued_jobs() -> None:
    table = QueueTable()
    table.take(A, "q", stat(4, blocked=1, pause=b"in", oldest_job_age=5), 1.0)
    table.counted(A, {"q": (0, 1, 0)}, 2.0, 3.0, keep=60.0)
    table.listed(A, set(), 4.0)
    row = table.row("q")
    assert row is not None
    assert (row.length, row.blocked, row.oldest, row.paused, row.in_hand) == (0, 0, 0.0, "", 1)


def test_a_queue_is_not_paused_on_a_node_that_does_not_have_it() -> None:
    table = QueueTable()
    table.take(A, "q", stat(1, pause=b"in"), 1.0)
    table.listed(A, {"q"}, 1.0)
    row = table.row("q")
    assert row is not None
    assert row.paused == "in"
    table.listed(B, {"q"}, 1.0)  # it will soon say whether it is paused there
    row = table.row("q")
    assert row is not None
    assert row.paused == "in"
    table.listed(B, set(), 2.0)
    row = table.row("q")
    assert row is not None
    assert row.paused == "partly"
    table.node_lost(B)
    table.take(A, "q", stat(1, pause=b"in"), 3.0)
    row = table.row("q")
    assert row is not None
    assert row.paused == "in"
