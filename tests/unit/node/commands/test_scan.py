"""QSCAN and JSCAN: cursors, filters, errors, and that a scan misses nothing."""

import random
from typing import Any
from zlib import crc32

import pytest

from disque_trio.node.commands.scan import JobFilter
from disque_trio.node.commands.table import build_table
from disque_trio.node.core.jobs.job import Job
from disque_trio.respserver.slices import do_slice
from tests.support.mesh import Mesh
from tests.support.node_bench import JOB_FIELDS, Bench

BAD = "ERR invalid cursor or option name"


def walk(bench: Bench, *args: str | int) -> list[bytes]:
    """Return everything that a scan returns from cursor 0 to cursor 0."""
    found: list[bytes] = []
    cursor = b"0"
    while True:
        reply = bench(args[0], cursor, *args[1:])
        assert isinstance(reply, list)
        cursor = reply[0]
        found += reply[1]
        if cursor == b"0":
            return found


@pytest.mark.parametrize("count", [1, 7, 100, 10_000])
def test_a_walk_gives_every_queue_and_every_job_once(bench: Bench, count: int) -> None:
    ids = [bench.add(f"q{number % 50}") for number in range(300)]
    queues = walk(bench, "QSCAN", "COUNT", count)
    assert sorted(queues) == sorted(f"q{number}".encode() for number in range(50))
    assert sorted(walk(bench, "JSCAN", "COUNT", count)) == sorted(ids)


def test_a_walk_misses_nothing_while_jobs_come_and_go(bench: Bench) -> None:
    rng = random.Random(5)
    stay = [bench.add("stay") for _ in range(200)]
    go = [bench.add("go") for _ in range(200)]
    found: list[bytes] = []
    cursor = b"0"
    while True:
        reply = bench("JSCAN", cursor, "COUNT", 20)
        assert isinstance(reply, list)
        cursor = reply[0]
        found += reply[1]
        if cursor == b"0":
            break
        for _ in range(10):
            go.append(bench.add("go"))
            bench("ACKJOB", go.pop(rng.randrange(len(go))))
    assert len(found) == len(set(found))
    assert set(stay) <= set(found)


@pytest.mark.parametrize("command", ["QSCAN", "JSCAN"])
def test_the_cursor_may_stand_anywhere(bench: Bench, command: str) -> None:
    for number in range(20):
        bench.add(f"q{number}")
    reply = bench(command, 0, "COUNT", 5)
    assert isinstance(reply, list)
    cursor = reply[0]
    rest = bench(command, cursor, "COUNT", 100)
    assert bench(command, "COUNT", 100, cursor) == rest
    assert bench(command, "COUNT", 100, cursor, "BUSYLOOP") != rest
    assert bench(command) == bench(command, 0) == bench(command, "COUNT", 100, 0)


@pytest.mark.parametrize("command", ["QSCAN", "JSCAN"])
@pytest.mark.parametrize("cursor", [1, 77, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 10**30])
def test_any_unsigned_number_is_a_cursor(bench: Bench, command: str, cursor: int) -> None:
    bench.add()
    reply = bench(command, cursor)
    assert isinstance(reply, list)
    assert reply[0] == b"0"


@pytest.mark.parametrize("command", ["QSCAN", "JSCAN"])
def test_busyloop_gives_all_at_once(bench: Bench, command: str) -> None:
    for number in range(500):
        bench.add(f"q{number}")
    reply = bench(command, "COUNT", 1, "BUSYLOOP")
    assert isinstance(reply, list)
    assert reply[0] == b"0"
    assert len(set(reply[1])) == len(reply[1]) == 500


@pytest.mark.parametrize("command", ["QSCAN", "JSCAN"])
def test_nothing_to_scan_is_an_empty_list(bench: Bench, command: str) -> None:
    assert bench(command) == [b"0", []]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["QSCAN", "x"], BAD),
        (["QSCAN", -1], BAD),
        (["QSCAN", 0, "COUNT"], BAD),
        (["QSCAN", 0, "MINLEN"], BAD),
        (["QSCAN", 0, "QUEUE", "q"], BAD),
        (["QSCAN", 0, 0], "ERR syntax error"),
        (["JSCAN", "x"], BAD),
        (["JSCAN", ""], BAD),
        (["JSCAN", 0, "STATE"], BAD),
        (["JSCAN", 0, "REPLY"], BAD),
        (["JSCAN", 0, "MINLEN", 1], BAD),
        (["JSCAN", 0, "COUNT", 10, 5], "ERR syntax error"),
        (["JSCAN", "STATE", "sleeping"], "ERR Invalid job state name"),
        (["JSCAN", "STATE", "gone"], "ERR Invalid job state name"),
        (["JSCAN", "REPLY", "some"], "ERR Invalid REPLY type, try ID or ALL"),
    ],
)
def test_scans_name_what_is_wrong(bench: Bench, args: list[str | int], text: str) -> None:
    assert bench.error(*args) == text


@pytest.mark.parametrize("value", ["x", "-1", "0"])
@pytest.mark.parametrize("command", ["QSCAN", "JSCAN"])
def test_a_wrong_count_is_an_error(bench: Bench, command: str, value: str) -> None:
    assert bench.error(command, "COUNT", value).startswith("ERR ")


# ---- filters ------------------------------------------------------------------------------------


def test_qscan_filters_by_length(bench: Bench) -> None:
    for length in range(5):
        bench.make_queue(f"q{length}")
        for _ in range(length):
            bench.add(f"q{length}")
    assert sorted(walk(bench, "QSCAN", "MINLEN", 3)) == [b"q3", b"q4"]
    assert sorted(walk(bench, "QSCAN", "MAXLEN", 1)) == [b"q0", b"q1"]
    assert walk(bench, "QSCAN", "minlen", 2, "maxlen", 2, "COUNT", 1) == [b"q2"]
    assert walk(bench, "QSCAN", "MAXLEN", 0) == [b"q0"]
    assert walk(bench, "QSCAN", "MINLEN", 9) == []


def test_qscan_importrate_finds_none_on_a_node_alone(bench: Bench) -> None:
    bench.add("q")
    assert walk(bench, "QSCAN", "IMPORTRATE", 1) == []
    assert walk(bench, "QSCAN", "IMPORTRATE", 0) == [b"q"]


def test_jscan_filters_by_queue_and_states(bench: Bench) -> None:
    queued, active = bench.add("a"), bench.add("a", "b", "DELAY", 5)
    other = bench.add("b")
    assert walk(bench, "JSCAN", "QUEUE", "a", "STATE", "queued") == [queued]
    assert walk(bench, "JSCAN", "state", "Active") == [active]
    assert sorted(walk(bench, "JSCAN", "STATE", "queued", "STATE", "active")) == sorted(
        [queued, active, other]
    )
    assert sorted(walk(bench, "JSCAN", "STATE", "queued")) == sorted([queued, other])
    assert walk(bench, "JSCAN", "STATE", "acked", "STATE", "wait-repl") == []
    assert walk(bench, "JSCAN", "QUEUE", "nosuch") == []


def test_jscan_filters_by_stage(bench: Bench) -> None:
    fresh = bench.add("fresh")
    delayed = bench.add("later", "b", "DELAY", 5)
    taken, again = bench.add("taken"), bench.add("again")
    paused, dead, copy = bench.add("paused"), bench.add("dead"), bench.add("copy")
    for queue in ("taken", "again", "paused", "dead"):
        bench("GETJOB", "FROM", queue)
    bench("QSET", "dead", "DEAD", "letters")
    bench("NACK", again)
    bench("NACK", paused, "DELAY", 60)
    bench("NACK", dead, "DEAD")
    job = bench.node.store.jobs.get(copy)
    assert job is not None
    bench.node.store.dequeue(job)  # as if another node delivered it
    job.delivered = (b"n" * 40,)
    assert walk(bench, "JSCAN", "STATE", "fresh") == [fresh]
    assert walk(bench, "JSCAN", "STATE", "running") == [taken]
    assert walk(bench, "JSCAN", "STATE", "Delayed") == [delayed]
    assert sorted(walk(bench, "JSCAN", "STATE", "retrying")) == sorted([again, paused])
    [letter] = walk(bench, "JSCAN", "QUEUE", "letters")  # a job of its own
    assert walk(bench, "JSCAN", "STATE", "dead") == [letter]
    assert sorted(walk(bench, "JSCAN", "STATE", "dead", "STATE", "queued")) == sorted(
        [fresh, again, letter]
    )
    bench.advance(5)
    assert walk(bench, "JSCAN", "STATE", "delayed") == []
    bench("GETJOB", "FROM", "again")
    assert sorted(walk(bench, "JSCAN", "STATE", "running")) == sorted([taken, again])


def test_whole_jobs_come_with_as_much_as_show_is_asked_for(bench: Bench) -> None:
    bench.add("q", "a long body")
    bench("GETJOB", "FROM", "q")
    [job] = walk(bench, "JSCAN", "REPLY", "all", "CLIENT", "MAXBODY", 3)
    fields = dict(zip(job[::2], job[1::2], strict=True))  # type: ignore[call-overload]
    assert (fields[b"body"], fields[b"body-size"]) == (b"a l", 11)
    assert {b"client", b"client-since"} <= fields.keys()
    assert bench("SHOW", fields[b"id"], "CLIENT", "MAXBODY", 3) == job
    assert bench.error("JSCAN", "MAXBODY", "x").startswith("ERR ")


def test_jscan_takes_a_number_as_the_name_of_a_queue(bench: Bench) -> None:
    job = bench.add("17")
    bench.add("18")
    assert walk(bench, "JSCAN", "QUEUE", 17) == [job]


def test_jscan_gives_ids_as_status_and_whole_jobs_as_show_does(bench: Bench) -> None:
    job = bench.add("q", "body")
    bench.send(bench.me, "JSCAN", "REPLY", "id")
    assert bench.raw(bench.me) == b"*2\r\n$1\r\n0\r\n*1\r\n+" + job + b"\r\n"
    reply = bench("JSCAN", "REPLY", "all")
    assert isinstance(reply, list)
    assert reply[1] == [bench("SHOW", job)]
    assert reply[1][0][::2] == JOB_FIELDS


def test_jscan_leaves_out_acknowledges_of_jobs_that_were_never_here(bench: Bench) -> None:
    job = bench.add()
    unseen = Job(job[:35] + b"-0001", b"", None, 0, 0, 2**31, 0, 0)
    bench.node.store.jobs.put(unseen.id, unseen)
    assert walk(bench, "JSCAN") == [job]
    assert walk(bench, "JSCAN", "REPLY", "all") == [bench("SHOW", job)]


def test_jobs_of_several_queues_are_found(bench: Bench) -> None:
    ids = {queue: bench.add(queue) for queue in ("a", "b", "c")}
    found = walk(bench, "JSCAN", "QUEUE", "a", "QUEUE", "c")
    assert sorted(found) == sorted([ids["a"], ids["c"]])


def test_jobs_are_found_by_their_age(bench: Bench) -> None:
    old = bench.add()
    bench.advance(100)
    middle = bench.add()
    bench.advance(50)
    new = bench.add()
    assert walk(bench, "JSCAN", "MINAGE", 100) == [old]
    assert sorted(walk(bench, "JSCAN", "MAXAGE", 50)) == sorted([middle, new])
    assert walk(bench, "JSCAN", "MINAGE", 50, "MAXAGE", 149) == [middle]
    assert walk(bench, "JSCAN", "MAXAGE", 0) == [new]


def test_jobs_are_found_by_how_often_they_came_back(bench: Bench) -> None:
    never, once, twice = (bench.add("q", "body", "RETRY", 10) for _ in range(3))
    bench.get_all()
    bench("NACK", once, twice)
    bench.get_all()
    bench.advance(5)
    bench("NACK", twice)
    assert sorted(walk(bench, "JSCAN", "MINRETURNS", 1)) == sorted([once, twice])
    assert walk(bench, "JSCAN", "MINRETURNS", 2) == [twice]
    assert len(walk(bench, "JSCAN", "MINRETURNS", 0)) == 3
    assert never in walk(bench, "JSCAN")


@pytest.mark.parametrize("option", ["MINRETURNS", "MINAGE", "MAXAGE", "COUNT"])
@pytest.mark.parametrize("number", [2**15, 2**16, 2**31, 2**32, 2**63 - 1])
def test_jscan_takes_numbers_larger_than_any_field(bench: Bench, option: str, number: int) -> None:
    id = bench.add()
    least = option.startswith("MIN")
    assert walk(bench, "JSCAN", option, number) == ([] if least else [id])


@pytest.mark.parametrize("option", ["MINLEN", "MAXLEN", "IMPORTRATE", "MAXIDLE", "COUNT"])
@pytest.mark.parametrize("number", [2**31, 2**32, 2**63 - 1])
def test_qscan_takes_numbers_larger_than_any_field(bench: Bench, option: str, number: int) -> None:
    bench.add()
    least = option in ("MINLEN", "IMPORTRATE")
    assert walk(bench, "QSCAN", option, number) == ([] if least else [b"q"])


def test_jobs_are_found_by_their_headers(bench: Bench) -> None:
    bench.add()
    first = bench.add("q", "b", "HEADERS", 2, "type", "a", "user", "x")
    both = bench.add("q", "b", "HEADERS", 3, "type", "a", "user", "y", "type", "b")
    assert sorted(walk(bench, "JSCAN", "HEADER", "type", "a")) == sorted([first, both])
    assert walk(bench, "JSCAN", "HEADER", "type", "a", "HEADER", "type", "b") == [both]
    assert walk(bench, "JSCAN", "HEADER", "TYPE", "a") == []
    assert walk(bench, "JSCAN", "HEADER", "user", "type") == []


def test_queues_are_found_by_a_pattern(bench: Bench) -> None:
    for queue in ("mail.a", "mail.b", "sms"):
        bench.add(queue)
    assert sorted(walk(bench, "QSCAN", "MATCH", "mail.*")) == [b"mail.a", b"mail.b"]
    assert walk(bench, "QSCAN", "MATCH", "sm[rst]", "MINLEN", 1) == [b"sms"]
    assert walk(bench, "QSCAN", "MATCH", "") == []


@pytest.mark.parametrize(
    "words",
    [
        ("JSCAN", "MINAGE"),
        ("JSCAN", "MINAGE", "-1"),
        ("JSCAN", "MAXAGE", "x"),
        ("JSCAN", "MINRETURNS", "-5"),
        ("JSCAN", "HEADER", "name"),
        ("QSCAN", "MATCH"),
        ("QSCAN", "MATCH", "x" * 5_000),
    ],
)
def test_filters_that_are_wrong_are_refused(bench: Bench, words: tuple[str, ...]) -> None:
    assert bench.error(*words).startswith("ERR ")


@pytest.mark.parametrize("count", [1, 1_000])
def test_counts_of_a_walk_are_those_of_qstat_full(bench: Bench, count: int) -> None:
    for number in range(60):
        bench.add(f"q{number % 3}", "body", *(("DELAY", 100) if number % 4 == 1 else ()))
    for number in range(3):
        bench.get_all(f"q{number}", count=number + 1)
    bench("QSET", "q2", "ATTEMPTS", 3, "DEAD", "graves")
    for id in bench.get_all("q2", count=2):
        bench("NACK", id, "DEAD")
    bench.add("idle")
    sums: dict[bytes, list[int]] = {}
    found: list[Any] = walk(bench, "JSCAN", "COUNT", count, "REPLY", "counts")
    for name, *counts in found:
        before = sums.get(name, [0, 0, 0])
        sums[name] = [a + b for a, b in zip(before, counts, strict=True)]
    assert sorted(sums) == [b"graves", b"q0", b"q1", b"q2"]
    for name, counts in sums.items():
        bench.send(bench.me, "QSTAT", name, "FULL")
        bench.node.tick(bench.now)
        bench.node.commit()
        told: list[Any] = bench.replies(bench.me)
        fields = dict(zip(told[0][::2], told[0][1::2], strict=True))
        assert [fields[b"jobs-" + word] for word in (b"delayed", b"in-hand", b"dead")] == counts


def test_words_that_come_again_and_again_make_no_step_longer() -> None:
    again = [b"STATE", b"queued", b"HEADER", b"a", b"b"] * 1_000
    wanted = JobFilter(build_table()[b"jscan"].words.read([b"JSCAN", *again]))
    assert (len(wanted.states), len(wanted.headers)) == (1, 1)


def test_jobs_are_found_by_a_text_in_their_bodies(bench: Bench) -> None:
    one = bench.add("q", '{"to": "ann@example.com"}')
    two = bench.add("q", '{"to": "bob@example.com"}')
    assert sorted(walk(bench, "JSCAN", "BODY", "@example.com")) == sorted([one, two])
    assert walk(bench, "JSCAN", "BODY", "ann@", "STATE", "queued") == [one]
    assert walk(bench, "JSCAN", "BODY", "Ann@") == []
    assert bench.error("JSCAN", "BODY", "") == "ERR the text to look for in a BODY is empty"
    counts, found = first(bench, "fresh", 5, "BODY", "bob")
    assert (counts["fresh"], found) == (1, [two])


def test_long_bodies_are_searched_in_slices(bench: Bench) -> None:
    for _ in range(20):
        bench.add("q", "x" * (1 << 20))
    found = bench.add("q", "y" * (1 << 20) + "needle")
    bench.send(bench.me, "JSCAN", "BUSYLOOP", "BODY", "needle")
    turns = 0
    while bench.node.batches.waiting:
        do_slice(bench.node, bench.now)
        turns += 1
    assert turns > 5
    assert bench.replies(bench.me) == [[b"0", [found]]]


# ---- the first ones of a list -------------------------------------------------------------------


def first(
    bench: Bench, state: str, count: int, *words: str | int
) -> tuple[dict[str, int], list[Any]]:
    """The counts of the lists, and the first jobs of one."""
    reply = bench("JSCAN", "FIRST", count, "STATE", state, *words)
    assert isinstance(reply, list)
    counts: Any = reply[0]
    found: Any = reply[1]
    names = [name.decode() for name in counts[::2]]
    return dict(zip(names, counts[1::2], strict=True)), found


def test_each_list_has_its_order_and_all_are_counted(bench: Bench) -> None:
    bench("QSET", "*", "DEAD", "letters")
    old, new = bench.add("fresh"), bench.add("fresh")
    late, soon = bench.add("q", "b", "DELAY", 50), bench.add("q", "b", "DELAY", 20)
    jobs = [bench.add("work") for _ in range(6)]
    for id in bench.get_all("work", count=2):
        bench("NACK", id, "DELAY", 60 if id == jobs[0] else 30)
    for id in bench.get_all("work", count=2):
        bench.advance(1)
        bench("NACK", id, "DEAD")
    bench.advance(1)
    bench.get_all("work", count=1)
    bench.advance(1)
    bench.get_all("work", count=1)
    again = bench.add("again")
    bench.get_all("again")
    bench("NACK", again)
    counts = {"fresh": 2, "running": 2, "delayed": 2, "retrying": 3, "dead": 2, "on-disk": 0}
    counts["on-disk-unread"] = 0
    assert first(bench, "fresh", 10) == (counts, [old, new])
    assert first(bench, "running", 10) == (counts, [jobs[4], jobs[5]])
    assert first(bench, "delayed", 10) == (counts, [soon, late])
    assert first(bench, "retrying", 10) == (counts, [again, jobs[1], jobs[0]])
    _, letters = first(bench, "dead", 10, "REPLY", "all", "MAXBODY", 0)
    firsts = [dict(zip(job[::2], job[1::2], strict=True))[b"first-id"] for job in letters]
    assert firsts == [jobs[3], jobs[2]]
    assert first(bench, "fresh", 0) == (counts, [])
    bench.advance(1)
    bench("WORKING", jobs[4])  # now more is known of it than of the other
    assert first(bench, "running", 1) == (counts, [jobs[5]])
    few, found = first(bench, "fresh", 10, "QUEUE", "q", "QUEUE", "again")
    assert found == []
    assert {name: count for name, count in few.items() if count} == {"delayed": 2, "retrying": 1}


@pytest.mark.parametrize("count", [1, 3, 40, 1_000])
def test_the_first_of_many_are_those_of_all_in_order(bench: Bench, count: int) -> None:
    rng = random.Random(11)
    delays = {
        bench.add("q", "b", "DELAY", delay): delay for delay in rng.sample(range(1, 9999), 900)
    }
    order = sorted(delays, key=lambda id: delays[id])
    counts, found = first(bench, "delayed", count)
    assert counts["delayed"] == 900
    assert found == order[:count]


def test_jobs_that_leave_a_list_while_it_is_made_are_not_told(bench: Bench) -> None:
    ids = [bench.add("q") for _ in range(9_000)]
    bench.send(bench.me, "JSCAN", "FIRST", 1_000, "STATE", "fresh")
    assert bench.me.in_slices
    seen = min(ids[:1_000], key=crc32)  # among the first to be looked at
    other = bench.client()
    bench.send(other, "ACKJOB", seen)
    assert bench.replies(other) == [1]
    bench.finish(bench.me)
    [[_, found]] = bench.replies(bench.me)
    assert seen not in found
    assert set(ids[:999]) - {seen} <= set(found)


def test_a_job_that_waits_on_several_nodes_is_counted_on_one_and_told_of_by_that_one() -> None:
    mesh = Mesh(3)
    id = mesh.add(1, "DELAY", 50)
    found = [first(bench, "delayed", 5) for bench in mesh.nodes]
    assert [counts["delayed"] for counts, _ in found] == [0, 1, 0]
    assert [jobs for _, jobs in found] == [[], [id], []]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["FIRST", 5], "ERR FIRST needs one STATE of fresh, running, delayed, retrying, dead"),
        (
            ["FIRST", 5, "STATE", "active"],
            "ERR FIRST needs one STATE of fresh, running, delayed, retrying, dead",
        ),
        (
            ["FIRST", 5, "STATE", "dead", "STATE", "fresh"],
            "ERR FIRST needs one STATE of fresh, running, delayed, retrying, dead",
        ),
        (["FIRST", 1_001, "STATE", "dead"], "ERR FIRST must be a number from 0 to 1000"),
        (["FIRST", "x", "STATE", "dead"], "ERR FIRST must be a number from 0 to 1000"),
        (
            ["FIRST", 5, "STATE", "dead", "REPLY", "counts"],
            "ERR FIRST replies with counts and jobs: REPLY has to be ID or ALL",
        ),
    ],
)
def test_first_names_what_is_wrong(bench: Bench, words: list[str | int], text: str) -> None:
    assert bench.error("JSCAN", *words) == text
