"""docs/clients.md: its snippets run, and its settings have the documented effects."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support import ROOT
from tests.support.examples import EXAMPLES, need
from tests.support.harness import HANG_SECONDS, LiveNode
from tests.support.live_helpers import pairs
from tests.support.lossy_proxy import LossyProxy

PAGE = (ROOT / "docs" / "clients.md").read_text()
# How the snippet below a heading is run, and whether its client repeats commands without a reply.
PROGRAMS = {
    "Python: pydisque": ([sys.executable], "", "py", True),
    "JavaScript: ioredis": (["node"], "node", "mjs", True),
    "JavaScript: node-redis": (["node"], "node", "mjs", False),
    "PHP: phpredis": (["php"], "php", "php", False),
    "Ruby: redis-rb": (["ruby"], "ruby", "rb", True),
    "Shell: redis-cli": (["bash", "-e", "-o", "pipefail"], "shell", "sh", False),
}


def snippets(heading: str) -> list[str]:
    """Return the programs below a heading of the page."""
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def added(node: LiveNode, queue: str = "greetings") -> object:
    """Return how many jobs have entered a queue."""
    stat = node.ask("QSTAT", queue)
    return 0 if stat is None else pairs(stat)["jobs-in"]


@pytest.fixture
def lossy(shared_node: LiveNode) -> Iterator[Callable[[int], LossyProxy]]:
    """A proxy to the node that loses this many replies to ADDJOB."""
    proxies: list[LossyProxy] = []

    def start(losses: int) -> LossyProxy:
        proxies.append(LossyProxy(shared_node, losses))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs the snippet below a heading with a port instead of 7711, or only its worker."""

    def start(heading: str, port: int, adds: bool = True) -> "subprocess.CompletedProcess[str]":
        command, language, suffix, _ = PROGRAMS[heading]
        if language:
            need(language)
        [program] = snippets(heading)
        if not adds:
            program = re.sub("^.*ADDJOB.*\n", "", program, flags=re.MULTILINE)
            program = program.replace("2000", "200")
        file = tmp_path / f"snippet.{suffix}"
        file.write_text(program.replace("7711", str(port)))
        if language == "node":
            (tmp_path / "node_modules").symlink_to(EXAMPLES / "node" / "node_modules")
        return subprocess.run(
            [*command, str(file)],
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )

    return start


def test_the_snippets_for_redis_py_run_as_they_are(
    shared_node: LiveNode, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    for snippet in snippets("Python: redis-py"):
        exec(snippet.replace("7711", str(shared_node.port)), names)
    lines = capsys.readouterr().out.split("\n")[:-1]
    greetings = [*(f"hello {n}" for n in range(100)), "hello", "hello once", "hello pushed"]
    assert sorted(lines) == sorted(greetings)
    assert shared_node.ask("JSCAN") == [b"0", []]
    names["pushes"].disconnect()
    for name in ("node", "careful", "worker", "consumer"):
        names[name].close()


@pytest.mark.parametrize("heading", PROGRAMS)
def test_each_snippet_adds_a_job_and_does_it(
    shared_node: LiveNode, run: Callable[..., Any], heading: str
) -> None:
    done = run(heading, shared_node.port)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert added(shared_node) == 1
    assert shared_node.ask("JSCAN") == [b"0", []]


@pytest.mark.parametrize("heading", PROGRAMS)
def test_a_snippet_whose_reply_is_lost_adds_one_job(
    shared_node: LiveNode,
    lossy: Callable[[int], LossyProxy],
    run: Callable[..., Any],
    heading: str,
) -> None:
    way = lossy(2)
    done = run(heading, way.port)
    again = PROGRAMS[heading][3]
    assert (done.returncode == 0) == again, done.stderr
    assert done.stdout == ("hello\n" if again else "")
    assert way.losses == (0 if again else 1)
    assert added(shared_node) == 1


@pytest.mark.parametrize("heading", [name for name in PROGRAMS if "redis-cli" not in name])
def test_a_snippet_waits_on_one_connection(
    lossy: Callable[[int], LossyProxy], run: Callable[..., Any], heading: str
) -> None:
    way = lossy(0)
    done = run(heading, way.port, adds=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    # pydisque sends HELLO on its first connection, and only then learns how long to wait.
    assert way.connections == (2 if "pydisque" in heading else 1)


def test_a_producer_of_redis_py_whose_replies_are_lost_adds_one_job(
    shared_node: LiveNode, lossy: Callable[[int], LossyProxy]
) -> None:
    way = lossy(2)
    producer, *_ = snippets("Python: redis-py")
    names: dict[str, Any] = {}
    exec(producer.replace("7711", str(way.port)), names)
    names["node"].close()
    assert way.losses == 0
    assert shared_node.ask("QPEEK", "greetings", 9) == [[b"greetings", names["id"], b"hello"]]


def test_without_a_key_redis_py_adds_as_many_as_it_sends(
    shared_node: LiveNode, lossy: Callable[[int], LossyProxy]
) -> None:
    way = lossy(2)
    with redis.Redis(port=way.port) as client:
        client.execute_command("ADDJOB", "greetings", "hello", 5000)
    assert added(shared_node) == 3


@pytest.mark.parametrize("retry", [None, Retry(NoBackoff(), 0)], ids=["none", "zero"])
def test_without_retries_a_lost_reply_is_an_error_and_one_job(
    shared_node: LiveNode, lossy: Callable[[int], LossyProxy], retry: Retry | None
) -> None:
    options: dict[str, Any] = {"retry": retry}
    with (
        redis.Redis(port=lossy(9).port, **options) as client,
        pytest.raises(redis.ConnectionError),
    ):
        client.execute_command("ADDJOB", "lossy", "body", 0)
    assert added(shared_node, "lossy") == 1


@pytest.mark.parametrize("limit", [None, 20])
def test_a_wait_within_the_limit_of_redis_py_takes_one_connection(
    lossy: Callable[[int], LossyProxy], limit: float | None
) -> None:
    way = lossy(0)
    with redis.Redis(port=way.port, socket_timeout=limit) as client:
        assert client.execute_command("GETJOB", "TIMEOUT", 300, "FROM", "q") is None
    assert way.connections == 1


def test_a_wait_beyond_the_limit_of_redis_py_begins_again_and_fails(
    lossy: Callable[[int], LossyProxy],
) -> None:
    way = lossy(0)
    with (
        redis.Redis(port=way.port, socket_timeout=0.2, retry=Retry(NoBackoff(), 2)) as client,
        pytest.raises(redis.TimeoutError),
    ):
        client.execute_command("GETJOB", "FROM", "q")
    assert way.connections == 3


def test_the_options_of_a_url_are_those_of_the_client() -> None:
    [url] = re.findall(r"`(redis://[^`]*socket_timeout[^`]*)`", PAGE)
    with redis.Redis.from_url(url) as client:
        options = client.connection_pool.connection_kwargs
    assert (options["port"], options["socket_timeout"]) == (7711, 20)
