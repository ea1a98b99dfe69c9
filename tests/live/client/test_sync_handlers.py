"""Handlers in threads that end more than their job, against a real node."""

import sys

import pytest

from disque_trio.client import ConnectionLost
from disque_trio.client.sync import HeldJob, connect
from tests.support.harness import HANG_SECONDS, LiveNode


def exits(job: HeldJob) -> None:
    sys.exit(3)


@pytest.mark.parametrize("method", ["work", "serve"])
def test_a_handler_that_exits_ends_only_its_loop(shared_node: LiveNode, method: str) -> None:
    run = {
        "work": lambda client: client.work(exits, "q", concurrency=2),
        "serve": lambda client: client.serve("q", exits, concurrency=2),
    }[method]
    with connect(f"{shared_node.host}:{shared_node.port}") as client:
        client.add("q", "x", retry=3600)
        with pytest.raises(SystemExit) as caught:
            run(client)
        assert caught.value.code == 3
        assert client.qlen("q") == 1


def test_a_handler_can_close_its_client(shared_node: LiveNode) -> None:
    address = f"{shared_node.host}:{shared_node.port}"
    with connect(address) as client, connect(address) as other:

        def handler(job: HeldJob) -> None:
            client.close()

        id = other.add("q", "x", retry=3600)
        with pytest.raises(ConnectionLost, match="closed"):
            client.work(handler, "q")
        [outcome] = other.wait(id, timeout=HANG_SECONDS)
        assert outcome.state == "acked"
