"""The priorities of jobs: which are delivered first, and that a job keeps its own."""

from pathlib import Path

import pytest

from tests.support.mesh import Mesh
from tests.support.node_bench import Bench, loaded_again
from tests.support.policies import set_policy


def add_with(bench: Bench, *priorities: int) -> list[bytes]:
    """Add a job with each of ``priorities``; return their ids."""
    return [bench.add("q", f"{priority}", "PRIORITY", priority) for priority in priorities]


def priority_of(bench: Bench, id: bytes) -> object:
    """Return the priority of a job according to SHOW."""
    return bench.show(id).get(b"priority")


def test_the_most_urgent_are_delivered_first_and_of_these_the_oldest(bench: Bench) -> None:
    usual, first_urgent, top, second_urgent, late = add_with(bench, 0, 3, 7, 3, 0)
    plain = bench.add("q", "no priority at all")
    assert bench.get_all() == [top, first_urgent, second_urgent, usual, late, plain]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_order_is_the_same_one_by_one_and_several_at_once(bench: Bench, count: int) -> None:
    ids = add_with(bench, 1, 2, 0, 2, 1)
    found: list[bytes] = []
    while batch := bench.get_all(count=count):
        found += batch
    assert found == [ids[place] for place in (1, 3, 0, 4, 2)]


def test_looking_at_a_queue_shows_the_order_in_which_it_is_delivered(bench: Bench) -> None:
    usual, urgent = add_with(bench, 0, 7)
    assert bench.ids(bench("QPEEK", "q", 2)) == [urgent, usual]
    assert bench.ids(bench("QPEEK", "q", -1)) == [usual]


def test_the_priority_is_shown_where_it_is_not_0(bench: Bench) -> None:
    usual, urgent = add_with(bench, 0, 5)
    assert priority_of(bench, usual) is None
    assert priority_of(bench, urgent) == 5
    first, second = bench("GETJOB", "COUNT", 2, "WITHCOUNTERS", "FROM", "q")
    counters = [b"nacks", 0, b"additional-deliveries", 0]
    assert first[3:] == [*counters, b"priority", 5]
    assert second[3:] == counters


def test_headers_stand_behind_the_priority(bench: Bench) -> None:
    bench.add("q", "body", "HEADERS", 1, "name", "value", "PRIORITY", 2)
    (entry,) = bench("GETJOB", "WITHHEADERS", "WITHCOUNTERS", "FROM", "q")
    assert entry[7:] == [b"priority", 2, b"headers", [b"name", b"value"]]


@pytest.mark.parametrize("value", ["-1", "8", "urgent", "", "1.5", "99999999999999999999"])
def test_an_invalid_priority_is_refused(bench: Bench, value: str) -> None:
    error = bench.error("ADDJOB", "q", "body", 0, "PRIORITY", value)
    assert error == "ERR PRIORITY must be between 0 and 7"
    assert bench.number_queued() == 0


def test_a_missing_priority_is_refused(bench: Bench) -> None:
    assert bench.error("ADDJOB", "q", "body", 0, "PRIORITY") == "ERR syntax error"


def test_other_options_go_with_a_priority(bench: Bench) -> None:
    usual = bench.add()
    key = bench.add("q", "a", "UNIQUE", "key", "priority", 6, "ASYNC")
    assert bench.add("q", "b", "PRIORITY", 1, "UNIQUE", "key") == key
    longest = bench.add("q", "c", "MAXLEN", 3, "PRIORITY", 7, "RETRY", 0)
    bench.add("q", "d", "DELAY", 5, "PRIORITY", 7)
    assert bench.get_all() == [longest, key, usual]


def test_who_waits_gets_the_next_job_whatever_its_priority(bench: Bench) -> None:
    client = bench.block("q")
    (id,) = add_with(bench, 0)
    assert bench.got(client) == id


def test_a_job_that_is_queued_again_goes_before_less_urgent_ones(bench: Bench) -> None:
    urgent, usual = bench.add("q", "a", "PRIORITY", 4, "RETRY", 10), bench.add("q", "b")
    assert bench.get() == urgent
    bench("NACK", urgent)
    (late,) = add_with(bench, 4)
    assert bench.get() == urgent
    bench.advance(11)
    assert bench.get_all() == [urgent, late, usual]
    assert priority_of(bench, urgent) == 4


def test_a_job_that_was_changed_or_taken_out_keeps_its_priority(bench: Bench) -> None:
    usual, urgent = add_with(bench, 0, 4)
    bench("UPDATEJOB", urgent, "BODY", "other")
    bench("DEQUEUE", urgent)
    bench("ENQUEUE", urgent)
    assert bench.get_all() == [urgent, usual]


def test_a_dead_letter_is_as_urgent_as_the_job_was_and_so_is_what_is_sent_back(
    bench: Bench,
) -> None:
    set_policy(bench, attempts=1, dead=b"dead")
    usual, urgent = add_with(bench, 0, 4)
    assert bench.get_all() == [urgent, usual]
    bench("NACK", usual, urgent)
    letters = bench.ids(bench("QPEEK", "dead", 2))
    assert [priority_of(bench, id) for id in letters] == [4, None]
    bench.send(bench.me, "REDRIVE", "dead")
    bench.advance(1)
    assert bench.replies(bench.me) == [2]
    assert [priority_of(bench, id) for id in bench.get_all()] == [4, None]


@pytest.mark.parametrize("option", [[], ["HEADERS", 1, "a", "b"]], ids=["plain", "trailer"])
def test_the_append_only_file_has_the_priorities(
    bench: Bench, tmp_path: Path, option: list[str | int]
) -> None:
    bench.node.journaling = True
    ids = [bench.add("q", "body", "PRIORITY", number, *option) for number in (0, 2, 7)]
    again = loaded_again(bench, tmp_path)
    again.advance(400)
    assert again.get_all() == ids[::-1]
    assert [priority_of(again, id) for id in ids] == [None, 2, 7]


def test_copies_have_the_priority_and_are_queued_with_it() -> None:
    mesh = Mesh(2)
    ids = [mesh.add(0, "REPLICATE", 2, "RETRY", 5, "PRIORITY", number) for number in (0, 3, 7)]
    assert [priority_of(mesh[1], id) for id in ids] == [None, 3, 7]
    mesh.isolate(0)
    assert mesh[0].get_all() == ids[::-1]
    mesh.advance(7)
    assert mesh[1].get_all() == ids[::-1]


@pytest.mark.parametrize("as_c", [False, True])
def test_another_node_gets_the_most_urgent_ones_and_queues_them_so(as_c: bool) -> None:
    mesh = Mesh(2)
    if as_c:
        mesh.c_nodes.add(0)
    ids = [mesh.add(0, "REPLICATE", 1, "PRIORITY", number) for number in (0, 3, 7, 3)]
    client = mesh[1].block("q")
    mesh.settle()
    taken = [mesh[1].got(client)]
    while len(taken) < len(ids):
        more = mesh[1].get_all() or [mesh[1].got(wait(mesh, 1))]
        taken += more
    assert taken == [ids[place] for place in (2, 1, 3, 0)]


def wait(mesh: Mesh, index: int) -> object:
    """Return a client of a node that waited until the others sent something."""
    client = mesh[index].block("q")
    mesh.advance(2)
    return client
