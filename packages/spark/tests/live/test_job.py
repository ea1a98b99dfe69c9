"""``disque-pipeline job`` tells the life of jobs of real nodes, without Spark."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from disque_spark.pipeline import main
from tests.support import ROOT
from tests.support.harness import LiveNode, NodeFactory, wait_until

pytestmark = pytest.mark.live


def id_of(reply: object) -> str:
    assert isinstance(reply, bytes), reply
    return reply.decode()


def take(node: LiveNode, queue: str) -> str:
    reply = node.ask("GETJOB", "FROM", queue)
    assert isinstance(reply, list)
    return id_of(reply[0][1])


@pytest.fixture
def lived(disque_server: NodeFactory, tmp_path: Path) -> tuple[LiveNode, list[str]]:
    """A node with an event log, and a job that died, its letter, and what REDRIVE made of it."""
    node = disque_server("--event-log", "yes")
    wait_until(lambda: list(tmp_path.rglob("events/*.open")) != [])
    node.ask("QSET", "q", "ATTEMPTS", 1, "DEAD", "graves")
    job = id_of(node.ask("ADDJOB", "q", "x", 0, "RETRY", 600))
    assert take(node, "q") == job
    node.ask("NACK", job)
    reply = node.ask("QPEEK", "graves", 1)
    assert isinstance(reply, list)
    letter = id_of(reply[0][1])
    node.ask("REDRIVE", "graves")
    return node, [job, letter, take(node, "q")]


def logs_of(tmp_path: Path) -> list[str]:
    return [str(path) for path in tmp_path.rglob("events") if path.is_dir()]


def test_a_life_is_told_from_logs_and_nodes(
    lived: tuple[LiveNode, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node, (job, letter, again) = lived
    other = id_of(node.ask("ADDJOB", "q", "y", 0))
    address = f"127.0.0.1:{node.port}"
    assert main(["job", job, letter, again, "--nodes", address]) == 1
    out, err = capsys.readouterr()
    assert f"Now node {address} has it: active in queue q" in out
    assert err.splitlines() == [f"disque-pipeline: no such job: {id}" for id in (job, letter)]
    node.stop()
    assert main(["job", job, letter, again, "--log", *logs_of(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert other not in out
    lives = dict(zip((job, letter, again), re.split(r"(?m)^D-.*\n", out)[1:], strict=True))
    assert "added to queue q by client 127.0.0.1:" in lives[job]
    assert "delivered to client 127.0.0.1:" in lives[job]
    assert "failed for good" in lives[job]
    assert f"Its dead letter is {letter} in queue graves." in lives[job]
    assert f"It is the dead letter of {job}." in lives[letter]
    assert f"Sent back from the dead letters, it is {again} in queue q." in lives[letter]
    assert "It is with client 127.0.0.1:" in lives[again]


def test_a_life_is_told_without_a_jvm(lived: tuple[LiveNode, list[str]], tmp_path: Path) -> None:
    node, (job, *_) = lived
    node.stop()
    words = ["job", job, "--log", *logs_of(tmp_path)]
    program = (
        "import sys; from disque_spark.pipeline import main; status = main(sys.argv[1:]);"
        " assert 'py4j.java_gateway' not in sys.modules or not __import__('pyspark')"
        ".SparkContext._gateway; sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=ROOT,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path), "JAVA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{job}\n")


def test_mistakes_take_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "logs"
    empty.mkdir()
    for words, status, told in (
        (["job", "D-x"], 2, "--log, --audit or --nodes"),
        (["job", "D-x", "--log", str(empty)], 1, "no such job: D-x"),
        (["job", "D-x", "--log", str(tmp_path / "none")], 1, "no event log at"),
        (["job", "D-x", "--audit", str(empty)], 1, "no audit at"),
        (["job", "D-x", "--nodes", "127.0.0.1:1"], 1, "no node can be reached"),
    ):
        assert main(words) == status
        out, err = capsys.readouterr()
        assert out == ""
        assert told in err
        assert err.count("\n") == 1
    shutil.rmtree(empty)
