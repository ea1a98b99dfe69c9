"""Fixtures that all tests share."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before the imports of it.
pytest.register_assert_rewrite("tests.support")

from tests.support.harness import (  # noqa: E402
    ClusterFactory,
    LiveNode,
    NodeFactory,
    Wire,
    free_port,
    join,
    start_process,
    wait_for_ping,
    wait_until,
)

__all__ = ["LiveNode", "NodeFactory", "Wire", "free_port", "wait_until"]

# A shell starts what is in the background with SIGINT ignored, nohup with SIGHUP, and so would be
# what tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine is no failure; and a failure prints how to repeat it.
settings.register_profile(
    "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("busy")


# One Spark takes half a gigabyte and ten seconds to start, so there are two at a time at most: the
# session that tests share, and those that these start.
OWN_SPARKS = ("test_crash.py", "test_pipeline.py", "test_submit.py")

NODE_TIMEOUT = "3000"  # ms; short, but not for a machine that is busy with other tests


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say what stays in one process where several share the tests: what uses a fixture of its
    module, which is set up once, and what uses a Spark."""
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
        if "spark" in fixtures:
            group = "spark"
        elif item.path.parent.name == "spark" and item.path.name in OWN_SPARKS:
            group = "own-sparks"
        elif any(one.scope == "module" for found in fixtures.values() for one in found):
            group = f"{item.path.parent.name}-{item.path.stem}"
        else:
            continue
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish() -> None:
    """Let the collector of garbage not look through all tests again and again."""
    gc.freeze()


@pytest.fixture
def disque_server(tmp_path: Path) -> Iterator[NodeFactory]:
    """Starts nodes: ``disque_server("--hz", "100")``. They end with the test. A node works in
    ``tmp_path``, or while another one does in a directory of its own, unless ``cwd`` is given."""
    nodes: list[LiveNode] = []

    def start(*args: str, cwd: Path | None = None) -> LiveNode:
        busy = {node.directory for node in nodes if node.process.poll() is None}
        own = tmp_path / f"node-{len(nodes) + 1}"
        directory = cwd or (own if tmp_path in busy else tmp_path)
        directory.mkdir(exist_ok=True)
        file = list(args[:1]) if args and not args[0].startswith("--") else []
        rest = args[len(file) :]
        for _ in range(5):
            port = free_port()
            node = start_process(
                directory, port, *file, "--port", str(port), "--bind", "127.0.0.1", *rest
            )
            if wait_for_ping(node):
                nodes.append(node)
                return node
            if "cannot start" not in node.log.read_text():
                break
        raise RuntimeError(f"the node did not start: {node.log.read_text()}")

    yield start
    for node in nodes:
        node.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterFactory]:
    """Starts nodes that are one cluster: ``cluster(3, "--appendonly", "yes")``. Each is connected
    to each when they are given back; they end with the test."""
    started: list[LiveNode] = []

    def launch(directory: Path, args: tuple[str, ...]) -> LiveNode:
        port = free_port()
        options = ["--port", str(port), "--bind", "127.0.0.1"]
        options += ["--cluster-node-timeout", NODE_TIMEOUT, *args]
        return start_process(directory, port, *options)

    def start(count: int, *args: str) -> list[LiveNode]:
        directories = [tmp_path / f"member-{len(started) + n}" for n in range(count)]
        for directory in directories:
            directory.mkdir()
        nodes = [launch(directory, args) for directory in directories]
        for n, node in enumerate(nodes):
            while not wait_for_ping(node):
                # Somebody else was faster to take one of its ports.
                log = node.log.read_text()
                if "in use" not in log:
                    raise RuntimeError(f"the node did not start: {log}")
                node = nodes[n] = launch(directories[n], args)
            started.append(node)
        join(nodes)
        return nodes

    yield start
    for node in started:
        node.close()


@pytest.fixture
def node(disque_server: NodeFactory) -> LiveNode:
    """One node with default settings."""
    return disque_server()


@pytest.fixture
def wire(node: LiveNode) -> Wire:
    """A connection to ``node``."""
    return node.wire()
