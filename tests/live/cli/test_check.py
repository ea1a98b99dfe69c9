"""``disque check`` against real nodes: what it says, and its exit status."""

import json
import re
from pathlib import Path

import pytest

from disque_trio.cli.main import main
from disque_trio.cli.subcommands import check as check_module
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


def test_wrong_words_are_unknown_and_capital_letters_are_not(disque_server: NodeFactory) -> None:
    node = disque_server()
    done = run_command("disque", "-p", str(node.port), "check", "--everything", text=True)
    assert done.returncode == 3
    assert run_command("disque", "-p", str(node.port), "CHECK", text=True).stdout.startswith(
        "DISQUE OK - "
    )


def test_programs_get_json(disque_server: NodeFactory) -> None:
    node = disque_server()
    wire = node.wire()
    add_job(wire, "q", "x" * 10_000)
    wire("CONFIG", "SET", "maxmemory", "5000")
    done = run_command("disque", "-p", str(node.port), "check", "--json", text=True)
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert (told["status"], told["nodes"], told["nodes_here"], told["queued"]) == (
        "critical",
        1,
        1,
        1,
    )
    (condition,) = told["conditions"]
    assert (condition["kind"], condition["severity"]) == ("memory-full", "critical")
    assert condition["where"] == f"127.0.0.1:{node.port}"
    assert condition["since"] > 1_600_000_000


def look(port: int, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit status and the text of ``disque check queues``, run in this process."""
    status = main(["-p", str(port), "check", "queues"])
    return status, capsys.readouterr().out.partition(" | ")[0].strip()


def test_queues_that_wait_are_told_of_but_not_dead_letters(
    shared_node: LiveNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queues, "WAITS_TOO_LONG", 0)
    monkeypatch.setattr(queues, "DEAD_WITHIN", 0)
    wire, port = shared_node.wire(), shared_node.port
    wire("QSET", "mail", "DEAD", "mail.dead", "ATTEMPTS", 1)
    id = add_job(wire, "mail", "x")
    wire("GETJOB", "FROM", "mail")
    wire("NACK", id, "DEAD")
    wait_until(lambda: wire("QLEN", "mail.dead") == 1)
    assert look(port, capsys) == (0, "DISQUE OK - 1 of 1 nodes are well")
    add_job(wire, "mail", "y")
    status, text = look(port, capsys)
    assert status == 1
    assert text.startswith("DISQUE WARNING - mail: 1 job, oldest")
    wire("PAUSE", "mail", "out")
    assert look(port, capsys)[0] == 0
    wire("QDEL", "mail")


def test_one_look_sees_jobs_that_nobody_takes_and_that_a_worker_of_any_node_ends_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (queues, check_module):
        monkeypatch.setattr(module, "NO_WORKER_AFTER", 2)
    with live_cluster(tmp_path, 2) as cluster:
        wire, other = cluster[0].wire(), cluster[1].wire()
        for _ in range(100):
            add_job(wire, "mail", "x")
        wait_until(lambda: look(cluster[0].port, capsys)[0] == 2)
        _, text = look(cluster[1].port, capsys)
        assert text.startswith("DISQUE CRITICAL - mail: 100 jobs, oldest ")
        assert "no worker for" in text

        def is_served() -> bool:
            assert other("GETJOB", "TIMEOUT", 10_000, "FROM", "mail")
            return look(cluster[0].port, capsys)[0] == 0

        wait_until(is_served)
        assert int(wire("QLEN", "mail")) + int(other("QLEN", "mail")) > 0  # type: ignore[call-overload]


def test_one_look_sees_which_jobs_died_though_their_queue_is_empty(
    shared_node: LiveNode, capsys: pytest.CaptureFixture[str]
) -> None:
    wire = shared_node.wire()
    wire("QSET", "post", "DEAD", "post.dead")
    id = add_job(wire, "post", "x")
    wire("GETJOB", "FROM", "post")
    wire("NACK", id, "DEAD")
    status, text = look(shared_node.port, capsys)
    assert status == 1
    assert "post: 1 job became dead letters, the last one " in text
    wire("QDEL", "post")
