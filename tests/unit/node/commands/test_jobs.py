"""ADDJOB, GETJOB, SHOW: options, replies, and the errors in the order of their checks."""

from collections.abc import Callable

import pytest

from tests.support.node_bench import JOB_FIELDS, START, Bench

SYNTAX = "ERR syntax error"
BAD_REPLICATE = "ERR REPLICATE must be between 1 and 65535"
BAD_TTL = "ERR TTL must be a number > 0"
BAD_RETRY = "ERR RETRY time must be a non negative number"
BAD_DELAY = "ERR DELAY time must be a non negative number"
BAD_MAXLEN = "ERR MAXLEN must be a positive number"
BAD_TIMEOUT = "ERR timeout is not an integer or out of range"
NEGATIVE_TIMEOUT = "ERR timeout is negative"
RETRY_0 = "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
BAD_AT = "ERR AT must be a unix time in ms, before 2106"
LATE = "ERR The specified AT is after the end of TTL. Job refused since would never be delivered"
LONG_DELAY = (
    "ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
)
FEW = (
    "NOREPL Not enough reachable nodes: 0 of the 1 needed besides this one; the cluster has 1 node"
)
LONG_QUEUE = "MAXLEN Queue is already longer than the specified MAXLEN count"
PAUSED = "PAUSED Queue paused in input, try later"

TOO_BIG = 2**63


# ---- ADDJOB -------------------------------------------------------------------------------------


def test_addjob_answers_the_id_as_a_status(bench: Bench) -> None:
    bench.send(bench.me, "ADDJOB", "q", "body", 0)
    (id,) = (job.id for job in bench.node.store.jobs.values())
    assert bench.raw(bench.me) == b"+" + id + b"\r\n"


def test_queue_and_body_may_be_any_bytes(bench: Bench) -> None:
    everything = bytes(range(256))
    for queue, body in ((everything, everything), (b"", b"")):
        assert isinstance(bench("ADDJOB", queue, body, 0), bytes)
        reply = bench("GETJOB", "FROM", queue)
        assert isinstance(reply, list)
        assert (reply[0][0], reply[0][2]) == (queue, body)


def test_all_options_together_in_any_case_and_order(bench: Bench) -> None:
    id = bench.add("q", "b", "async", "MaxLen", 5, "ttl", 1000, "RETRY", 7, "delay", 3,
                   "REPLICATE", 1)  # fmt: skip
    shown = bench.show(id)
    assert (shown[b"ttl"], shown[b"retry"], shown[b"delay"], shown[b"repl"]) == (1000, 7, 3, 1)


def test_times_beyond_32_bits_are_cut(bench: Bench) -> None:
    shown = bench.show(bench.add("q", "b", "TTL", 2**63 - 1, "RETRY", 2**63 - 1))
    assert shown[b"ttl"] == 2**32 - 1 - bench.now // 1000
    assert shown[b"retry"] == 2**32 - 1


def test_the_last_of_a_repeated_option_holds(bench: Bench) -> None:
    id = bench.add("q", "b", "TTL", 10, "TTL", 2000)
    assert bench.number(id, b"ttl") == 2000


def test_defaults(bench: Bench) -> None:
    shown = bench.show(bench.add())
    assert (shown[b"ttl"], shown[b"retry"], shown[b"delay"], shown[b"repl"]) == (86400, 300, 0, 1)


NO_NUMBERS = [
    "nan", "inf", "-inf", "1e3", "0x10", "0.5e1", "1,5", "1.", ".5", ".", "-.5", "-0.5", "+0.5",
    "1.5 ", "1.5.5", "1_0", "1.\N{ARABIC-INDIC DIGIT ONE}", "\N{FULLWIDTH DIGIT ONE}", "\0", "1\0",
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["REPLICATE", 0], BAD_REPLICATE),
        (["REPLICATE", 65536], BAD_REPLICATE),
        (["REPLICATE", -1], BAD_REPLICATE),
        (["REPLICATE", "x"], BAD_REPLICATE),
        (["TTL", 0], BAD_TTL),
        (["TTL", -1], BAD_TTL),
        (["TTL", "1.5"], BAD_TTL),
        (["TTL", TOO_BIG], BAD_TTL),
        (["TTL", ""], BAD_TTL),  # an empty number is 0
        (["RETRY", -1], BAD_RETRY),
        (["RETRY", "soon"], BAD_RETRY),
        (["DELAY", -1], BAD_DELAY),
        (["DELAY", " 1"], BAD_DELAY),
        *((["DELAY", text], BAD_DELAY) for text in NO_NUMBERS),
        (["DELAY", 2**32], LONG_DELAY),
        (["DELAY", 2**63 - 1], LONG_DELAY),
        (["DELAY", f"{2**32}.5"], LONG_DELAY),
        (["DELAY", "9" * 5000 + ".5"], BAD_DELAY),
        (["DELAY"], SYNTAX),
        *((["AT", text], BAD_AT) for text in ["", "0.5", *NO_NUMBERS]),
        (["AT", -1], BAD_AT),
        (["AT", START * 1000], BAD_AT),
        (["AT", (2**32 - 1) * 1000], BAD_AT),
        (["AT", "9" * 5000], BAD_AT),
        (["AT"], SYNTAX),
        (["AT", START, "AT", START], SYNTAX),
        (["AT", START, "DELAY", 0], "ERR AT and DELAY cannot be combined"),
        (["DELAY", 5, "AT", START], "ERR AT and DELAY cannot be combined"),
        (["AT", START + 10_000, "TTL", 10], LATE),
        (["AT", (2**32 - 1) * 1000 - 1], LATE),
        (["MAXLEN", 0], BAD_MAXLEN),
        (["MAXLEN", -5], BAD_MAXLEN),
        (["MAXLEN", "many"], BAD_MAXLEN),
        (["TTL"], SYNTAX),
        (["RETRY", 5, "TTL"], SYNTAX),
        (["NOSUCH"], SYNTAX),
        (["NOSUCH", 5], SYNTAX),
        (["ASYNC", "ASYNC", "x"], SYNTAX),
        ([""], SYNTAX),
    ],
)
def test_a_wrong_option_is_named(bench: Bench, options: list[str | int], text: str) -> None:
    assert bench.error("ADDJOB", "q", "b", 0, *options) == text
    assert bench.info("jobs")["registered_jobs"] == "0"


@pytest.mark.parametrize(
    ("timeout", "text"),
    [
        ("x", BAD_TIMEOUT),
        (TOO_BIG, BAD_TIMEOUT),
        ("1.0", BAD_TIMEOUT),
        (" 1", BAD_TIMEOUT),
        (-1, NEGATIVE_TIMEOUT),
    ],
)
def test_a_wrong_timeout_is_refused(bench: Bench, timeout: str | int, text: str) -> None:
    assert bench.error("ADDJOB", "q", "b", timeout) == text
    assert bench.error("GETJOB", "TIMEOUT", timeout, "FROM", "q") == text


@pytest.mark.parametrize("timeout", ["", "+5", "000", 2**63 - 1])
def test_a_timeout_is_what_strtoll_takes(bench: Bench, timeout: str | int) -> None:
    assert isinstance(bench("ADDJOB", "q", "b", timeout), bytes)


# Each line breaks one rule; an earlier line's error wins over a later one's.
CHECKS: list[tuple[list[str | int], str | int, str]] = [
    (["TTL", 0], 0, BAD_TTL),
    ([], "x", BAD_TIMEOUT),
    (["RETRY", 0, "REPLICATE", 2], 0, RETRY_0),
    (["TTL", 500, "DELAY", 500], 0, LONG_DELAY),
    (["REPLICATE", 2], 0, FEW),
    (["MAXLEN", 1], 0, LONG_QUEUE),
    ([], 0, PAUSED),
]


@pytest.mark.parametrize("first", range(len(CHECKS)))
def test_addjob_checks_in_the_order_of_disque(bench: Bench, first: int) -> None:
    bench.add("q")
    bench("PAUSE", "q", "in")
    timeout: str | int = 0
    options: list[str | int] = []
    for more, other_timeout, _ in reversed(CHECKS[first:]):
        options = more + options
        timeout = other_timeout or timeout
    if first == 3:
        options = [word for word in options if word != "RETRY"]
    assert bench.error("ADDJOB", "q", "b", timeout, *options) == CHECKS[first][2]


def test_options_are_checked_from_left_to_right(bench: Bench) -> None:
    assert bench.error("ADDJOB", "q", "b", "x", "TTL", 0, "RETRY", -1) == BAD_TTL
    assert bench.error("ADDJOB", "q", "b", "x", "RETRY", -1, "TTL", 0) == BAD_RETRY
    assert bench.error("ADDJOB", "q", "b", "x", "FOO", "TTL", 0) == SYNTAX


@pytest.mark.parametrize(
    ("delay", "ok"), [(9, True), ("9.999", True), (10, False), ("10.001", False), (11, False)]
)
def test_a_delay_must_be_below_the_time_to_live(bench: Bench, delay: int | str, ok: bool) -> None:
    if ok:
        bench.add("q", "b", "TTL", 10, "DELAY", delay)
    else:
        assert bench.error("ADDJOB", "q", "b", 0, "TTL", 10, "DELAY", delay) == LONG_DELAY


def test_of_two_delays_the_last_one_holds(bench: Bench) -> None:
    id = bench.add("q", "b", "DELAY", 5, "DELAY", "")
    assert bench.number(id, b"delay") == 0
    assert bench.get() == id


@pytest.mark.parametrize("delay", [86_399, 86_400, 172_800, 30 * 365 * 86_400])
def test_without_a_time_to_live_a_job_lives_a_day_from_its_delay_on(
    bench: Bench, delay: int
) -> None:
    shown = bench.show(bench.add("q", "b", "DELAY", delay))
    assert (shown[b"ttl"], shown[b"retry"], shown[b"delay"]) == (delay + 86_400, 300, delay)


def test_the_default_time_to_live_ends_where_32_bits_of_seconds_do(bench: Bench) -> None:
    last = 2**32 - 1 - bench.now // 1000
    shown = bench.show(bench.add("q", "b", "DELAY", last - 10))
    assert (shown[b"ttl"], shown[b"delay"]) == (last, last - 10)


@pytest.mark.parametrize("ttl", [(), ("TTL", 2**62)])
@pytest.mark.parametrize("beyond", [0, 1, 2**32, 2**61])
def test_a_delay_that_ends_after_all_times_to_live_is_refused(
    bench: Bench, beyond: int, ttl: tuple[str, int]
) -> None:
    delay = 2**32 - 1 - bench.now // 1000 + beyond
    assert bench.error("ADDJOB", "q", "b", 0, "DELAY", delay, *ttl) == LONG_DELAY


def test_retry_0_is_fine_on_a_node_alone(bench: Bench) -> None:
    bench.add("q", "b", "RETRY", 0)
    bench.add("q", "b", "RETRY", 0, "REPLICATE", 1)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_addjob_needs_a_queue_a_body_and_a_timeout(bench: Bench, count: int) -> None:
    words = ["AddJob", "q", "b"][:count]
    assert bench.error(*words) == "ERR wrong number of arguments for 'addjob' command"


# ---- GETJOB -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["FROM"], SYNTAX),
        (["NOHANG"], SYNTAX),
        (["NOHANG", "FROM"], SYNTAX),
        (["TIMEOUT", 5], SYNTAX),
        (["TIMEOUT"], SYNTAX),
        (["COUNT"], SYNTAX),
        (["q"], SYNTAX),
        (["q", "r"], SYNTAX),
        (["NOHANG", "COUNT", 1, "q"], SYNTAX),
        (["COUNT", 0, "FROM", "q"], "ERR COUNT must be a number greater than zero"),
        (["COUNT", -1, "FROM", "q"], "ERR COUNT must be a number greater than zero"),
        (["COUNT", "x", "FROM", "q"], "ERR COUNT must be a number greater than zero"),
        (["COUNT", "FROM", "q"], "ERR COUNT must be a number greater than zero"),
        (["TIMEOUT", "FROM", "q"], BAD_TIMEOUT),
        (["TIMEOUT", -1, "COUNT", 0, "FROM", "q"], NEGATIVE_TIMEOUT),
        (["COUNT", 0, "TIMEOUT", -1, "FROM", "q"], "ERR COUNT must be a number greater than zero"),
    ],
)
def test_getjob_names_what_is_wrong(bench: Bench, args: list[str | int], text: str) -> None:
    assert bench.error("GETJOB", *args) == text
    assert not bench.me.blocked


def test_everything_behind_from_is_a_queue(bench: Bench) -> None:
    job = bench.add("NOHANG")
    client = bench.block("FROM", "COUNT", "TIMEOUT")
    assert bench.ids(bench("GETJOB", "FROM", "FROM", "NOHANG", "COUNT", "0")) == [job]
    other = bench.add("COUNT")
    assert bench.got(client) == other


def test_options_of_getjob_in_any_case(bench: Bench) -> None:
    job = bench.add()
    reply = bench("getjob", "nohang", "withcounters", "timeout", 5, "count", 3, "from", "q")
    assert bench.ids(reply) == [job]


# ---- SHOW ---------------------------------------------------------------------------------------


def test_show_has_fifteen_fields_in_their_order(bench: Bench) -> None:
    bench.advance(0.5)
    id = bench.add("queue", "body", "DELAY", 20, "RETRY", 60, "TTL", 100)
    bench.advance(1)
    reply = bench("SHOW", id)
    assert isinstance(reply, list)
    assert reply[::2] == JOB_FIELDS
    assert reply[1::2] == [
        id, b"queue", b"active", 1, 99, (bench.now - 1000) * 1_000_000, 20, 60, 0, 0,
        [bench.node.id], [], 19_000, 19_000, b"body",
    ]  # fmt: skip


def test_show_follows_the_state_of_a_job(bench: Bench) -> None:
    id = bench.add()
    assert bench.show(id)[b"state"] == b"queued"
    bench.get()
    assert bench.show(id)[b"state"] == b"active"
    bench("NACK", id)
    assert bench.show(id)[b"state"] == b"queued"


def test_show_without_a_requeue_time_has_null_there(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 0, "TTL", 10)
    shown = bench.show(id)
    assert shown[b"next-requeue-within"] is None
    assert shown[b"next-awake-within"] == 11_000


def test_show_of_an_unknown_job_is_null(bench: Bench) -> None:
    id = bench.add()
    bench("DELJOB", id)
    bench.send(bench.me, "SHOW", id)
    assert bench.raw(bench.me) == b"$-1\r\n"
    bench("HELLO", 3)
    bench.send(bench.me, "SHOW", id)
    assert bench.raw(bench.me) == b"_\r\n"
    assert bench.error("SHOW", "x") == "BADID Invalid Job ID format."


def test_loadjob_is_only_for_files(bench: Bench) -> None:
    assert bench.error("LOADJOB", "x") == (
        "ERR LOADJOB is a special command only processed from AOF"
    )


# ---- the names from 2015 ------------------------------------------------------------------------


def test_getjobs_queue_scanjobs_and_scanqueues_are_aliases(bench: Bench) -> None:
    job = bench.add()
    assert bench.ids(bench("GETJOBS", "TIMEOUT", 5, "COUNT", 2, "FROM", "q", "r")) == [job]
    assert bench("QUEUE", job, job) == 1
    assert bench("QLEN", "q") == 1
    assert bench("SCANJOBS", 0, "STATE", "queued", "QUEUE", "q", "COUNT", 100) == [b"0", [job]]
    reply = bench("SCANQUEUES", 0, "COUNT", 100)
    assert isinstance(reply, list)
    assert reply[1] == [b"q"]


def test_scanqueues_maxidle_leaves_out_queues_that_are_idle_for_longer(bench: Bench) -> None:
    bench.add("old")
    bench.advance(10)
    bench.add("new")
    assert bench("SCANQUEUES", 0, "MAXIDLE", 5) == [b"0", [b"new"]]
    reply = bench("SCANQUEUES", 0, "MAXIDLE", 10)
    assert isinstance(reply, list)
    assert sorted(reply[1]) == [b"new", b"old"]


def test_at_most_once_work_goes_on_at_the_memory_limit(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(maxmemory=100_000)
    for _ in range(1000):
        id = bench.add("q", "body", "RETRY", 0)
        assert bench.get() == id
    assert bench.node.store.total_evicted > 0


def test_a_fast_acknowledge_counts_as_one(bench: Bench) -> None:
    bench("FASTACK", bench.add())
    assert bench.node.store.total_acked == 1


def test_a_web_page_cannot_use_the_node(bench: Bench) -> None:
    assert bench.error("POST", "/", "HTTP/1.1").startswith("ERR unknown command")
    assert bench.me.close
