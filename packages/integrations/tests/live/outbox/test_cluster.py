"""Forwarding rows while nodes of a cluster and the forwarder are killed."""

import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import update

from disque_integrations.outbox.command import main
from disque_trio.client.sync import connect
from packages.integrations.tests.support.outbox import Database, sqlite
from tests.support.commands import start_command
from tests.support.harness import PATIENT, ClusterFactory, LiveNode, start_process, wait_until

# As a soak test: OUTBOX_ROUNDS=50.
ROUNDS = int(os.environ.get("OUTBOX_ROUNDS", "2"))
ROWS = 100  # per round


@contextmanager
def running(arguments: list[str]) -> Iterator[None]:
    """Run ``disque-outbox`` in a process that is killed at the end."""
    with start_command("disque-outbox", *arguments, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def again(node: LiveNode) -> LiveNode:
    """Restart a node that was killed, with the same port, file and directory."""
    options = ["--port", str(node.port), "--bind", node.host, "--appendonly", "yes", *PATIENT]
    return start_process(node.directory, node.port, *options)


def ids_of(nodes: list[LiveNode]) -> dict[str, set[str]]:
    """Return the ids of the jobs with each body, on all nodes."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        with connect(f"{node.host}:{node.port}") as client:
            for record in client.jscan_full(queue="q"):
                body = record["body"]
                assert isinstance(body, bytes)
                found[body.decode()].add(str(record["id"]))
    return found


def test_each_row_becomes_one_job_while_nodes_and_the_forwarder_are_killed(
    tmp_path: Path, cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disque_integrations.outbox.sender.COPIES_WITHIN", 0.5)
    database = sqlite(tmp_path)
    nodes = cluster(3, "--appendonly", "yes")
    started: list[LiveNode] = []
    arguments = ["--poll", "0.02", "--database", database.url, "--batch", "10", "--nodes"]
    arguments += [f"{node.host}:{node.port}" for node in nodes]
    try:
        for number in range(ROUNDS):
            writer = threading.Thread(target=write, args=[database, number])
            writer.start()
            before = len(ids_of(nodes))
            for _ in range(2):
                with running(arguments):
                    wait_until(partial(goes_on, nodes, before, database, writer))
                    victim = nodes.pop(number % 3)
                    victim.kill()
                nodes.insert(number % 3, again(victim))
                started.append(nodes[number % 3])
                wait_until(lambda: all(answers(node) and node.sees(3) for node in nodes))
            writer.join()
            with running(arguments):
                wait_until(lambda: all(record.attempts for record in database.records()))
        found = ids_of(nodes)
        # A row whose node was killed while it added the job may have to wait until that has ended.
        end_all(nodes)
        wait_until(partial(forwards_all, database, nodes))
        for body, ids in ids_of(nodes).items():
            found[body] |= ids
    finally:
        database.close()
        for node in started:
            node.close()
    assert {*found} == {f"{number}-{row}" for number in range(ROUNDS) for row in range(ROWS)}
    assert [ids for ids in found.values() if len(ids) > 1] == []


def write(database: Database, number: int) -> None:
    """Commit the rows of a round, each in its own transaction."""
    for row in range(ROWS):
        with database.engine.begin() as connection:
            body = f"{number}-{row}"
            database.outbox.add(connection, "q", body, replicate=2, retry=600)


def end_all(nodes: list[LiveNode]) -> None:
    """Acknowledge all jobs."""
    for node in nodes:
        with connect(f"{node.host}:{node.port}") as client:
            ids = list(client.jscan(queue="q"))
            if ids:
                client.ack(*ids)


def forwards_all(database: Database, nodes: list[LiveNode]) -> bool:
    """Return whether the remaining rows can be forwarded now. Tries all rows at once, and
    acknowledges the resulting jobs."""
    table = database.outbox.table
    with database.engine.begin() as connection:
        connection.execute(update(table).values(again=0))
    addresses = [f"{node.host}:{node.port}" for node in nodes]
    done = main(["--database", database.url, "--once", "--nodes", *addresses]) == 0
    end_all(nodes)
    return done


def goes_on(
    nodes: list[LiveNode], before: int, database: Database, writer: threading.Thread
) -> bool:
    """Return whether there are more jobs than before, or no rows are left."""
    return len(ids_of(nodes)) > before or not (writer.is_alive() or database.records())


def answers(node: LiveNode) -> bool:
    try:
        return node.ask("PING") == b"PONG"
    except OSError:
        return False
