"""QLEN, QPEEK, QSTAT."""

import pytest

from tests.support.node_bench import Bench


def test_qlen_counts_queued_jobs(bench: Bench) -> None:
    assert bench("QLEN", "q") == 0
    first = bench.add()
    bench.add()
    bench.add("q", "b", "DELAY", 10)
    assert bench("QLEN", "q") == 2
    bench.get()
    assert bench("QLEN", "q") == 1
    bench("NACK", first)
    assert bench("QLEN", "q") == 2


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [0]),
        (3, [0, 1, 2]),
        (100, [0, 1, 2, 3, 4]),
        (2**63 - 1, [0, 1, 2, 3, 4]),
        (-1, [4]),
        (-3, [4, 3, 2]),
        (-(2**63), [4, 3, 2, 1, 0]),
        (0, []),
    ],
)
def test_qpeek_shows_the_oldest_or_the_newest(
    bench: Bench, count: int, expected: list[int]
) -> None:
    ids = [bench.add("q", str(number)) for number in range(5)]
    assert bench("QPEEK", "q", count) == [
        [b"q", ids[number], str(number).encode()] for number in expected
    ]
    assert bench("QLEN", "q") == 5


def test_qpeek_sends_only_the_beginning_of_bodies(bench: Bench) -> None:
    short, long, empty = bench.add("q", "ab"), bench.add("q", "abcdef"), bench.add("q", "")
    assert bench("QPEEK", "q", 3, "maxbody", 3) == [
        [b"q", short, b"ab"], [b"q", long, b"abc"], [b"q", empty, b""],
    ]  # fmt: skip
    assert bench("QPEEK", "q", -2, "MAXBODY", 0) == [[b"q", empty, b""], [b"q", long, b""]]
    for words in (("MAXBODY",), ("MAXBODY", 1, "x"), ("x", 1)):
        wrong = bench.error("QPEEK", "q", 1, *words)
        assert wrong == "ERR wrong number of arguments for 'qpeek' command"
    assert bench.error("QPEEK", "q", 1, "MAXBODY", -1).startswith("ERR value is out of range")


def test_qpeek_of_an_unknown_or_empty_queue_is_an_empty_array(bench: Bench) -> None:
    assert bench("QPEEK", "q", 1) == []
    bench.get("q")
    assert bench("QPEEK", "q", -1) == []
    assert bench.error("QPEEK", "q", "x") == "ERR value is not an integer or out of range"


def test_qstat_has_the_ten_fields_of_c_in_their_order_and_then_more(bench: Bench) -> None:
    bench.add()
    bench.add()
    bench.advance(5)
    bench.get()
    bench.advance(2.9)
    bench("PAUSE", "q", "out")
    bench.block("q")
    bench.advance(3)
    reply = bench("QSTAT", "q")
    assert reply[:34] == [
        b"name", b"q", b"len", 1, b"age", 10, b"idle", 3, b"blocked", 1,
        b"import-from", [], b"import-rate", 0, b"jobs-in", 2, b"jobs-out", 1, b"pause", b"out",
        b"oldest-job-age", 10_900, b"jobs-expired", 0, b"jobs-acked", 0,
        b"filled-ago", 10_900, b"wanted-ago", 5_900, b"died-ago", -1, b"jobs-died", 0,
    ]  # fmt: skip
    assert reply[34::2] == [
        b"jobs-added", b"jobs-delivered", b"jobs-imported", b"jobs-exported",
        b"wait-p50", b"wait-p95", b"wait-p99",
        b"processing-p50", b"processing-p95", b"processing-p99",
        b"wait-recent", b"wait-total", b"processing-recent", b"processing-total",
    ]  # fmt: skip


def test_qstat_of_an_unknown_queue_is_null(bench: Bench) -> None:
    bench.send(bench.me, "QSTAT", "q")
    assert bench.raw(bench.me) == b"*-1\r\n"
    bench("HELLO", 3)
    bench.send(bench.me, "QSTAT", "q")
    assert bench.raw(bench.me) == b"_\r\n"


def test_jobs_in_and_out_count_for_any_reason(bench: Bench) -> None:
    ids = [bench.add() for _ in range(4)]
    bench.get()
    bench("NACK", ids[0])
    bench("DEQUEUE", ids[1])
    bench("ACKJOB", ids[2])
    bench("DELJOB", ids[3])
    stat = bench.queue()
    assert (stat[b"jobs-in"], stat[b"jobs-out"], stat[b"len"]) == (5, 4, 1)
