"""The commands about connections: CLIENT, MONITOR, RESET, QUIT."""

import re
import time

import pytest

from tests.support.harness import LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_helpers import add_job, client_lines, info_value, receive_all

FIELDS = [
    "id",
    "addr",
    "fd",
    "name",
    "age",
    "idle",
    "flags",
    "qbuf",
    "qbuf-free",
    "obl",
    "oll",
    "omem",
    "events",
    "cmd",
]


def own_address(wire: Wire) -> str:
    host, port = wire.sock.getsockname()
    return f"{host}:{port}"


def test_client_list_has_a_line_with_all_fields_for_each_client(shared_node: LiveNode) -> None:
    wire, other = shared_node.wire(), shared_node.wire()
    other("CLIENT", "SETNAME", "other")
    lines = client_lines(wire)
    assert set(FIELDS) <= set(lines[0])
    addresses = {line["addr"]: line for line in lines}
    assert addresses[own_address(other)]["name"] == "other"
    assert addresses[own_address(wire)]["cmd"] == "client"


def test_client_list_shows_waiting_clients_and_monitors(shared_node: LiveNode) -> None:
    wire, blocked, watching = (shared_node.wire() for _ in range(3))
    watching("MONITOR")
    blocked.send("GETJOB", "FROM", "q")
    wait_until(lambda: info_value(shared_node, "clients", "blocked_clients"))
    flags = {line["addr"]: line["flags"] for line in client_lines(wire)}
    assert flags[own_address(blocked)] == "b"
    assert flags[own_address(watching)] == "O"
    assert flags[own_address(wire)] == "N"


def test_client_id_info_and_lists_by_id_agree(shared_node: LiveNode) -> None:
    wire, other = shared_node.wire(), shared_node.wire()
    id = wire("CLIENT", "ID")
    assert isinstance(id, int)
    other_id = other("CLIENT", "ID")
    assert isinstance(other_id, int)
    assert other_id > id
    info = wire("CLIENT", "INFO")
    assert isinstance(info, bytes)
    assert info.startswith(b"id=%d addr=" % id)
    listed = wire("CLIENT", "LIST", "ID", other_id, 999_999)
    assert isinstance(listed, bytes)
    assert listed.startswith(b"id=%d " % other_id)
    assert listed.count(b"\n") == 1
    everybody = wire("CLIENT", "LIST", "TYPE", "normal")
    assert isinstance(everybody, bytes)
    assert everybody.count(b"\n") >= 2
    assert wire("CLIENT", "LIST", "TYPE", "replica") == b""


def test_clients_can_set_their_names_and_libraries(talk: Wire) -> None:
    assert talk("CLIENT", "GETNAME") is None
    assert talk("CLIENT", "SETNAME", "w1") == b"OK"
    assert talk("CLIENT", "GETNAME") == b"w1"
    assert talk("CLIENT", "SETINFO", "LIB-NAME", "mine") == b"OK"
    assert talk("CLIENT", "SETINFO", "lib-ver", "1.0") == b"OK"
    line = next(line for line in client_lines(talk) if line["name"] == "w1")
    assert (line["lib-name"], line["lib-ver"]) == ("mine", "1.0")
    assert talk("CLIENT", "NO-EVICT", "on") == b"OK"
    assert talk("CLIENT", "NO-TOUCH", "off") == b"OK"


BAD_NAME = "ERR Client names cannot contain spaces, newlines or special characters."
FALLBACK = "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["SETNAME", "a b"], BAD_NAME),
        (["SETNAME", "a\nb"], BAD_NAME),
        (["SETNAME", b"\xff"], BAD_NAME),
        (["NONSENSE"], FALLBACK),
        (["ID", "x"], FALLBACK),
        (["KILL"], FALLBACK),
        (["KILL", "1.2.3.4:5"], "ERR No such client"),
        (["KILL", "ID", "0"], "ERR client-id should be greater than 0"),
        (["KILL", "ID", "x"], "ERR value is not an integer or out of range"),
        (["KILL", "TYPE", "nonsense"], "ERR Unknown client type 'nonsense'"),
        (["KILL", "SKIPME", "maybe"], "ERR syntax error"),
        (["KILL", "ID", "1", "ADDR"], "ERR syntax error"),
        (["PAUSE", "x"], "ERR timeout is not an integer or out of range"),
        (["PAUSE", "-1"], "ERR timeout is negative"),
        (["PAUSE", "0", "nonsense"], "ERR CLIENT PAUSE mode must be WRITE or ALL"),
        (["UNBLOCK", "x"], "ERR value is not an integer or out of range"),
        (["UNBLOCK", "1", "X"], "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        (["REPLY", "nonsense"], "ERR syntax error"),
        (["SETINFO", "nonsense", "x"], "ERR Unrecognized option 'nonsense'"),
        (
            ["SETINFO", "lib-name", "a b"],
            "ERR lib-name cannot contain spaces, newlines or special characters.",
        ),
    ],
)
def test_a_malformed_client_command_gets_its_error(
    talk: Wire, words: list[bytes | str], problem: str
) -> None:
    assert talk.error("CLIENT", *words) == problem
    assert talk("PING") == b"PONG"


def test_kill_by_address_closes_that_connection(shared_node: LiveNode) -> None:
    wire, victim = shared_node.wire(), shared_node.wire()
    victim("PING")
    assert wire("CLIENT", "KILL", own_address(victim)) == b"OK"
    assert victim.closed()
    assert wire("PING") == b"PONG"


def test_kill_with_filters_counts_the_clients_that_match_all(shared_node: LiveNode) -> None:
    wire, victim, bystander = (shared_node.wire() for _ in range(3))
    id = victim("CLIENT", "ID")
    assert isinstance(id, int)
    assert wire("CLIENT", "KILL", "ID", id, "ADDR", own_address(bystander)) == 0
    assert wire("CLIENT", "KILL", "ID", id, "ADDR", own_address(victim)) == 1
    assert victim.closed()
    assert bystander("PING") == b"PONG"
    assert wire("CLIENT", "KILL", "TYPE", "replica") == 0


def test_kill_spares_the_caller_unless_told_otherwise(node: LiveNode) -> None:
    wire, victims = node.wire(), [node.wire() for _ in range(3)]
    for victim in victims:
        victim("PING")
    assert wire("CLIENT", "KILL", "TYPE", "normal") == 3
    for victim in victims:
        assert victim.closed()
    assert wire("PING") == b"PONG"
    assert wire("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no") == 1
    assert wire.closed()


def test_a_client_that_kills_itself_gets_the_reply_first(talk: Wire) -> None:
    assert talk("CLIENT", "KILL", own_address(talk)) == b"OK"
    assert talk.closed()


def test_killing_a_blocked_client_loses_no_job(shared_node: LiveNode) -> None:
    wire, victim = shared_node.wire(), shared_node.wire()
    id = victim("CLIENT", "ID")
    assert isinstance(id, int)
    victim.send("GETJOB", "FROM", "q")
    wait_until(lambda: info_value(shared_node, "clients", "blocked_clients"))
    assert wire("CLIENT", "KILL", "ID", id) == 1
    add_job(wire)
    assert wire("QLEN", "q") == 1
    assert victim.closed()


def test_unblock_ends_the_wait_of_another_client(shared_node: LiveNode) -> None:
    wire, blocked = shared_node.wire(), shared_node.wire()
    id = blocked("CLIENT", "ID")
    assert isinstance(id, int)
    assert wire("CLIENT", "UNBLOCK", id) == 0
    for reason in ((), ("TIMEOUT",), ("ERROR",)):
        blocked.send("GETJOB", "FROM", "q")
        wait_until(lambda: info_value(shared_node, "clients", "blocked_clients"))
        assert wire("CLIENT", "UNBLOCK", id, *reason) == 1
        reply = blocked.read()
        if reason == ("ERROR",):
            assert str(reply) == "UNBLOCKED client unblocked via CLIENT UNBLOCK"
        else:
            assert reply is None
    assert blocked("PING") == b"PONG"


def test_pause_holds_commands_back_and_serves_them_later(node: LiveNode) -> None:
    wire, other = node.wire(), node.wire()
    other("PING")
    started = time.monotonic()
    assert wire("CLIENT", "PAUSE", 300) == b"OK"
    for number in range(5):
        other.send("ECHO", number)
    assert [other.read() for _ in range(5)] == [b"%d" % number for number in range(5)]
    assert time.monotonic() - started >= 0.29


def test_a_paused_client_is_not_idle(disque_server: NodeFactory) -> None:
    node = disque_server("--timeout", "3", "--hz", "50")
    wire, other = node.wire(), node.wire()
    wire("CLIENT", "PAUSE", 3500)
    other.send("PING")
    assert other.read() == b"PONG"


def test_unpause_ends_a_pause(node: LiveNode) -> None:
    wire, other = node.wire(), node.wire()
    wire("CLIENT", "PAUSE", 1_000_000_000)
    other.send("PING")
    assert wire("CLIENT", "UNPAUSE") == b"OK"
    assert other.read() == b"PONG"


def test_reply_off_and_skip_silence_a_connection(talk: Wire) -> None:
    talk.send("CLIENT", "REPLY", "OFF")
    talk.send("PING")
    talk.send("NONSENSE")
    assert talk("CLIENT", "REPLY", "ON") == b"OK"
    talk.send("CLIENT", "REPLY", "SKIP")
    talk.send("PING", "skipped")
    assert talk("PING", "shown") == b"shown"
    talk.send("CLIENT", "REPLY", "SKIP")
    talk.send("CLIENT", "REPLY", "SKIP")
    talk.send("PING", "skipped")
    assert talk("PING", "shown") == b"shown"


def test_a_silenced_client_still_takes_jobs(shared_node: LiveNode) -> None:
    wire, silent = shared_node.wire(), shared_node.wire()
    silent.send("CLIENT", "REPLY", "OFF")
    silent.send("GETJOB", "FROM", "q")
    wait_until(lambda: info_value(shared_node, "clients", "blocked_clients"))
    add_job(wire)
    assert wire("QLEN", "q") == 0
    assert silent("CLIENT", "REPLY", "ON") == b"OK"


def test_monitor_shows_commands_of_all_clients_in_order(shared_node: LiveNode) -> None:
    watching, wire = shared_node.wire(), shared_node.wire()
    assert watching("MONITOR") == b"OK"
    assert watching("MONITOR") is not None  # a second MONITOR is answered as well
    watching.read()
    wire("ECHO", b'a "b"\r\n\0\xff')
    wire("QLEN", "q")
    first, second = watching.read(), watching.read()
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    head = rb"\d{10}\.\d{6} \[" + re.escape(own_address(wire).encode()) + rb"\] "
    assert re.fullmatch(head + re.escape(rb'"ECHO" "a \"b\"\r\n\x00\xff"'), first)
    assert re.fullmatch(head + rb'"QLEN" "q"', second)


def test_monitor_does_not_show_passwords(shared_node: LiveNode) -> None:
    watching, wire = shared_node.wire(), shared_node.wire()
    watching("MONITOR")
    wire("AUTH", "secret")
    wire("HELLO", 3, "AUTH", "default", "secret")
    wire("PING", "end")
    line = watching.read()
    assert isinstance(line, bytes)
    assert line.endswith(b'"PING" "end"')


def test_reset_puts_a_connection_in_its_initial_state(talk: Wire) -> None:
    talk("HELLO", 3, "SETNAME", "x")
    talk("MONITOR")
    talk.send("RESET")
    line = talk.read()
    assert isinstance(line, bytes)
    assert line.endswith(b'"RESET"')
    assert talk.read() == b"RESET"
    assert talk("CLIENT", "GETNAME") is None
    assert client_lines(talk)[-1]["flags"] == "N"


def test_quit_answers_and_closes_and_drops_what_follows(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    wire.raw(b"ADDJOB q b 0\r\nQUIT\r\nADDJOB q b 0\r\n")
    answer = receive_all(wire.sock)
    assert answer.endswith(b"+OK\r\n")
    assert answer.count(b"\r\n") == 2
    assert shared_node.wire()("QLEN", "q") == 1
