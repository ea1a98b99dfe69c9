"""The example of docs/jobs.md: workers crash, the producer repeats, a node is killed, and no mail
is lost or added twice."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, wait_until
from tests.support.live_cluster import LiveCluster, live_cluster
from tests.support.live_helpers import pairs

COUNT = 9
BROKEN = {f"mail {n}" for n in range(3, COUNT + 1, 3)}
ALL = {f"mail {n}" for n in range(1, COUNT + 1)}


class Program:
    """``examples/mails/mails.py``, with the nodes of the test.

    Args:
        cluster: the nodes.
        directory: for the program and its output.
    """

    def __init__(self, cluster: LiveCluster, directory: Path) -> None:
        self._path = directory / "mails.py"
        self._out = directory / "out"
        self._out.touch()
        text = (ROOT / "examples" / "mails" / "mails.py").read_text()
        for node, port in zip(cluster, ("7711", "7712", "7713"), strict=True):
            assert text.count(port) == 1
            text = text.replace(port, str(node.port))
        self._path.write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the program with ``arguments``."""
        with self._out.open("ab") as out:
            return subprocess.Popen([sys.executable, self._path, *arguments], stdout=out)

    def add(self, count: int) -> dict[str, str]:
        """Have the producer add ``count`` mails, each twice; return the IDs by mail."""
        command = [sys.executable, self._path, "add", str(count)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=HANG_SECONDS)
        ids = {}
        for number, line in enumerate(done.stdout.decode().splitlines(), 1):
            first, again = line.split()
            assert first == again
            ids[f"mail {number}"] = first
        return ids

    def sent(self) -> dict[str, set[str]]:
        """Return the IDs of the jobs that have sent each mail so far, by mail."""
        found: dict[str, set[str]] = {}
        for mail, id in re.findall(r"^sent (.*) as (.*)\n", self._out.read_text(), re.MULTILINE):
            found.setdefault(mail, set()).add(id)
        return found


class Worker:
    """A worker that is restarted each time it has crashed.

    Attributes:
        crashes: the number of crashes.
    """

    def __init__(self, program: Program, *options: str) -> None:
        self._program = program
        self._options = options
        self._process = program.start("send", *options)
        self.crashes = 0

    def look(self) -> None:
        """Restart it if it has crashed."""
        if (status := self._process.poll()) is not None:
            assert status == -9
            self.crashes += 1
            self._process = self._program.start("send", *self._options)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(HANG_SECONDS)


@contextmanager
def working(program: Program, *options: str) -> Iterator[list[Worker]]:
    workers = [Worker(program, *options) for _ in range(2)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path, 3, "--appendonly", "yes") as found:
        yield found


def letters(cluster: LiveCluster) -> dict[str, dict[str, object]]:
    """Return the SHOW fields of the dead letters queued on any node, by mail."""
    found = {}
    for node in cluster.running():
        jobs = node.ask("QPEEK", "mails.dead", 100)
        assert isinstance(jobs, list)
        for _, id, body in jobs:
            if (shown := node.ask("SHOW", id)) is not None:
                found[body.decode()] = pairs(shown)
    return found


def test_every_mail_is_sent_or_a_dead_letter_and_none_is_added_twice(
    cluster: LiveCluster, tmp_path: Path
) -> None:
    policy = ("ATTEMPTS", 3, "BACKOFF", "0.1", "0.4", "DEAD", "mails.dead")
    wait_until(
        lambda: cluster[0].ask("QSET", "mails", *policy, "RETRY", 1, "REPLICATE", 2) == b"OK"
    )
    for node in cluster:
        wait_until(lambda node=node: node.ask("QGET", "mails") is not None)
    program = Program(cluster, tmp_path)
    ids = program.add(COUNT // 2)
    with working(program) as workers:

        def worked(condition: object) -> bool:
            for worker in workers:
                worker.look()
            return bool(condition)

        wait_until(lambda: worked(program.sent() and sum(w.crashes for w in workers)))
        cluster[0].kill()
        more = program.add(COUNT)
        assert ids.items() <= more.items()
        cluster[0].start()
        wait_until(lambda: worked({*program.sent(), *letters(cluster)} >= ALL))
        # Each gets three deliveries. One in progress when the node was killed counts, but crashes
        # no worker; and the last dead letter may appear before its worker has exited.
        wait_until(lambda: worked(sum(one.crashes for one in workers) >= 2 * len(BROKEN)))

    assert program.sent() == {mail: {more[mail]} for mail in ALL - BROKEN}
    dead = letters(cluster)
    assert dead.keys() == BROKEN
    for mail, letter in dead.items():
        assert letter["first-id"] == more[mail].encode()
        assert (letter["dead-from"], letter["dead-why"]) == (b"mails", b"attempts")
        assert int(str(letter["dead-attempts"])) >= 3
    assert program.add(COUNT) == more

    cluster.wait_joined()
    assert cluster[1].ask("REDRIVE", "mails.dead") == len(BROKEN)
    with working(program, "--fixed"):
        wait_until(lambda: {*program.sent()} >= ALL)
        cluster.wait_empty()
    assert letters(cluster) == {}
    assert program.add(COUNT) == more
    assert [node.ask("QLEN", "mails") for node in cluster] == [0, 0, 0]
