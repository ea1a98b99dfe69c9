"""Why a job cannot have its copies."""

import pytest

from disque_trio.cluster.peers import Obstacle, Peer, Peers
from disque_trio.cluster.troubles import TROUBLE_MEMORY, describe_trouble, trouble_of
from disque_trio.node.core.copies.shortage import not_confirmed, too_few
from tests.support.mesh import Mesh

FULL = trouble_of(False, "No space left on device")


class Few(Peers):
    """Nine other nodes, of which only some can take copies."""

    def __init__(self, *obstacles: Obstacle) -> None:
        super().__init__()
        self.size = 10
        self.found = list(obstacles)
        self.reachable = [b"%d" % number for number in range(9 - len(obstacles))]

    def obstacles(self) -> list[Obstacle]:
        return self.found

    def endpoint(self) -> tuple[str, int]:
        return "10.0.0.1", 7711

    def others(self) -> list[Peer]:
        return [Peer(b"%d" % number, f"10.0.0.{number}", 7711, 1) for number in range(9)]


def down(number: int) -> Obstacle:
    return Obstacle(f"10.0.0.{number}:7711", "is down", 0)


def troubled(number: int, trouble: int) -> Obstacle:
    return Obstacle(f"10.0.0.{number}:7711", describe_trouble(trouble), trouble)


def test_nodes_that_are_down_are_named() -> None:
    peers = Few(down(3))
    peers.reachable = [b"2"]
    assert too_few(peers, 2, False) == (
        "NOREPL Not enough reachable nodes: 1 of the 2 needed besides this one; "
        "10.0.0.3:7711 is down"
    )


def test_the_size_of_the_cluster_is_named_if_all_nodes_are_well() -> None:
    assert too_few(Few(), 12, True) == (
        "NOREPL Not enough reachable nodes: 9 of the 12 needed; the cluster has 10 nodes"
    )


def test_a_full_disk_is_named() -> None:
    assert too_few(Few(troubled(2, FULL)), 9, False) == (
        "NOREPL 10.0.0.2:7711 cannot write its file (No space left on device)"
    )
    strange = trouble_of(False, "something new")
    assert too_few(Few(troubled(2, strange)), 9, False) == (
        "NOREPL 10.0.0.2:7711 cannot write its file"
    )


def test_nodes_that_are_short_of_memory_are_counted() -> None:
    peers = Few(troubled(2, TROUBLE_MEMORY))
    text = (
        "NOREPL Memory is short on {}. Acknowledge or delete jobs there, raise maxmemory, or add "
        "nodes"
    )
    assert too_few(peers, 9, False) == text.format("1 of 10 nodes: 10.0.0.2:7711")
    peers.trouble = TROUBLE_MEMORY
    found = "2 of 10 nodes: 10.0.0.1:7711, 10.0.0.2:7711"
    assert too_few(peers, 9, False) == text.format(found)


def test_different_reasons_are_named_and_many_are_counted() -> None:
    both = too_few(Few(down(1), troubled(2, FULL)), 8, False)
    assert both.endswith(
        "; 10.0.0.1:7711 is down, 10.0.0.2:7711 cannot write its file (No space left on device)"
    )
    assert too_few(Few(*map(down, range(8))), 8, False).endswith("10.0.0.4:7711 is down and 3 more")


def test_who_has_not_confirmed_is_named() -> None:
    peers = Few()
    assert not_confirmed(peers, []) == ""
    assert not_confirmed(peers, [b"1"]) == ": 10.0.0.1:7711 has not confirmed"
    assert not_confirmed(peers, [b"1", b"2"]) == (
        ": 10.0.0.1:7711, 10.0.0.2:7711 have not confirmed"
    )


def test_what_is_known_of_why_a_node_has_not_confirmed_is_named() -> None:
    class Slow(Few):
        def has_slow_disk(self, id: bytes) -> bool:
            return id == b"2"

        def linked(self, id: bytes) -> bool:
            return id != b"4"

        def answers(self, id: bytes) -> bool:
            return id not in (b"3", b"4")

    assert not_confirmed(Slow(), [b"1", b"2", b"3", b"4"]) == (
        ": 10.0.0.1:7711, 10.0.0.2:7711 (its disk is slow), 10.0.0.3:7711 (it may still be "
        "loading), 10.0.0.4:7711 have not confirmed"
    )


@pytest.mark.parametrize("timeout", [0, 60_000])
@pytest.mark.parametrize("options", [[], ["HEADERS", 1, "a", "b"]], ids=["plain", "headers"])
def test_a_producer_is_answered_when_it_is_known_that_there_will_be_no_copy(
    timeout: int, options: list[str | int]
) -> None:
    mesh = Mesh(3)
    mesh.isolate(2)
    client = mesh[0].client()
    mesh[0].send(client, "ADDJOB", "q", "body", timeout, "REPLICATE", 3, *options)
    mesh.advance(5)
    assert mesh[0].replies(client) == []
    mesh.peers[0].reachable = [mesh.ids[1]]
    mesh.advance(0.1)
    [refusal] = mesh[0].replies(client)
    assert str(refusal).startswith("NOREPL Not enough reachable nodes: 1 of the 2 needed")
    assert mesh[1].node.store.jobs.count == 0


def test_a_confirmed_copy_counts_even_if_its_node_is_gone() -> None:
    mesh = Mesh(4)
    mesh.isolate(3)
    mesh.isolate(2)
    client = mesh[0].client()
    mesh[0].send(client, "ADDJOB", "q", "body", 0, "REPLICATE", 3)
    mesh.advance(1)
    mesh.peers[0].reachable = [mesh.ids[2]]
    mesh.advance(1)
    assert mesh[0].replies(client) == []
    mesh.rejoin(2)
    mesh.advance(1)
    [id] = mesh[0].replies(client)
    assert isinstance(id, (bytes, str))
