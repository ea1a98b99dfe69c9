"""The rest of the cluster, as a node sees it that is in none."""

from disque_trio.cluster.peers import Peers

SOMEBODY = b"a" * 40


def test_a_node_without_a_cluster_has_no_connection_to_anybody() -> None:
    peers = Peers()
    assert peers.everyone() == peers.takers() == []
    assert not peers.knows(SOMEBODY)
    assert not peers.linked(SOMEBODY)
    assert not peers.answers(SOMEBODY)
    assert not peers.tells(SOMEBODY)
