"""Clients that name their connections, and nodes that refuse the name."""

import pytest

from disque_integrations.express import Express
from disque_spark.client import BlockingClient
from disque_trio.client import connect
from disque_trio.client.sync import connect as connect_sync
from disque_trio.client.urls import Cluster
from disque_trio.respclient.login import Login
from tests.support.harness import LiveNode, NodeFactory
from tests.support.live_helpers import client_lines
from tests.support.loops import on_both


def named(node: LiveNode, name: str) -> int:
    """Return how many connections of a node have this name."""
    wire = node.wire()
    try:
        return sum(line["name"] == name for line in client_lines(wire))
    finally:
        wire.close()


@on_both
async def test_all_connections_of_a_client_have_its_name(shared_node: LiveNode) -> None:
    at = f"127.0.0.1:{shared_node.port}"
    wire = shared_node.wire()
    others = {line["id"] for line in client_lines(wire)}
    async with connect(at, client_name="shop") as client:
        assert named(shared_node, "shop") == 1
        await client.add("q", "x", retry=10)
        async with client.jobs("q") as jobs:
            async for job in jobs:
                assert job.body == b"x"
                break
        names = [line["name"] for line in client_lines(wire) if line["id"] not in others]
        assert len(names) > 1
        assert set(names) == {"shop"}
    async with connect(f"disque://{at}?client_name=from%2Durl", client_name="shop"):
        assert named(shared_node, "from-url") == 1


def test_clients_for_threads_and_for_spark_have_names(shared_node: LiveNode) -> None:
    at = f"127.0.0.1:{shared_node.port}"
    with connect_sync(at, client_name="threads") as client:
        assert named(shared_node, "threads") == 1
        express = Express(lambda: client, Login(client_name="express"), 5.0)
        assert express.ask("q", ["PING"]) is not None
        assert named(shared_node, "express") == 1
        express.close()
    with BlockingClient([at], Login(client_name="spark")) as blocking:
        blocking.call("PING")
        assert named(shared_node, "spark") == 1


async def name_refused(node: LiveNode, url: str) -> None:
    async with connect(url, client_name="shop") as client:
        await client.add("q", "x", retry=10)
        assert named(node, "shop") == 0


@pytest.mark.trio
async def test_a_client_that_may_not_name_its_connection_works_without_a_name(
    disque_server: NodeFactory,
) -> None:
    node = disque_server()
    node.wire()("ACL", "SETUSER", "shop", "on", ">secret", "allkeys", "+@all", "-client|setname")
    url = f"disque://shop:secret@127.0.0.1:{node.port}"
    await name_refused(node, url)
    login = Cluster.parse(f"{url}?client_name=shop").login
    with BlockingClient([f"127.0.0.1:{node.port}"], login) as blocking:
        blocking.call("PING")
        express = Express(lambda: _At(node), login, 5.0)  # type: ignore[arg-type,return-value]
        assert express.ask("q", ["PING"]) is not None
        assert named(node, "shop") == 0
        express.close()


class _At:
    """The part of a client that ``Express`` needs."""

    def __init__(self, node: LiveNode) -> None:
        self._address = f"127.0.0.1:{node.port}"

    def run(self, function: object) -> str:
        return self._address
