"""Topics on real nodes: bindings are shared, survive a kill, and serve many queues at once."""

from pathlib import Path

from tests.support.harness import ClusterFactory, LiveNode, NodeFactory, wait_until


def publish(node: LiveNode, topic: str, *options: str) -> list[bytes]:
    """Add a job to a topic; return the IDs."""
    ids = node.ask("ADDJOB", f"@{topic}", "body", "0", *options)
    assert isinstance(ids, list), ids
    return ids


def test_each_queue_gets_a_job_with_copies_at_any_node(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    assert nodes[0].ask("BIND", "mail.*", "a") == b"OK"
    assert nodes[1].ask("BIND", "mail.#", "b") == b"OK"
    wait_until(lambda: len(nodes[2].ask("BINDINGS")) == 2)  # type: ignore[arg-type]
    a, b = publish(nodes[2], "mail.new", "REPLICATE", "3")
    nodes[2].kill()
    for id, queue in ((a, b"a"), (b, b"b")):
        shown = nodes[0].ask("SHOW", id)
        assert isinstance(shown, list)
        assert shown[shown.index(b"queue") + 1] == queue


def test_bindings_outlive_a_kill(disque_server: NodeFactory, tmp_path: Path) -> None:
    node = disque_server("--dir", str(tmp_path))
    assert node.ask("BIND", "mail", "a") == b"OK"
    assert node.ask("BIND", "mail", "b") == b"OK"
    assert node.ask("UNBIND", "mail", "a") == 1
    node.kill()
    again = disque_server("--dir", str(tmp_path))
    assert again.ask("BINDINGS") == [[b"mail", b"b"]]


def test_many_queues_in_slices_are_in_the_file_before_the_answer(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    options = ("--dir", str(tmp_path), "--appendonly", "yes", "--appendfsync", "no")
    node = disque_server(*options)
    for number in range(200):
        node.ask("BIND", "t", f"q{number}")
    ids = publish(node, "t")
    assert len(set(ids)) == 200
    node.kill()
    again = disque_server(*options)
    assert all(again.ask("SHOW", id) is not None for id in ids)
