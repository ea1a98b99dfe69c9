"""Passwords: what clients may do before they authenticate, and how they authenticate."""

from collections.abc import Iterator

import pytest

from tests.support.harness import LiveNode, Wire
from tests.support.live_helpers import packed, receive_all, start_node

PASSWORD = "pass word\t'\""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    """A node with a password (the start probe accepts the error as an answer)."""
    node = start_node(tmp_path_factory.mktemp("guarded"), "--requirepass", PASSWORD)
    yield node
    node.close()


NOAUTH = "NOAUTH Authentication required."


def test_without_the_password_only_auth_is_served(guarded: LiveNode) -> None:
    wire = guarded.wire()
    for words in (
        ("PING",),
        ("ADDJOB", "q", "b", 0),
        ("GETJOB", "FROM", "q"),
        ("INFO",),
        ("CONFIG", "GET", "*"),
        ("MONITOR",),
        ("CLIENT", "LIST"),
        ("DEBUG", "FLUSHALL"),
        ("SHUTDOWN",),
        ("COMMAND",),
        ("HELLO",),
    ):
        assert wire.error(*words) == NOAUTH
    assert wire.error("HELLO", 3).startswith("NOAUTH HELLO must be called")
    assert wire.error("NONSENSE") == NOAUTH
    assert wire("RESET") == b"RESET"
    assert wire.error("PING") == NOAUTH
    assert wire("QUIT") == b"OK"


def test_the_right_password_opens_the_connection(guarded: LiveNode) -> None:
    for request in (
        ("AUTH", PASSWORD),
        ("AUTH", "default", PASSWORD),
        ("HELLO", 2, "AUTH", "default", PASSWORD),
        ("HELLO", 3, "AUTH", "default", PASSWORD, "SETNAME", "x"),
    ):
        wire = guarded.wire()
        assert not isinstance(wire(*request), Exception)
        assert wire("PING") == b"PONG"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("AUTH", "wrong"), "ERR invalid password"),
        (("AUTH", ""), "ERR invalid password"),
        (("AUTH", PASSWORD + "x"), "ERR invalid password"),
        (("AUTH", b"\xff\0"), "ERR invalid password"),
        (("AUTH", "default", "wrong"), "WRONGPASS invalid username-password pair"),
        (("AUTH", "other", PASSWORD), "WRONGPASS invalid username-password pair"),
        (("HELLO", 3, "AUTH", "other", PASSWORD), "WRONGPASS invalid username-password pair"),
        (("AUTH", "a", "b", "c"), "ERR syntax error"),
        (("AUTH",), "ERR wrong number of arguments for 'auth' command"),
    ],
)
def test_a_wrong_password_is_refused(
    guarded: LiveNode, words: tuple[bytes | str | int, ...], problem: str
) -> None:
    wire = guarded.wire()
    assert wire.error(*words).startswith(problem)
    assert wire.error("PING") == NOAUTH


def test_the_password_may_be_sent_in_one_piece_with_commands(guarded: LiveNode) -> None:
    body = b"x" * 20_000  # more than a stranger may send
    ids = ["D-00000000-" + "0" * 24 + "-05a1"] * 40
    wire = guarded.wire()
    wire.raw(packed("AUTH", PASSWORD) + packed("ADDJOB", "q", body, 0) + packed("ACKJOB", *ids))
    assert wire.read() == b"OK"
    assert isinstance(wire.read(), bytes)
    assert wire.read() == 0


def test_a_client_without_the_password_can_send_only_small_requests(guarded: LiveNode) -> None:
    for data, problem in (
        (b"*11\r\n", b"unauthenticated multibulk length"),
        (b"*1\r\n$16385\r\n", b"unauthenticated bulk length"),
        (packed("PING") + b"*1\r\n$16385\r\n", b"unauthenticated bulk length"),
        (packed("PING") * 100 + b"*11\r\n", b"unauthenticated multibulk length"),
    ):
        wire = guarded.wire()
        wire.raw(data)
        answer = receive_all(wire.sock)
        assert answer.endswith(b"-ERR Protocol error: " + problem + b"\r\n")


def test_a_password_set_at_runtime_applies_to_new_connections(node: LiveNode) -> None:
    wire, older = node.wire(), node.wire()
    older("PING")
    assert wire("CONFIG", "SET", "requirepass", "new") == b"OK"
    assert wire("PING") == b"PONG"
    assert older("PING") == b"PONG"
    stranger = node.wire()
    assert stranger.error("PING") == NOAUTH
    assert wire("CONFIG", "SET", "requirepass", "newer") == b"OK"
    assert stranger.error("AUTH", "new") == "ERR invalid password"
    assert stranger("AUTH", "newer") == b"OK"
    waiting = node.wire()
    assert waiting.error("PING") == NOAUTH
    assert wire("CONFIG", "SET", "requirepass", "") == b"OK"
    assert waiting("PING") == b"PONG"
    assert node.wire()("PING") == b"PONG"


def test_a_password_need_not_be_text(node: LiveNode) -> None:
    wire, stranger = node.wire(), node.wire()
    assert stranger("PING") == b"PONG"  # the node has accepted the connection
    assert wire("CONFIG", "SET", "requirepass", b"\xff\xfe\x80") == b"OK"
    assert wire("CONFIG", "GET", "requirepass") == [b"requirepass", b"\xff\xfe\x80"]
    wire("CONFIG", "RESETSTAT")
    newer = node.wire()
    assert newer.error("AUTH", "x") == "ERR invalid password"
    assert newer("AUTH", b"\xff\xfe\x80") == b"OK"
    assert stranger("PING") == b"PONG"  # it connected before the password was set


def test_a_wrong_password_logs_the_connection_out(guarded: LiveNode) -> None:
    wire = guarded.wire()
    wire("AUTH", PASSWORD)
    wire.error("AUTH", "wrong")
    assert wire.error("PING") == NOAUTH


def test_a_password_that_nobody_requires_locks_no_client_out(talk: Wire) -> None:
    assert talk.error("AUTH", "x") == "ERR Client sent AUTH, but no password is set"
    assert isinstance(talk.error("AUTH", "somebody", "x"), str)
    assert talk("PING") == b"PONG"


def test_reset_forgets_that_the_password_was_given(guarded: LiveNode) -> None:
    wire = guarded.wire()
    wire("AUTH", PASSWORD)
    assert wire("RESET") == b"RESET"
    assert wire.error("PING") == NOAUTH
