"""AUTH, HELLO, PING, CLIENT, and what Redis clients send when they connect."""

from collections.abc import Callable

import hiredis
import pytest

from disque_trio.respserver.client import Client
from tests.support.node_bench import Bench

NOAUTH = "NOAUTH Authentication required."
FALLBACK = "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"


@pytest.fixture
def locked(make_bench: Callable[..., Bench]) -> Bench:
    """A node with a password."""
    return make_bench(password=b"secret")


def failure(bench: Bench, client: Client, *args: str | int) -> str:
    reply = bench.ask(client, *args)
    assert isinstance(reply, hiredis.ReplyError), reply
    return str(reply)


# ---- AUTH ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ["PING"], ["ADDJOB", "q", "b", "0"], ["INFO"], ["HELLO"], ["CLIENT", "SETINFO", "a", "b"],
        ["COMMAND"], ["SHUTDOWN"], ["MONITOR"], ["SELECT", "0"],
        # Nothing reveals to a stranger which commands exist.
        ["QLEN"], ["ADDJOB", "q"], ["ping", "a", "b"], ["nosuch"], ["NOSUCH", "1", "2"], [""],
    ],
)  # fmt: skip
def test_without_the_password_nothing_is_served(locked: Bench, args: list[str]) -> None:
    assert locked.error(*args) == NOAUTH
    assert locked.host.asked == []


def test_what_needs_no_password_says_what_is_wrong_with_it(locked: Bench) -> None:
    assert locked.error("AUTH") == "ERR wrong number of arguments for 'auth' command"
    assert locked.error("RESET", "x") == "ERR wrong number of arguments for 'reset' command"


@pytest.mark.parametrize("word", ["POST", "host:"])
def test_a_web_page_is_sent_away_without_the_password_as_well(locked: Bench, word: str) -> None:
    assert locked.error(word, "/") == NOAUTH
    assert locked.me.close


def test_auth_opens_the_door_and_a_wrong_one_closes_it(locked: Bench) -> None:
    assert locked.error("AUTH", "wrong") == "ERR invalid password"
    assert locked.error("PING") == NOAUTH
    assert locked("AUTH", "secret") == b"OK"
    assert locked("PING") == b"PONG"
    assert locked.error("AUTH", "wrong") == "ERR invalid password"
    assert locked.error("PING") == NOAUTH


def test_auth_with_a_user_takes_default_only(locked: Bench) -> None:
    wrong = "WRONGPASS invalid username-password pair or user is disabled."
    assert locked.error("AUTH", "default", "wrong") == wrong
    assert locked.error("AUTH", "antirez", "secret") == wrong
    assert locked("AUTH", "default", "secret") == b"OK"
    assert locked.error("AUTH", "a", "b", "c") == "ERR syntax error"


def test_auth_without_a_password_set(bench: Bench) -> None:
    assert bench.error("AUTH", "x") == "ERR Client sent AUTH, but no password is set"
    assert bench("PING") == b"PONG"


def test_quit_needs_no_password_and_closes_after_its_reply(locked: Bench) -> None:
    assert locked("QUIT") == b"OK"
    assert locked.me.close


def test_reset_asks_for_the_password_again(locked: Bench) -> None:
    locked("AUTH", "secret")
    locked("CLIENT", "SETNAME", "me")
    locked("HELLO", 3)
    assert locked("RESET") == b"RESET"
    assert locked.error("PING") == NOAUTH
    locked("AUTH", "secret")
    locked.send(locked.me, "CLIENT", "GETNAME")
    assert locked.raw(locked.me) == b"$-1\r\n"


# ---- HELLO --------------------------------------------------------------------------------------


def test_a_bare_hello_is_the_list_of_nodes(bench: Bench) -> None:
    me = bench.node.id
    assert bench("HELLO") == [1, me, [me, b"", b"0", b"1"]]


@pytest.mark.parametrize("version", [2, 3])
def test_hello_with_a_version_is_the_handshake_of_redis(bench: Bench, version: int) -> None:
    bench.send(bench.me, "HELLO", version, "SETNAME", "worker")
    data = bench.raw(bench.me)
    assert data[:1] == (b"%" if version == 3 else b"*")
    reader = hiredis.Reader()
    reader.feed(data)
    reply = reader.gets()
    pairs = reply if version == 3 else dict(zip(reply[::2], reply[1::2], strict=True))
    assert pairs[b"proto"] == version
    assert pairs[b"id"] == bench.me.id
    assert {b"server", b"version", b"mode", b"role", b"modules"} < set(pairs)
    assert bench("CLIENT", "GETNAME") == b"worker"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([1], "NOPROTO unsupported protocol version"),
        ([4], "NOPROTO unsupported protocol version"),
        ([3, "NONSENSE"], "ERR Syntax error in HELLO option 'NONSENSE'"),
        ([3, "SETNAME"], "ERR Syntax error in HELLO option 'SETNAME'"),
        ([3, "AUTH", "x"], "ERR Syntax error in HELLO option 'AUTH'"),
        (
            [3, "SETNAME", "a b"],
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ),
    ],
)
def test_a_wrong_hello_changes_nothing(bench: Bench, args: list[str | int], text: str) -> None:
    assert bench.error("HELLO", *args) == text
    assert bench.me.resp == 2
    assert bench.me.name == b""


def test_hello_with_something_else_than_a_number(bench: Bench) -> None:
    assert bench.error("HELLO", "x").startswith("ERR ")


def test_hello_with_auth_logs_in(locked: Bench) -> None:
    assert locked.error("HELLO", 3).startswith("NOAUTH HELLO must be called with the client")
    assert locked.me.resp == 2
    assert locked.error("HELLO", 3, "AUTH", "default", "bad").startswith("WRONGPASS ")
    assert locked.me.resp == 2
    assert isinstance(locked("HELLO", 3, "AUTH", "default", "secret", "SETNAME", "x"), dict)
    assert locked("PING") == b"PONG"


# ---- small commands -----------------------------------------------------------------------------


def test_ping_echo_select(bench: Bench) -> None:
    bench.send(bench.me, "PING")
    assert bench.raw(bench.me) == b"+PONG\r\n"
    bench.send(bench.me, "ping", "hi")
    assert bench.raw(bench.me) == b"$2\r\nhi\r\n"
    assert bench.error("PING", "a", "b") == "ERR wrong number of arguments for 'ping' command"
    assert bench("ECHO", "hi") == b"hi"
    assert bench("SELECT", 0) == b"OK"
    assert bench.error("SELECT", 1) == "ERR DB index is out of range"
    assert bench.error("SELECT", "x") == "ERR value is not an integer or out of range"


# ---- CLIENT -------------------------------------------------------------------------------------


def test_client_id_and_names(bench: Bench) -> None:
    assert bench("CLIENT", "ID") == bench.me.id
    bench.send(bench.me, "CLIENT", "GETNAME")
    assert bench.raw(bench.me) == b"$-1\r\n"
    assert bench("CLIENT", "SETNAME", "worker-1") == b"OK"
    assert bench("CLIENT", "GETNAME") == b"worker-1"
    assert bench("CLIENT", "SETNAME", "") == b"OK"
    assert bench("CLIENT", "GETNAME") is None


@pytest.mark.parametrize("name", [b"a b", b"a\nb", b"\x7f", b"\xc3\xa4", b"\0"])
def test_names_with_blanks_or_special_characters_are_refused(bench: Bench, name: bytes) -> None:
    assert bench.error("CLIENT", "SETNAME", name) == (
        "ERR Client names cannot contain spaces, newlines or special characters."
    )


def test_client_setinfo(bench: Bench) -> None:
    assert bench("CLIENT", "SETINFO", "LIB-NAME", "redis-py") == b"OK"
    assert bench("CLIENT", "SETINFO", "lib-ver", "8.0") == b"OK"
    assert (bench.me.lib_name, bench.me.lib_ver) == (b"redis-py", b"8.0")
    assert "Unrecognized option" in bench.error("CLIENT", "SETINFO", "foo", "x")
    assert "lib-name cannot contain" in bench.error("CLIENT", "SETINFO", "LIB-NAME", "a b")


def test_client_list_and_info(bench: Bench) -> None:
    others = [bench.client() for _ in range(3)]
    bench("CLIENT", "SETNAME", "me")
    lines = bench.text("CLIENT", "LIST").splitlines()
    assert [line.split()[0] for line in lines] == ["id=1", "id=2", "id=3", "id=4"]
    assert "name=me" in lines[0]
    assert bench.text("CLIENT", "LIST", "TYPE", "normal").splitlines() == lines
    assert bench.text("CLIENT", "LIST", "TYPE", "pubsub") == ""
    shown = bench.text("CLIENT", "LIST", "ID", others[0].id, 99, others[2].id).splitlines()
    assert [line.split()[0] for line in shown] == ["id=2", "id=4"]
    assert bench.text("CLIENT", "INFO").startswith("id=1 ")
    assert bench.error("CLIENT", "LIST", "FOO", "x") == "ERR syntax error"
    assert bench.error("CLIENT", "LIST", "TYPE", "x") == "ERR Unknown client type 'x'"


def test_client_kill_by_address(bench: Bench) -> None:
    other = bench.client()
    assert bench("CLIENT", "KILL", bench.host.address(other)) == b"OK"
    assert bench.host.closed == [other]
    assert bench.error("CLIENT", "KILL", "10.9.9.9:1") == "ERR No such client"


def test_client_kill_with_filters(bench: Bench) -> None:
    others = [bench.client() for _ in range(4)]
    assert bench("CLIENT", "KILL", "ID", others[0].id) == 1
    assert bench("CLIENT", "KILL", "ID", others[0].id) == 0
    assert bench("CLIENT", "KILL", "ADDR", bench.host.address(others[1]), "ID", 3) == 1
    assert bench("CLIENT", "KILL", "TYPE", "pubsub") == 0
    assert bench("CLIENT", "KILL", "TYPE", "normal", "ID", bench.me.id) == 0
    assert bench("CLIENT", "KILL", "TYPE", "normal") == 2
    assert set(bench.host.closed) == set(others)
    assert bench("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no") == 1
    assert bench.host.closed[-1] is bench.me


@pytest.mark.parametrize(
    "args",
    [["ID"], ["ID", "1", "TYPE"], ["FOO", "x"], ["SKIPME", "maybe"], ["ID", "x"], ["ID", "0"],
     ["TYPE", "x"]],
)  # fmt: skip
def test_a_wrong_client_kill_kills_nobody(bench: Bench, args: list[str]) -> None:
    bench.client()
    assert bench.error("CLIENT", "KILL", *args).startswith("ERR ")
    assert bench.host.closed == []


def test_client_pause_and_unpause(bench: Bench) -> None:
    assert bench("CLIENT", "PAUSE", 1500) == b"OK"
    assert bench("CLIENT", "PAUSE", 10, "ALL") == b"OK"
    assert bench("CLIENT", "UNPAUSE") == b"OK"
    assert bench.host.asked == [("pause", 1500), ("pause", 10), ("pause", 0)]
    assert bench.error("CLIENT", "PAUSE", "x") == "ERR timeout is not an integer or out of range"
    assert bench.error("CLIENT", "PAUSE", -1) == "ERR timeout is negative"
    assert bench.error("CLIENT", "PAUSE", 5, "nonsense").startswith("ERR ")
    assert len(bench.host.asked) == 3


def test_client_unblock(bench: Bench) -> None:
    client = bench.block("q")
    assert bench("CLIENT", "UNBLOCK", bench.me.id) == 0
    assert bench("CLIENT", "UNBLOCK", client.id) == 1
    assert bench.raw(client) == b"*-1\r\n"
    bench.block("q", client=client)
    assert bench("CLIENT", "UNBLOCK", client.id, "ERROR") == 1
    (reply,) = bench.replies(client)
    assert str(reply).startswith("UNBLOCKED ")
    assert bench("CLIENT", "UNBLOCK", client.id, "TIMEOUT") == 0
    assert bench.error("CLIENT", "UNBLOCK", client.id, "x") == (
        "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"
    )


def test_reply_off_is_silent_until_reply_on(bench: Bench) -> None:
    me = bench.me
    bench.send(me, "CLIENT", "REPLY", "OFF")
    bench.send(me, "PING")
    bench.send(me, "nosuch")
    bench.send(me, "CLIENT", "REPLY", "SKIP")
    bench.send(me, "ADDJOB", "q", "b", 0)
    assert bench.raw(me) == b""
    assert bench("CLIENT", "REPLY", "ON") == b"OK"
    assert bench("QLEN", "q") == 1


def test_reply_skip_leaves_out_one_reply(bench: Bench) -> None:
    me = bench.me
    bench.send(me, "CLIENT", "REPLY", "SKIP")
    bench.send(me, "ECHO", "one")
    bench.send(me, "ECHO", "two")
    assert bench.replies(me) == [b"two"]


def test_reply_skip_twice_leaves_out_one_reply_behind_the_second(bench: Bench) -> None:
    me = bench.me
    for _ in range(2):
        bench.send(me, "CLIENT", "REPLY", "SKIP")
    bench.send(me, "ECHO", "one")
    bench.send(me, "ECHO", "two")
    assert bench.replies(me) == [b"two"]


def test_reply_off_behind_reply_skip_holds(bench: Bench) -> None:
    me = bench.me
    bench.send(me, "CLIENT", "REPLY", "SKIP")
    bench.send(me, "CLIENT", "REPLY", "OFF")
    bench.send(me, "PING")
    bench.send(me, "PING")
    assert bench.raw(me) == b""


def test_reply_skip_hides_an_error_too(bench: Bench) -> None:
    bench.send(bench.me, "CLIENT", "REPLY", "SKIP")
    bench.send(bench.me, "nosuch")
    assert bench("PING") == b"PONG"


def test_reset_ends_reply_off(bench: Bench) -> None:
    bench.send(bench.me, "CLIENT", "REPLY", "OFF")
    assert bench("RESET") == b"RESET"
    assert bench("PING") == b"PONG"


@pytest.mark.parametrize(
    "args", [["NOSUCH"], ["ID", "x"], ["SETNAME"], ["REPLY"], ["KILL"], ["SETINFO", "lib-name"]]
)
def test_other_subcommands_get_the_fallback(bench: Bench, args: list[str]) -> None:
    assert bench.error("CLIENT", *args) == FALLBACK


def test_no_evict_and_no_touch_are_taken(bench: Bench) -> None:
    assert bench("CLIENT", "NO-EVICT", "on") == b"OK"
    assert bench("CLIENT", "NO-TOUCH", "off") == b"OK"
    assert bench.error("CLIENT", "NO-TOUCH", "x") == "ERR syntax error"
