"""SLOWLOG, LATENCY, MONITOR, DEBUG."""

import pytest

from tests.support.node_bench import START, Bench

MS = 1_000_000  # ns


def slow(bench: Bench, milliseconds: int, *args: str | int) -> None:
    """Run a command that takes this long."""
    bench.command_takes = milliseconds * MS
    bench(*args)
    bench.command_takes = 0


def entries(bench: Bench, *args: int) -> list[list[object]]:
    reply = bench("SLOWLOG", "GET", *args)
    assert isinstance(reply, list)
    return reply


# ---- SLOWLOG ------------------------------------------------------------------------------------


def test_slow_commands_are_logged_latest_first(bench: Bench) -> None:
    bench.node.durations.watch(10_000, 0)
    slow(bench, 10, "PING", "one")
    slow(bench, 9, "PING", "quick")
    bench.advance(5)
    slow(bench, 30, "PING", "two")
    assert entries(bench) == [
        [1, START // 1000 + 5, 30_000, [b"PING", b"two"]],
        [0, START // 1000, 10_000, [b"PING", b"one"]],
    ]
    assert entries(bench, 1) == entries(bench)[:1]
    assert entries(bench, 0) == []
    assert len(entries(bench, -1)) == 2
    assert bench("SLOWLOG", "LEN") == 2
    assert bench("SLOWLOG", "RESET") == b"OK"
    assert bench("SLOWLOG", "LEN") == 0


def test_the_slow_log_keeps_its_length_and_shows_ten_unasked(bench: Bench) -> None:
    bench.node.durations.watch(0, 0)
    bench.node.slowlog.max_len = 20
    for _ in range(50):
        bench("PING")
    assert bench("SLOWLOG", "LEN") == 20
    assert len(entries(bench)) == 10


def test_a_negative_limit_switches_the_slow_log_off(bench: Bench) -> None:
    bench.node.durations.watch(-1, 1)
    slow(bench, 5000, "PING")
    assert bench("SLOWLOG", "LEN") == 0


def test_long_arguments_are_cut_in_the_slow_log(bench: Bench) -> None:
    bench.node.durations.watch(0, 0)
    bench("ACKJOB", *[b"D-aaaaaaaa-" + b"x" * 24 + b"-05a1"] * 40)
    bench("ECHO", "y" * 200)
    echo, ack = entries(bench, 2)
    assert echo[3] == [b"ECHO", b"y" * 128 + b"... (72 more bytes)"]
    assert isinstance(ack[3], list)
    assert len(ack[3]) == 32
    assert ack[3][-1] == b"... (10 more arguments)"


@pytest.mark.parametrize(
    "args",
    [
        ["AUTH", "hunter2"],
        ["auth", "default", "hunter2"],
        ["HELLO", "3", "AUTH", "default", "hunter2"],
        ["CONFIG", "SET", "requirepass", "hunter2"],
    ],
)
def test_passwords_are_not_shown_in_the_slow_log_nor_to_monitors(
    bench: Bench, args: list[str]
) -> None:
    watcher = bench.client()
    bench.send(watcher, "MONITOR")
    bench.node.durations.watch(0, 0)
    bench.send(bench.client(), *args)
    assert b"hunter2" not in b"".join(watcher.out)
    bench.send(bench.me, "SLOWLOG", "GET")
    assert b"hunter2" not in bench.raw(bench.me)


def test_other_forms_of_slowlog_are_an_error(bench: Bench) -> None:
    text = "ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."
    assert bench.error("SLOWLOG", "NOSUCH") == text
    assert bench.error("SLOWLOG", "LEN", "x") == text
    assert bench.error("SLOWLOG", "GET", "x") == "ERR value is not an integer or out of range"


# ---- LATENCY ------------------------------------------------------------------------------------


def test_latency_keeps_the_worst_of_each_second(bench: Bench) -> None:
    bench.node.durations.watch(-1, 100)
    slow(bench, 99, "PING")
    slow(bench, 150, "PING")
    slow(bench, 300, "PING")
    slow(bench, 200, "PING")
    bench.advance(1)
    slow(bench, 120, "PING")
    slow(bench, 500, "INFO")
    second = START // 1000
    assert bench("LATENCY", "HISTORY", "fast-command") == [[second, 300], [second + 1, 120]]
    assert bench("LATENCY", "HISTORY", "nosuch") == []
    assert bench("LATENCY", "LATEST") == [
        [b"fast-command", second + 1, 120, 300],
        [b"command", second + 1, 500, 500],
    ]
    assert bench("LATENCY", "RESET", "command", "nosuch") == 1
    assert bench("LATENCY", "RESET") == 1
    assert bench("LATENCY", "LATEST") == []


def test_latency_keeps_160_samples_of_an_event(bench: Bench) -> None:
    bench.node.durations.watch(-1, 1)
    for _ in range(200):
        slow(bench, 2, "PING")
        bench.advance(1)
    history = bench("LATENCY", "HISTORY", "fast-command")
    assert isinstance(history, list)
    assert len(history) == 160
    assert history[-1][0] == START // 1000 + 199


def test_without_a_threshold_nothing_is_sampled(bench: Bench) -> None:
    bench.node.durations.watch(0, 0)
    slow(bench, 5000, "PING")
    assert bench("LATENCY", "LATEST") == []


def test_graph_and_doctor_answer_text(bench: Bench) -> None:
    assert bench.text("LATENCY", "DOCTOR")
    assert bench.error("LATENCY", "GRAPH", "nosuch") == (
        "ERR No samples available for event 'nosuch'"
    )
    bench.node.durations.watch(-1, 1)
    assert bench.text("LATENCY", "DOCTOR")
    for duration in (5, 50, 500):
        slow(bench, duration, "PING")
        bench.advance(100)
    assert "high 500 ms" in bench.text("LATENCY", "GRAPH", "fast-command")
    assert "worst 500 ms" in bench.text("LATENCY", "DOCTOR")


def test_other_forms_of_latency_are_an_error(bench: Bench) -> None:
    assert bench.error("LATENCY", "NOSUCH") == "ERR syntax error"
    assert bench.error("LATENCY", "HISTORY") == "ERR syntax error"


def test_the_graph_shows_the_all_time_high_after_its_sample_is_gone(bench: Bench) -> None:
    bench.node.durations.watch(-1, 1)
    for duration in [900] + [5] * 160:
        slow(bench, duration, "PING")
        bench.advance(1)
    graph = bench.text("LATENCY", "GRAPH", "fast-command")
    assert "high 5 ms, low 5 ms (all time high 900 ms)" in graph


# ---- MONITOR ------------------------------------------------------------------------------------


def test_a_monitor_sees_the_commands_of_all_clients(bench: Bench) -> None:
    watcher = bench.client()
    bench.send(watcher, "MONITOR")
    assert bench.raw(watcher) == b"+OK\r\n"
    bench.now = START + 123
    bench("ECHO", b'a "b"\n\xff')
    seconds = START // 1000
    line = b'+%d.123000 [10.0.0.1:7000] "ECHO" "a \\"b\\"\\n\\xff"\r\n' % seconds
    assert bench.raw(watcher) == line
    assert watcher in bench.node.woken


def test_a_second_monitor_is_answered_and_shows_each_command_once(bench: Bench) -> None:
    watcher = bench.client()
    bench.send(watcher, "MONITOR")
    bench.send(watcher, "MONITOR")
    replies = bench.replies(watcher)
    assert replies.count(b"OK") == 2
    bench("PING")
    assert len(bench.replies(watcher)) == 1


@pytest.mark.parametrize("how", ["disconnect", "RESET"])
def test_who_leaves_or_resets_monitors_no_more(bench: Bench, how: str) -> None:
    watcher = bench.client()
    bench.send(watcher, "MONITOR")
    if how == "disconnect":
        bench.disconnect(watcher)
    else:
        bench.send(watcher, "RESET")
    bench.raw(watcher)
    bench("PING")
    assert bench.raw(watcher) == b""


# ---- DEBUG --------------------------------------------------------------------------------------


def test_debug_flushall_forgets_jobs_queues_and_timers(bench: Bench) -> None:
    id = bench.add("q", "b", "DELAY", 5)
    bench.add("r", "b", "RETRY", 0)
    bench.get("r")
    assert bench("DEBUG", "FLUSHALL") == b"OK"
    assert not bench.held(id)
    assert bench("JSCAN") == bench("QSCAN") == [b"0", []]
    assert bench.node.next_wake() == 0
    assert bench("ACKJOB", id) == 0
    bench.advance(100)
    assert bench.get() is None


def test_debug_error_answers_the_text(bench: Bench) -> None:
    assert bench.error("DEBUG", "ERROR", "CODE some text") == "CODE some text"
    assert bench.error("DEBUG", "ERROR", b"two\r\nlines") == "two  lines"


def test_debug_sleep_and_crashes_are_up_to_the_process(bench: Bench) -> None:
    assert bench("DEBUG", "SLEEP", "0.5") == b"OK"
    for args in (["SEGFAULT"], ["OOM"], ["ASSERT"], ["RESTART"], ["CRASH-AND-RECOVER", 50]):
        bench.send(bench.me, "DEBUG", *args)
    assert bench.host.asked == [
        ("sleep", 0.5), ("crash", False, 0), ("crash", False, 0), ("crash", False, 0),
        ("crash", True, 0), ("crash", True, 50),
    ]  # fmt: skip


@pytest.mark.parametrize("seconds", ["x", "-1", "nan", "inf", "1e99", ""])
def test_debug_sleep_takes_seconds_that_make_sense(bench: Bench, seconds: str) -> None:
    assert bench.error("DEBUG", "SLEEP", seconds).startswith("ERR ")
    assert bench.host.asked == []


def test_other_forms_of_debug_are_an_error(bench: Bench) -> None:
    assert bench.error("DEBUG", "nosuch") == (
        "ERR Unknown DEBUG subcommand or wrong number of arguments for 'nosuch'"
    )
    assert bench.error("DEBUG", "FLUSHALL", "x") == (
        "ERR Unknown DEBUG subcommand or wrong number of arguments for 'FLUSHALL'"
    )
