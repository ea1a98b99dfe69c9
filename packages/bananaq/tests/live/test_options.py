"""The bananaq process: its options, CONFIG, and errors that prevent its start."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from disque_bananaq.client import AuthError, connect
from disque_bananaq.option_texts import example, usage
from packages.bananaq.tests.support.banana_daemons import spawn
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.commands import run_command
from tests.support.harness import free_port, wait_until

pytestmark = pytest.mark.live


def run(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run bananaq until it ends."""
    return run_command("bananaq", *argv, env=os.environ | environ, text=True)


@pytest.mark.parametrize(("option", "text"), [("--help", usage()), ("--example", example())])
def test_help_and_example_are_printed(option: str, text: str) -> None:
    done = run(option)
    assert (done.returncode, done.stdout, done.stderr) == (0, text, "")


def test_invalid_options_are_reported_with_status_2(tmp_path: Path) -> None:
    done = run("--hz=0", "--nosuch", "1", "--config", str(tmp_path / "none"), BANANAQ_STORE="x")
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("bananaq: ") for line in lines)


def test_a_used_port_is_reported_with_status_1(run_bananaq: DaemonFactory, tmp_path: Path) -> None:
    port = run_bananaq("embedded").port
    (tmp_path / "other").mkdir()
    done = run(f"--listen-addr=127.0.0.1:{port}", "--dir", str(tmp_path / "other"))
    assert done.returncode == 1
    assert f"127.0.0.1 port {port}" in done.stderr


def test_config_shows_sets_and_rewrites(run_bananaq: DaemonFactory, tmp_path: Path) -> None:
    file = tmp_path / "bananaq.conf"
    file.write_text(example())
    daemon = run_bananaq("embedded", "--config", str(file), "--hz", "20", "--maxclients=77")
    client = daemon.wire()
    where = f"127.0.0.1:{daemon.port}".encode()
    assert client("CONFIG", "GET", "listen-addr", "hz") == [b"listen-addr", where, b"hz", b"20"]
    assert client("CONFIG", "SET", "hz", "30", "log-level", "debug") == b"OK"
    assert "Unsupported" in client.error("CONFIG", "SET", "store", "redis")
    assert client("CONFIG", "REWRITE") == b"OK"
    lines = example().splitlines()
    lines[lines.index("hz: 10")] = "hz: 30"
    lines[lines.index("log-level: info")] = "log-level: debug"
    assert file.read_text().splitlines() == lines
    assert daemon.stop() == 0


def test_sighup_reloads_the_file(run_bananaq: DaemonFactory, tmp_path: Path) -> None:
    file = tmp_path / "bananaq.conf"
    file.write_text("hz: 20\nmaxclients: 100\n")
    daemon = run_bananaq("embedded", "--config", str(file), "--maxclients=77")
    file.write_text("hz: 44\nmaxclients: 100\n")
    daemon.process.send_signal(signal.SIGHUP)
    wire = daemon.wire()
    wait_until(lambda: wire("CONFIG", "GET", "hz") == [b"hz", b"44"])
    assert wire("CONFIG", "GET", "maxclients") == [b"maxclients", b"77"]
    file.write_text("hz: none\n")
    daemon.process.send_signal(signal.SIGHUP)
    assert wire("PING") == b"PONG"
    assert wire("CONFIG", "GET", "hz") == [b"hz", b"44"]
    assert daemon.stop() == 0


def test_the_log_warns_if_it_is_open_to_everybody(tmp_path: Path) -> None:
    port = free_port()
    options = ["--listen-addr", f"0.0.0.0:{port}", "--log-format", "json"]
    daemon = spawn(tmp_path, port, options)
    try:
        assert daemon.ready()

        def warnings() -> int:
            return daemon.log.read_text().count('"level": "warning"')

        assert warnings() == 0
        assert daemon.ask("CONFIG", "SET", "protected-mode", "no") == b"OK"
        wait_until(lambda: warnings() == 1)
    finally:
        daemon.close()


def test_protected_settings_are_refused_with_the_error_of_redis(run_bananaq: DaemonFactory) -> None:
    wire = run_bananaq("embedded").wire()
    for name in ("enable-protected-configs", "enable-debug-command"):
        assert wire("CONFIG", "GET", name) == [name.encode(), b"no"]
        assert wire.error("CONFIG", "SET", name, "yes").endswith("can't set immutable config")
    assert "dir" in wire.error("CONFIG", "SET", "dir", "/")


def test_without_a_file_there_is_nothing_to_rewrite(run_bananaq: DaemonFactory) -> None:
    assert "without a config file" in run_bananaq("embedded").wire().error("CONFIG", "REWRITE")


def test_the_command_line_takes_precedence_over_the_environment(
    run_bananaq: DaemonFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("bananaq_HZ", "20")
    monkeypatch.setenv("BANANAQ_TIMEOUT", "30")
    daemon = run_bananaq("embedded", "--timeout", "40")
    assert daemon.ask("CONFIG", "GET", "hz", "timeout") == [b"timeout", b"40", b"hz", b"20"]


async def test_the_right_password_is_accepted(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded")
    assert daemon.ask("CONFIG", "SET", "requirepass", "two words") == b"OK"
    async with connect(port=daemon.port, password="two words") as client:
        assert await client.status() == {}
    with pytest.raises(AuthError):
        async with connect(port=daemon.port, password="others"):
            pass
    async with connect(port=daemon.port) as client:
        with pytest.raises(AuthError):
            await client.status()
