"""``disque-server`` as operators use it: command line, log, background, shutdown."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.commands import start_command
from tests.support.harness import (
    HANG_SECONDS,
    LiveNode,
    NodeFactory,
    free_port,
    wait_for_ping,
    wait_until,
)
from tests.support.live_helpers import add_job, client_lines, packed, receive_all, run_server, spawn

MB = 1024 * 1024
ROTATION = ROOT / "config" / "disque.logrotate"


@pytest.mark.parametrize("option", ["--version", "-v"])
def test_version_is_printed(option: str) -> None:
    result = run_server(option)
    assert result.returncode == 0
    assert "disque" in result.stdout


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_shows_how_to_call_it(option: str) -> None:
    result = run_server(option)
    assert result.returncode == 0
    assert "--check-config" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("name", ["disque.yaml", "disque.conf"])
def test_the_shipped_configuration_is_valid(name: str) -> None:
    assert run_server("--check-config", str(ROOT / "config" / name)).returncode == 0


BAD_CONF = "port 7711\n\n# a comment\nmaxclients many\nnonsense 1\n"
BAD_YAML = "port: 7711\n# a comment\n\nmaxclients: many\nnonsense: 1\n"


@pytest.mark.parametrize(("name", "text"), [("bad.conf", BAD_CONF), ("bad.yaml", BAD_YAML)])
@pytest.mark.parametrize("check", [True, False])
def test_a_wrong_setting_names_file_line_setting_and_what_was_expected(
    tmp_path: Path, name: str, text: str, check: bool
) -> None:
    path = tmp_path / name
    path.write_text(text)
    result = run_server(*(["--check-config"] if check else []), str(path))
    assert result.returncode == 1
    lines = [line for line in result.stderr.splitlines() if name in line]
    assert len(lines) == 2  # all errors are reported at once
    assert f"{name}:4" in lines[0]
    assert "maxclients" in lines[0]
    assert "many" in lines[0]
    assert f"{name}:5" in lines[1]
    assert "nonsense" in lines[1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere.conf"],
        ["--check-config"],
        ["--check-config", "nowhere.yaml"],
        ["--nonsense", "1"],
        ["--port"],
        ["--port", "x"],
        ["--port", "99999"],
        ["--dir", "/nonexistent"],
        ["--logfile", "/nonexistent/log"],
        ["--appendonly", "maybe"],
        ["stray", "words"],
        ["-", "-"],
    ],
)
def test_an_invalid_command_line_ends_with_a_message_and_status_1(
    tmp_path: Path, arguments: list[str]
) -> None:
    result = run_server(*arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.strip()
    assert "Traceback" not in result.stderr


def test_settings_may_come_from_the_standard_input(tmp_path: Path) -> None:
    port = free_port()
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    process = start_command("disque-server", "-", "--maxclients", "17", cwd=tmp_path, **streams)
    assert process.stdin is not None
    process.stdin.write(f"port {port}\nbind 127.0.0.1\nhz 55\n".encode())
    process.stdin.close()
    node = LiveNode(port, process, tmp_path / "none")
    try:
        assert wait_for_ping(node)
        wire = node.wire()
        assert wire("CONFIG", "GET", "hz") == [b"hz", b"55"]
        assert wire("CONFIG", "GET", "maxclients") == [b"maxclients", b"17"]
        assert wire.error("CONFIG", "REWRITE") == "ERR The server is running without a config file"
    finally:
        node.close()


def test_options_override_the_file(disque_server: NodeFactory, tmp_path: Path) -> None:
    (tmp_path / "disque.conf").write_text("hz 20\nmaxclients 50\nport 1\n")
    node = disque_server("disque.conf", "--hz", "30")
    found = node.wire()("CONFIG", "GET", "hz", "maxclients")
    assert found in ([b"maxclients", b"50", b"hz", b"30"], [b"hz", b"30", b"maxclients", b"50"])
    assert node.info("server")["config_file"] == str(tmp_path / "disque.conf")


# ---- the log ----------------------------------------------------------------------------------


def test_json_log_lines_parse_and_have_a_level(disque_server: NodeFactory) -> None:
    node = disque_server("--log-format", "json", "--loglevel", "debug")
    node.wire()("CLIENT", "SETNAME", "x")
    assert node.stop() == 0
    lines = node.log.read_text().splitlines()
    assert lines
    for line in lines:
        fields = json.loads(line)
        assert fields["level"] in ("debug", "verbose", "notice", "warning")
        assert {"event", "time", "pid"} <= set(fields)


def test_a_log_file_is_appended_to_and_stdout_stays_quiet(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    path = tmp_path / "work" / "disque.log"
    path.parent.mkdir()
    path.write_text("before\n")
    node = disque_server("--dir", str(path.parent), "--logfile", "disque.log")
    assert node.stop() == 0
    assert node.log.read_text() == ""
    text = path.read_text()
    assert text.startswith("before\n")
    assert len(text.splitlines()) > 2


def test_a_log_that_is_moved_away_is_begun_anew(disque_server: NodeFactory, tmp_path: Path) -> None:
    path = tmp_path / "disque.log"
    node = disque_server("--logfile", str(path))
    moved = path.rename(tmp_path / "disque.log.1")
    size = moved.stat().st_size
    node.process.send_signal(signal.SIGHUP)
    wait_until(path.exists)
    path.unlink()
    assert node.stop() == 0  # which is logged
    assert path.read_text()
    assert moved.stat().st_size == size


@pytest.mark.skipif(not shutil.which("logrotate"), reason="no logrotate")
def test_logrotate_takes_what_was_logged_and_loses_no_line(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    place = tmp_path / "log"
    place.mkdir()
    path = place / "disque.log"
    node = disque_server("--logfile", str(path))
    rules = ROTATION.read_text().replace("/var/log/disque/", f"{place}/")
    file = tmp_path / "rules"
    file.write_text(re.sub(r"^ *su .*\n", "", rules, flags=re.MULTILINE))
    file.chmod(0o644)
    before = path.read_text()
    rotate = ["logrotate", "--force", "--state", str(tmp_path / "state"), str(file)]
    subprocess.run(rotate, check=True, timeout=HANG_SECONDS)
    assert (place / "disque.log.1").read_text() == before
    assert node.stop() == 0
    assert path.read_text()
    assert (place / "disque.log.1").read_text() == before


def test_the_log_level_holds_at_the_start_and_at_runtime(disque_server: NodeFactory) -> None:
    node = disque_server("--loglevel", "warning")
    wire = node.wire()
    assert node.log.read_text() == ""
    assert wire("CONFIG", "SET", "loglevel", "notice") == b"OK"
    assert node.stop() == 0
    assert node.log.read_text() != ""


# ---- the background ---------------------------------------------------------------------------


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A node in the background: its port and its pidfile."""
    port, pidfile = free_port(), tmp_path / "disque.pid"
    options = ["--daemonize", "yes", "--pidfile", "disque.pid", "--logfile", "disque.log"]
    result = run_server("--port", str(port), "--bind", "127.0.0.1", *options, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    pid = int(pidfile.read_text())
    yield port, pidfile
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def test_a_daemon_detaches_writes_its_pid_and_removes_it_at_the_end(
    daemon: tuple[int, Path],
) -> None:
    port, pidfile = daemon
    pid = int(pidfile.read_text())
    assert os.getsid(pid) != os.getsid(0)
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS) as sock:
        sock.sendall(b"INFO server\r\nQUIT\r\n")
        assert b"process_id:%d\r\n" % pid in receive_all(sock)
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not pidfile.exists())
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert (pidfile.parent / "disque.log").read_text()


def test_a_second_daemon_leaves_the_pidfile_of_the_first_alone(daemon: tuple[int, Path]) -> None:
    port, pidfile = daemon
    before = pidfile.read_text()
    log = pidfile.parent / "second.log"
    options = ["--daemonize", "yes", "--pidfile", str(pidfile), "--logfile", str(log)]
    options += ["--cluster-config-file", "other.conf"]
    result = run_server("--port", str(port), "--bind", "127.0.0.1", *options, cwd=pidfile.parent)
    assert result.returncode == 1
    assert re.fullmatch(rf"disque-server: cannot start: .*{port}.*\n", result.stderr)
    assert log.exists()
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS) as sock:
        sock.sendall(b"PING\r\n")
        assert sock.recv(100) == b"+PONG\r\n"
    assert pidfile.read_text() == before


def test_a_daemon_says_whose_directory_it_was_given(daemon: tuple[int, Path]) -> None:
    directory = daemon[1].parent
    result = run_server("--port", str(free_port()), "--daemonize", "yes", cwd=directory)
    assert result.returncode == 1
    assert str(directory / "nodes.conf") in result.stderr


def test_a_daemon_says_that_it_cannot_load_its_file(tmp_path: Path) -> None:
    (tmp_path / "disque.aof").write_text("garbage\n")
    options = ["--bind", "127.0.0.1", "--appendonly", "yes", "--daemonize", "yes"]
    result = run_server("--port", str(free_port()), *options, cwd=tmp_path)
    assert result.returncode == 1
    file = re.escape(str(tmp_path / "disque.aof"))
    assert re.fullmatch(rf"disque-server: cannot start: {file} is damaged.*\n", result.stderr)


def test_a_daemon_says_that_it_cannot_open_its_log(tmp_path: Path) -> None:
    result = run_server("--daemonize", "yes", "--logfile", "none/log", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr == "disque-server: logfile none/log: No such file or directory\n"


# ---- shutdown ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_node_cleanly(node: LiveNode, number: signal.Signals) -> None:
    wire, blocked = node.wire(), node.wire()
    add_job(wire)
    blocked.send("GETJOB", "FROM", "other")
    node.process.send_signal(number)
    assert node.process.wait(HANG_SECONDS) == 0
    assert wire.closed()
    assert blocked.closed()


def test_pending_replies_are_sent_before_the_end(node: LiveNode) -> None:
    control, slow = node.wire(), node.wire()
    add_job(control, "q", b"x" * MB)
    slow.raw(packed("QPEEK", "q", 1) * 30)
    wait_until(lambda: "calls=30," in node.info("commandstats").get("cmdstat_qpeek", ""))
    assert max(int(line["omem"]) for line in client_lines(control)) > 20 * MB
    node.process.send_signal(signal.SIGTERM)
    answer = receive_all(slow.sock)
    assert len(answer) > 30 * MB
    assert node.process.wait(HANG_SECONDS) == 0


def test_a_node_under_load_ends_within_seconds(node: LiveNode) -> None:
    crowd = [node.wire() for _ in range(20)]
    for wire in crowd:
        wire.send("CLIENT", "REPLY", "OFF")
        wire.sock.setblocking(False)
    work = packed("ADDJOB", "q", "body", 0) * 1000
    started = time.monotonic()
    stopped = False
    while node.process.poll() is None and time.monotonic() - started < HANG_SECONDS:
        for wire in crowd:
            try:
                wire.sock.send(work)
            except OSError:
                pass
        if not stopped and time.monotonic() - started > 0.3:
            node.process.send_signal(signal.SIGTERM)
            stopped = True
    assert node.process.poll() == 0


def test_a_second_signal_ends_the_node_at_once(node: LiveNode) -> None:
    control, slow = node.wire(), node.wire()
    add_job(control, "q", b"x" * MB)
    slow.raw(packed("QPEEK", "q", 1) * 60)  # never read: the first signal has to wait for it
    wait_until(lambda: max(int(line["omem"]) for line in client_lines(control)) > 40 * MB)

    def signalled() -> bool:
        if node.process.poll() is None:
            node.process.send_signal(signal.SIGTERM)
        return node.process.poll() is not None

    wait_until(signalled)
    assert node.process.poll() == 1


def test_a_hangup_is_ignored(node: LiveNode) -> None:
    wire = node.wire()
    for _ in range(3):
        node.process.send_signal(signal.SIGHUP)
        assert wire("PING") == b"PONG"
    assert node.stop() == 0


@pytest.mark.parametrize("words", [("SHUTDOWN",), ("SHUTDOWN", "NOSAVE"), ("SHUTDOWN", "SAVE")])
def test_shutdown_ends_the_node_without_a_reply(node: LiveNode, words: tuple[str, ...]) -> None:
    wire = node.wire()
    wire.send(*words)
    assert receive_all(wire.sock) == b""
    assert node.process.wait(HANG_SECONDS) == 0


def run_id(node: LiveNode) -> str:
    try:
        return node.info("server")["run_id"]
    except (OSError, EOFError):
        return ""


@pytest.mark.parametrize("command", ["RESTART", "CRASH-AND-RECOVER"])
@pytest.mark.parametrize("delay", [(), (50,)])
def test_debug_can_restart_the_node_on_the_same_port(
    disque_server: NodeFactory, tmp_path: Path, command: str, delay: tuple[int, ...]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "disque.conf").write_text("dir data\nhz 33\n")
    node = disque_server("disque.conf")
    before = run_id(node)
    wire = node.wire()
    add_job(wire)
    wire.send("DEBUG", command, *delay)
    assert wire.closed()
    wait_until(lambda: run_id(node) not in ("", before))
    again = node.wire()
    assert again("QLEN", "q") == 0
    assert again("CONFIG", "GET", "hz") == [b"hz", b"33"]
    assert again("CONFIG", "GET", "dir") == [b"dir", str(tmp_path / "data").encode()]
    assert node.stop() == 0


@pytest.mark.parametrize("command", ["SEGFAULT", "OOM", "ASSERT"])
def test_debug_can_crash_the_node(node: LiveNode, command: str) -> None:
    wire = node.wire()
    wire.send("DEBUG", command)
    assert wire.closed()
    assert node.process.wait(HANG_SECONDS) == -signal.SIGSEGV


def test_jobs_do_not_survive_an_end_without_a_log_file(tmp_path: Path) -> None:
    port = free_port()
    for _ in range(2):
        node = spawn(["--port", str(port), "--bind", "127.0.0.1"], port, tmp_path)
        try:
            assert wait_for_ping(node)  # the port is free again at once
            wire = node.wire()
            assert wire("QLEN", "q") == 0
            add_job(wire)
        finally:
            node.stop()
            node.close()
