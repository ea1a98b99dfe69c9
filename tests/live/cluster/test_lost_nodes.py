"""Nodes that are lost for good, or leave: ``disque copies``, ``disque cluster leave``, and a
restore."""

import json
from pathlib import Path
from typing import Any

from tests.support.commands import run_command
from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member, live_cluster
from tests.support.live_helpers import add_job
from tests.support.live_load import ONCE, QUEUE, load_on


def disque(node: Member, *words: str, status: int = 0) -> tuple[str, str]:
    """Return what ``disque`` prints, on both streams."""
    done = run_command("disque", "-p", str(node.port), *words, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


def rows(node: Member, *words: str, status: int = 0) -> list[dict[str, Any]]:
    """Return the objects that ``disque`` prints."""
    printed, _ = disque(node, *words, "--json", status=status)
    return [json.loads(line) for line in printed.splitlines()]


def lose(cluster: LiveCluster, index: int) -> list[Member]:
    """Kill a node, and have the others forget it. Return these."""
    lost = cluster[index].id
    cluster[index].kill()
    rest = cluster.running()
    cluster.wait_failing([lost], rest)
    for node in rest:
        assert node.ask("CLUSTER", "FORGET", lost) == b"OK"
    return rest


def test_copies_that_were_lost_with_a_node_are_made_again(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        wires = [node.wire() for node in cluster]
        ids = [
            add_job(wires[number % 3], "mail", f"job {number}", "REPLICATE", 2, "RETRY", 5)
            for number in range(300)
        ]
        ids += [add_job(wires[0], "later", "x", "REPLICATE", 2, "DELAY", 600) for _ in range(20)]
        assert rows(cluster[0], "copies") == []
        assert disque(cluster[0], "copies")[0] == "All jobs have their copies.\n"
        rest = lose(cluster, 2)

        found = {row["queue"]: row["jobs"] for row in rows(rest[0], "copies", status=1)}
        assert found["mail"] > 100
        few = rows(rest[0], "copies", "--list", "--limit", "1000", status=1)
        assert len(few) == sum(found.values())
        assert rows(rest[0], "copies", "other") == []
        wait_until(
            lambda: sum(int(node.info("jobs")["jobs_few_copies"]) for node in rest) == len(few), 60
        )
        assert rows(rest[1], "copies", "--make", "later") == []
        assert rows(rest[1], "copies", "--make") == []
        assert rows(rest[0], "copies", status=0) == []

        (last,) = lose(cluster, 1)
        for id in ids:
            assert last.holds(id.encode())
        wait_until(lambda: last.ask("QLEN", "mail") == 300, 60)
        printed, told = disque(last, "copies", "--make", status=1)  # there is no other node
        assert "mail" in printed
        assert "still have too few copies" in told


def test_two_of_five_nodes_leave_under_load(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 5, "--appendonly", "yes") as cluster, load_on(cluster) as load:
        load.produce_at_best(4, [QUEUE])
        load.consume_at_best(4, [QUEUE])
        load.consume(cluster.nodes)
        wire = cluster[4].wire()
        kept = [
            add_job(wire, "unread", f"{number}", "REPLICATE", 1 + number % 3, "RETRY", 5)
            for number in range(150)
        ]
        once = [add_job(wire, ONCE, "x", "RETRY", 0, "REPLICATE", 1) for _ in range(20)]
        load.wait_confirmed(200)
        for index in (4, 3):
            ids = cluster[index].id
            address = f"127.0.0.1:{cluster[index].port}"
            (told,) = rows(cluster[0], "cluster", "leave", address, "--stop")
            assert told["node"] == address
            assert told["stopped"]
            assert cluster[index].process.wait(60) == 0
            for node in cluster.running():
                assert ids not in node.lines()
            load.wait_confirmed(100)
        wait_until(lambda: {id.encode() for id in once} <= load.ledger.once)
        assert not load.ledger.refused
        rest = cluster.running()
        assert len(rest) == 3
        wait_until(lambda: sum(int(str(node.ask("QLEN", "unread"))) for node in rest) == 150, 60)
        assert rows(rest[0], "copies") == []
        for id in kept:
            assert any(node.holds(id.encode()) for node in rest)
        for node in rest:
            node.ask("ACKJOB", *kept)
        load.finish()


def test_a_cluster_is_restored_on_other_machines(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    backup = tmp_path / "backup"
    with live_cluster(tmp_path / "old", 3, "--appendonly", "yes") as cluster:
        wires = [node.wire() for node in cluster]
        ids = [
            add_job(wires[number % 3], f"q{number % 5}", f"job {number}", "RETRY", 2)
            for number in range(600)
        ]
        wires[0]("QSET", "q1", "ATTEMPTS", 7)
        acked, kept = ids[:100], ids[100:]
        for node in cluster:
            node.ask("ACKJOB", *acked)
        wait_until(lambda: not any(node.holds(id.encode()) for id in acked for node in cluster))
        told = rows(cluster[0], "backup", str(backup))
        names = [row["id"] for row in told]
    cluster = LiveCluster(tmp_path / "new", 3, "--appendonly", "yes", node_timeout=5_000)
    for node, row in zip(cluster, told, strict=True):
        for path in Path(row["copy"]).iterdir():
            (node.directory / path.name).write_bytes(path.read_bytes())
    try:
        cluster.start(meet=False)
        addresses = [f"127.0.0.1:{node.port}" for node in cluster]
        disque(cluster[0], "cluster", "create", *addresses)
        cluster.wait_joined()
        assert [node.id.decode() for node in cluster] == names
        got: set[str] = set()
        wires = [node.wire() for node in cluster]

        def take() -> bool:
            for wire in wires:
                queues = [f"q{number}" for number in range(5)]
                for job in wire("GETJOB", "NOHANG", "COUNT", 100, "FROM", *queues) or []:  # type: ignore[attr-defined]
                    got.add(job[1].decode())
                    wire("ACKJOB", job[1])
            return len(got) >= len(kept)

        wait_until(take, 60)
        assert got == set(kept)
        assert "7" in str(wires[2]("QGET", "q1"))
        cluster.wait_empty()
    finally:
        cluster.close()
