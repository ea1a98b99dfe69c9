"""Which nodes a driver knows, and what it does about those that do not answer."""

from disque_spark.nodes import Nodes
from tests.support.harness import ClusterFactory, NodeFactory
from tests.support.scripted_node import ScriptedNode


def test_all_nodes_of_a_cluster_are_found_once_from_any_of_them(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    expected = {f"127.0.0.1:{node.port}" for node in nodes}
    for seeds in ([nodes[0]], [nodes[2], nodes[1]], nodes):
        found = Nodes([f"127.0.0.1:{node.port}" for node in seeds])
        assert set(found.addresses()) == expected
        assert len(found.addresses()) == 3
        found.close()


def test_nodes_that_are_not_a_cluster_are_all_asked(disque_server: NodeFactory) -> None:
    one, other = disque_server(), disque_server()
    one.ask("ADDJOB", "q", "body", 0)
    nodes = Nodes([f"127.0.0.1:{one.port}", f"localhost:{one.port}", f"127.0.0.1:{other.port}"])
    assert nodes.ask([("QLEN", "q")]) == {
        f"127.0.0.1:{one.port}": [1],
        f"127.0.0.1:{other.port}": [0],
    }
    nodes.close()


def test_a_node_that_does_not_answer_is_left_out_for_longer_and_longer(
    disque_server: NodeFactory,
) -> None:
    now = 0.0
    node = f"127.0.0.1:{disque_server().port}"
    with ScriptedNode(lambda request: None) as silent:
        nodes = Nodes([silent.address, node], discover=False, clock=lambda: now)
        tried: list[float] = []
        while now < 100:
            before = len(silent.requests)
            assert list(nodes.ask([("PING",)])) == [node]
            tried += [now] * (len(silent.requests) - before)
            now += 1
        nodes.close()
    assert tried == [0, 5, 15, 35, 75]
