"""ADDJOB HEADERS, and where the names and values appear."""

import pytest

from disque_trio.node.core.queues.entries import WITH_COUNTERS
from disque_trio.protocol.trailer import BY_ATTEMPTS, Letter, Trailer
from disque_trio.resp.reply import encode
from tests.support.mesh import Mesh
from tests.support.node_bench import JOB_FIELDS, Bench

NAMES = ["content-type", "text/plain", "traceparent", "00-4bf9-00f0-01"]
PAIRS = [name.encode() for name in NAMES]
FIRST = b"D-%b-%b-05a1" % (b"0" * 8, b"a" * 24)


def give(bench: Bench, id: bytes, trailer: Trailer) -> None:
    """Give the job ``id`` this trailer."""
    job = bench.node.store.jobs.get(id)
    assert job is not None
    bench.node.store.trailers.put(job, trailer)


def letter() -> Trailer:
    trailer = Trailer()
    trailer.letter = Letter(FIRST, b"mail", BY_ATTEMPTS, 3, b"no such address")
    return trailer


ORIGIN = [
    b"dead-from", b"mail", b"dead-why", b"attempts", b"dead-attempts", 3,
    b"dead-reason", b"no such address", b"first-id", FIRST,
]  # fmt: skip


def test_a_job_is_delivered_with_its_headers(bench: Bench) -> None:
    id = bench.add("q", "body", "HEADERS", 2, *NAMES)
    assert bench("GETJOB", "NOHANG", "WITHHEADERS", "FROM", "q") == [
        [b"q", id, b"body", b"headers", PAIRS]
    ]


def test_headers_stand_behind_the_counters(bench: Bench) -> None:
    id = bench.add("q", "body", "HEADERS", 2, *NAMES)
    assert bench("GETJOB", "WITHHEADERS", "WITHCOUNTERS", "FROM", "q") == [
        [b"q", id, b"body", b"nacks", 0, b"additional-deliveries", 0, b"headers", PAIRS]
    ]


def test_headers_are_returned_only_on_request(bench: Bench) -> None:
    id = bench.add("q", "body", "HEADERS", 2, *NAMES)
    assert bench("QPEEK", "q", 1) == [[b"q", id, b"body"]]
    assert bench("GETJOB", "NOHANG", "FROM", "q") == [[b"q", id, b"body"]]
    bench("NACK", id)
    assert bench("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", "q") == [
        [b"q", id, b"body", b"nacks", 1, b"additional-deliveries", 0]
    ]


def test_a_job_without_headers_has_an_empty_array_of_them(bench: Bench) -> None:
    plain = bench.add()
    other = bench.add("q", "body", "HEADERS", 1, "n", "v")
    assert bench("GETJOB", "COUNT", 2, "WITHHEADERS", "FROM", "q") == [
        [b"q", plain, b"body", b"headers", []],
        [b"q", other, b"body", b"headers", [b"n", b"v"]],
    ]


def test_a_client_that_waited_gets_what_it_asked_for(bench: Bench) -> None:
    for options, shown in (
        (["WITHHEADERS"], [b"headers", PAIRS]),
        (["WITHCOUNTERS"], [b"nacks", 0, b"additional-deliveries", 0]),
        (
            ["WITHCOUNTERS", "WITHHEADERS"],
            [b"nacks", 0, b"additional-deliveries", 0, b"headers", PAIRS],
        ),
        ([], []),
    ):
        bench.send(bench.me, "GETJOB", *options, "FROM", "q")
        id = bench.ask(bench.client(), "ADDJOB", "q", "body", 0, "HEADERS", 2, *NAMES)
        assert bench.replies(bench.me) == [[[b"q", id, b"body", *shown]]]


def test_with_resp3_headers_are_an_array_as_well_since_names_may_repeat(bench: Bench) -> None:
    bench("HELLO", 3)
    id = bench.add("q", "b", "HEADERS", 2, "n", "1", "n", "2")
    bench.send(bench.me, "GETJOB", "WITHHEADERS", "FROM", "q")
    headers = encode([b"n", b"1", b"n", b"2"])
    assert bench.raw(bench.me) == (
        b"*1\r\n*5\r\n$1\r\nq\r\n$40\r\n%b\r\n$1\r\nb\r\n$7\r\nheaders\r\n%b" % (id, headers)
    )


def test_names_may_repeat_and_keep_order_and_case(bench: Bench) -> None:
    pairs = ["B", "1", "a", "2", "b", "3", "B", ""]
    id = bench.add("q", "b", "HEADERS", 4, *pairs)
    assert bench.show(id)[b"headers"] == [text.encode() for text in pairs]


def test_a_header_named_like_an_option_is_not_an_option(bench: Bench) -> None:
    id = bench.add("q", "b", "HEADERS", 2, "TTL", "x", "ASYNC", "HEADERS", "RETRY", 7)
    assert bench.show(id)[b"headers"] == [b"TTL", b"x", b"ASYNC", b"HEADERS"]
    assert bench.number(id, b"retry") == 7


def test_show_and_jscan_have_headers_behind_all_else_and_only_where_there_are_any(
    bench: Bench,
) -> None:
    plain, other = bench.add(), bench.add("q", "b", "HEADERS", 2, *NAMES)
    assert list(bench.show(plain)) == JOB_FIELDS
    assert list(bench.show(other)) == [*JOB_FIELDS, b"headers"]
    reply = bench("JSCAN", "BUSYLOOP", "REPLY", "all")
    assert isinstance(reply, list)
    found = {job[1]: job[30:] for job in reply[1]}
    assert found == {plain: [], other: [b"headers", PAIRS]}


@pytest.mark.parametrize("count", ["0", "-1", "x", "", "1.5", 2**63, 2**64])
def test_an_invalid_count_is_refused(bench: Bench, count: str | int) -> None:
    error = bench.error("ADDJOB", "q", "b", 0, "HEADERS", count, "n", "v")
    assert error == "ERR HEADERS count must be a positive number"


@pytest.mark.parametrize(
    "words", [[1], [1, "n"], [2, "n", "v"], [2, "n", "v", "m"], [1000, "n", "v"]]
)
def test_fewer_headers_than_their_count_are_refused(bench: Bench, words: list[str | int]) -> None:
    error = bench.error("ADDJOB", "q", "b", 0, "HEADERS", *words)
    assert error == "ERR HEADERS has fewer names and values than its count says"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "ERR syntax error"),
        ([1, "n", "v", "m", "w"], "ERR syntax error"),
        ([1, "n", "v", "HEADERS", 1, "m", "w"], "ERR HEADERS is given twice"),
        ([1001, "n", "v"], "ERR HEADERS may be at most 1000"),
        ([2**63 - 1], "ERR HEADERS may be at most 1000"),
        ([2, "n", "v", "", "w"], "ERR the name of a header is empty"),
        ([1, "n", "x" * 65_536], "ERR HEADERS are longer than 65536 bytes in total"),
    ],
)
def test_other_wrong_headers_are_refused(bench: Bench, words: list[str | int], error: str) -> None:
    assert bench.error("ADDJOB", "q", "b", 0, "HEADERS", *words) == error
    assert bench.node.store.jobs.count == 0
    assert bench.node.memory.used == 0


def test_headers_may_have_64_kilobytes(bench: Bench) -> None:
    id = bench.add("q", "b", "HEADERS", 1, "n", "x" * 65_535)
    assert bench.show(id)[b"headers"] == [b"n", b"x" * 65_535]


def test_a_job_may_have_a_thousand_headers(bench: Bench) -> None:
    pairs = ["n", "v"] * 1000
    id = bench.add("q", "b", "HEADERS", 1000, *pairs)
    assert bench.show(id)[b"headers"] == [text.encode() for text in pairs]


def test_a_refused_job_leaves_nothing(bench: Bench) -> None:
    bench.add()
    used = bench.node.memory.used
    bench.error("ADDJOB", "q", "b", 0, "MAXLEN", 1, "HEADERS", 1, "n", "v")
    assert bench.node.memory.used == used


def test_beside_a_node_that_does_not_know_extensions_headers_are_refused() -> None:
    mesh = Mesh(2)
    mesh.c_nodes = {1}
    mesh.peers[0].judge_extensions()
    error = mesh[0].error("ADDJOB", "q", "b", 0, "HEADERS", 1, "n", "v")
    assert error == (
        "NOEXT A node of the cluster does not know extensions, or cluster-extensions is no"
    )
    mesh.add(0)


# ---- dead letters -------------------------------------------------------------------------------


def test_a_dead_letter_says_where_it_comes_from(bench: Bench) -> None:
    id = bench.add()
    give(bench, id, letter())
    shown = bench.show(id)
    assert list(shown.items())[15:] == list(zip(ORIGIN[::2], ORIGIN[1::2], strict=True))
    assert bench("GETJOB", "WITHCOUNTERS", "WITHHEADERS", "FROM", "q") == [
        [b"q", id, b"body", b"nacks", 0, b"additional-deliveries", 0, *ORIGIN, b"headers", []]
    ]


def test_a_blocked_client_learns_where_a_dead_letter_comes_from(bench: Bench) -> None:
    id = bench.add("other", "b", "DELAY", 5)
    give(bench, id, letter())
    client = bench.client()
    bench.send(client, "GETJOB", "WITHCOUNTERS", "FROM", "other")
    assert client.details == WITH_COUNTERS
    bench.advance(6)
    assert bench.replies(client) == [
        [[b"other", id, b"b", b"nacks", 0, b"additional-deliveries", 0, *ORIGIN]]
    ]


def test_show_has_deliveries_and_the_last_reason_where_they_are_known(bench: Bench) -> None:
    id = bench.add()
    trailer = Trailer()
    trailer.attempts = {b"0" * 8: 2, b"1" * 8: 1}
    trailer.reason = b"try later"
    give(bench, id, trailer)
    shown = bench.show(id)
    assert (shown[b"attempts"], shown[b"last-reason"]) == (3, b"try later")
    assert b"headers" not in shown
