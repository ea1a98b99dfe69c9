"""The protocols of systemd from the node's side, and the units."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from disque_bananaq.options import parse
from disque_trio.config import Config, load_settings
from disque_trio.node.server import Server
from disque_trio.node.texts import INSTALL_HINTS
from disque_trio.process import systemd
from disque_trio.process.logs import Logging
from disque_trio.process.systemd import (
    Notifier,
    SocketError,
    adopt_shared,
    adopt_sockets,
    hand_over,
    pass_sockets,
)
from disque_trio.respserver.io.listeners import (
    ListenError,
    close_listeners,
    is_tls,
    known_listeners,
    open_listeners,
    open_shared,
    tcp_endpoints,
)
from disque_trio.respserver.io.tasks import REPORT_SECONDS, feed_watchdog, report, serve
from disque_trio.respserver.reload import differences
from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, free_port
from tests.support.systemctl import settings_of

SERVICE = ROOT / "config" / "disque.service"
SOCKET = ROOT / "config" / "disque.socket"
BANANAQ = ROOT / "config" / "bananaq.service"
ARCHIVE = ROOT / "config" / "disque-archive.service"
WATCH = ROOT / "config" / "disque-watch.service"
OUTBOX = ROOT / "config" / "disque-outbox.service"
COMPACT = ROOT / "config" / "disque-compact.service"
TIMER = ROOT / "config" / "disque-compact.timer"
UNITS = [(SERVICE, SOCKET), (BANANAQ,), (ARCHIVE,), (WATCH,), (OUTBOX,), (COMPACT, TIMER)]


class Manager:
    """The notification socket of systemd."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(address.replace("@", "\0", 1) if address[0] == "@" else address)
        self._sock.setblocking(False)

    def messages(self) -> list[str]:
        """Return all messages received so far."""
        came = []
        while True:
            try:
                came.append(self._sock.recv(4096).decode())
            except BlockingIOError:
                return came

    def close(self) -> None:
        self._sock.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    it = Manager(str(tmp_path / "notify"))
    yield it
    it.close()


@pytest.fixture
def notifier(manager: Manager) -> Iterator[Notifier]:
    it = Notifier({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "40000"})
    yield it
    it.close()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A node that is not running."""
    monkeypatch.chdir(tmp_path)
    logging = Logging(path=str(tmp_path / "log"))
    it = Server(load_settings(Config, None), logging)
    yield it
    it.engine.close_all()
    it.cluster.close()
    logging.close()


# ---- messages ---------------------------------------------------------------------------------


def say_everything(notifier: Notifier) -> None:
    notifier.status("Loading: 43%")
    notifier.extend(30_000_000)
    notifier.ready()
    notifier.feed()
    notifier.reloading()
    notifier.reloaded()
    notifier.stopping()


def test_each_message_has_the_form_that_systemd_knows(manager: Manager, notifier: Notifier) -> None:
    say_everything(notifier)
    *first, reloading, reloaded, stopping = manager.messages()
    assert first == [
        "STATUS=Loading: 43%",
        "EXTEND_TIMEOUT_USEC=30000000",
        "READY=1",
        "WATCHDOG=1",
    ]
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d{4,}", reloading)
    assert reloaded == "READY=1"
    assert stopping == "STOPPING=1"


def test_a_reload_during_the_start_does_not_make_the_node_ready(
    manager: Manager, notifier: Notifier
) -> None:
    notifier.reloading()
    notifier.reloaded()
    assert manager.messages() == []


def test_an_abstract_socket_is_told_too() -> None:
    manager = Manager(f"@disque-test-{os.getpid()}")
    notifier = Notifier({"NOTIFY_SOCKET": manager.address})
    notifier.ready()
    assert manager.messages() == ["READY=1"]
    notifier.close()
    manager.close()


@pytest.mark.parametrize(
    "environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}, None]
)
def test_without_a_manager_nobody_is_told_and_nothing_fails(environ: dict[str, str] | None) -> None:
    notifier = Notifier(environ)
    assert not notifier.enabled
    assert notifier.watchdog == 0
    say_everything(notifier)
    notifier.close()


@pytest.mark.parametrize("address", ["/nonexistent/notify", "/" + "x" * 300, "/nul\0byte"])
def test_a_manager_that_cannot_be_reached_is_no_error(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address})
    say_everything(notifier)
    notifier.close()
    say_everything(notifier)


@pytest.mark.load  # how long it is held up is the question
def test_a_manager_that_does_not_read_holds_nobody_up(manager: Manager, notifier: Notifier) -> None:
    """The node waits for it briefly, then drops the message."""
    started = time.monotonic()
    said = 0
    while time.monotonic() - started < 0.1:
        notifier.status(f"{said} " + "x" * 10_000)
        said += 1
    assert time.monotonic() - started < 5
    assert len(manager.messages()) < said


def test_the_same_status_is_told_once_and_is_one_line(manager: Manager, notifier: Notifier) -> None:
    for text in ("a", "a", "b\nREADY=1", "a"):
        notifier.status(text)
    assert manager.messages() == ["STATUS=a", "STATUS=b READY=1", "STATUS=a"]


def test_children_do_not_inherit_what_is_meant_for_the_node() -> None:
    environ = {
        "PATH": "/bin",
        "NOTIFY_SOCKET": "/nonexistent",
        "WATCHDOG_USEC": "1",
        "WATCHDOG_PID": "1",
        "LISTEN_PID": "1",
        "LISTEN_FDS": "1",
        "LISTEN_FDNAMES": "x",
    }
    notifier = Notifier(environ)
    assert adopt_sockets(environ) == []
    assert environ == {"PATH": "/bin"}
    notifier.close()


# ---- the watchdog and the status --------------------------------------------------------------


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [
        ("30000000", None, 30.0),
        ("500000", "own", 0.5),
        ("500000", "1", 0.0),
        ("nonsense", None, 0.0),
        ("", None, 0.0),
    ],
)
def test_the_watchdog_period_is_for_the_process_that_it_names(
    manager: Manager, usec: str, pid: str | None, seconds: float
) -> None:
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": usec}
    if pid is not None:
        environ["WATCHDOG_PID"] = str(os.getpid()) if pid == "own" else pid
    notifier = Notifier(environ)
    assert notifier.watchdog == seconds
    notifier.close()


async def test_the_watchdog_is_fed_while_an_idle_engine_takes_turns(
    manager: Manager, notifier: Notifier, server: Server
) -> None:
    fed = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server.engine)
        nursery.start_soon(feed_watchdog, notifier, server.engine)
        with trio.fail_after(HANG_SECONDS):
            while fed < 5:
                fed += manager.messages().count("WATCHDOG=1")
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()


async def test_the_watchdog_starves_when_only_timers_go_on(
    manager: Manager, notifier: Notifier, server: Server, autojump_clock: MockClock
) -> None:
    with trio.move_on_after(100):
        await feed_watchdog(notifier, server.engine)
    assert manager.messages() == []


async def test_the_status_follows_jobs_and_clients_and_is_told_when_it_changes(
    manager: Manager, notifier: Notifier, server: Server, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(report, notifier, server.engine)
        await trio.sleep(100)
        assert manager.messages() == ["STATUS=Ready: 0 jobs, 0 clients"]
        ours, theirs = socket.socketpair()
        server.engine.clients.add(theirs, "x", True)
        await trio.sleep(REPORT_SECONDS + 1)
        assert manager.messages() == ["STATUS=Ready: 0 jobs, 1 clients"]
        notifier.stopping()
    ours.close()
    assert manager.messages() == ["STOPPING=1"]


# ---- sockets ----------------------------------------------------------------------------------


def passed(monkeypatch: pytest.MonkeyPatch, sock: socket.socket) -> dict[str, str]:
    """Return an environment that passes ``sock`` to this process, whatever its number."""
    monkeypatch.setattr(systemd, "FIRST_SOCKET", sock.fileno())
    return {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "disque.socket"}


def listening(family: socket.AddressFamily, address: str | tuple[str, int]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.bind(address)
    sock.listen()
    return sock


def test_a_listening_socket_is_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    sock = listening(socket.AF_INET, ("127.0.0.1", 0))
    address = sock.getsockname()
    environ = passed(monkeypatch, sock)
    sock.detach()
    (adopted,) = adopt_sockets(environ)
    assert adopted.getsockname() == address
    assert not adopted.get_inheritable()
    assert not adopted.getblocking()
    adopted.close()


@pytest.mark.parametrize("kind", ["datagram", "not listening", "no socket"])
def test_a_socket_that_does_not_listen_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "no socket":
        number = os.open(os.devnull, os.O_RDONLY)
        monkeypatch.setattr(systemd, "FIRST_SOCKET", number)
        environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
    else:
        sort = socket.SOCK_DGRAM if kind == "datagram" else socket.SOCK_STREAM
        sock = socket.socket(socket.AF_INET, sort)
        environ = passed(monkeypatch, sock)
        number = sock.detach()
    with pytest.raises(SocketError, match=f"socket {number} "):
        adopt_sockets(environ)
    if kind == "no socket":
        os.close(number)


@pytest.mark.parametrize("count", ["", "0", "-1", "many"])
def test_no_sockets_are_adopted_where_none_are_passed(count: str) -> None:
    assert adopt_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count}) == []


def test_passed_sockets_replace_those_of_their_kind_only(tmp_path: Path, server: Server) -> None:
    own, given = tmp_path / "own.sock", tmp_path / "given.sock"
    overrides = [("port", "1"), ("bind", "203.0.113.7"), ("unixsocket", str(own))]
    config = load_settings(Config, None, overrides)  # these cannot be bound
    tcp = listening(socket.AF_INET, ("127.0.0.1", 0))
    listeners = open_listeners(config, server.log, [tcp])
    assert tcp_endpoints(listeners) == [tcp.getsockname()]
    assert own.exists()
    close_listeners(listeners, [tcp])
    assert not own.exists()

    config = load_settings(Config, None, [("port", "0"), ("unixsocket", str(own))])
    unix = listening(socket.AF_UNIX, str(given))
    listeners = open_listeners(config, server.log, [unix])
    assert listeners == [unix]
    assert not own.exists()
    close_listeners(listeners, [unix])
    assert given.exists()  # systemd still listens there


def test_a_passed_socket_with_the_number_of_tls_port_is_for_tls(server: Server) -> None:
    plain, tls = (listening(socket.AF_INET, ("127.0.0.1", 0)) for _ in range(2))
    number = tls.getsockname()[1]
    overrides = [("port", "0"), ("tls-port", str(number)), ("bind", "203.0.113.7")]
    config = load_settings(Config, None, overrides)
    assert open_listeners(config, server.log, [plain, tls]) == [plain, tls]
    assert [is_tls(listener, number) for listener in (plain, tls)] == [False, True]
    assert known_listeners([tls, plain], number) == [plain]
    assert known_listeners([tls], number) == [tls]
    # The other one has to be opened here, which fails.
    config = load_settings(Config, None, [*overrides, ("port", "1")])
    with pytest.raises(ListenError):
        open_listeners(config, server.log, [tls])
    close_listeners([plain])


def test_several_processes_share_what_was_passed_or_opened(server: Server, tmp_path: Path) -> None:
    plain, tls = (listening(socket.AF_INET, ("127.0.0.1", 0)) for _ in range(2))
    unix = listening(socket.AF_UNIX, str(tmp_path / "sock"))
    number = tls.getsockname()[1]
    overrides = [("port", "0"), ("tls-port", str(number)), ("bind", "127.0.0.1")]
    config = load_settings(Config, None, overrides)
    assert open_shared(config, server.log, [unix, plain, tls]) == [plain, tls]
    assert open_shared(config, server.log, [unix, tls]) == [tls]
    config = load_settings(Config, None, [*overrides, ("port", str(free_port()))])
    [same, opened] = open_shared(config, server.log, [unix, tls])
    assert same is tls
    with pytest.raises(ListenError):
        open_shared(config, server.log)
    close_listeners([plain, tls, unix, opened])


def test_sockets_are_found_by_the_numbers_that_they_have_in_the_parent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        copy = listener.dup()
        environ = {**pass_sockets([copy]), "HOME": "/"}
        copy.detach()
        [found] = adopt_shared(environ)
        assert found.getsockname() == listener.getsockname()
        assert environ == {"HOME": "/"}
        assert adopt_shared(environ) == []
        found.close()
    for text in ("x", "-1"):
        with pytest.raises(SocketError):
            adopt_shared({"DISQUE_SOCKETS": text})


def test_other_nodes_are_told_the_port_of_the_passed_socket(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as passed:
        server.cluster.listens([passed], [])
        assert server.cluster.packets.port == passed.getsockname()[1]


def test_links_go_out_from_where_the_bus_listens_unless_that_is_everywhere(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as every:
        server.cluster.listens([], [one])
        assert server.cluster.links.sources == ["127.0.0.1"]
        server.cluster.listens([], [one, every])
        assert server.cluster.links.sources == []


def test_one_number_cannot_be_both_ports(server: Server) -> None:
    config = load_settings(Config, None, [("port", "7711"), ("tls-port", "7711")])
    with pytest.raises(ListenError, match="7711"):
        open_listeners(config, server.log)


def test_sockets_handed_over_are_adopted_by_the_program_that_follows() -> None:
    """In a process of its own, as descriptors from 3 on are in use here."""
    program = """
import os, socket, sys
from disque_trio.process.systemd import Notifier, adopt_sockets, hand_over
if len(sys.argv) == 1:
    one, two = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    ports = [str(sock.getsockname()[1]) for sock in (two, one)]  # crossed: 4 goes to 3
    environ = {"NOTIFY_SOCKET": "/nonexistent", "WATCHDOG_USEC": "7"}
    environ = hand_over([two, one], Notifier(environ))
    os.execve(sys.executable, [sys.executable, "-c", os.environ["PROGRAM"], *ports], environ)
notifier = Notifier(os.environ)
assert notifier.watchdog == 7e-6
adopted = adopt_sockets(os.environ)
assert [str(sock.getsockname()[1]) for sock in adopted] == sys.argv[1:], adopted
assert not [name for name in os.environ if name.startswith("LISTEN_")]
"""
    subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PROGRAM": program}, check=True
    )


def test_nothing_is_handed_over_where_there_is_nothing() -> None:
    assert hand_over([], Notifier()) == dict(os.environ)


# ---- reload -----------------------------------------------------------------------------------


def test_a_reload_tells_what_can_be_set_from_what_cannot() -> None:
    running = load_settings(Config, None, [("hz", "20"), ("timeout", "5"), ("maxclients", "7")])
    fresh = load_settings(
        Config,
        None,
        [
            ("timeout", "5"),
            ("maxmemory", "2mb"),
            ("client-output-buffer-limit", "normal 10mb 1mb 60"),
            ("requirepass", 'a "b" \\ #'),
            ("maxclients", "7"),
            ("port", "7"),
            ("appendfilename", "x"),
        ],
    )
    settable, fixed = differences(running, fresh)
    assert fixed == ["port", "appendfilename"]
    assert {name for name, _ in settable} == {
        b"hz",
        b"maxmemory",
        b"client-output-buffer-limit",
        b"requirepass",
    }
    running.config_set(settable)
    assert differences(running, fresh) == ([], fixed)


# ---- the units --------------------------------------------------------------------------------


def analyze(
    tmp_path: Path, units: Sequence[Path], *words: str
) -> "subprocess.CompletedProcess[str]":
    """Run systemd-analyze on the units, with an existing program in place of the installed one."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed (package systemd)")
    copies = [tmp_path / unit.name for unit in units]
    for unit, copy in zip(units, copies, strict=True):
        installed = settings_of(unit).get("ExecStart", [sys.executable])[0].split()[0]
        copy.write_text(unit.read_text().replace(installed, sys.executable))
    return subprocess.run(
        [program, *words, *map(str, copies)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("units", UNITS, ids=lambda units: units[0].stem)
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path, units: Sequence[Path]) -> None:
    result = analyze(tmp_path, units, "verify")
    assert result.returncode == 0, result.stderr
    assert not [line for line in result.stderr.splitlines() if units[0].stem in line]


@pytest.mark.parametrize("units", UNITS, ids=lambda units: units[0].stem)
def test_systemd_rates_the_service_as_well_confined(tmp_path: Path, units: Sequence[Path]) -> None:
    most = 25 if units in ((ARCHIVE,), (WATCH,)) else 15  # a JVM needs more
    result = analyze(tmp_path, units[:1], "security", "--offline=yes", f"--threshold={most}")
    if "--offline" in result.stderr:
        pytest.skip("systemd-analyze is older than 250")
    assert result.returncode == 0, result.stdout


def test_the_service_of_bananaq_agrees_with_its_configuration_and_with_the_nodes() -> None:
    service, node = settings_of(BANANAQ), settings_of(SERVICE)
    program, option, config = service["ExecStart"][0].split()
    assert (Path(program).name, option) == ("bananaq", "--config")
    assert Path(program).parent == Path(node["ExecStart"][0].split()[0]).parent
    assert config.startswith(service["ReadWritePaths"][0].removeprefix("-"))
    assert service["WorkingDirectory"] == [f"/var/lib/{service['StateDirectory'][0]}"]
    shipped = parse(["--config", str(ROOT / "config" / "bananaq.conf")], {})
    assert int(service["LimitNOFILE"][0]) > shipped.maxclients + 64
    own = {"Description", "After", "ExecStart", "User", "Group", "WorkingDirectory"}
    own |= {"StateDirectory", "RuntimeDirectory", "LogsDirectory", "ReadWritePaths"}
    own |= {"Sockets", "Also"}
    assert {name: value for name, value in service.items() if name not in own} == {
        name: value for name, value in node.items() if name not in own
    }


def test_the_service_of_a_watch_agrees_with_that_of_an_archive() -> None:
    """They differ in their names only."""
    watch, archive = settings_of(WATCH), settings_of(ARCHIVE)
    named = {
        name: [value.replace("archive", "watch").replace("ARCHIVE", "WATCH") for value in text]
        for name, text in archive.items()
    }
    own = {"Description"}
    assert {name: text for name, text in watch.items() if name not in own} == {
        name: text for name, text in named.items() if name not in own
    }


def test_the_units_the_hints_and_the_shipped_configuration_agree() -> None:
    service, hints = settings_of(SERVICE), INSTALL_HINTS
    program, config = service["ExecStart"][0].split()
    assert f"{program} --check-config {config}" in hints
    assert config.startswith(service["ReadWritePaths"][0].removeprefix("-"))
    assert "useradd --system --user-group" in hints
    assert f" {service['User'][0]}\n" in hints
    assert service["WorkingDirectory"] == [f"/var/lib/{service['StateDirectory'][0]}"]
    shipped = load_settings(Config, str(ROOT / "config" / "disque.conf"))
    wanted = [f"[{a}]:{shipped.port}" if ":" in a else f"{a}:{shipped.port}" for a in shipped.bind]
    assert settings_of(SOCKET)["ListenStream"] == wanted
    assert int(service["LimitNOFILE"][0]) > shipped.maxclients + 64


def test_the_hints_are_a_shell_script() -> None:
    subprocess.run(["sh", "-n"], input=INSTALL_HINTS, text=True, check=True)
