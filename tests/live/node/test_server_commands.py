"""HELLO, CLUSTER, INFO, COMMAND and other queries about the node, over a real socket."""

import re
import time

import pytest

from tests.support.harness import LiveNode, NodeFactory, Wire
from tests.support.live_helpers import add_job, exchange, packed

INFO_FIELDS = {
    "server": "disque_version disque_git_sha1 disque_git_dirty disque_build_id os arch_bits "
    "multiplexing_api gcc_version process_id run_id tcp_port uptime_in_seconds uptime_in_days hz "
    "executable config_file",
    "clients": "connected_clients client_longest_output_list client_biggest_input_buf "
    "blocked_clients",
    "memory": "used_memory used_memory_human used_memory_rss used_memory_peak "
    "used_memory_peak_human mem_fragmentation_ratio mem_allocator",
    "jobs": "registered_jobs",
    "queues": "registered_queues",
    "persistence": "loading aof_enabled aof_state aof_rewrite_in_progress aof_rewrite_scheduled "
    "aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status "
    "aof_last_write_status",
    "stats": "total_connections_received total_commands_processed instantaneous_ops_per_sec "
    "total_net_input_bytes total_net_output_bytes instantaneous_input_kbps "
    "instantaneous_output_kbps rejected_connections latest_fork_usec",
    "cpu": "used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children",
    "alarms": "alarms alarms_critical alarms_warning",
}


def test_hello_without_version_lists_the_nodes(talk: Wire, shared_node: LiveNode) -> None:
    me = talk("CLUSTER", "MYID")
    assert isinstance(me, bytes)
    assert re.fullmatch(rb"[0-9a-f]{40}", me)
    port = str(shared_node.port).encode()
    assert talk("HELLO") == [1, me, [me, b"", port, b"1"]]


def test_hello_3_switches_to_true_resp3(shared_node: LiveNode) -> None:
    hello = exchange(shared_node, packed("HELLO", 3))
    assert hello.startswith(b"%7\r\n$6\r\nserver\r\n")
    answer = exchange(shared_node, packed("HELLO", 3), packed("GETJOB", "NOHANG", "FROM", "q"))
    assert answer.endswith(b"_\r\n")
    answer = exchange(shared_node, packed("HELLO", 3), packed("CONFIG", "GET", "hz"))
    assert answer.endswith(b"%1\r\n$2\r\nhz\r\n$2\r\n10\r\n")
    answer = exchange(shared_node, packed("HELLO", 3), packed("INFO", "jobs"))
    assert b"=" in answer
    assert b"\r\ntxt:# Jobs\r\n" in answer
    back = exchange(shared_node, packed("HELLO", 3), packed("HELLO", 2), packed("SHOW", "D-" * 20))
    assert back.endswith(b"-BADID Invalid Job ID format.\r\n")


def test_hello_2_answers_a_flat_array(shared_node: LiveNode) -> None:
    assert exchange(shared_node, packed("HELLO", 2)).startswith(b"*14\r\n$6\r\nserver\r\n")


def test_hello_sets_the_name(talk: Wire) -> None:
    talk("HELLO", 3, "SETNAME", "worker")
    assert talk("CLIENT", "GETNAME") == b"worker"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("HELLO 4", "NOPROTO unsupported protocol version"),
        ("HELLO 1", "NOPROTO unsupported protocol version"),
        ("HELLO x", "ERR value is not an integer or out of range"),
        ("HELLO 3 WHAT", "ERR Syntax error in HELLO option 'WHAT'"),
        ("HELLO 3 AUTH default", "ERR Syntax error in HELLO option 'AUTH'"),
        ("HELLO 3 AUTH default x", "ERR Client sent AUTH, but no password is set"),
        ("AUTH x", "ERR Client sent AUTH, but no password is set"),
        ("PING a b", "ERR wrong number of arguments for 'ping' command"),
        ("SELECT 1", "ERR DB index is out of range"),
        ("INFO a b", "ERR syntax error"),
        ("COMMAND NONSENSE", "ERR Unknown subcommand or wrong number of arguments."),
        (
            "CLUSTER NONSENSE",
            "ERR Wrong CLUSTER subcommand or number of arguments",
        ),
        ("CLUSTER FORGET x", "ERR Invalid node identifier"),
        ("CLUSTER FORGET " + "0" * 40, "ERR Unknown node " + "0" * 40),
        ("CLUSTER MEET 127.0.0.1 x", "ERR Invalid TCP port specified: x"),
        ("CLUSTER MEET 127.0.0.1 0", "ERR Invalid node address specified: 127.0.0.1:0"),
        (
            "CLUSTER LEAVING maybe",
            "ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'",
        ),
        (
            "SLOWLOG NONSENSE",
            "ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN.",
        ),
        ("LATENCY NONSENSE", "ERR syntax error"),
        ("LATENCY GRAPH x", "ERR No samples available for event 'x'"),
        (
            "DEBUG NONSENSE",
            "ERR Unknown DEBUG subcommand or wrong number of arguments for 'NONSENSE'",
        ),
        ("DEBUG SLEEP nan", "ERR value is not a valid float"),
        ("DEBUG ERROR what-I-say", "what-I-say"),
        ("SHUTDOWN WHAT", "ERR syntax error"),
        ("NONSENSE a b", "ERR unknown command 'NONSENSE'"),
    ],
)
def test_a_malformed_server_command_gets_its_error(talk: Wire, words: str, problem: str) -> None:
    assert talk.error(*words.split()) == problem
    assert talk("PING") == b"PONG"


def test_a_node_cannot_forget_itself(talk: Wire) -> None:
    me = talk("CLUSTER", "MYID")
    assert isinstance(me, bytes)
    problem = "ERR I tried hard but I can't forget myself..."
    assert talk.error("CLUSTER", "FORGET", me) == problem


def test_an_error_reply_is_one_line_whatever_the_client_wrote(shared_node: LiveNode) -> None:
    answer = exchange(shared_node, packed(b"a\r\n+OK\r\nb"))
    assert answer == b"-ERR unknown command 'a  +OK  b'\r\n"
    answer = exchange(shared_node, packed("CONFIG", "SET", b"x\r\n+OK\r\n", "1"))
    assert answer.count(b"\r\n") == 1


def test_ping_echo_and_time(talk: Wire) -> None:
    assert talk("PING") == b"PONG"
    assert talk("PING", b"\0\xff") == b"\0\xff"
    assert talk("ECHO", b"\0\xff") == b"\0\xff"
    assert talk("SELECT", 0) == b"OK"
    before = time.time()
    reply = talk("TIME")
    assert isinstance(reply, list)
    seconds, micros = (int(part) for part in reply)
    assert before - 0.01 <= seconds + micros / 1e6 <= time.time() + 0.01


@pytest.mark.parametrize("section", INFO_FIELDS)
def test_info_has_all_fields_of_the_section(shared_node: LiveNode, section: str) -> None:
    fields = shared_node.info(section)
    assert set(INFO_FIELDS[section].split()) <= set(fields)


def test_info_gives_all_sections_but_the_statistics_of_commands(talk: Wire) -> None:
    text = talk("INFO")
    assert isinstance(text, bytes)
    titles = re.findall(rb"^# (\w+)\r$", text, re.MULTILINE)
    assert [title.decode().lower() for title in titles] == list(INFO_FIELDS)
    assert talk("INFO", "nonsense") == b""


def test_info_commandstats_counts_calls(talk: Wire) -> None:
    talk("QLEN", "q")
    text = talk("INFO", "commandstats")
    assert isinstance(text, bytes)
    pattern = rb"cmdstat_qlen:calls=[1-9]\d*,usec=\d+,usec_per_call=\d+\.\d\d\r\n"
    assert re.search(pattern, text)


def test_info_counts_jobs_queues_and_traffic(node: LiveNode) -> None:
    wire = node.wire()
    add_job(wire, "a", b"x" * 5000)
    add_job(wire, "b")
    assert node.info("jobs")["registered_jobs"] == "2"
    assert node.info("queues")["registered_queues"] == "2"
    assert int(node.info("memory")["used_memory"]) > 5000
    stats = node.info("stats")
    assert int(stats["total_net_input_bytes"]) > 5000
    assert int(stats["total_connections_received"]) >= 4
    assert node.info("server")["tcp_port"] == str(node.port)
    assert node.info("server")["process_id"] == str(node.process.pid)


def test_resetstat_sets_the_counters_to_zero(node: LiveNode) -> None:
    wire = node.wire()
    for _ in range(50):
        wire("PING")
    assert wire("CONFIG", "RESETSTAT") == b"OK"
    stats = node.info("stats")
    assert int(stats["total_commands_processed"]) < 10
    assert int(stats["total_connections_received"]) < 10


def test_command_describes_every_command(talk: Wire) -> None:
    rows = talk("COMMAND")
    assert isinstance(rows, list)
    assert talk("COMMAND", "COUNT") == len(rows)
    names = talk("COMMAND", "LIST")
    assert isinstance(names, list)
    assert sorted(row[0] for row in rows) == sorted(names)
    assert talk("COMMAND", "INFO", "AddJob", "nonsense") == [
        [b"addjob", -4, [b"write", b"denyoom", b"fast"], 0, 0, 0],
        None,
    ]


def test_command_docs_document_every_command(talk: Wire) -> None:
    docs = talk("COMMAND", "DOCS")
    assert isinstance(docs, list)
    assert len(docs) // 2 == talk("COMMAND", "COUNT")
    for fields in docs[1::2]:
        keys = fields[::2]
        assert b"summary" in keys
        assert b"group" in keys
    one = talk("COMMAND", "DOCS", "getjob", "nonsense")
    assert isinstance(one, list)
    assert one[0] == b"getjob"
    assert len(one) == 2


def test_cluster_commands_of_a_single_node(talk: Wire, shared_node: LiveNode) -> None:
    me = talk("CLUSTER", "MYID")
    assert isinstance(me, bytes)
    line = f"{me.decode()} :{shared_node.port} myself 0 0 connected\n"
    assert talk("CLUSTER", "NODES") == line.encode()
    text = talk("CLUSTER", "INFO")
    assert isinstance(text, bytes)
    info = dict(line.split(":") for line in text.decode().split("\r\n") if line)
    assert info["cluster_state"] == "ok"
    assert info["cluster_known_nodes"] == "1"
    assert info["cluster_reachable_nodes"] == "0"
    assert info["cluster_size"] == "1"
    assert info["cluster_stats_messages_sent"] == "0"
    assert info["cluster_stats_messages_received"] == "0"


def test_a_leaving_node_refuses_work_and_says_so(node: LiveNode) -> None:
    control, worker = node.wire(), node.wire()
    assert control("CLUSTER", "LEAVING") == b"no"
    queued = add_job(control, "other")
    worker.send("GETJOB", "FROM", "q")
    while node.info("clients")["blocked_clients"] == "0":
        pass
    assert control("CLUSTER", "LEAVING", "yes") == b"OK"
    assert control("CLUSTER", "LEAVING") == b"yes"
    leaving = "LEAVING This node is leaving the cluster, please connect to a different one"
    assert str(worker.read()) == leaving
    assert control.error("GETJOB", "FROM", "q") == leaving
    assert control("GETJOB", "NOHANG", "FROM", "q") is None
    assert control("GETJOB", "FROM", "other") == [[b"other", queued.encode(), b"body"]]
    assert control.error("ADDJOB", "q", "b", 0) == (
        "NOREPL Not enough reachable nodes for the requested replication level, since I'm unable "
        "to hold a copy of the message for the following reason: I'm leaving the cluster"
    )
    hello = control("HELLO")
    assert isinstance(hello, list)
    assert hello[2][3] == b"100"
    assert control("CLUSTER", "LEAVING", "no") == b"OK"
    add_job(control)


def test_cluster_reset_forgets_jobs_and_frees_waiting_clients(node: LiveNode) -> None:
    control, worker = node.wire(), node.wire()
    me = control("CLUSTER", "MYID")
    id = add_job(control)
    worker.send("GETJOB", "FROM", "other")
    while node.info("clients")["blocked_clients"] == "0":
        pass
    assert control("CLUSTER", "RESET") == b"OK"
    assert worker.read() is None
    assert control("SHOW", id) is None
    assert control("CLUSTER", "MYID") == me
    assert control("CLUSTER", "RESET", "HARD") == b"OK"
    assert control("CLUSTER", "MYID") != me


def test_debug_flushall_forgets_everything(talk: Wire) -> None:
    add_job(talk)
    talk("PAUSE", "q", "in")
    assert talk("DEBUG", "FLUSHALL") == b"OK"
    assert talk("JSCAN") == [b"0", []]
    assert talk("QSCAN") == [b"0", []]
    assert talk("PAUSE", "q", "state") == b"none"


def test_the_slow_log_holds_slow_commands_cut_to_size(node: LiveNode) -> None:
    wire = node.wire()
    assert wire("SLOWLOG", "RESET") == b"OK"
    wire("DEBUG", "SLEEP", "0.02")
    assert wire("SLOWLOG", "LEN") == 1
    log = wire("SLOWLOG", "GET")
    assert isinstance(log, list)
    assert log[0][2] >= 20_000
    assert log[0][3] == [b"DEBUG", b"SLEEP", b"0.02"]
    wire("CONFIG", "SET", "slowlog-log-slower-than", 0)
    wire("ADDJOB", "q", "x" * 1000, 0)
    wire("ACKJOB", *["D-00000000-" + "0" * 24 + "-05a1"] * 50)
    log = wire("SLOWLOG", "GET", 2)
    assert isinstance(log, list)
    assert [entry[0] for entry in log] == sorted((entry[0] for entry in log), reverse=True)
    assert len(log[0][3]) == 32
    assert log[0][3][-1] == b"... (20 more arguments)"
    assert log[1][3][2] == b"x" * 128 + b"... (872 more bytes)"


def test_the_slow_log_can_be_switched_off_and_cut(node: LiveNode) -> None:
    wire = node.wire()
    wire("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 5)
    for _ in range(10):
        wire("PING")
    assert wire("SLOWLOG", "LEN") == 5
    wire("CONFIG", "SET", "slowlog-log-slower-than", -1)
    wire("SLOWLOG", "RESET")
    wire("DEBUG", "SLEEP", "0.02")
    assert wire("SLOWLOG", "LEN") == 0


def test_the_slow_log_holds_no_password(node: LiveNode) -> None:
    wire = node.wire()
    wire("CONFIG", "SET", "slowlog-log-slower-than", 0)
    wire("CONFIG", "SET", "requirepass", "hush-hush")
    wire("AUTH", "hush-hush")
    wire("AUTH", "default", "hush-hush")
    wire("HELLO", 3, "AUTH", "default", "hush-hush")
    log = wire("SLOWLOG", "GET", 100)
    assert "hush" not in repr(log)


def test_latency_keeps_what_took_too_long(node: LiveNode) -> None:
    wire = node.wire()
    assert wire("LATENCY", "LATEST") == []
    wire("CONFIG", "SET", "latency-monitor-threshold", 10)
    wire("DEBUG", "SLEEP", "0.03")
    latest = wire("LATENCY", "LATEST")
    assert isinstance(latest, list)
    event, _, last, worst = latest[0]
    assert event == b"command"
    assert 30 <= last == worst
    history = wire("LATENCY", "HISTORY", "command")
    assert isinstance(history, list)
    assert history[0][1] == last
    for report in (wire("LATENCY", "GRAPH", "command"), wire("LATENCY", "DOCTOR")):
        assert isinstance(report, bytes)
        assert b"command" in report
    assert wire("LATENCY", "RESET") == 1
    assert wire("LATENCY", "HISTORY", "command") == []


def test_a_full_node_refuses_new_jobs_and_serves_the_rest(disque_server: NodeFactory) -> None:
    wire = disque_server("--maxmemory", "200kb").wire()
    ids = []
    while True:
        reply = wire("ADDJOB", "q", "x" * 1000, 0)
        if not isinstance(reply, bytes):
            break
        ids.append(reply)
        assert len(ids) < 1000
    assert str(reply).startswith(("NOREPL ", "OOM "))
    assert wire("QLEN", "q") == len(ids)
    wire("CONFIG", "SET", "maxmemory", "50kb")
    assert wire.error("ADDJOB", "q", "x", 0).startswith(
        "OOM command not allowed when used memory > 'maxmemory'. Of 50 KiB, "
    )
    job = wire("GETJOB", "FROM", "q")
    assert isinstance(job, list)
    assert wire("ACKJOB", *ids) == len(ids)
    assert isinstance(wire("ADDJOB", "q", "x", 0), bytes)
