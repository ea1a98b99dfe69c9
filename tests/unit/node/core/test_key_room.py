"""When memory is short, keys that outlive their jobs go before jobs are refused."""

import pytest

from disque_trio.node.core.jobs.uniques import MAX_EVICTIONS, TELL_EVERY, KeyEnds
from disque_trio.protocol.keyrecord import ADDED
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench
from tests.unit.node.core.test_uniques import started_again

LIMIT = 400_000
ID = b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"  # of a job that has ended


def ended(bench: Bench, key: object, seconds: int = 3600) -> bytes:
    """Add a job with a key that stays, and end it."""
    id = bench.add("q", "", "UNIQUE", str(key), "FOR", seconds)
    bench("ACKJOB", id)
    return id


def keys(bench: Bench) -> set[bytes]:
    return {entry.key for entry in bench.node.store.uniques.entries.values()}


def fill(bench: Bench) -> None:
    """Add keys until new jobs are refused, but for the keys that go."""
    uniques = bench.node.store.uniques
    number = 0
    while bench.node.memory.used <= LIMIT * 75 // 100:
        until = bench.now + 100_000_000
        entry = uniques.add(b"q", b"full%d" % number, ID, ADDED, True, until)
        uniques.note(entry)
        number += 1
    bench.node.memory.set_limit(LIMIT)


def evicted(bench: Bench) -> int:
    return int(bench.info("stats")["total_keys_evicted"])


def test_a_job_is_added_where_keys_fill_the_memory(bench: Bench) -> None:
    fill(bench)
    bench.add("jobs", "body")
    assert evicted(bench) > 0
    assert bench.node.memory.used == bench.counted_memory()
    bench("CONFIG", "RESETSTAT")
    assert evicted(bench) == 0


def test_those_that_end_first_go_first(bench: Bench) -> None:
    order = (b"100", b"500", b"900")
    for key in (b"900", b"100", b"500"):
        ended(bench, key.decode(), int(key))
    for number in range(3):
        assert keys(bench) == {*order[number:]}
        bench.node.store.uniques.make_room(bench.node.memory.used - 1)
    assert keys(bench) == set()


def test_keys_of_living_jobs_and_those_without_a_time_stay(bench: Bench) -> None:
    bench.add("q", "", "UNIQUE", "alive", "FOR", 50)
    bench.add("q", "", "UNIQUE", "plain", "TTL", 60)
    fill(bench)
    for _ in range(50):
        bench.add("jobs", "x" * 100)
    assert {b"alive", b"plain"} <= keys(bench)


def test_the_key_of_a_job_that_ends_meanwhile_may_go(bench: Bench) -> None:
    id = bench.add("q", "", "UNIQUE", "k", "FOR", 50)
    fill(bench)
    bench.add("jobs", "x" * 100)
    assert b"k" in keys(bench)
    bench("ACKJOB", id)
    for _ in range(20):
        bench.add("jobs", "x" * 100)
    assert b"k" not in keys(bench)


def test_the_key_of_a_job_that_was_given_away_may_go(bench: Bench) -> None:
    id = bench.add("q", "", "UNIQUE", "k", "FOR", 50)
    uniques = bench.node.store.uniques
    uniques.make_room(0)
    job = bench.node.store.jobs.get(id)
    assert job is not None
    bench.node.store.let_go(job)
    assert keys(bench) == {b"k"}
    uniques.make_room(0)
    assert keys(bench) == set()


def test_a_voter_makes_room_for_the_keys_of_other_nodes() -> None:
    mesh = Mesh(3)
    voter = mesh[1].node
    fill(mesh[1])
    voter.memory.set_limit(voter.memory.used)
    mesh.cut(0, 2)
    mesh[0].send(mesh[0].me, "ADDJOB", "q", "", 0, "REPLICATE", 1, "UNIQUE", "new")
    mesh.settle()
    assert isinstance(mesh[0].replies(mesh[0].me)[0], (bytes, str))
    assert b"new" in keys(mesh[1])


def test_what_is_gone_is_not_remembered(bench: Bench) -> None:
    uniques = bench.node.store.uniques
    for number in range(10):
        ended(bench, f"dropped{number}")
    assert bench("QDELKEY", "q", *[f"dropped{number}" for number in range(10)]) == 10
    assert uniques._ends.pop() == b""
    ended(bench, "over", 1)
    bench.now += 10_000_000
    bench.node.cron(bench.now)
    assert uniques._ends.pop() == b""


def test_above_the_highest_limit_commands_make_room(bench: Bench) -> None:
    fill(bench)
    bench.node.memory.set_limit(bench.node.memory.used)
    bench("QSET", "q", "RETRY", 5)
    assert bench.node.memory.used <= bench.node.memory.evict_above


def test_a_node_makes_room_for_copies_of_other_nodes_jobs() -> None:
    mesh = Mesh(3)
    fill(mesh[1])
    mesh.advance(1)
    before = len(keys(mesh[1]))
    for bench in mesh.nodes:
        bench.node.cron(bench.now)
    assert len(keys(mesh[1])) < before
    assert mesh[1].node.peers.trouble == 0
    assert mesh.holders(mesh.add(0, "REPLICATE", 3)) == [0, 1, 2]


def test_much_room_is_made_in_steps(bench: Bench) -> None:
    uniques = bench.node.store.uniques
    for number in range(MAX_EVICTIONS + 10):
        uniques.add(b"q", b"%d" % number, ID, ADDED, True, bench.now + 100_000)
    uniques.make_room(0)
    assert uniques.entries.count == 10
    uniques.make_room(0)
    assert uniques.entries.count == 0
    assert uniques.by_queue == {}


def test_it_is_told_once_a_minute(bench: Bench) -> None:
    told: list[str] = []
    bench.node.store.uniques.warn = told.append
    fill(bench)
    for _ in range(10):
        bench.add("jobs", "x" * 100)
    assert len(told) == 1
    bench.now += TELL_EVERY
    bench.add("jobs", "x" * 1000)
    assert len(told) == 2


def test_keys_that_went_do_not_come_back_at_a_start() -> None:
    bench = Bench()
    bench.node.journaling = True
    fill(bench)
    bench.add("jobs", "x" * 1000)
    assert keys(started_again(bench)) == keys(bench)
    assert evicted(bench) > 0


def test_after_a_start_they_go_as_well() -> None:
    bench = Bench()
    bench.node.journaling = True
    fill(bench)
    again = started_again(bench)
    again.node.memory.set_limit(again.node.memory.used)
    again.add("jobs", "x" * 1000)
    assert evicted(again) > 0


# ---- their order ------------------------------------------------------------------------------


def test_the_order_is_that_of_the_ends_and_within_a_minute_the_last_comes_first() -> None:
    ends = KeyEnds()
    minute = 1 << 16
    for place, until in ((b"c", 5 * minute), (b"a", 3 * minute + 9), (b"b", 3 * minute)):
        ends.add(place, until)
        ends.add(place, until)
    ends.remove(b"unknown", 3 * minute)
    assert [ends.pop() for _ in range(4)] == [b"b", b"a", b"c", b""]


@pytest.mark.parametrize("which", [b"a", b"b"])
def test_what_was_removed_or_is_over_is_not_found(which: bytes) -> None:
    ends = KeyEnds()
    ends.add(b"a", 1 << 16)
    ends.add(b"b", 9 << 16)
    if which == b"a":
        ends.forget(2 << 16)
    else:
        ends.remove(b"b", 9 << 16)
    assert ends.pop() == (b"b" if which == b"a" else b"a")
    assert ends.pop() == b""
