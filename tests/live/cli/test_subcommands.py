"""The subcommands of ``disque`` against real nodes."""

import json
import threading
from pathlib import Path
from typing import Any

from tests.support.commands import run_command
from tests.support.harness import LiveNode, NodeFactory, free_port, wait_until
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
    assert found == {"other": "fresh", "back": "retrying", "letters": "dead", "taken": "running"}
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
    printed, _ = run(shared_node, "jobs", "q", "--state", "fresh")
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
        assert sorted(row["state"] for row in rows) == ["delayed", "fresh"]


def test_workers_are_listed_with_their_jobs(shared_node: LiveNode) -> None:
    worker, waiting, producer = (shared_node.wire() for _ in range(3))
    producer("CLIENT", "SETNAME", "producer:host:1")
    worker("CLIENT", "SETNAME", "disque-worker:host:2")
    waiting("CLIENT", "SETNAME", "disque-worker:host:2")
    id = add_job(producer, "q", "x")
    worker("GETJOB", "FROM", "q")
    worker("WORKING", id, "PROGRESS", "0.5", "half")
    waiting.send("GETJOB", "FROM", "empty")
    wait_until(lambda: " flags=b " in str(producer("CLIENT", "LIST")))
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


def queued(nodes: list[LiveNode], queue: str) -> int:
    return sum(int(node.ask("QLEN", queue)) for node in nodes)  # type: ignore[call-overload]


def test_jobs_of_all_nodes_are_moved_and_counted(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 2) as cluster:
        for node in cluster:
            wire = node.wire()
            for _ in range(30):
                add_job(wire, "from", "x", "REPLICATE", 1)
        assert run(cluster[0], "move", "from", "to", "--count", "7")[0] == "7\n"
        assert queued([*cluster], "to") == 7
        moved = objects(cluster[0], "move", "from", "to", "--batch", "10")
        assert moved == [{"queue": "from", "moved": 53, "of": 53}]
        assert (queued([*cluster], "from"), queued([*cluster], "to")) == (0, 60)


def test_a_move_that_is_refused_says_how_far_it_came(shared_node: LiveNode) -> None:
    add_job(shared_node.wire(), "from", "x")
    shared_node.ask("PAUSE", "to", "in")
    _, told = run(shared_node, "move", "from", "to", status=1)
    assert "PAUSED" in told
    assert "moved: 0 of 1" in told
    shared_node.ask("PAUSE", "to", "none")


def test_dead_letters_are_sent_back(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    wire("QSET", "broken", "ATTEMPTS", 1, "DEAD", "letters")
    for _ in range(5):
        id = add_job(wire, "broken", "x")
        wire("GETJOB", "FROM", "broken")
        wire("NACK", id, "DEAD")
    assert run(shared_node, "redrive", "letters", "--count", "1")[0] == "1\n"
    assert run(shared_node, "redrive", "letters", "COUNT", "1")[0] == "1\n"  # the node's command
    assert objects(shared_node, "redrive", "letters", "--to", "other") == [
        {"queue": "letters", "redriven": 3, "of": 3}
    ]
    assert (queued([shared_node], "broken"), queued([shared_node], "other")) == (2, 3)
    wire("QDEL", "broken")


def test_jobs_are_exported_and_imported_as_they_were(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 2) as cluster:
        wire = cluster[0].wire()
        text = "grüße\n"
        add_job(wire, "q", text, "REPLICATE", 2, "RETRY", 30, "HEADERS", 1, "task", "shop.send")
        add_job(wire, "q", b"\xff\x00", "PRIORITY", 3, "GROUP", "g", "NOTE", "n", "TTL", 5_000)
        wire("ADDJOB", b"\xfe", "late", 0, "DELAY", 1_000)
        add_job(wire, "q", "mine", "UNIQUE", "key")
        add_job(wire, "once", "x", "RETRY", 0, "REPLICATE", 1)
        wire("QSET", "work", "DEAD", "work.dead")
        broken = add_job(wire, "work", "broken", "REPLICATE", 1)
        wire("GETJOB", "FROM", "work")
        wire("NACK", broken, "DEAD", "REASON", "not today")
        file = tmp_path / "jobs.jsonl"
        run(cluster[1], "export", "--output", str(file))
        jobs = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(jobs) == 6
        assert "exists; --resume" in run(cluster[1], "export", "--output", str(file), status=1)[1]

        # Cut off in the middle of a line, as by a full disk.
        file.write_bytes(file.read_bytes()[:-20])
        run(cluster[1], "export", "--output", str(file), "--resume")
        again = [json.loads(line) for line in file.read_text().splitlines()]
        assert sorted(job["id"] for job in again) == sorted(job["id"] for job in jobs)

    (tmp_path / "other").mkdir()
    with live_cluster(tmp_path / "other", 2) as cluster:
        for _ in range(2):  # the second one adds nothing
            assert run(cluster[0], "import", str(file))[0] == "6\n"
            rows = objects(cluster[1], "jobs")
            assert len(rows) == 6
        new = {row.get("body", row.get("body_base64")): row for row in rows}
        first = new[text]
        assert (first["copies"], first["retry"], first["headers"]) == (
            *(2, 30),
            [["task", "shop.send"]],
        )
        binary = new["/wA="]
        assert (binary["priority"], binary["group"], binary["note"]) == (3, "g", "n")
        assert 4_900 < binary["ttl"] <= 5_001  # ends are in whole seconds, rounded up
        assert (new["late"]["state"], new["late"]["queue"]) == ("delayed", "\udcfe")
        assert 900 < new["late"]["due_in"] <= 1_000
        assert new["mine"]["unique"] == "key"
        assert new["x"]["retry"] == 0
        old = next(job for job in jobs if job.get("body") == "broken")
        for field in ("queue", "state", "dead_from", "dead_why", "tries", "last_error", "first_id"):
            assert new["broken"][field] == old[field]
        assert (old["state"], old["last_error"]) == ("dead", "not today")
        assert run(cluster[1], "redrive", "work.dead")[0] == "1\n"
        wait_until(lambda: cluster[0].ask("QLEN", "work") or cluster[1].ask("QLEN", "work"))
        assert run(cluster[0], "import", str(file), "--queue", "all")[0] == "6\n"
        assert {row["queue"] for row in objects(cluster[0], "jobs", "all")} == {"all"}


def test_a_line_that_is_no_job_stops_an_import(shared_node: LiveNode, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    good = '{"id": "D-1", "queue": "q", "body": "x"}\n'
    for bad, why in [
        ("nonsense\n", "line 2: "),
        ('{"id": "D-2", "body": "x"}\n', "line 2: not a job: it has no queue"),
        ('{"id": "D-2", "queue": "q"}\n', "line 2: not a job"),
        ('{"id": "D-2", "queue": "q", "body": "x", "body_size": 9}\n', "only a part of its body"),
        ("7\n", "line 2: not a job"),
    ]:
        file.write_text(good + bad)
        assert why in run(shared_node, "import", str(file), status=1)[1]
    assert "No such file" in run(shared_node, "import", "/nonexistent", status=1)[1]


def test_nodes_become_a_cluster(disque_server: NodeFactory) -> None:
    nodes = [disque_server() for _ in range(3)]
    names = [f"127.0.0.1:{node.port}" for node in nodes]
    done = objects(nodes[0], "cluster", "create", *names)
    assert [each["node"] for each in done] == names
    for node in nodes:
        hello = node.ask("HELLO")
        assert isinstance(hello, list)
        assert [entry[3] for entry in hello[2:]] == [b"1"] * 3
    # Once more changes nothing.
    assert run(nodes[0], "cluster", "create", *names)[0] == "3 nodes see each other.\n"

    late = disque_server()
    late_name = f"127.0.0.1:{late.port}"
    _, told = run(nodes[0], "cluster", "create", names[0], late_name, status=1)
    assert f"{names[0]} is in a cluster with " in told
    run(nodes[0], "cluster", "create", names[0], late_name, "--join")
    wait_until(lambda: len(nodes[2].ask("HELLO")) == 6)  # type: ignore[arg-type]


def test_no_cluster_is_made_of_nodes_that_are_wrong(disque_server: NodeFactory) -> None:
    node = disque_server()
    name = f"127.0.0.1:{node.port}"
    for other, why in [
        (f"localhost:{node.port}", "are the same node"),
        (f"127.0.0.1:{free_port()}", "Connection refused"),
        ("unix:/nowhere", "not at a Unix socket"),
        ("::::", ""),
    ]:
        assert why in run(node, "cluster", "create", name, other, status=1)[1]


def test_a_backup_made_while_a_node_serves_can_be_started(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server("--appendonly", "yes")
    wire = node.wire()
    added = {add_job(wire, "q", f"job {number}") for number in range(500)}
    wire("ACKJOB", *sorted(added)[:100])
    wire("QSET", "q", "ATTEMPTS", 7)
    stop = threading.Event()

    def go_on() -> None:
        other = node.wire()
        while not stop.is_set():
            add_job(other, "later", "x" * 1_000)
            other("BGREWRITEAOF")

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        [told] = objects(node, "backup", str(tmp_path / "backup"))
    finally:
        stop.set()
        thread.join()
    copy = Path(told["copy"])
    assert copy.parent == tmp_path / "backup"
    assert json.loads((tmp_path / "backup" / "backup.json").read_text()) == told
    assert (copy / "disque.aof").stat().st_size == told["bytes"]
    checked = run_command("disque-check-aof", str(copy / "disque.aof"), text=True)
    assert "does not match" not in checked.stdout
    there = {job["id"] for job in objects(node, "jobs", "q", "--limit", "1000")}
    node.stop()

    restored = disque_server("--appendonly", "yes", "--dir", str(copy))
    ids = {
        job["id"]
        for state in ("active", "queued")
        for job in objects(restored, "jobs", "q", "--state", state, "--limit", "1000")
    }
    assert ids == there
    assert len(ids) == 400
    assert restored.ask("CLUSTER", "MYID") == told["id"].encode()
    assert "7" in str(restored.ask("QGET", "q"))


def test_nodes_without_files_here_are_left_out_of_a_backup(
    shared_node: LiveNode, tmp_path: Path
) -> None:
    _, told = run(shared_node, "backup", str(tmp_path / "backup"), status=1)
    assert "appendonly no" in told
    assert not (tmp_path / "backup").exists()
    assert "File exists" in run(shared_node, "backup", str(tmp_path), status=1)[1]


def test_definitions_of_a_cluster_make_another_one_like_it(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 2) as cluster:
        wire = cluster[0].wire()
        wire("QSET", b"bin\xff", "ATTEMPTS", 5, "DEAD", "letters", "BACKOFF", 1, 60)
        wire("QSET", "mail.*", "RATE", "5/s")
        wire("CRON", "SET", "hourly", "@every 1h", "q", b"\xfe", "RETRY", 60)
        wire("CRON", "SET", "never", "@every 2d", "TZ", "Europe/Berlin", "q", "job")
        wire("CRON", "PAUSE", "never")
        wire("BIND", "mail.new", "mail")
        wire("ACL", "SETUSER", "bob", "on", ">secret", "~mail", "+addjob")
        file = tmp_path / "definitions.json"
        _, told = run(cluster[0], "definitions", "export", "--output", str(file), status=1)
        assert "users differ between" in told  # nodes do not share them
        assert file.stat().st_mode & 0o777 == 0o600
        again = run(cluster[0], "definitions", "export", "--output", str(file), status=1)[1]
        assert "exists" in again
        wanted = json.loads(file.read_text())

    (tmp_path / "other").mkdir()
    with live_cluster(tmp_path / "other", 2) as cluster:
        # Options of a policy that the file does not have go.
        cluster[0].wire()("QSET", "mail.*", "RATE", "9/s", "BURST", 3, "DEAD", "x", "RETRY", 5)
        dry = run(cluster[0], "definitions", "import", str(file), "--dry-run")[1]
        assert "would set policy mail.*" in dry
        assert len(cluster[0].wire()("QGET")) == 1
        sums = objects(cluster[0], "definitions", "import", str(file))
        assert sums == [{"policy": 2, "schedule": 2, "binding": 1, "user": 2}]  # bob on each node
        for node in cluster:
            wait_until(lambda node=node: len(node.wire()("QGET")) == 2)  # type: ignore[misc]
        assert objects(cluster[0], "definitions", "export") == [wanted]
        sums = objects(cluster[0], "definitions", "import", str(file))
        assert sums == [{"policy": 0, "schedule": 0, "binding": 0, "user": 0}]


def test_definitions_that_are_none_are_refused(shared_node: LiveNode, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    for content, why in [
        ("nonsense", "not definitions: "),
        ("[]", "not an object"),
        ('{"queues": {}}', "'queues' is not one of users, policies, schedules, bindings"),
        ('{"bindings": {}}', "bindings must be a list"),
        ('{"bindings": [7]}', "needs a topic and a queue"),
        ('{"policies": {"q": 7}}', "'q' must be an object"),
        ('{"policies": {"q": {"colour": 7}}}', "policy 'q': a policy has no option 'colour'"),
        ('{"policies": {"q": {"backoff": 7}}}', "policy 'q'"),
        ('{"schedules": {"s": {"times": "@daily"}}}', "schedule 's'"),
        ('{"users": {"u": 7}}', "user 'u': the rules must be a string"),
    ]:
        file.write_text(content)
        assert why in run(shared_node, "definitions", "import", str(file), status=1)[1]


def test_a_definition_that_a_node_refuses_does_not_stop_the_others(
    shared_node: LiveNode, tmp_path: Path
) -> None:
    file = tmp_path / "definitions.json"
    wanted = {
        "policies": {"good": {"attempts": 3}, "bad": {"attempts": -7}},
        "schedules": {
            "bobs": {"times": "@daily", "queue": "q", "job": "x", "user": "bob"},
        },
    }
    file.write_text(json.dumps(wanted))
    printed, told = run(shared_node, "definitions", "import", str(file), status=1)
    assert printed == "policy: 1, schedule: 0, binding: 0, user: 0\n"
    assert "policy bad: " in told
    assert "schedule bobs: is bob's: import it as that user" in told
    shared_node.wire()("QDEL", "good")
