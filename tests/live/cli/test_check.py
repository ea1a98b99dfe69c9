"""``disque check`` against real nodes: what it says, and its exit status."""

import re
from pathlib import Path

import pytest

from disque_trio.cli.check import run_check
from disque_trio.cli.options import parse_options
from disque_trio.health import queues
from tests.support.commands import run_command
from tests.support.harness import LiveNode, NodeFactory, free_port, wait_until
from tests.support.live_cluster import live_cluster
from tests.support.live_helpers import add_job

PERF = re.compile(r"( '?[\w ]+'?=-?\d+(;-?\d*){0,4})+$")


def check(port: int, *words: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """The exit status and the line of ``disque check``, which has figures at its end."""
    done = run_command("disque", "-p", str(port), *options, "check", *words, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout + done.stderr
    text, bar, figures = lines[0].partition("|")
    if done.returncode != 3:
        assert bar
        assert PERF.fullmatch(figures), figures
    return done.returncode, text.strip()


def test_a_node_that_is_well(disque_server: NodeFactory) -> None:
    node = disque_server()
    assert check(node.port) == (0, "DISQUE OK - 1 of 1 nodes are well")
    assert check(node.port, "nodes")[0] == check(node.port, "queues")[0] == 0


def test_a_node_that_is_not_names_why(disque_server: NodeFactory) -> None:
    node = disque_server()
    wire = node.wire()
    add_job(wire, "q", "x" * 10_000)
    wire("CONFIG", "SET", "maxmemory", "5000")
    status, text = check(node.port)
    assert status == 2
    assert text.startswith(f"DISQUE CRITICAL - 127.0.0.1:{node.port}: ")
    assert "maxmemory" in text
    assert check(node.port, "queues")[0] == 0
    wire("CONFIG", "SET", "maxmemory", "0")
    assert check(node.port)[0] == 0


def test_a_node_that_is_lost_or_hangs_is_critical(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3) as cluster:
        assert check(cluster[0].port) == (0, "DISQUE OK - 3 of 3 nodes are well")
        cluster[2].kill()
        status, text = check(cluster[0].port)
        assert status == 2
        assert f"127.0.0.1:{cluster[2].port}" in text
        cluster[1].pause()
        try:
            status, text = check(cluster[1].port)
            assert (status, text[:16]) == (2, "DISQUE CRITICAL ")
        finally:
            cluster[1].resume()


def test_nobody_at_the_port_is_critical() -> None:
    assert check(free_port())[0] == 2


def test_what_is_refused_or_wrong_is_unknown(disque_server: NodeFactory) -> None:
    node = disque_server("--requirepass", "secret")
    assert check(node.port)[0] == 3
    assert check(node.port, options=("-a", "wrong"))[0] == 3
    assert check(node.port, options=("-a", "secret"))[0] == 0
    assert check(node.port, "everything", options=("-a", "secret"))[0] == 3


def test_queues_that_wait_are_told_of_but_not_dead_letters(
    shared_node: LiveNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queues, "WAITS_TOO_LONG", 0)
    wire = shared_node.wire()
    wire("QSET", "mail", "DEAD", "mail.dead", "ATTEMPTS", 1)
    id = add_job(wire, "mail", "x")
    wire("GETJOB", "FROM", "mail")
    wire("NACK", id, "DEAD")
    wait_until(lambda: wire("QLEN", "mail.dead") == 1)
    options = parse_options(["-p", str(shared_node.port), "check", "queues"], {})
    assert run_check(options) == 0
    assert "queued=1;" in capsys.readouterr().out
    add_job(wire, "mail", "y")
    assert run_check(options) == 1
    assert "DISQUE WARNING - mail: 1 job, oldest" in capsys.readouterr().out
    wire("PAUSE", "mail", "out")
    assert run_check(options) == 0
    wire("QDEL", "mail")
