"""A node under a supervisor that speaks systemd's protocols; the test plays the supervisor."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.addresses import other_address
from tests.support.harness import HANG_SECONDS, Wire, free_port, wait_until
from tests.support.live_helpers import receive_all
from tests.support.supervisor import Supervisor


@pytest.fixture(params=["path", "abstract"])
def any_supervisor(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Supervisor]:
    abstract = f"@disque-test-{os.getpid()}-{free_port()}"
    it = Supervisor(tmp_path, abstract if request.param == "abstract" else str(tmp_path / "notify"))
    yield it
    it.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A TCP socket of the supervisor."""
    with socket.create_server(("127.0.0.1", free_port())) as sock:
        yield sock


# ---- messages ---------------------------------------------------------------------------------


def test_a_node_reports_when_it_serves_and_what_it_holds(any_supervisor: Supervisor) -> None:
    node = any_supervisor.start(port=free_port())
    assert any_supervisor.message() == "READY=1"
    assert any_supervisor.wait_for("STATUS=") == "STATUS=Ready: 0 jobs, 0 clients"
    assert node.wire()("PING") == b"PONG"  # at once, no retry


def test_a_node_that_cannot_start_reports_why_and_is_never_ready(
    supervisor: Supervisor, listener: socket.socket
) -> None:
    port = listener.getsockname()[1]
    node = supervisor.start(port=port)
    assert str(port) in supervisor.message()
    assert node.process.wait(HANG_SECONDS) == 1
    with pytest.raises(TimeoutError):
        supervisor.message(0.01)


@pytest.mark.parametrize("how", ["SIGTERM", "SHUTDOWN"])
def test_a_node_reports_that_it_stops(supervisor: Supervisor, how: str) -> None:
    node = supervisor.start(port=free_port())
    supervisor.wait_for("READY=1")
    if how == "SIGTERM":
        node.process.send_signal(signal.SIGTERM)
    else:
        node.wire().send("SHUTDOWN")
    supervisor.wait_for("STOPPING=1")
    assert node.process.wait(HANG_SECONDS) == 0


# ---- the watchdog -----------------------------------------------------------------------------


def test_an_idle_node_feeds_the_watchdog(supervisor: Supervisor) -> None:
    supervisor.start(port=free_port())
    for _ in range(4):
        supervisor.wait_for("WATCHDOG=1")


def test_a_busy_node_feeds_the_watchdog(supervisor: Supervisor) -> None:
    node = supervisor.start(port=free_port())
    supervisor.wait_for("WATCHDOG=1")
    wire = node.wire()
    wire.send("CLIENT", "REPLY", "OFF")
    fed = 0
    while fed < 3:
        wire.raw(b"PING\r\n" * 10_000)
        try:
            fed += supervisor.message(0.001) == "WATCHDOG=1"
        except TimeoutError:
            pass


def test_a_stopped_node_does_not_feed_the_watchdog(supervisor: Supervisor) -> None:
    node = supervisor.start(port=free_port())
    supervisor.wait_for("WATCHDOG=1")
    node.process.send_signal(signal.SIGSTOP)
    assert supervisor.starves()
    node.process.send_signal(signal.SIGCONT)
    supervisor.wait_for("WATCHDOG=1")


@pytest.mark.load  # a starved test looks after the command
def test_a_node_stuck_in_a_command_does_not_feed_the_watchdog(supervisor: Supervisor) -> None:
    node = supervisor.start(port=free_port())
    supervisor.wait_for("WATCHDOG=1")
    wire = node.wire()
    wire.send("DEBUG", "SLEEP", "2")
    assert supervisor.starves()
    assert wire.read() == b"OK"
    supervisor.wait_for("WATCHDOG=1")


# ---- reload -----------------------------------------------------------------------------------


class Reloading:
    """A node with a configuration file that can be changed."""

    def __init__(self, supervisor: Supervisor, text: str, name: str, *arguments: str) -> None:
        self._supervisor = supervisor
        self._file = supervisor.directory / name
        self._file.write_text(text)
        self._node = supervisor.start(name, *arguments, port=free_port())
        supervisor.wait_for("READY=1")
        self._wire = self._node.wire()

    def reload(self, text: str) -> None:
        """Change the file and wait until the node has read it."""
        self._file.write_text(text)
        self._node.process.send_signal(signal.SIGHUP)
        started, monotonic = self._supervisor.wait_for("RELOADING=1").split("\n")
        assert started == "RELOADING=1"
        assert monotonic.startswith("MONOTONIC_USEC=")
        self._supervisor.wait_for("READY=1")

    def get(self, name: str) -> bytes:
        reply = self._wire("CONFIG", "GET", name)
        assert isinstance(reply, list)
        value = reply[1]
        assert isinstance(value, bytes)
        return value

    def set(self, name: str, value: str) -> None:
        assert self._wire("CONFIG", "SET", name, value) == b"OK"


StartReloading = Callable[..., Reloading]


@pytest.fixture
def reloading(supervisor: Supervisor) -> StartReloading:
    def start(text: str, *arguments: str, name: str = "disque.conf") -> Reloading:
        return Reloading(supervisor, text, name, *arguments)

    return start


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("disque.conf", "hz 20\ntimeout 5\n", "hz 30\nmaxmemory 2mb\n"),
        ("disque.yaml", "hz: 20\ntimeout: 5\n", "hz: 30\nmaxmemory: 2mb\n"),
    ],
)
def test_a_reload_applies_the_file(
    reloading: StartReloading, name: str, before: str, after: str
) -> None:
    node = reloading(before, name=name)
    node.set("loglevel", "verbose")
    node.reload(after)
    assert node.get("hz") == b"30"
    assert node.get("maxmemory") == b"2097152"
    assert node.get("timeout") == b"0"  # removed from the file, so back to the default
    assert node.get("loglevel") == b"notice"  # was set at run time, without CONFIG REWRITE


def test_a_reload_leaves_alone_what_needs_a_restart(reloading: StartReloading) -> None:
    node = reloading("hz 20\n")
    node.reload("hz 30\ntcp-backlog 5\nrename-command PING PONG\n")
    assert node.get("hz") == b"30"
    assert node.get("tcp-backlog") == b"511"


@pytest.mark.parametrize("broken", ["hz 30\nmaxclients many\n", "hz 30\nnonsense 1\n", "hz 30 40"])
def test_a_broken_file_changes_nothing(reloading: StartReloading, broken: str) -> None:
    node = reloading("hz 20\n")
    node.reload(broken)
    assert node.get("hz") == b"20"
    node.reload("hz 40\n")
    assert node.get("hz") == b"40"


def test_the_command_line_still_overrides_the_file_after_a_reload(
    reloading: StartReloading,
) -> None:
    node = reloading("hz 20\n", "--hz", "50")
    node.reload("hz 30\ntimeout 9\n")
    assert node.get("hz") == b"50"
    assert node.get("timeout") == b"9"


def test_relative_directories_mean_the_same_at_a_reload(
    reloading: StartReloading, tmp_path: Path
) -> None:
    for name in ("data", "other"):
        (tmp_path / name).mkdir()
    node = reloading("dir data\nhz 20\n")
    node.reload("dir data\nhz 30\n")
    assert node.get("hz") == b"30"
    assert node.get("dir") == os.fsencode(tmp_path / "data")
    node.reload("dir other\n")
    assert node.get("dir") == os.fsencode(tmp_path / "other")


# ---- sockets ----------------------------------------------------------------------------------


def test_a_client_that_connects_before_the_node_runs_is_served_when_it_does(
    supervisor: Supervisor, listener: socket.socket
) -> None:
    early = Wire(socket.create_connection(listener.getsockname(), timeout=HANG_SECONDS))
    early.send("PING")
    node = supervisor.start(sockets=(listener,))
    assert early.read() == b"PONG"
    assert node.stop() == 0
    # The socket outlives the node, so the next node serves clients that connect in between.
    assert early.closed()
    between = Wire(socket.create_connection(listener.getsockname(), timeout=HANG_SECONDS))
    between.send("QLEN", "q")
    supervisor.start(sockets=(listener,))
    assert between.read() == 0
    early.close()
    between.close()


@pytest.mark.pure
def test_passed_sockets_replace_port_and_bind(
    supervisor: Supervisor, listener: socket.socket
) -> None:
    other = free_port()
    node = supervisor.start("--port", str(other), "--bind", "127.0.0.1", sockets=(listener,))
    wire = node.wire()
    hello = wire("HELLO")
    assert isinstance(hello, list)
    assert hello[2][2] == str(node.port).encode()
    assert node.info("server")["tcp_port"] == str(node.port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", other), timeout=HANG_SECONDS)


def test_tcp_and_unix_sockets_are_served_and_the_file_stays(
    supervisor: Supervisor, listener: socket.socket, tmp_path: Path
) -> None:
    path = tmp_path / "given.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unix:
        unix.bind(str(path))
        unix.listen()
        node = supervisor.start("--unixsocket", "own.sock", sockets=(listener, unix))
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.connect(str(path))
        for wire in (Wire(local), node.wire()):
            assert wire("PING") == b"PONG"
        assert not (tmp_path / "own.sock").exists()
        assert node.stop() == 0
        assert path.exists()
        local.close()


def test_a_node_without_tcp_may_get_its_unix_socket_passed(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unix:
        unix.bind(str(tmp_path / "given.sock"))
        unix.listen()
        supervisor.start("--port", "0", sockets=(unix,))
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.connect(str(tmp_path / "given.sock"))
        wire = Wire(local)
        assert wire("PING") == b"PONG"
        wire.close()


def test_a_passed_socket_that_does_not_listen_prevents_the_start(supervisor: Supervisor) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        node = supervisor.start(sockets=(silent,))
        assert node.process.wait(HANG_SECONDS) == 1
    assert "Traceback" not in node.log.read_text()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["ipv4", "both"])
def test_protected_mode_looks_at_the_passed_socket_not_at_bind(
    supervisor: Supervisor, family: socket.AddressFamily
) -> None:
    both = family == socket.AF_INET6
    if both and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    address = other_address()
    with socket.create_server(("", free_port()), family=family, dualstack_ipv6=both) as everywhere:
        port = everywhere.getsockname()[1]
        node = supervisor.start("--bind", "127.0.0.1", sockets=(everywhere,))
        node.port = port
        assert node.wire()("PING") == b"PONG"
        with socket.create_connection((address, port), timeout=HANG_SECONDS) as sock:
            assert receive_all(sock).startswith(b"-DENIED ")


def test_a_restart_from_within_keeps_passed_sockets_and_the_watchdog(
    supervisor: Supervisor, listener: socket.socket
) -> None:
    node = supervisor.start(sockets=(listener,))
    supervisor.wait_for("READY=1")
    before = node.info("server")["run_id"]
    node.wire().send("DEBUG", "RESTART", "100")

    def restarted() -> bool:
        try:
            return node.info("server")["run_id"] != before
        except ConnectionRefusedError:
            raise  # clients wait, they are not refused
        except (EOFError, OSError):
            return False

    wait_until(restarted)
    supervisor.wait_for("READY=1")
    supervisor.wait_for("WATCHDOG=1")
    assert node.info("server")["tcp_port"] == str(node.port)
