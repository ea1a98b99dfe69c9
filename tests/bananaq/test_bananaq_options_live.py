"""The process bananaq: its options, CONFIG, and what it says when it cannot start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bananaq_process import ROOT, BananaProcess
from harness import LiveNode, Wire, free_port

from disque_trio.bananaq.client import AuthError, connect
from disque_trio.bananaq.option_texts import example, usage

pytestmark = pytest.mark.live

Start = Callable[..., BananaProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts bananaq with options."""
    started: list[BananaProcess] = []

    def start(*options: str) -> BananaProcess:
        process = BananaProcess(tmp_path, *options)
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def wire() -> Iterator[Callable[[BananaProcess], Wire]]:
    """Opens plain connections."""
    nodes: list[LiveNode] = []

    def wire(bananaq: BananaProcess) -> Wire:
        assert bananaq.process is not None
        nodes.append(LiveNode(bananaq.port, bananaq.process, bananaq.log))
        return nodes[-1].wire()

    yield wire
    for node in nodes:
        node.close()


def run(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run bananaq to its end."""
    return subprocess.run(
        [sys.executable, "-m", "disque_trio.bananaq.main", *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(("option", "text"), [("--help", usage()), ("--example", example())])
def test_texts_go_to_the_output(option: str, text: str) -> None:
    done = run(option)
    assert (done.returncode, done.stdout, done.stderr) == (0, text, "")


def test_bad_options_are_told_and_the_status_is_2(tmp_path: Path) -> None:
    done = run("--hz=0", "--nosuch", "1", "--config", str(tmp_path / "none"), BANANAQ_STORE="x")
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("bananaq: ") for line in lines)


def test_a_port_that_is_taken_is_told_and_the_status_is_1(start: Start, tmp_path: Path) -> None:
    port = start().port
    (tmp_path / "other").mkdir()
    done = run(f"--listen-addr=127.0.0.1:{port}", "--dir", str(tmp_path / "other"))
    assert done.returncode == 1
    assert f"127.0.0.1 port {port}" in done.stderr


def test_config_shows_sets_and_rewrites(
    start: Start, wire: Callable[[BananaProcess], Wire], tmp_path: Path
) -> None:
    file = tmp_path / "bananaq.conf"
    file.write_text(example())
    bananaq = start("--config", str(file), "--hz", "20", "--maxclients=77")
    client = wire(bananaq)
    where = f"127.0.0.1:{bananaq.port}".encode()
    assert client("CONFIG", "GET", "listen-addr", "hz") == [b"listen-addr", where, b"hz", b"20"]
    assert client("CONFIG", "SET", "hz", "30", "log-level", "debug") == b"OK"
    assert "Unsupported" in client.error("CONFIG", "SET", "store", "redis")
    assert client("CONFIG", "REWRITE") == b"OK"
    lines = example().splitlines()
    lines[lines.index("hz: 10")] = "hz: 30"
    lines[lines.index("log-level: info")] = "log-level: debug"
    assert file.read_text().splitlines() == lines
    assert bananaq.kill(signal.SIGTERM) == 0


def test_without_a_file_there_is_nothing_to_rewrite(
    start: Start, wire: Callable[[BananaProcess], Wire]
) -> None:
    assert "without a config file" in wire(start()).error("CONFIG", "REWRITE")


async def test_a_password_can_come_from_the_file(start: Start, tmp_path: Path) -> None:
    (tmp_path / "bananaq.conf").write_text("requirepass: two words\n")
    bananaq = start("--config", str(tmp_path / "bananaq.conf"))
    async with connect(port=bananaq.port, password="two words") as client:
        assert await client.status() == {}
    with pytest.raises(AuthError):
        async with connect(port=bananaq.port, password="others"):
            pass
    async with connect(port=bananaq.port) as client:
        with pytest.raises(AuthError):
            await client.status()


def test_the_environment_names_where_to_listen(tmp_path: Path) -> None:
    port = free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "bananaq_LISTEN_ADDR": f"127.0.0.1:{port}",
        "BANANAQ_DIR": str(tmp_path),
    }
    process = BananaProcess(tmp_path)
    process.port = port
    process.launch([sys.executable, "-m", "disque_trio.bananaq.main"], environment)
    assert process.kill(signal.SIGTERM) == 0
