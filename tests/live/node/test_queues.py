"""The queue commands and the scans over a real socket."""

import pytest

from tests.support.harness import LiveNode, Wire, wait_until
from tests.support.live_helpers import add_job, exchange, packed, pairs


def test_qlen_counts_queued_jobs_only(talk: Wire) -> None:
    assert talk("QLEN", "nowhere") == 0
    add_job(talk)
    add_job(talk, "q", "b", "DELAY", 100)
    assert talk("QLEN", "q") == 1


def test_qpeek_shows_without_taking_from_either_end(talk: Wire) -> None:
    ids = [add_job(talk, "q", str(number)).encode() for number in range(3)]
    assert talk("QPEEK", "q", 2) == [[b"q", ids[0], b"0"], [b"q", ids[1], b"1"]]
    assert talk("QPEEK", "q", -2) == [[b"q", ids[2], b"2"], [b"q", ids[1], b"1"]]
    assert talk("QPEEK", "q", 0) == []
    assert talk("QPEEK", "nowhere", 3) == []
    assert talk("QPEEK", "q", -(2**63)) is not None
    assert talk("QLEN", "q") == 3


def test_qstat_gives_its_fields_in_their_order(talk: Wire) -> None:
    add_job(talk)
    add_job(talk)
    talk("GETJOB", "FROM", "q")
    fields = pairs(talk("QSTAT", "q"))
    times = [name for name in fields if name.startswith(("wait-", "processing-"))]
    assert len(times) == 10
    assert {name: value for name, value in fields.items() if name not in times} == {
        "name": b"q",
        "len": 1,
        "age": fields["age"],
        "idle": fields["idle"],
        "blocked": 0,
        "import-from": [],
        "import-rate": 0,
        "jobs-in": 2,
        "jobs-out": 1,
        "pause": b"none",
        "oldest-job-age": fields["oldest-job-age"],
        "jobs-expired": 0,
        "jobs-acked": 0,
        "filled-ago": fields["filled-ago"],
        "wanted-ago": fields["wanted-ago"],
        "died-ago": -1,
        "jobs-died": 0,
        "jobs-added": 2,
        "jobs-delivered": 1,
        "jobs-imported": 0,
        "jobs-exported": 0,
    }
    assert list(fields)[:10] == [
        "name", "len", "age", "idle", "blocked", "import-from", "import-rate", "jobs-in",
        "jobs-out", "pause",
    ]  # fmt: skip
    assert fields["age"] in (0, 1)


def test_qstat_of_an_unknown_queue_is_a_null_array(shared_node: LiveNode) -> None:
    assert exchange(shared_node, packed("QSTAT", "nowhere")) == b"*-1\r\n"


def test_getjob_creates_the_queue_that_it_waits_for(talk: Wire) -> None:
    talk("GETJOB", "NOHANG", "FROM", "asked")
    assert talk("QSTAT", "asked") is None
    talk("GETJOB", "TIMEOUT", 1, "FROM", "asked")
    assert talk("QSTAT", "asked") is not None


def test_pause_answers_the_state_as_a_simple_string(shared_node: LiveNode) -> None:
    requests = [
        ("state", b"none"),
        ("in", b"in"),
        ("out", b"out"),
        ("in out", b"all"),
        ("all none in", b"in"),
        ("state", b"in"),
        ("none bcast", b"none"),
    ]
    for options, state in requests:
        answer = exchange(shared_node, packed("PAUSE", "q", *options.split()))
        assert answer == b"+" + state + b"\r\n"


def test_a_queue_paused_in_takes_no_job(talk: Wire) -> None:
    id = add_job(talk)
    talk("GETJOB", "FROM", "q")
    talk("PAUSE", "q", "in")
    assert talk.error("ADDJOB", "q", "b", 0) == "PAUSED Queue paused in input, try later"
    assert talk("NACK", id) == 1
    assert talk("GETJOB", "NOHANG", "FROM", "q")


def test_a_queue_paused_out_gives_no_job_until_it_goes_on(shared_node: LiveNode) -> None:
    worker, control = shared_node.wire(), shared_node.wire()
    control("PAUSE", "q", "out")
    id = add_job(control)
    assert control("GETJOB", "NOHANG", "FROM", "q") is None
    worker.send("GETJOB", "FROM", "q")
    assert pairs(control("QSTAT", "q"))["len"] == 1
    control("PAUSE", "q", "none")
    assert worker.read() == [[b"q", id.encode(), b"body"]]


def _walk(talk: Wire, *words: str | int) -> tuple[list[bytes], int]:
    found: list[bytes] = []
    cursor: object = b"0"
    steps = 0
    while steps < 10_000:
        steps += 1
        assert isinstance(cursor, bytes)
        reply = talk(words[0], cursor, *words[1:])
        assert isinstance(reply, list)
        cursor, part = reply
        found += part
        if cursor == b"0":
            return found, steps
    pytest.fail("the walk does not end")


def test_a_walk_over_queues_gives_each_once_in_steps(talk: Wire) -> None:
    names = {b"queue-%d" % number for number in range(1000)}
    for name in names:
        talk.send("ADDJOB", name, "b", 0)
    for _ in names:
        talk.read()
    found, steps = _walk(talk, "QSCAN", "COUNT", 50)
    assert sorted(found) == sorted(names)
    assert 5 < steps < 100
    assert sorted(_walk(talk, "QSCAN", "BUSYLOOP")[0]) == sorted(names)


def test_a_walk_over_jobs_gives_each_once_in_steps(talk: Wire) -> None:
    ids = {add_job(talk).encode() for _ in range(500)}
    found, steps = _walk(talk, "JSCAN", "COUNT", 20)
    assert sorted(found) == sorted(ids)
    assert steps > 5


def test_the_filters_of_qscan(talk: Wire) -> None:
    for length in range(4):
        talk("GETJOB", "TIMEOUT", 1, "FROM", f"len{length}")
        for _ in range(length):
            add_job(talk, f"len{length}")
    assert sorted(_walk(talk, "QSCAN", "MINLEN", 2)[0]) == [b"len2", b"len3"]
    assert sorted(_walk(talk, "QSCAN", "MAXLEN", 1)[0]) == [b"len0", b"len1"]
    assert _walk(talk, "QSCAN", "IMPORTRATE", 1)[0] == []


def test_the_filters_of_jscan(talk: Wire) -> None:
    queued = add_job(talk, "a").encode()
    active = add_job(talk, "b", "x", "DELAY", 100).encode()
    assert _walk(talk, "JSCAN", "QUEUE", "a")[0] == [queued]
    assert _walk(talk, "JSCAN", "STATE", "active")[0] == [active]
    both = _walk(talk, "JSCAN", "STATE", "active", "STATE", "queued")[0]
    assert sorted(both) == sorted([queued, active])
    whole = talk("JSCAN", "QUEUE", "a", "REPLY", "all")
    assert isinstance(whole, list)
    assert pairs(whole[1][0])["id"] == queued


def test_ids_of_a_walk_are_simple_strings(shared_node: LiveNode) -> None:
    id = add_job(shared_node.wire())
    answer = exchange(shared_node, packed("JSCAN"))
    assert answer == b"*2\r\n$1\r\n0\r\n*1\r\n+" + id.encode() + b"\r\n"


def test_any_number_is_a_cursor(talk: Wire) -> None:
    add_job(talk)
    for cursor in (1, 2**31, 2**32, 2**63, 2**64, 10**30):
        for command in ("QSCAN", "JSCAN"):
            reply = talk(command, cursor)
            assert isinstance(reply, list), (command, cursor, reply)


def test_an_empty_queue_is_kept_as_long_as_the_setting_says(node: LiveNode) -> None:
    wire = node.wire()
    wire("GETJOB", "TIMEOUT", 1, "FROM", "q")
    assert wire("QSTAT", "q") is not None
    assert wire("CONFIG", "SET", "queue-max-idle-time", "1") == b"OK"
    wait_until(lambda: wire("QSTAT", "q") is None)
