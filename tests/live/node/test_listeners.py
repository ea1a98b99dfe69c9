"""Where a node listens, which clients are let in, and what happens when a socket fails."""

import os
import socket
import stat
from pathlib import Path

import pytest

from tests.support.addresses import other_address
from tests.support.harness import (
    HANG_SECONDS,
    LiveNode,
    NodeFactory,
    Wire,
    free_port,
    wait_for_ping,
    wait_until,
)
from tests.support.live_helpers import (
    client_lines,
    info_value,
    receive_all,
    run_server,
    spawn,
    unix_connection,
)


@pytest.fixture
def open_node(disque_server: NodeFactory) -> LiveNode:
    """A node bound to all addresses without a password."""
    return disque_server("--bind", "0.0.0.0")


def test_protected_mode_serves_this_machine_only(open_node: LiveNode) -> None:
    address = (other_address(), open_node.port)
    with socket.create_connection(address, timeout=HANG_SECONDS) as sock:
        answer = receive_all(sock)
    assert answer.startswith(b"-DENIED ")
    assert answer.endswith(b"\r\n")
    assert answer.count(b"\r\n") == 1
    assert open_node.wire()("PING") == b"PONG"
    assert info_value(open_node, "stats", "rejected_connections") == 1


def test_the_log_warns_of_each_door_when_it_is_opened(disque_server: NodeFactory) -> None:
    node = disque_server("--bind", "0.0.0.0", "--log-format", "json")

    def warnings() -> int:
        return node.log.read_text().count('"level": "warning"')

    assert warnings() == 0
    control = node.wire()
    assert control("CONFIG", "SET", "requirepass", "x", "protected-mode", "no") == b"OK"
    wait_until(lambda: warnings() == 1)  # the cluster bus
    assert control("CONFIG", "SET", "requirepass", "") == b"OK"
    wait_until(lambda: warnings() == 2)  # the port for clients


@pytest.mark.parametrize(
    "setting", [("protected-mode", "no"), ("requirepass", "secret")], ids=lambda pair: pair[0]
)
def test_protected_mode_ends_with_a_password_or_on_demand(
    open_node: LiveNode, setting: tuple[str, str]
) -> None:
    control = open_node.wire()
    assert control("CONFIG", "SET", *setting) == b"OK"
    wire = Wire(socket.create_connection((other_address(), open_node.port), timeout=HANG_SECONDS))
    wire("AUTH", "secret")
    assert wire("PING") == b"PONG"
    wire.close()


def test_a_node_that_is_bound_to_an_address_serves_everybody_there(
    disque_server: NodeFactory,
) -> None:
    address = other_address()
    node = disque_server("--bind", "127.0.0.1", address)
    wire = Wire(socket.create_connection((address, node.port), timeout=HANG_SECONDS))
    assert wire("PING") == b"PONG"
    wire.close()


def test_without_bind_a_node_listens_on_ipv4_and_ipv6(tmp_path: Path) -> None:
    port = free_port()
    node = spawn(["--port", str(port)], port, tmp_path)
    try:
        assert wait_for_ping(node)
        if not socket.has_ipv6:
            pytest.skip("this Python has no IPv6")
        try:
            sock = socket.create_connection(("::1", port), timeout=HANG_SECONDS)
        except OSError:
            pytest.skip("this machine has no IPv6")
        wire = Wire(sock)
        assert wire("PING") == b"PONG"
        assert any(line["addr"].startswith("[::1]:") for line in client_lines(wire))
        wire.close()
    finally:
        node.close()


@pytest.mark.parametrize("taken", ["127.0.0.1", "::1"])
def test_a_taken_port_is_a_clear_error(tmp_path: Path, taken: str) -> None:
    family = socket.AF_INET6 if ":" in taken else socket.AF_INET
    port = free_port()
    with socket.socket(family) as other:
        try:
            other.bind((taken, port))
        except OSError:
            pytest.skip(f"{taken} cannot be bound here")
        other.listen()
        result = run_server("--port", str(port), "--bind", "127.0.0.1", "::1", cwd=tmp_path)
    assert result.returncode == 1
    assert str(port) in result.stderr
    assert "in use" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_address_of_another_machine_is_a_clear_error(tmp_path: Path) -> None:
    result = run_server("--port", str(free_port()), "--bind", "203.0.113.7", cwd=tmp_path)
    assert result.returncode == 1
    assert "203.0.113.7" in result.stderr
    assert "Traceback" not in result.stderr


# ---- the unix socket --------------------------------------------------------------------------


@pytest.mark.pure
def test_a_unix_socket_serves_with_the_permissions_asked_for(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    path = tmp_path / "disque.sock"
    node = disque_server("--unixsocket", str(path), "--unixsocketperm", "750")
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    wire = unix_connection(path)
    assert wire("PING") == b"PONG"
    line = client_lines(wire)[-1]
    assert line["addr"] == f"{path}:0"
    assert "U" in line["flags"]
    wire.close()
    assert node.stop() == 0
    assert not path.exists()


def listens(path: Path) -> bool:
    try:
        unix_connection(path).close()
    except OSError:
        return False
    return True


def test_a_node_may_listen_on_a_unix_socket_alone(tmp_path: Path) -> None:
    node = spawn(["--port", "0", "--unixsocket", "only.sock"], 0, tmp_path)
    try:
        wait_until(lambda: listens(tmp_path / "only.sock"))
        wire = unix_connection(tmp_path / "only.sock")
        assert wire("PING") == b"PONG"
        wire.close()
        assert node.stop() == 0
    finally:
        node.close()


def test_a_socket_file_left_behind_is_replaced(disque_server: NodeFactory, tmp_path: Path) -> None:
    path = tmp_path / "disque.sock"
    disque_server("--unixsocket", str(path)).kill()
    assert path.exists()
    disque_server("--unixsocket", str(path))
    wire = unix_connection(path)
    assert wire("PING") == b"PONG"
    wire.close()


def test_a_socket_that_somebody_listens_on_is_left_alone(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    path = tmp_path / "disque.sock"
    disque_server("--unixsocket", str(path))
    options = ["--unixsocket", str(path), "--cluster-config-file", "other.conf"]
    result = run_server("--port", str(free_port()), *options, cwd=tmp_path)
    assert result.returncode == 1
    assert str(path) in result.stderr
    wire = unix_connection(path)
    assert wire("PING") == b"PONG"
    wire.close()


def test_a_file_that_is_not_a_socket_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    result = run_server("--port", str(free_port()), "--unixsocket", str(path), cwd=tmp_path)
    assert result.returncode == 1
    assert str(path) in result.stderr
    assert path.read_text() == "data"


def test_an_impossible_path_of_a_unix_socket_is_a_clear_error(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere" / "x.sock", tmp_path / ("x" * 200)):
        options = ["--unixsocket", os.fspath(path)]
        result = run_server("--port", str(free_port()), *options, cwd=tmp_path)
        assert result.returncode == 1
        assert str(path) in result.stderr
        assert "Traceback" not in result.stderr
