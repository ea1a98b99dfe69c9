"""``disque-outbox`` between a database file and a real node."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from disque_integrations.outbox.command import main
from disque_trio.client.sync import Client, connect
from disque_trio.tasks import Disque
from packages.integrations.tests.support import outbox_killed
from packages.integrations.tests.support.outbox import Database, sqlite
from tests.support import ROOT
from tests.support.commands import run_command, start_command
from tests.support.harness import (
    HANG_SECONDS,
    ClusterFactory,
    LiveNode,
    NodeFactory,
    free_port,
    wait_until,
)
from tests.support.live_helpers import spawn
from tests.support.task_worker import working_thread

# As a soak test: OUTBOX_ROWS=20000.
ROWS = int(os.environ.get("OUTBOX_ROWS", "400"))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    it = sqlite(tmp_path)
    yield it
    it.close()


@pytest.fixture
def client(shared_node: LiveNode) -> Iterator[Client]:
    with connect(at(shared_node)) as it:
        yield it


def at(node: LiveNode) -> str:
    return f"{node.host}:{node.port}"


def outbox(database: Database, node: str, *options: str) -> int:
    """Run ``disque-outbox`` in this process; return its exit status."""
    return main(["--database", database.url, "--nodes", node, *options])


@contextmanager
def running(database: Database, node: str, *options: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Run ``disque-outbox`` in its own process, which is killed at the end."""
    words = ["--poll", "0.02", "--database", database.url, "--nodes", node, *options]
    with start_command("disque-outbox", *words, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def bodies(client: Client, queue: str = "q") -> list[str]:
    """Acknowledge all jobs of a queue, and return their bodies."""
    found = []
    while jobs := client.get(queue, nohang=True, count=1000):
        found += [job.body.decode() for job in jobs]
        client.ack(*[job.id for job in jobs])
    return found


def test_rows_become_jobs_with_all_their_options(
    database: Database, shared_node: LiveNode, client: Client
) -> None:
    with database.engine.begin() as connection:
        add = database.outbox.add
        key = add(
            connection,
            "q",
            "now",
            retry=17,
            ttl=600,
            priority=5,
            group="g",
            headers=[("name", b"\xff"), ("name", "2")],
            replicate=1,
        )
        add(connection, "q", "later", delay=3600)
    assert outbox(database, at(shared_node), "--once", "--keep", "60") == 0
    [job] = client.get("q", nohang=True, count=9, withheaders=True)
    assert (job.body, job.priority) == (b"now", 5)
    assert [*job.header_pairs] == [("name", b"\xff"), ("name", b"2")]
    shown = client.show(job.id)
    assert shown is not None
    assert (shown["retry"], shown["group"], shown["unique-key"]) == (17, "g", str(key))
    assert isinstance(shown["ttl"], int)
    assert 500 < shown["ttl"] <= 600  # the remaining time
    first, second = database.records()
    assert first.job == job.id
    later = client.show(second.job)
    assert later is not None
    assert isinstance(later["delay"], int)
    assert 3500 < later["delay"] <= 3601


def test_a_task_runs_when_its_transaction_was_committed(
    database: Database, shared_node: LiveNode
) -> None:
    app = Disque(f"disque://{at(shared_node)}")
    done: list[str] = []

    @app.task(queue="mail", priority=4)
    def send_mail(to: str, subject: str = "") -> None:
        done.append(f"{to}: {subject}")

    with Session(database.engine) as session:
        database.outbox.add_task(session, send_mail.bind("ann", subject="hello"))
        session.commit()
        database.outbox.add_task(session, send_mail.bind("bob"))
        session.rollback()
    assert outbox(database, at(shared_node), "--once") == 0
    with working_thread(app):
        wait_until(lambda: done)
    assert done == ["ann: hello"]


def test_rows_of_a_unique_task_add_one_job_as_long_as_that_lives(
    database: Database, shared_node: LiveNode, client: Client
) -> None:
    app = Disque(f"disque://{at(shared_node)}")

    @app.task(queue="reports", unique=True)
    def report(day: int) -> None: ...

    for ended in (False, True):
        with Session(database.engine) as session:
            for day in (1, 1, 2):
                database.outbox.add_task(session, report.bind(day))
            session.commit()
        assert outbox(database, at(shared_node), "--once") == 0
        assert client.qlen("reports") == 2
        if not ended:
            client.ack(*[job.id for job in client.get("reports", count=9)])


def test_rows_of_a_queue_keep_their_order(
    database: Database, shared_node: LiveNode, client: Client
) -> None:
    expected = [str(number) for number in range(50)]
    database.add(*expected)
    assert outbox(database, at(shared_node), "--once", "--batch", "7") == 0
    assert bodies(client) == expected


def test_a_row_for_a_topic_becomes_a_job_in_each_queue(
    database: Database, shared_node: LiveNode, client: Client
) -> None:
    client.bind("mail.#", "a")
    client.bind("mail.#", "b")
    database.add("1", queue="@mail.new")
    database.add("2", queue="@nobody")
    assert outbox(database, at(shared_node), "--once", "--keep", "60") == 0
    assert (bodies(client, "a"), bodies(client, "b")) == (["1"], ["1"])
    assert [len(record.job.split()) for record in database.records()] == [2, 0]
    client.unbind("mail.#", "a")
    client.unbind("mail.#", "b")


@pytest.mark.parametrize("step", outbox_killed.STEPS)
def test_a_kill_at_any_step_neither_loses_nor_repeats_anything(
    database: Database, shared_node: LiveNode, client: Client, step: str
) -> None:
    expected = [str(number) for number in range(6)]
    database.add(*expected)
    killed = run_command(outbox_killed.__name__, database.url, at(shared_node), step)
    assert killed.returncode == -signal.SIGKILL
    done = bodies(client)  # workers are faster than the next forwarder
    assert done == {"taken": [], "half sent": expected[:3]}.get(step, expected)
    assert database.bodies() == ([] if step == "committed" else expected)
    assert outbox(database, at(shared_node), "--once") == 0
    assert done + bodies(client) == expected
    assert database.records() == []


def test_kills_while_rows_are_forwarded_neither_lose_nor_repeat_anything(
    database: Database, shared_node: LiveNode, client: Client
) -> None:
    def program() -> None:
        for number in range(ROWS):
            with database.engine.connect() as connection:
                database.outbox.add(connection, "q", str(number))
                if number % 10 == 9:
                    connection.rollback()
                else:
                    connection.commit()

    expected = {str(number) for number in range(ROWS) if number % 10 != 9}
    writer = threading.Thread(target=program)
    writer.start()
    done: list[str] = []
    for _ in range(ROWS // 100):
        with running(database, at(shared_node), "--batch", "5"):
            wait_until(lambda: client.qlen("q") or not (writer.is_alive() or database.records()))
            done += bodies(client)
    writer.join()
    # A row that was sent recently and is still in the table is nevertheless added only once.
    assert outbox(database, at(shared_node), "--once") == 0
    done += bodies(client)
    assert len(done) == len(expected)
    assert {*done} == expected


def test_a_refused_job_does_not_block_others(
    database: Database, shared_node: LiveNode, client: Client
) -> None:
    client.pause("paused", "in")
    database.add("no", queue="paused")
    with database.engine.begin() as connection:
        database.outbox.add(connection, "q", "no", ttl=5, delay=60)  # the TTL is too short
    database.add("yes")
    assert outbox(database, at(shared_node), "--once") == 1
    assert bodies(client) == ["yes"]
    errors = [record.error.split()[0] for record in database.records()]
    assert errors == ["PAUSED", "ERR"]
    client.pause("paused", "none")


def test_it_waits_for_memory_and_continues(database: Database, disque_server: NodeFactory) -> None:
    node = disque_server("--maxmemory", "1")
    database.add("1", "2")
    with running(database, at(node)), connect(at(node)) as client:
        wait_until(lambda: "calls=" in client.info("commandstats").get("cmdstat_addjob", ""))
        client.execute("CONFIG", "SET", "maxmemory", "0")
        wait_until(lambda: not database.records())
        assert bodies(client) == ["1", "2"]


def test_it_waits_for_a_majority_and_continues(
    database: Database, cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disque_integrations.outbox.sender.COPIES_WITHIN", 0.2)
    one, *others = cluster(3)
    with database.engine.begin() as connection:
        database.outbox.add(connection, "q", "1", replicate=1)
    for node in others:
        node.process.send_signal(signal.SIGSTOP)
    assert outbox(database, at(one), "--once") == 1
    assert [record.attempts for record in database.records()] == [0]
    for node in others:
        node.process.send_signal(signal.SIGCONT)
    wait_until(lambda: outbox(database, at(one), "--once") == 0)
    with connect(at(one)) as client:
        assert bodies(client) == ["1"]


def test_it_waits_for_a_node_and_continues(database: Database, disque_server: NodeFactory) -> None:
    node = disque_server()
    database.add("1")
    with running(database, at(node)):
        wait_until(lambda: not database.records())
        node.kill()
        database.add("2")
        again = spawn(["--port", str(node.port), "--bind", node.host], node.port, node.directory)
        try:
            wait_until(lambda: not database.records())
            with connect(at(again)) as client:
                assert bodies(client) == ["2"]
        finally:
            again.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(database: Database, shared_node: LiveNode, number: int) -> None:
    database.add("1")
    with running(database, at(shared_node), "--poll", "3600") as process:
        wait_until(lambda: not database.records())
        process.send_signal(number)
        assert process.wait(HANG_SECONDS) == 0


def test_a_check_reports_the_rows(
    database: Database,
    shared_node: LiveNode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("disque_integrations.outbox.sender.RETRY_FOR", 0.0)
    database.add("1", "2")
    assert outbox(database, at(shared_node), "--check") == 0
    assert capsys.readouterr().out.startswith("2 rows waiting, 0 refused")
    assert len(database.records()) == 2
    assert outbox(database, at(shared_node), "--once") == 0
    database.add("3")
    assert outbox(database, at(shared_node), "--check") == 0
    assert "1 row waiting, 0 refused" in capsys.readouterr().out
    assert outbox(database, f"127.0.0.1:{free_port()}", "--check") == 1
    assert outbox(database, at(shared_node), "--check", "--table", "missing") == 1
    [line] = [line for line in capsys.readouterr().err.splitlines() if "table" in line]
    assert re.fullmatch(r"the table cannot be read: .*missing.*", line)


@pytest.mark.parametrize("wrong", [("--nodes", "a:b"), ("--cacert", "ca.pem")])
def test_wrong_nodes_are_wrong_arguments(
    database: Database, wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--database", database.url, "--once", *wrong]) == 2
    assert re.fullmatch("disque-outbox: .*\n", capsys.readouterr().err)


def test_once_fails_if_no_node_can_be_used(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disque_integrations.outbox.sender.RETRY_FOR", 0.0)
    database.add("1")
    assert outbox(database, f"127.0.0.1:{free_port()}", "--once") == 1
    assert database.bodies() == ["1"]


@pytest.mark.parametrize(
    ("database_url", "words"),
    [("no url", "parse"), ("postgresql+pg8000://h/d", "not installed"), ("x://y", "plugin")],
)
def test_an_unusable_database_is_an_error(
    database_url: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--database", database_url, "--once"]) == 1
    assert words in capsys.readouterr().err


def test_the_database_may_be_set_in_the_environment(
    database: Database, shared_node: LiveNode, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.add("1")
    monkeypatch.setenv("DISQUE_OUTBOX_DATABASE", database.url)
    assert main(["--nodes", at(shared_node), "--once"]) == 0
    assert bodies(client) == ["1"]
    monkeypatch.delenv("DISQUE_OUTBOX_DATABASE")
    for wrong in (["--once"], ["--database", database.url, "--unique-for", "60"]):
        with pytest.raises(SystemExit) as end:
            main(wrong)
        assert end.value.code == 2


def test_the_example_stores_an_order_with_its_job_or_neither(
    tmp_path: Path, shared_node: LiveNode, client: Client
) -> None:
    example = [sys.executable, str(ROOT / "examples" / "outbox" / "outbox.py")]
    subprocess.run([*example, "3", "apples"], cwd=tmp_path, check=True)
    assert subprocess.run([*example, "300", "apples"], cwd=tmp_path, check=False).returncode == 1
    shop = f"sqlite:///{tmp_path}/shop.db"
    assert main(["--database", shop, "--nodes", at(shared_node), "--once"]) == 0
    assert bodies(client, "orders") == ["3 apples"]
