"""The command ``disque-pipeline``: what it says, and how it ends."""

import argparse
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disque_spark import pipeline
from disque_spark.archive import Archive
from disque_spark.audit.manifest import Manifest
from disque_spark.leases.queue import QueuePlace
from disque_spark.session import speak_utf8
from packages.spark.tests.support import quick_java
from packages.spark.tests.support.lease_reader import left_at
from packages.spark.tests.support.planted_log import NODES, generate
from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

CLEARED = "\x1b[1A\x1b[2K"  # the progress is gone: up a line, and erase it


class Command:
    """Runs commands in the session of the tests.

    Attributes:
        spark: the session; None: nobody must ask for it.
    """

    def __init__(self, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
        self.spark: SparkSession | None = spark
        self._capsys = capsys
        self.out = ""
        self.err = ""

    def __call__(self, *arguments: str | Path) -> int:
        def session(options: argparse.Namespace) -> SparkSession:
            assert self.spark is not None
            return self.spark

        self._capsys.readouterr()
        status = pipeline.main(list(map(str, arguments)), session)
        self.out, self.err = self._capsys.readouterr()
        return status


def add(node: LiveNode, queue: str, count: int) -> None:
    for n in range(count):
        assert isinstance(node.ask("ADDJOB", queue, f"order {n}", 0, "RETRY", 600), bytes)


@contextmanager
def signal_when(condition: Callable[[], object], number: signal.Signals) -> Iterator[None]:
    """Send this process a signal as soon as it is true, unless the block has ended before."""
    over = threading.Event()

    def wait() -> None:
        wait_until(lambda: over.is_set() or condition())
        if not over.is_set():
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def command(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(spark, capsys)


def test_a_log_becomes_tables_and_a_page(command: Command, tmp_path: Path) -> None:
    planted = generate(tmp_path / "log", 3_000, anomalies=2)
    audit = ("audit", tmp_path / "log", "--output", tmp_path / "audit")
    assert command(*audit) == 0
    assert f"never-delivered: {len(planted['never-delivered', ''])}\n" in command.out
    assert command(*audit, "--check") == 3
    assert command.out.startswith("0 new events in 0 segments")
    assert command("report", tmp_path / "audit") == 0
    assert (tmp_path / "audit" / "report.html").read_text().startswith("<!doctype html>")
    assert command("report", tmp_path / "audit", "--json", tmp_path / "r.json") == 0
    numbers = json.loads((tmp_path / "r.json").read_text())
    assert numbers["findings"]["clock-skew"] == 2
    assert numbers["before"] is None
    # A later version is compared with the one that it replaces, and so is the same one when it is
    # made again.
    assert command(*audit, "--patience", "7") == 0
    for _ in range(2):
        assert command("report", tmp_path / "audit") == 0
        again = json.loads((tmp_path / "audit" / "report.json").read_text())
        assert again["before"]["jobs"] == numbers["jobs"]
    assert "Compared with before" in (tmp_path / "audit" / "report.html").read_text()
    assert (
        command("report", tmp_path / "audit", "--before", tmp_path / "audit" / "report.html") == 1
    )


def test_a_check_of_a_log_without_findings_ends_well(command: Command, tmp_path: Path) -> None:
    generate(tmp_path / "log", 500, anomalies=0, skew=0)
    assert command("audit", tmp_path / "log", "--output", tmp_path / "audit", "--check") == 0
    assert "no findings\n" in command.out
    # Without the log of a node, that is unknown.
    for path in (tmp_path / "log").glob(f"events-{NODES[1][:8]}-*"):
        path.unlink()
    assert command("audit", tmp_path / "log", "--output", tmp_path / "part", "--check") == 3
    missing = f"node {NODES[1]} appears in the logs, but its own log is missing\n"
    assert missing in command.out
    # It was removed for good, which later runs know, too.
    for more in (("--without", NODES[1]), ()):
        command("audit", tmp_path / "log", "--output", tmp_path / "part", *more)
        assert missing not in command.out


def test_a_queue_is_archived_and_replayed(
    command: Command, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    add(node, "orders", 20)
    nodes = ("--nodes", f"127.0.0.1:{node.port}")
    table = tmp_path / "table"
    archive = ("archive", *nodes, "--queue", "orders", "--output", table)
    assert command(*archive, "--available-now") == 0, command.err
    assert command.out == f"20 jobs archived in {table}\n"
    choice = ("replay", *nodes, "--archive", table, "--to-queue", "again")
    where = ("--where", "cast(body as string) = 'order 7'")
    assert command(*choice, *where, "--dry-run") == 0, command.err
    assert command.out == "1 jobs would be added\n  again: 1\n"
    assert node.ask("QLEN", "again") == 0
    assert command(*choice, "--limit", "5", "--rate", "1000") == 0, command.err
    assert node.ask("QLEN", "again") == 5
    # The same five, and the next ones.
    assert command(*choice, "--limit", "10") == 0, command.err
    assert command.out.startswith("10 jobs added\n")
    assert node.ask("QLEN", "again") == 10
    assert command(*choice, "--done", tmp_path / "done") == 0
    assert command.err.startswith("disque-pipeline: --done is only read")
    assert node.ask("QLEN", "again") == 20


def test_explain_prints_the_plan_and_does_nothing(
    command: Command, disque_server: NodeFactory, tmp_path: Path
) -> None:
    generate(tmp_path / "log", 200, anomalies=0)
    audit = ("audit", tmp_path / "log", "--output", tmp_path / "audit")
    assert command(*audit, "--explain") == 0
    assert "Physical Plan" in command.out
    assert not (tmp_path / "audit").exists()
    command(*audit)
    assert command("report", tmp_path / "audit", "--explain") == 0
    assert not (tmp_path / "audit" / "report.html").exists()
    node = disque_server()
    node.ask("ADDJOB", "q", "x", 0)
    nodes = ("--nodes", f"127.0.0.1:{node.port}")
    table = tmp_path / "table"
    assert command("archive", *nodes, "--queue", "q", "--output", table, "--explain") == 0
    assert "Physical Plan" in command.out
    assert not table.exists()
    assert node.ask("QLEN", "q") == 1
    command("archive", *nodes, "--queue", "q", "--output", table, "--available-now")
    assert command("replay", *nodes, "--archive", table, "--explain") == 0
    assert "Physical Plan" in command.out
    assert node.ask("QLEN", "q") == 0


def test_impossible_arguments_are_reported_in_one_line_before_spark_starts(
    command: Command, tmp_path: Path
) -> None:
    nowhere, file, full = tmp_path / "nowhere", tmp_path / "file", tmp_path / "audit"
    file.touch()
    log = tmp_path / "log"
    log.mkdir()
    put_audit(full)
    command.spark = None
    once = ("archive", "--available-now")
    for words, status, told in (
        (("audit", nowhere, "--output", full), 1, nowhere),
        (("audit", log, nowhere, "--output", full), 1, nowhere),
        (("audit", log, "--output", file), 1, file),
        (("audit", log, "--output", file / "below"), 1, file),
        (("report", nowhere), 1, nowhere),
        (("report", full, "--html", log), 1, log),
        (("archive", "--queue", "q", "--output", file), 1, file),
        (("archive", "--queue", "q", "--output", log, "--nodes", "a:b"), 2, "--nodes"),
        ((*once, "--queue", "q", "--output", log, "--nodes", "127.0.0.1:1"), 1, ":1: "),
        (("archive", "--queue", "q,", "--queue", "r", "--output", log), 2, "--queue"),
        (("replay",), 2, "--archive"),
        (("replay", "--archive", nowhere), 1, nowhere),
        (("replay", "--archive", log, "--audit", nowhere), 1, nowhere),
        (("replay", "--aof", nowhere), 1, nowhere),
        (("replay", "--archive", log, "--nodes", "127.0.0.1:1"), 1, ":1: "),
        (("replay", "--archive", log, "--done", log / "[a]"), 2, "--done"),
    ):
        assert command(*words) == status, words
        assert str(told) in command.err
        assert command.err.count("\n") == 1
    assert list(log.iterdir()) == []


def test_arguments_that_spark_would_misread_are_refused(command: Command, tmp_path: Path) -> None:
    """Patterns of paths, names of partitions, and what an archive depends on."""
    log = tmp_path / "log"
    log.mkdir()
    audit = tmp_path / "o[1]"
    put_audit(audit)
    command.spark = None
    archive = ("archive", "--output", tmp_path / "table", "--queue")
    several = (*archive, "q", "--queue")
    for words, told in (
        *((("audit", log, "--output", tmp_path / f"a{c}b"), c) for c in "[]{}*?\\"),
        (("report", audit), "["),
        (("report", log, "--master", "bogus"), "--master bogus"),
        (("replay", "--archive", audit), "--archive"),
        (("replay", "--archive", log, "--audit", audit), "--audit"),
        (("archive", "--output", tmp_path / "t*", "--queue", "q"), "--output"),
        ((*archive, "q", "--option", "CHECKPOINTLOCATION=/tmp/x"), "CHECKPOINTLOCATION"),
        ((*archive, ""), "''"),
        ((*archive, "__HIVE_DEFAULT_PARTITION__"), "__HIVE"),
        ((*archive, "\udcff"), "UTF-8"),
        ((*archive, "q" * 250), "too long"),
        ((*archive, "ä" * 125), "too long"),
        ((*archive, ":" * 84), "too long"),
        ((*several, " r"), "' r'"),
        ((*several, "r\n"), "'r\\n'"),
    ):
        assert command(*words) == 2, words
        assert told in command.err
        assert command.err.count("\n") == 1
    # The longest allowed name, and a space where there is no list: the next error is that there is
    # no node.
    for queue in ("q" * 249, ":" * 83, " r "):
        assert command(*archive, queue, "--nodes", "127.0.0.1:1", "--available-now") == 1
        assert ":1: " in command.err


def test_the_directory_for_leases_of_earlier_releases_is_refused(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.spark = None
    with pytest.raises(SystemExit):
        command("archive", "--queue", "q", "--output", tmp_path, "--lease-directory", "/tmp/x")
    assert "--lease-directory: leases are in Disque now" in capsys.readouterr().err


class Threw(ValueError):
    """Like errors of Java: only the JVM knows the text."""

    alive = True

    def __str__(self) -> str:
        if not self.alive:
            raise ConnectionRefusedError
        return "too little memory"


def put_audit(directory: Path) -> None:
    """Make a directory look like that of an audit, without tables."""
    manifests = directory / "manifests"
    manifests.mkdir(parents=True)
    (manifests / "000001.json").write_text(Manifest(version=1).text())


def test_why_spark_does_not_start_is_asked_before_its_jvm_is_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Threw()

    def session(master: str | None, settings: list[str], remote: str | None) -> SparkSession:
        raise failure

    def end_java() -> int:
        failure.alive = False
        return 0

    monkeypatch.setattr("disque_spark.session.session", session)
    monkeypatch.setattr("disque_spark.classic.end_java", end_java)
    (tmp_path / "log").mkdir()
    words = ["audit", str(tmp_path / "log"), "--output", str(tmp_path / "audit")]
    words += ["--engine", "spark"]
    assert pipeline.main(words) == 1
    assert capsys.readouterr().err == "disque-pipeline: too little memory\n"
    # A JVM that had ended by itself.
    assert pipeline.main(words) == 1
    assert capsys.readouterr().err == "disque-pipeline: Threw\n"


@pytest.mark.parametrize(
    ("before", "changed"),
    [
        ({}, True),
        ({"LC_ALL": "C", "LANG": "C.UTF-8"}, True),
        ({"LC_CTYPE": "POSIX"}, True),
        ({"LC_ALL": "", "LANG": "de_DE.ISO-8859-1"}, True),
        ({"LANG": "de_DE.utf8"}, False),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, False),
    ],
)
def test_a_jvm_names_files_in_utf_8(before: dict[str, str], changed: bool) -> None:
    environment = dict(before)
    speak_utf8(environment)
    assert environment == (before | {"LC_ALL": "C.UTF-8"} if changed else before)


def test_a_node_that_requires_a_password_is_reported(
    command: Command, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server("--requirepass", "secret")
    command.spark = None
    archive = ("archive", "--nodes", f"127.0.0.1:{node.port}", "--queue", "q", "--output", tmp_path)
    for password, told in (((), "NOAUTH"), (("--password", "wrong"), "invalid password")):
        assert command(*archive, *password) == 2
        assert told in command.err
        assert "secret" not in command.err


def test_two_archives_do_not_write_to_one_table(
    command: Command, disque_server: NodeFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = disque_server()
    command.spark = None
    nodes = ("--nodes", f"127.0.0.1:{node.port}")
    first = Archive([f"127.0.0.1:{node.port}"], ["q"], tmp_path / "table")
    with closing(first.leases().open()):
        monkeypatch.setattr(QueuePlace.open, "__defaults__", (0.0,))
        assert command("archive", *nodes, "--queue", "q", "--output", tmp_path / "table") == 1
    assert "in use" in command.err
    assert command.err.count("\n") == 1


def test_input_that_spark_cannot_read_is_reported_in_one_line(
    command: Command, spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    rows = [("1", "q", b"x")]
    spark.createDataFrame(rows, "id string, queue string, body binary").write.parquet(str(table))
    other = tmp_path / "other"
    spark.createDataFrame([(1,)], "id int").write.parquet(str(other))
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "x.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "half.aof").write_bytes(b"*2\r\n$7\r\nLOADJOB")
    for choice, where, told in (
        (("--archive", table), "colour = 'red'", "colour"),
        (("--archive", table), "id = = 2", "Syntax error"),
        (("--archive", table), "body", "body"),
        (("--archive", other), "true", "id"),
        (("--archive", tmp_path / "empty"), "true", "empty"),
        (("--archive", tmp_path / "half"), "true", "x.parquet"),
        (("--archive", table, "--audit", tmp_path), "true", "no audit"),
    ):
        assert command("replay", *choice, "--where", where, "--dry-run") == 1, choice
        assert told in command.err
        assert command.err.count("\n") == 1, command.err
        assert len(command.err) < 700


def test_a_continuous_archive_ends_cleanly_when_it_is_terminated(
    command: Command, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    add(node, "q", 20)
    table = tmp_path / "table"
    nodes = ("--nodes", f"127.0.0.1:{node.port}")
    with signal_when(lambda: any(table.glob("queue=q/*/*.parquet")), signal.SIGTERM):
        status = command("archive", *nodes, "--queue", "q", "--output", table)
    assert (status, command.err) == (0, "")
    assert command.out == f"20 jobs archived in {table}\n"
    assert left_at(node) == []


def test_a_replay_that_is_interrupted_adds_the_rest_later(
    command: Command, spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    """In a separate process, with a JVM that ends with it."""
    node = disque_server()
    table = tmp_path / "table"
    rows = [(f"{n}", "q", b"x") for n in range(1000)]
    spark.createDataFrame(rows, "id string, queue string, body binary").write.parquet(str(table))
    replay = ("replay", "--archive", table, "--nodes", f"127.0.0.1:{node.port}")
    small = ("--master", "local[1]", "--conf", "spark.driver.memory=512m", *quick_java.WORDS)
    with subprocess.Popen(
        [sys.executable, "-m", "disque_spark.pipeline", *replay, *small, "--rate", "50"],
        cwd=ROOT,
        env={**os.environ, **quick_java.ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: node.ask("QLEN", "q") or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "disque-pipeline: stopped by SIGINT"
    assert "Traceback" not in err
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert out == ""
    assert 0 < int(str(node.ask("QLEN", "q"))) < 1000
    assert command(*replay) == 0
    assert command.out.startswith("1000 jobs added\n")
    assert node.ask("QLEN", "q") == 1000


def test_a_terminal_shows_the_progress(
    command: Command,
    disque_server: NodeFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = disque_server()
    add(node, "q", 3)
    table = tmp_path / "table"
    master, slave = pty.openpty()
    with open(slave, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        nodes = ("--nodes", f"127.0.0.1:{node.port}")
        command("archive", *nodes, "--queue", "q", "--output", table, "--available-now")
        monkeypatch.undo()
        seen = ""
        while not seen.endswith(CLEARED):  # a terminal passes on its input in its own time
            assert select.select([master], [], [], HANG_SECONDS)[0], seen
            seen += os.read(master, 100_000).decode()
    os.close(master)
    lines = re.split(r"[\r\n]", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", seen))
    assert any(line.strip().endswith("batch 0: 3 jobs") for line in lines)
    assert all(len(line) <= 80 for line in lines)
    assert lines[-1].strip() == ""


@pytest.mark.parametrize(
    "words",
    [
        "",
        "audit",
        "audit log",
        "audit log --output x --settled -1",
        "audit log --output x --poison few",
        "audit log --output x --conf spark.x",
        "archive --queue q --output x --option fetch",
        "archive --output x",
        "archive --queue q --output x --max-jobs 0",
        "archive --queue q --output x --seconds -1",
        "archive --queue q --output x --format csv",
        "replay --archive x --rate 0",
        "replay --archive x --rate nan",
        "replay --archive x --limit -1",
    ],
)
def test_wrong_arguments_are_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline.main(words.split())
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
