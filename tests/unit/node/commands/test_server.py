"""COMMAND, INFO, CONFIG, TIME, SHUTDOWN, CLUSTER, and what applies to every command."""

from collections.abc import Callable

import pytest

from disque_trio.node.commands.table import build_table
from tests.support.node_bench import START, Bench

DISQUE_COMMANDS = [
    "auth", "ping", "info", "shutdown", "monitor", "debug", "config", "cluster", "client",
    "slowlog", "time", "command", "latency", "hello", "addjob", "getjob", "ackjob", "fastack",
    "deljob", "show", "loadjob", "bgrewriteaof", "qlen", "qpeek", "qstat", "qscan", "jscan",
    "enqueue", "nack", "dequeue", "working", "pause",
]  # fmt: skip
TABLE = build_table()


# ---- every command ------------------------------------------------------------------------------


def test_an_unknown_command_is_named_as_it_was_typed(bench: Bench) -> None:
    assert bench.error("FooBar", "x") == "ERR unknown command 'FooBar'"
    assert bench.error("") == "ERR unknown command ''"
    assert bench.error(b"a\r\nb") == "ERR unknown command 'a  b'"
    assert bench.error(b"\xff\xfe").startswith("ERR unknown command '")


def test_an_unknown_command_of_megabytes_gets_a_short_error(bench: Bench) -> None:
    assert len(bench.error("x" * 1_000_000)) < 200


@pytest.mark.parametrize("name", sorted(name.decode() for name in TABLE))
def test_too_few_arguments_are_an_error_with_the_lower_case_name(bench: Bench, name: str) -> None:
    command = TABLE[name.encode()]
    wrong = f"ERR wrong number of arguments for '{name}' command"
    if command.min_args > 1:
        assert bench.error(*[name.upper()] + ["x"] * (command.min_args - 2)) == wrong
    if command.arity > 0:
        assert bench.error(*[name.title()] + ["x"] * command.arity) == wrong


def test_names_of_commands_ignore_case(bench: Bench) -> None:
    for name in ("ping", "PING", "PiNg"):
        assert bench(name) == b"PONG"


def test_all_commands_of_disque_are_there(bench: Bench) -> None:
    reply = bench("COMMAND", "LIST")
    assert isinstance(reply, list)
    assert {name.encode() for name in DISQUE_COMMANDS} < set(reply)


# ---- COMMAND ------------------------------------------------------------------------------------


def test_command_and_count_and_list_agree(bench: Bench) -> None:
    rows = bench("COMMAND")
    names = bench("COMMAND", "LIST")
    assert isinstance(rows, list)
    assert isinstance(names, list)
    assert [row[0] for row in rows] == names
    assert bench("COMMAND", "COUNT") == len(names) == len(set(names))
    assert bench("COMMAND", "INFO") == rows


@pytest.mark.parametrize(
    ("name", "arity", "flags"),
    [
        ("addjob", -4, "write denyoom fast"),
        ("getjob", -2, "write fast"),
        ("ackjob", -1, "write fast"),
        ("fastack", -1, "write fast"),
        ("deljob", -1, "write fast"),
        ("show", -2, "readonly fast"),
        ("enqueue", -1, "write denyoom fast"),
        ("nack", -1, "write denyoom fast"),
        ("dequeue", -1, "write fast"),
        ("working", -2, "write fast"),
        ("qlen", 2, "readonly fast"),
        ("qpeek", -3, "readonly"),
        ("qstat", -2, "readonly fast"),
        ("qscan", -1, "readonly"),
        ("jscan", -1, "readonly"),
        ("pause", -3, "readonly fast"),
        ("loadjob", 2, "write"),
        ("ping", -1, "readonly fast"),
        ("shutdown", -1, "admin readonly loading"),
        ("monitor", 1, "admin readonly"),
        ("time", 1, "readonly fast"),
        ("debug", -2, "admin"),
        ("cluster", -2, "admin readonly"),
    ],
)
def test_command_info_has_arity_flags_and_no_places_of_keys(
    bench: Bench, name: str, arity: int, flags: str
) -> None:
    rows = bench("COMMAND", "INFO", name.upper())
    assert isinstance(rows, list)
    (row,) = rows
    assert row[:2] == [name.encode(), arity]
    assert set(row[2]) == set(flags.encode().split())
    assert row[3:] == [0, 0, 0]


def test_command_info_of_an_unknown_name_is_null(bench: Bench) -> None:
    reply = bench("COMMAND", "INFO", "nosuch", "ping")
    assert isinstance(reply, list)
    assert reply[0] is None
    assert reply[1][0] == b"ping"


def test_command_docs(bench: Bench) -> None:
    reply = bench("COMMAND", "DOCS", "addjob", "nosuch")
    assert isinstance(reply, list)
    assert reply[0] == b"addjob"
    assert len(reply) == 2
    assert b"summary" in reply[1]
    bench("HELLO", 3)
    docs = bench("COMMAND", "DOCS")
    assert isinstance(docs, dict)
    assert len(docs) == bench("COMMAND", "COUNT")
    assert docs[b"getjobs"][b"replaced_by"] == b"getjob"
    assert all(entry[b"summary"] for entry in docs.values())


def test_other_forms_of_command_are_an_error(bench: Bench) -> None:
    text = "ERR Unknown subcommand or wrong number of arguments."
    assert bench.error("COMMAND", "NOSUCH") == text
    assert bench.error("COMMAND", "COUNT", "x") == text


# ---- INFO ---------------------------------------------------------------------------------------


def test_info_counts_what_happens(bench: Bench) -> None:
    first, second = bench.add(), bench.add("r")
    bench.get()
    bench("NACK", first)
    bench("ACKJOB", second)
    bench.block("q2")
    stats = bench.info("stats")
    assert stats["total_jobs_added"] == "2"
    assert stats["total_jobs_delivered"] == "1"
    assert stats["total_jobs_requeued"] == "1"
    assert stats["total_jobs_acked"] == "1"
    assert bench.info("jobs")["registered_jobs"] == "1"
    assert bench.info("queues")["registered_queues"] == "3"
    assert bench.info("clients")["blocked_clients"] == "1"


def test_headings_of_info_are_those_of_disque(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("server", "persistence", "cpu")
    monkeypatch.setattr(type(bench.host), "info", lambda host: {name: {"x": 1} for name in names})
    headings = [line[2:] for line in bench.text("INFO", "all").splitlines() if line[:1] == "#"]
    assert headings == [
        "Server", "Clients", "Memory", "Jobs", "Queues", "Persistence", "Stats", "CPU",
        "Commandstats",
    ]  # fmt: skip
    assert bench.text("INFO", "cpu").startswith("# CPU\r\n")


def test_info_without_a_section_has_all_but_commandstats(bench: Bench) -> None:
    text = bench.text("INFO")
    for section in ("Clients", "Memory", "Jobs", "Queues", "Stats"):
        assert f"# {section}\r\n" in text
    assert "# Commandstats" not in text
    assert "# Commandstats" in bench.text("INFO", "all")
    assert "# Memory" in bench.text("INFO", "MEMORY")


def test_info_of_an_unknown_section_is_empty(bench: Bench) -> None:
    bench.send(bench.me, "INFO", "nosuch")
    assert bench.raw(bench.me) == b"$0\r\n\r\n"
    assert bench.error("INFO", "a", "b") == "ERR syntax error"


def test_info_is_verbatim_text_in_resp3(bench: Bench) -> None:
    bench("HELLO", 3)
    bench.send(bench.me, "INFO", "jobs")
    assert bench.raw(bench.me).startswith(b"=")


def test_commandstats_count_calls_and_times(bench: Bench) -> None:
    bench.command_takes = 3_000
    for _ in range(4):
        bench("PING")
    assert bench.info("commandstats")["cmdstat_ping"] == "calls=4,usec=12,usec_per_call=3.00"


def test_resetstat_sets_the_counters_to_zero(bench: Bench) -> None:
    bench.add()
    bench.get()
    assert bench("CONFIG", "RESETSTAT") == b"OK"
    stats = bench.info("stats")
    assert (stats["total_jobs_added"], stats["total_jobs_delivered"]) == ("0", "0")
    assert "cmdstat_addjob" not in bench.info("commandstats")
    assert ("reset_stats",) in bench.host.asked


# ---- CONFIG, TIME, SHUTDOWN, BGREWRITEAOF -------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["GET"], "ERR Wrong number of arguments for CONFIG get"),
        (["SET", "a"], "ERR Wrong number of arguments for CONFIG set"),
        (["set", "a", "b", "c"], "ERR Wrong number of arguments for CONFIG set"),
        (["REWRITE", "x"], "ERR Wrong number of arguments for CONFIG rewrite"),
        (["RESETSTAT", "x"], "ERR Wrong number of arguments for CONFIG resetstat"),
        (["NOSUCH"], "ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"),
        (["SET", "nosuch", "1"], "ERR Unsupported CONFIG parameter: nosuch"),
        (["REWRITE"], "ERR The server is running without a config file"),
    ],
)
def test_config_names_what_is_wrong(bench: Bench, args: list[str], text: str) -> None:
    assert bench.error("CONFIG", *args).lower() == text.lower()


def test_config_get_takes_no_patterns_that_are_long_together(bench: Bench) -> None:
    half = "*" * 2_048
    assert bench("CONFIG", "GET", half, half) == []
    assert "more than 4096 bytes" in bench.error("CONFIG", "GET", half, half, "*")


def test_config_get_without_a_match_is_empty(bench: Bench) -> None:
    assert bench("CONFIG", "GET", "nosuch*") == []
    bench("HELLO", 3)
    assert bench("CONFIG", "GET", "nosuch*") == {}


def test_time_is_the_time_of_the_node(bench: Bench) -> None:
    bench.now = START + 1234
    assert bench("TIME") == [str(START // 1000 + 1).encode(), b"234000"]


def test_shutdown_ends_the_node_without_a_reply(bench: Bench) -> None:
    bench.send(bench.me, "SHUTDOWN")
    assert bench.raw(bench.me) == b""
    assert bench.host.asked == [("shutdown",)]
    assert bench.error("SHUTDOWN", "x") == "ERR syntax error"
    assert bench.error("SHUTDOWN", "x", "y") == "ERR syntax error"


def test_a_shutdown_that_cannot_write_the_jobs_is_refused(bench: Bench) -> None:
    assert bench.error("SHUTDOWN", "REWRITE-AOF") == ("ERR Errors trying to SHUTDOWN. Check logs.")
    assert bench.host.asked == []
    assert bench.error("BGREWRITEAOF").startswith("ERR ")


# ---- CLUSTER ------------------------------------------------------------------------------------


def test_cluster_shows_a_cluster_of_one(bench: Bench) -> None:
    me = bench.node.id.decode()
    assert bench("CLUSTER", "MYID") == bench.node.id
    (line,) = bench.text("CLUSTER", "NODES").splitlines()
    fields = line.split()
    assert (fields[0], fields[2], fields[5]) == (me, "myself", "connected")
    assert len(fields) == 6
    info = dict(line.split(":") for line in bench.text("CLUSTER", "INFO").split("\r\n")[:-1])
    assert info["cluster_state"] == "ok"
    assert (info["cluster_known_nodes"], info["cluster_size"]) == ("1", "1")
    assert info["cluster_reachable_nodes"] == "0"


def test_cluster_leaving(bench: Bench) -> None:
    assert bench("CLUSTER", "LEAVING") == b"no"
    assert bench("CLUSTER", "LEAVING", "YES") == b"OK"
    assert bench("CLUSTER", "LEAVING") == b"yes"
    assert bench.error("CLUSTER", "LEAVING", "maybe") == (
        "ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"
    )
    assert bench("CLUSTER", "LEAVING", "no") == b"OK"


def test_cluster_reset_forgets_jobs_and_hard_also_the_id(bench: Bench) -> None:
    me = bench.node.id
    for how in ([], ["SOFT"]):
        id = bench.add()
        assert bench("CLUSTER", "RESET", *how) == b"OK"
        assert not bench.held(id)
        assert bench("CLUSTER", "MYID") == me
    assert bench("CLUSTER", "RESET", "hard") == b"OK"
    other = bench("CLUSTER", "MYID")
    assert isinstance(other, bytes)
    assert other != me
    assert len(other) == 40
    assert bench.add()[2:10] == other[:8]
    assert bench.error("CLUSTER", "RESET", "x") == "ERR syntax error"


def test_cluster_reset_does_not_end_leaving(bench: Bench) -> None:
    bench("CLUSTER", "LEAVING", "yes")
    bench("CLUSTER", "RESET", "HARD")
    assert bench("CLUSTER", "LEAVING") == b"yes"


def test_cluster_forget_has_nobody_to_forget(bench: Bench) -> None:
    assert bench.error("CLUSTER", "FORGET", "xyz") == "ERR Invalid node identifier"
    assert bench.error("CLUSTER", "FORGET", bench.node.id) == (
        "ERR I tried hard but I can't forget myself..."
    )
    other = "ab" * 20
    assert bench.error("CLUSTER", "FORGET", other) == f"ERR Unknown node {other}"


@pytest.mark.parametrize(
    ("ip", "port", "text"),
    [
        ("127.0.0.1", "x", "ERR Invalid TCP port specified: x"),
        ("127.0.0.1", "0", "ERR Invalid node address specified: 127.0.0.1:0"),
        ("127.0.0.1", "60000", "ERR Invalid node address specified: 127.0.0.1:60000"),
    ],
)
def test_cluster_meet_checks_the_address(bench: Bench, ip: str, port: str, text: str) -> None:
    assert bench.error("CLUSTER", "MEET", ip, port) == text


@pytest.mark.parametrize("args", [["NOSUCH"], ["MYID", "x"], ["MEET", "1.2.3.4"], ["FORGET"]])
def test_other_forms_of_cluster_are_an_error(bench: Bench, args: list[str]) -> None:
    assert bench.error("CLUSTER", *args) == ("ERR Wrong CLUSTER subcommand or number of arguments")


def test_two_nodes_share_no_counters(make_bench: Callable[..., Bench]) -> None:
    one, other = make_bench(), make_bench()
    one("PING")
    assert "cmdstat_ping" not in other.info("commandstats")
