"""What a client may only do if the operator allows it: DEBUG, and setting paths."""

import signal
import socket
from pathlib import Path

import pytest

from tests.support.addresses import other_address
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_helpers import run_server, unix_connection

NO_DEBUG = (
    'ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you can '
    "run it from a local connection, otherwise you need to set this option in the configuration "
    "file, and then restart the server."
)
PROTECTED = "ERR CONFIG SET failed (possibly related to argument '{}') - can't set protected config"


def settings(whom: str) -> list[str]:
    return ["--enable-debug-command", whom, "--enable-protected-configs", whom]


def outside(address: str, node: LiveNode) -> Wire:
    """Return a connection that does not use loopback."""
    return Wire(socket.create_connection((address, node.port), timeout=HANG_SECONDS))


def refused(wire: Wire, node: LiveNode) -> None:
    """Check that the client may do none of it, and close it."""
    for words in (["SLEEP", 0], ["SEGFAULT"], ["RESTART"], ["flushall"], ["nonsense"]):
        assert wire.error("DEBUG", *words) == NO_DEBUG
    elsewhere = str(node.directory.parent)
    assert wire.error("CONFIG", "SET", "dir", elsewhere) == PROTECTED.format("dir")
    # The error does not reveal whether the path exists.
    assert wire.error("CONFIG", "SET", "dir", "/no/such") == PROTECTED.format("dir")
    problem = wire.error("CONFIG", "SET", "hz", 17, "event-log-dir", elsewhere, "event-log", "yes")
    assert problem == PROTECTED.format("event-log-dir")
    assert wire("CONFIG", "GET", "hz") == [b"hz", b"10"]
    assert wire("CONFIG", "GET", "dir") == [b"dir", str(node.directory).encode()]
    assert wire("QLEN", "q") == 1
    wire.close()


def allowed(wire: Wire, node: LiveNode) -> None:
    """Check that the client may do all of it, and close it."""
    assert wire("DEBUG", "SLEEP", 0) == b"OK"
    for name in ("dir", "event-log-dir"):
        assert wire("CONFIG", "SET", name, str(node.directory)) == b"OK"
    wire.close()


def test_by_default_debug_and_file_settings_are_refused(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server("--unixsocket", "s", *settings("no"))
    node.ask("ADDJOB", "q", "body", 0)
    refused(node.wire(), node)
    refused(unix_connection(tmp_path / "s"), node)
    wire = node.wire()
    assert wire("MULTI") == b"OK"
    assert "DEBUG command not allowed" in wire.error("DEBUG", "SLEEP", 0)
    assert wire.error("EXEC").startswith("EXECABORT")
    for name in ("enable-debug-command", "enable-protected-configs"):
        assert wire("CONFIG", "GET", name) == [name.encode(), b"no"]
        assert wire.error("CONFIG", "SET", name, "yes").endswith("can't set immutable config")


def test_local_allows_loopback_and_the_unix_socket(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    address = other_address()
    options = ["--bind", "127.0.0.1", address, "--unixsocket", "s"]
    node = disque_server(*options, *settings("local"))
    node.ask("ADDJOB", "q", "body", 0)
    refused(outside(address, node), node)
    allowed(node.wire(), node)
    allowed(unix_connection(tmp_path / "s"), node)


def test_yes_allows_everybody(disque_server: NodeFactory) -> None:
    address = other_address()
    node = disque_server("--bind", "127.0.0.1", address, *settings("yes"))
    allowed(outside(address, node), node)


def test_the_password_is_required_first(disque_server: NodeFactory) -> None:
    wire = disque_server("--requirepass", "secret", *settings("no")).wire()
    assert wire.error("DEBUG", "SLEEP", 0).startswith("NOAUTH")
    assert wire.error("CONFIG", "SET", "dir", "/").startswith("NOAUTH")


def test_a_reload_applies_protected_settings_of_the_file(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    file = tmp_path / "disque.conf"
    file.write_text("event-log-dir before\n")
    node = disque_server("disque.conf", *settings("no"))
    file.write_text(f"event-log-dir after\ndir {place}\nenable-debug-command yes\n")
    node.process.send_signal(signal.SIGHUP)
    wire = node.wire()
    wait_until(lambda: wire("CONFIG", "GET", "event-log-dir") == [b"event-log-dir", b"after"])
    assert wire("CONFIG", "GET", "dir") == [b"dir", str(place).encode()]
    assert wire.error("DEBUG", "SLEEP", 0) == NO_DEBUG  # needs a restart


@pytest.mark.parametrize("name", ["enable-debug-command", "enable-protected-configs"])
def test_only_no_yes_and_local_are_accepted(name: str, tmp_path: Path) -> None:
    result = run_server(f"--{name}", "maybe", cwd=tmp_path)
    assert result.returncode == 1
    assert f"{name}: expected one of no, yes, local, got 'maybe'" in result.stderr
