"""Fixtures that all tests share."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import LiveNode, NodeFactory, Wire, free_port, wait_for_ping, wait_until

__all__ = ["LiveNode", "NodeFactory", "Wire", "free_port", "wait_until"]


@pytest.fixture
def disque_server(tmp_path: Path) -> Iterator[NodeFactory]:
    """Starts nodes: ``disque_server("--hz", "100")``. They end with the test."""
    nodes: list[LiveNode] = []

    def start(*args: str, cwd: Path | None = None) -> LiveNode:
        for _ in range(5):
            port = free_port()
            log = tmp_path / f"node-{port}.log"
            command = [sys.executable, "-m", "disque_trio.server"]
            if args and not args[0].startswith("--"):
                command.append(args[0])
                rest = args[1:]
            else:
                rest = args
            command += ["--port", str(port), "--bind", "127.0.0.1", *rest]
            with log.open("wb") as output:
                process = subprocess.Popen(
                    command, cwd=cwd or tmp_path, stdout=output, stderr=subprocess.STDOUT
                )
            node = LiveNode(port, process, log)
            if wait_for_ping(node):
                nodes.append(node)
                return node
            if "cannot start" not in log.read_text():
                break
        raise RuntimeError(f"the node did not start: {log.read_text()}")

    yield start
    for node in nodes:
        node.close()


@pytest.fixture
def node(disque_server: NodeFactory) -> LiveNode:
    """One node with default settings."""
    return disque_server()


@pytest.fixture
def wire(node: LiveNode) -> Wire:
    """A connection to ``node``."""
    return node.wire()
