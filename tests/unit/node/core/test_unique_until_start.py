"""ADDJOB UNIQUE ... UNTIL START, and REPLACE: on one node and in a cluster."""

import pytest

from disque_trio.protocol.bus import QUESTION, packet_type
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench
from tests.unit.node.core.test_uniques import compacted, journaling, rewritten, started_again

UNTIL_START = ("UNIQUE", "k", "UNTIL", "START")
REPLACE = ("UNIQUE", "k", "REPLACE")


@pytest.mark.parametrize(
    "options",
    [
        ("UNTIL", "START"),
        ("REPLACE",),
        ("UNIQUE", "k", "UNTIL"),
        ("UNIQUE", "k", "UNTIL", "noon"),
        ("UNIQUE", "k", "UNTIL", "START", "FOR", 5),
        ("UNIQUE", "k", "REPLACE", "FOR", 5),
        ("UNIQUE", "k", "REPLACE", "UNTIL", "END"),
    ],
)
def test_what_makes_no_sense_is_refused(options: tuple[str | int, ...]) -> None:
    bench = Bench()
    assert bench.error("ADDJOB", "q", "a", 0, *options).startswith("ERR ")
    assert bench.node.memory.used == bench.counted_memory() == 0


# ---- until start, on one node --------------------------------------------------------------------


def test_the_key_is_free_when_a_client_gets_the_job() -> None:
    bench = Bench()
    id = bench.add("q", "a", *UNTIL_START)
    assert bench.show(id)[b"unique-until"] == b"start"
    assert bench.add("q", "b", *UNTIL_START) == id
    assert bench.get() == id
    assert b"unique-key" not in bench.show(id)
    second = bench.add("q", "b", *UNTIL_START)
    assert second != id
    assert bench.add("q", "c", *UNTIL_START) == second
    bench("ACKJOB", id)
    assert bench.add("q", "c", *UNTIL_START) == second
    assert bench.node.memory.used == bench.counted_memory()


@pytest.mark.parametrize("back", ["NACK", "ENQUEUE", "retry"])
def test_a_job_that_comes_back_has_no_key(back: str) -> None:
    bench = Bench()
    id = bench.add("q", "a", *UNTIL_START, "RETRY", 5)
    bench.get()
    if back == "retry":
        bench.advance(6)
    else:
        bench(back, id)
    assert bench.number_queued() == 1
    second = bench.add("q", "b", *UNTIL_START)
    assert second != id
    assert {bench.get(), bench.get()} == {id, second}


def test_an_at_most_once_job_and_one_that_a_waiting_client_gets_free_their_keys() -> None:
    bench = Bench()
    id = bench.add("q", "a", *UNTIL_START, "RETRY", 0)
    assert bench.get() == id
    client = bench.block("q")
    second = bench.add("q", "a", *UNTIL_START)
    assert second != id
    assert bench.got(client) == second
    assert bench.add("q", "a", *UNTIL_START) not in (id, second)


@pytest.mark.parametrize("end", ["CANCEL", "TTL"])
def test_the_key_is_free_if_the_job_ends_before_it_starts(end: str) -> None:
    bench = Bench()
    id = bench.add("q", "a", *UNTIL_START, "TTL", 5)
    if end == "TTL":
        bench.advance(7)
    else:
        bench(end, id)
    assert bench.add("q", "a", *UNTIL_START) != id


def test_each_job_has_its_key_as_it_was_added() -> None:
    bench = Bench()
    id = bench.add("q", "a", "UNIQUE", "k", "UNTIL", "END")
    bench.get()
    assert bench.add("q", "a", *UNTIL_START) == id
    bench("ACKJOB", id)
    second = bench.add("q", "a", *UNTIL_START)
    assert bench.add("q", "a", "UNIQUE", "k") == second
    bench.get()
    assert bench.add("q", "a", "UNIQUE", "k") not in (id, second)


@pytest.mark.parametrize("how", [None, rewritten, compacted])
def test_what_had_started_has_no_key_after_a_restart(how: object) -> None:
    bench = journaling()
    waiting = bench.add("q", "a", "UNIQUE", "waiting", "UNTIL", "START")
    first = bench.add("r", "a", *UNTIL_START)
    assert bench.get("r") == first
    second = bench.add("r", "b", *UNTIL_START)
    again = started_again(bench, how(bench) if callable(how) else None)
    assert again.add("q", "a", "UNIQUE", "waiting", "UNTIL", "START") == waiting
    assert again.add("r", "a", *UNTIL_START) == second
    again("ACKJOB", first)
    assert again.add("r", "a", *UNTIL_START) == second
    assert again.node.memory.used == again.counted_memory()


def test_a_restart_right_after_the_start_knows_it() -> None:
    bench = journaling()
    id = bench.add("q", "a", *UNTIL_START)
    bench.get()
    again = started_again(bench)
    assert b"unique-key" not in again.show(id)
    assert again.add("q", "a", *UNTIL_START) != id


# ---- until start, in a cluster -------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_key_is_free_on_all_nodes_when_the_job_starts(size: int, copies: int) -> None:
    mesh = Mesh(size)
    if copies > size:
        pytest.skip("too few nodes")
    id = mesh.add(0, "REPLICATE", copies, *UNTIL_START)
    repeats = {mesh.add(at, "REPLICATE", copies, *UNTIL_START) for at in range(size)}
    assert repeats == {id}
    owner = next(at for at in range(size) if mesh[at].number_queued())
    assert mesh[owner].get() == id
    mesh.settle()
    assert [bench.info("jobs")["unique_keys"] for bench in mesh.nodes] == ["0"] * size
    second = mesh.add(size - 1, "REPLICATE", copies, *UNTIL_START)
    assert second != id
    mesh[owner]("ACKJOB", id)
    mesh.advance(2)
    assert mesh.add(0, "REPLICATE", copies, *UNTIL_START) == second


def test_a_start_at_another_node_counts_before_everybody_has_heard_of_it() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 3, *UNTIL_START)
    mesh.lose = lambda source, target, packet: source == 0 and packet_type(packet) == QUESTION
    assert mesh[0].get() == id
    mesh.settle()
    mesh.lose = lambda source, target, packet: False
    assert mesh[1].info("jobs")["unique_keys"] == "1"
    assert mesh.add(1, "REPLICATE", 3, *UNTIL_START) != id


def test_a_job_that_another_node_queues_again_has_no_key() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 2, *UNTIL_START)
    assert mesh[0].get() == id
    mesh.settle()
    mesh.isolate(0)
    mesh.advance(6)
    assert mesh[1].number_queued() + mesh[2].number_queued() == 1
    assert mesh.add(1, "REPLICATE", 2, *UNTIL_START) != id


def test_beside_a_node_of_an_earlier_release_it_is_refused() -> None:
    mesh = Mesh(3)
    mesh.older = {2}
    for options in (UNTIL_START, REPLACE):
        assert mesh[0].error("ADDJOB", "q", "a", 0, *options).startswith("NOEXT ")
    assert mesh.add(0, "UNIQUE", "k")


# ---- replace, on one node ------------------------------------------------------------------------


def test_a_waiting_job_gets_body_and_options_of_the_new_one() -> None:
    bench = Bench()
    id = bench.add("q", "a", *REPLACE, "NOTE", "first", "HEADERS", 1, "h", "1")
    options = ("PRIORITY", 6, "RETRY", 7, "TTL", 99, "NOTE", "second", "GROUP", "g")
    assert bench.add("q", "b", *REPLACE, *options, "HEADERS", 1, "h", "2") == id
    shown = bench.show(id)
    assert shown[b"body"] == b"b"
    assert (shown[b"retry"], shown[b"ttl"], shown[b"priority"]) == (7, 99, 6)
    assert (shown[b"note"], shown[b"group"]) == (b"second", b"g")
    assert shown[b"headers"] == [b"h", b"2"]
    assert bench.number_queued() == 1
    assert bench.get_with_body() == (id, b"b")
    assert bench.number_queued() == 0
    assert bench.node.memory.used == bench.counted_memory()


def test_what_the_new_one_does_not_say_is_not_kept() -> None:
    bench = Bench()
    id = bench.add("q", "a", *REPLACE, "PRIORITY", 6, "NOTE", "first", "RETRY", 7)
    assert bench.add("q", "b", *REPLACE) == id
    shown = bench.show(id)
    assert b"note" not in shown
    assert shown[b"retry"] == 300


def test_a_replaced_job_takes_its_place_by_its_new_priority() -> None:
    bench = Bench()
    other = bench.add("q", "other")
    id = bench.add("q", "a", *REPLACE)
    assert bench.add("q", "b", *REPLACE, "PRIORITY", 7) == id
    assert [bench.get(), bench.get()] == [id, other]


def test_with_a_delay_the_last_add_decides_when_it_runs() -> None:
    bench = Bench()
    id = bench.add("q", "0", *REPLACE, "DELAY", 5)
    for number in range(1, 4):
        bench.advance(4)
        assert bench.get() is None
        assert bench.add("q", str(number), *REPLACE, "DELAY", 5) == id
    bench.advance(4.9)
    assert bench.get() is None
    bench.advance(0.2)
    assert bench.get_with_body() == (id, b"3")


def test_a_queued_job_may_be_delayed_again_and_a_delayed_one_queued_at_once() -> None:
    bench = Bench()
    id = bench.add("q", "a", *REPLACE)
    assert bench.add("q", "b", *REPLACE, "DELAY", 5) == id
    assert bench.number_queued() == 0
    assert bench.add("q", "c", *REPLACE) == id
    assert bench.get_with_body() == (id, b"c")


def test_a_job_that_has_started_is_not_replaced_and_another_is_added() -> None:
    bench = Bench()
    id = bench.add("q", "a", *REPLACE)
    bench.get()
    second = bench.add("q", "b", *REPLACE)
    assert second != id
    bench("NACK", id)
    assert bench.add("q", "c", *REPLACE) == second
    assert bench.show(id)[b"body"] == b"a"
    assert bench.show(second)[b"body"] == b"c"


def test_a_job_that_keeps_its_key_while_it_runs_is_not_passed_over_in_silence() -> None:
    bench = Bench()
    id = bench.add("q", "a", "UNIQUE", "k")
    assert bench.add("q", "b", *REPLACE) == id
    assert bench.get_with_body() == (id, b"b")
    assert bench.error("ADDJOB", "q", "c", 0, *REPLACE).startswith("DELIVERED ")
    bench("ACKJOB", id)
    kept = bench.add("q", "a", "UNIQUE", "l", "FOR", 10)
    bench("ACKJOB", kept)
    assert bench.error("ADDJOB", "q", "c", 100, "UNIQUE", "l", "REPLACE").startswith("DELIVERED ")
    assert bench.node.memory.used == bench.counted_memory()


def test_an_at_most_once_job_cannot_become_another_kind() -> None:
    bench = Bench()
    id = bench.add("q", "a", *REPLACE, "RETRY", 0)
    assert "RETRY" in bench.error("ADDJOB", "q", "b", 0, *REPLACE)
    assert bench.add("q", "b", *REPLACE, "RETRY", 0) == id
    assert bench.get_with_body() == (id, b"b")


def test_a_job_that_is_replaced_again_and_again_does_not_expire() -> None:
    bench = journaling()
    id = bench.add("q", "a", *REPLACE, "TTL", 10, "DELAY", 5)
    for _ in range(5):
        bench.advance(4)
        assert bench.add("q", "b", *REPLACE, "TTL", 10, "DELAY", 5) == id
    again = started_again(bench)
    assert again.add("q", "c", *REPLACE) == id


@pytest.mark.parametrize("how", [None, rewritten, compacted])
def test_a_replaced_job_survives_a_restart(how: object) -> None:
    bench = journaling()
    id = bench.add("q", "a", *REPLACE)
    bench.add("q", "b", *REPLACE, "PRIORITY", 5, "NOTE", "n")
    again = started_again(bench, how(bench) if callable(how) else None)
    shown = again.show(id)
    assert (shown[b"body"], shown[b"priority"], shown[b"note"]) == (b"b", 5, b"n")
    assert again.add("q", "c", *REPLACE) == id


# ---- replace, in a cluster -----------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_job_is_replaced_on_all_nodes_that_hold_it(size: int, copies: int) -> None:
    if copies > size:
        pytest.skip("too few nodes")
    mesh = Mesh(size)
    id = mesh.add(0, "REPLICATE", copies, "DELAY", 50, *REPLACE)
    for at in range(size):
        bench = mesh[at]
        options = ("REPLICATE", copies, "DELAY", 50 + at, "NOTE", f"n{at}", *REPLACE)
        bench.send(bench.me, "ADDJOB", "q", f"body {at}", 2000, *options)
        mesh.settle()
        assert bench.replies(bench.me) == [id]
        for holder in mesh.holders(id):
            shown = mesh[holder].show(id)
            assert (shown[b"body"], shown[b"note"]) == (b"body %d" % at, b"n%d" % at)
    assert len(mesh.holders(id)) == copies
    assert sum(bench.node.store.jobs.count for bench in mesh.nodes) == copies


def test_a_large_body_goes_to_a_node_that_holds_the_job() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 1, *REPLACE)
    bench = mesh[1]
    body = b"x" * 3_000_000
    bench.send(bench.me, "ADDJOB", "q", body, 2000, "REPLICATE", 1, *REPLACE)
    mesh.settle()
    assert bench.replies(bench.me) == [id]
    assert mesh[0].get_with_body() == (id, body)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_of_two_that_replace_at_once_both_are_answered_and_one_is_last(copies: int) -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", copies, *REPLACE)
    for at in (1, 2):
        bench = mesh[at]
        bench.send(bench.me, "ADDJOB", "q", f"{at}", 2000, "REPLICATE", copies, *REPLACE)
    mesh.advance(2)
    assert [mesh[at].replies(mesh[at].me) for at in (1, 2)] == [[id], [id]]
    bodies = {mesh[at].show(id)[b"body"] for at in mesh.holders(id)}
    assert len(bodies) == 1
    assert bodies <= {b"1", b"2"}
    assert sum(bench.number_queued() for bench in mesh.nodes) == 1


def test_two_that_add_at_once_end_with_one_job() -> None:
    mesh = Mesh(3)
    for at in (1, 2):
        bench = mesh[at]
        bench.send(bench.me, "ADDJOB", "q", f"{at}", 2000, "REPLICATE", 2, *REPLACE)
    mesh.advance(2)
    replies = {str(mesh[at].replies(mesh[at].me)) for at in (1, 2)}
    assert len(replies) == 1
    assert sum(bench.number_queued() for bench in mesh.nodes) == 1


def test_a_job_that_starts_while_it_is_replaced_runs_as_it_was_and_another_is_added() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 2, *REPLACE)
    holder = next(at for at in mesh.holders(id) if at)
    bench = mesh[holder]
    mesh.lose = lambda source, target, packet: source == holder and target == 0
    bench.send(bench.me, "ADDJOB", "q", "new", 5000, "REPLICATE", 2, *REPLACE)
    mesh.settle()
    assert mesh[0].get_with_body() == (id, b"body")
    mesh.lose = lambda source, target, packet: False
    mesh.advance(4)
    (second,) = bench.replies(bench.me)
    assert second != id
    assert mesh[0].show(id)[b"body"] == b"body"
    assert bench.show(second)[b"body"] == b"new"


def test_the_key_of_a_replaced_job_lasts_as_long_as_its_new_time_to_live() -> None:
    mesh = Mesh(5)
    id = mesh.add(0, "REPLICATE", 1, "TTL", 20, "DELAY", 10, *REPLACE)
    for _ in range(12):
        mesh.advance(9)
        assert mesh.add(3, "REPLICATE", 1, "TTL", 20, "DELAY", 10, *REPLACE) == id
    assert sum(bench.node.store.jobs.count for bench in mesh.nodes) == 1


def test_nobody_replaces_a_job_whose_holder_is_away() -> None:
    mesh = Mesh(3)
    mesh.add(0, "REPLICATE", 1, *REPLACE)
    mesh.isolate(0)
    bench = mesh[1]
    bench.send(bench.me, "ADDJOB", "q", "new", 1000, "REPLICATE", 1, *REPLACE)
    mesh.advance(2)
    (reply,) = bench.replies(bench.me)
    assert str(reply).startswith("NOUNIQ ")
    assert bench.node.memory.used == bench.counted_memory()
