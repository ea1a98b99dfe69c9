"""The producers and workers of ``examples/`` in other languages, with real nodes."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.support.examples import REQUIRED, command_of, need
from tests.support.harness import (
    HANG_SECONDS,
    ClusterFactory,
    LiveNode,
    NodeFactory,
    start_process,
    wait_for_ping,
    wait_until,
)
from tests.support.live_helpers import info_value
from tests.support.lossy_proxy import LossyProxy

EXAMPLES = (
    "node/node-redis.js",
    "node/ioredis.js",
    "node/disqueue-node.js",
    "php/jobs.php",
    "ruby/jobs.rb",
    "shell/jobs.sh",
    "c/jobs.c",
    "go/jobs.go",
)


class Worker:
    """A worker of an example, in its own process group.

    Attributes:
        lines: what it has printed. process: the process.
    """

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def printed(self, line: str) -> None:
        """Wait until it has printed ``line``."""
        wait_until(lambda: line in self.lines)

    def stop(self) -> int:
        """Send SIGTERM; return the exit status once all output has been read."""
        self.process.terminate()
        self._reader.join(HANG_SECONDS)
        return self.process.wait(HANG_SECONDS)

    def close(self) -> None:
        """Kill it and its children."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(HANG_SECONDS)
        self._reader.join(HANG_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Example:
    """An example: the producer and the worker.

    Args:
        command: how it is run.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._workers: list[Worker] = []

    @staticmethod
    def _environment(
        nodes: Iterable[LiveNode | LossyProxy], password: str | None
    ) -> dict[str, str]:
        # Nothing listens on the first port.
        places = {
            "DISQUE_NODES": " ".join(["127.0.0.1:1", *(f"{one.host}:{one.port}" for one in nodes)])
        }
        if password is not None:
            places["DISQUE_PASSWORD"] = password
        return {**os.environ, **places}

    def add(
        self, queue: str, *bodies: str, node: LiveNode | LossyProxy, password: str | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run the producer to its end."""
        return subprocess.run(
            [*self._command, "add", queue, *bodies],
            env=self._environment((node,), password),
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )

    def work(self, queue: str, *nodes: LiveNode) -> Worker:
        """Start a worker."""
        worker = Worker([*self._command, "work", queue], self._environment(nodes, None))
        self._workers.append(worker)
        return worker

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The commands of each example; each is compiled once."""
    known: dict[str, list[str]] = {}

    def find(example: str) -> list[str]:
        need(example.split("/")[0])
        if example not in known:
            known[example] = command_of(example, tmp_path_factory.mktemp("example"))
        return known[example]

    return find


# `make test` has little time.
@pytest.fixture(params=EXAMPLES if REQUIRED else ["shell/jobs.sh"])
def example(
    request: pytest.FixtureRequest, commands: Callable[[str], list[str]]
) -> Iterator[Example]:
    example = Example(commands(request.param))
    yield example
    example.close()


def waits(node: LiveNode) -> Callable[[], bool]:
    """Return whether a client waits for a job at ``node``."""
    return lambda: info_value(node, "clients", "blocked_clients") > 0


@pytest.mark.parametrize("example", EXAMPLES, indirect=True)
def test_each_job_is_done_once_and_what_failed_is_tried_again(
    shared_node: LiveNode, example: Example
) -> None:
    bodies = [*(f"mail {number}" for number in range(20)), "fail", "grüße"]
    added = example.add("q", *bodies, node=shared_node)
    assert added.returncode == 0, added.stderr
    assert len(set(added.stdout.split())) == len(bodies)
    worker = example.work("q", shared_node)
    for body in bodies:
        worker.printed(f"done {body}")
    assert worker.stop() == 0
    assert sorted(line for line in worker.lines if line.startswith("done")) == sorted(
        f"done {body}" for body in bodies
    )
    assert "took fail (nacks 1, again 0)" in worker.lines
    assert shared_node.ask("JSCAN") == [b"0", []]


def test_a_job_in_hand_is_kept_and_given_to_another_worker_when_this_one_is_killed(
    shared_node: LiveNode, example: Example
) -> None:
    id = shared_node.ask("ADDJOB", "q", "sleep 60", 0, "RETRY", 2)
    assert isinstance(id, bytes)
    monitor = shared_node.wire()
    assert monitor("MONITOR") == b"OK"
    first = example.work("q", shared_node)
    working = b'"WORKING" "%b"' % id
    for _ in range(3):
        while working not in _line(monitor.read()):
            pass
    first.process.kill()
    second = example.work("q", shared_node)
    wait_until(lambda: second.lines)
    assert second.lines[0].startswith("took sleep 60 (nacks 0, again ")


def _line(reply: object) -> bytes:
    assert isinstance(reply, bytes)
    return reply


def test_the_job_in_hand_is_done_after_sigterm(shared_node: LiveNode, example: Example) -> None:
    ids: list[Any] = [
        shared_node.ask("ADDJOB", "q", body, 0, "RETRY", 60) for body in ("sleep 1", "next")
    ]
    worker = example.work("q", shared_node)
    worker.printed("took sleep 1 (nacks 0, again 0)")
    assert worker.stop() == 0
    assert worker.lines[1:] == ["done sleep 1"]
    assert shared_node.ask("JSCAN") == [b"0", ids[1:]]


def test_a_connection_that_breaks_is_made_again(
    disque_server: NodeFactory, example: Example
) -> None:
    node = disque_server("--appendonly", "yes")
    worker = example.work("q", node)
    wait_until(waits(node))
    assert node.ask("CLIENT", "KILL", "TYPE", "normal")
    node.ask("ADDJOB", "q", "sleep 1", 0)
    worker.printed("took sleep 1 (nacks 0, again 0)")
    node.kill()
    options = ("--port", str(node.port), "--bind", node.host, "--appendonly", "yes")
    again = start_process(node.directory, node.port, *options)
    try:
        assert wait_for_ping(again)
        worker.printed("done sleep 1")
        assert again.ask("JSCAN") == [b"0", []]
    finally:
        again.close()


def test_workers_go_to_another_node_when_one_is_leaving_or_killed(
    cluster: ClusterFactory, example: Example
) -> None:
    one, two = cluster(2)
    worker = example.work("q", one, two)
    wait_until(waits(one))
    assert one.ask("CLUSTER", "LEAVING", "yes") == b"OK"
    wait_until(waits(two))
    assert one.ask("CLUSTER", "LEAVING", "no") == b"OK"
    two.kill()
    wait_until(waits(one))
    one.ask("ADDJOB", "q", "last", 0, "REPLICATE", 1)
    worker.printed("done last")


def test_a_producer_whose_replies_are_lost_adds_each_job_once(
    shared_node: LiveNode, example: Example
) -> None:
    way = LossyProxy(shared_node, losses=2)
    try:
        added = example.add("q", "one", "two", node=way)
    finally:
        way.close()
    assert added.returncode == 0, added.stderr
    assert way.losses == 0
    jobs: Any = shared_node.ask("QPEEK", "q", 9)
    assert [(id.decode(), body) for _, id, body in jobs] == list(
        zip(added.stdout.split(), [b"one", b"two"], strict=True)
    )


def test_a_wrong_password_is_told(disque_server: NodeFactory, example: Example) -> None:
    node = disque_server("--requirepass", "secret")
    for password in (None, "wrong"):
        refused = example.add("q", "body", node=node, password=password)
        assert refused.returncode == 1
        assert any(word in refused.stderr for word in ("NOAUTH", "WRONGPASS", "invalid password"))
    if "disqueue-node" not in str(example._command):
        assert example.add("q", "body", node=node, password="secret").returncode == 0
