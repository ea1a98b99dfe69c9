"""The subcommands of ``disque`` against real nodes."""

import json
from pathlib import Path
from typing import Any

from tests.support.commands import run_command
from tests.support.harness import LiveNode, wait_until
from tests.support.live_cluster import live_cluster
from tests.support.live_helpers import add_job
from tests.support.screen import screen


def run(node: LiveNode, *arguments: str, status: int = 0) -> tuple[str, str]:
    """Return stdout and stderr of ``disque -p PORT ARGUMENTS``, which ends with ``status``."""
    done = run_command("disque", "-p", str(node.port), *arguments, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


def objects(node: LiveNode, *arguments: str, status: int = 0) -> list[dict[str, Any]]:
    """Return the objects that a subcommand prints."""
    printed, _ = run(node, *arguments, "--json", status=status)
    return [json.loads(line) for line in printed.splitlines()]


def test_queues_of_all_nodes_are_listed_with_sums(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 2) as cluster:
        for node in cluster:
            add_job(node.wire(), "mail", "x", "REPLICATE", 1)
        add_job(cluster[0].wire(), "mail", "x", "REPLICATE", 1, "DELAY", 100)
        add_job(cluster[1].wire(), "sms", "x", "REPLICATE", 1)
        printed, _ = run(cluster[0], "queues")
        assert [line.split()[:2] for line in printed.splitlines()] == [
            ["queue", "queued"],
            ["mail", "2"],
            ["sms", "1"],
        ]
        rows = objects(cluster[0], "queues", "--sort", "length", "--limit", "1", "--counts")
        assert [(row["queue"], row["queued"], row["delayed"]) for row in rows] == [("mail", 2, 1)]
        assert rows[0]["nodes"] == sorted(f"127.0.0.1:{node.port}" for node in cluster)
        assert run(cluster[0], "queues", "nothing")[0] == "No queue.\n"

        cluster[1].kill()
        printed, complaint = run(cluster[0], "queues", status=1)
        assert "mail" in printed
        assert f"disque: 127.0.0.1:{cluster[1].port} is left out: " in complaint


def test_nodes_are_listed_with_those_that_are_away(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 2) as cluster:
        add_job(cluster[0].wire(), "mail", "x", "REPLICATE", 1)
        rows = objects(cluster[0], "nodes")
        assert {row["state"] for row in rows} == {"up"}
        assert sum(row["jobs"] for row in rows) == 1
        cluster[1].kill()
        away = {row["node"]: row for row in objects(cluster[0], "nodes", status=1)}
        assert away[f"127.0.0.1:{cluster[1].port}"]["state"] == "unreachable"
        assert away[f"127.0.0.1:{cluster[1].port}"]["problem"]


def test_jobs_are_listed_by_state(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    add_job(wire, "q", '{"args": [7]}', "HEADERS", 1, "task", "shop.send")
    add_job(wire, "q", b"\xff\x00", "DELAY", 100)
    add_job(wire, "other", "x" * 3_000, "UNIQUE", "key")
    back = add_job(wire, "back", "tried")
    dead = add_job(wire, "broken", "poison")
    taken = add_job(wire, "taken", "slow")
    wire("QSET", "broken", "ATTEMPTS", 1, "DEAD", "letters")
    for queue in ("back", "broken", "taken"):
        wire("GETJOB", "FROM", queue)
    wire("NACK", back, "REASON", "no route")
    wire("NACK", dead, "DEAD", "REASON", "no use")
    states = {row["queue"]: row for row in objects(shared_node, "jobs")}
    found = {queue: row["state"] for queue, row in states.items() if queue != "q"}
    assert found == {"other": "queued", "back": "retrying", "letters": "dead", "taken": "running"}
    assert states["back"]["last_error"] == "no route"
    assert states["letters"]["last_error"] == "no use"
    assert states["letters"]["dead_from"] == "broken"
    assert states["taken"]["id"] == (taken if isinstance(taken, str) else taken.decode())
    assert states["other"]["unique"] == "key"
    assert (states["other"]["body_size"], len(states["other"]["body"])) == (3_000, 1_024)

    [delayed] = objects(shared_node, "jobs", "q", "--state", "delayed")
    assert delayed["body_base64"] == "/wA="
    assert 90 < delayed["due_in"] <= 100
    [tasked] = objects(shared_node, "jobs", "--header", "task=shop.send")
    assert tasked["headers"] == [["task", "shop.send"]]
    printed, _ = run(shared_node, "jobs", "q", "--state", "queued")
    assert 'shop.send {"args": [7]}' in printed
    printed, _ = run(shared_node, "jobs", "--limit", "2")
    assert len(printed.splitlines()) == 4
    assert "there are more" in printed
    wire("QSET", "broken", "RESET")


def test_a_job_with_copies_is_listed_once(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3) as cluster:
        for delay in (0, 100):
            add_job(cluster[0].wire(), "mail", "x", "REPLICATE", 3, "DELAY", delay)
        wait_until(lambda: all(node.info("jobs")["registered_jobs"] == "2" for node in cluster))
        rows = objects(cluster[1], "jobs")
        assert sorted(row["state"] for row in rows) == ["delayed", "queued"]


def test_workers_are_listed_with_their_jobs(shared_node: LiveNode) -> None:
    worker, waiting, producer = (shared_node.wire() for _ in range(3))
    producer("CLIENT", "SETNAME", "producer:host:1")
    worker("CLIENT", "SETNAME", "disque-worker:host:2")
    waiting("CLIENT", "SETNAME", "disque-worker:host:2")
    id = add_job(producer, "q", "x")
    worker("GETJOB", "FROM", "q")
    worker("WORKING", id, "PROGRESS", "0.5", "half")
    waiting.send("GETJOB", "FROM", "empty")
    wait_until(lambda: b" flags=b " in bytes(producer("CLIENT", "LIST")))  # type: ignore[arg-type]
    [row] = objects(shared_node, "workers")
    assert (row["worker"], row["connections"], row["waiting"]) == ("disque-worker:host:2", 2, 1)
    [job] = row["jobs"]
    assert (job["queue"], job["progress"], job["progress_text"]) == ("q", 0.5, "half")
    assert row["queues"] == ["q"]
    [row] = objects(shared_node, "workers", "--no-jobs")
    assert row["jobs"] == []


def test_tables_fit_a_terminal_and_have_colours_only_there(shared_node: LiveNode) -> None:
    add_job(shared_node.wire(), "x" * 200, "x")
    with screen(["-p", str(shared_node.port), "queues"], 80, 24) as terminal:
        assert terminal.ends() == 0
        assert "\x1b[1mqueue" in terminal.output
        assert "x" * 80 not in terminal.output
    printed, _ = run(shared_node, "queues")
    assert "\x1b" not in printed
    assert "x" * 200 in printed


def test_mistakes_are_one_line_and_end_with_1(shared_node: LiveNode) -> None:
    for words, complaint in [
        (["queues", "--sorted"], "disque queues: no such argument: --sorted; did you mean --sort"),
        (["jobs", "--state", "gone"], "disque jobs: argument --state: invalid choice: 'gone'"),
        (["jobs", "--header", "task"], "disque: a header is written NAME=VALUE, not 'task'"),
        (["--csv", "queues"], None),
    ]:
        printed, told = run(shared_node, *words, status=1)
        assert printed == ""
        assert told.count("\n") == 1
        assert complaint is None or told.startswith(complaint)


def test_capital_letters_reach_the_node(shared_node: LiveNode) -> None:
    printed, _ = run(shared_node, "QUEUES", status=1)
    assert printed.startswith("ERR unknown command")
