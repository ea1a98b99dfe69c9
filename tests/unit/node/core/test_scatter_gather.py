"""QPURGE, QMOVE and REDRIVE on several nodes: once the client has its reply, no node goes on."""

import pytest

from disque_trio.node.core.changes.scatter_gather import PATIENCE, SLICE
from disque_trio.protocol.bus import QUESTION, packet_type
from tests.support.mesh import Mesh

COMMANDS = [["QPURGE", "q"], ["QMOVE", "q", "to"], ["REDRIVE", "q", "TO", "to"]]


class SlowPath:
    """Delays what node 0 asks node 1, from the question ``first`` on (0: the first one)."""

    def __init__(self, mesh: Mesh, first: int) -> None:
        self.mesh = mesh
        self.held: list[bytes] = []
        self._left = first
        mesh.lose = self._holds

    def _holds(self, source: int, target: int, packet: bytes) -> bool:
        if (source, target) != (0, 1) or packet_type(packet) != QUESTION:
            return False
        self._left -= 1
        if self._left >= 0:
            return False
        self.held.append(packet)
        return True

    def deliver(self, set_back: int = 0) -> None:
        """Let the questions arrive now; the clock of node 1 was set back by so many ms."""
        self.mesh.lose = lambda source, target, packet: False
        node = self.mesh[1].node
        for packet in self.held:
            node.receive(self.mesh.ids[0], packet, self.mesh[1].now - set_back)
        self.mesh.settle()


@pytest.mark.parametrize(("first", "set_back"), [(0, 0), (2, 0), (2, 60_000)])
@pytest.mark.parametrize("words", COMMANDS)
def test_a_node_that_is_too_late_that_it_should_keeps_its_jobs(
    words: list[str], first: int, set_back: int
) -> None:
    mesh = Mesh(2)
    mesh.add(0, "REPLICATE", 1)
    for _ in range(3 * SLICE):
        mesh.add(1, "REPLICATE", 1)
    path = SlowPath(mesh, first)
    client = mesh[0].client()
    mesh[0].send(client, *words)
    mesh.advance(PATIENCE / 1000 + 0.1)
    (done,) = mesh[0].replies(client)
    assert mesh[0].number_queued() == 0
    left = mesh[1].number_queued()
    assert isinstance(done, int)
    assert done + left == 1 + 3 * SLICE
    assert left > SLICE
    new = mesh.add(1, "REPLICATE", 1, "PRIORITY", 7)
    assert path.held
    path.deliver(set_back)
    assert mesh[1].show(new)[b"queue"] == b"q"
    assert mesh[1].number_queued() == left + 1


@pytest.mark.parametrize("words", COMMANDS)
def test_a_node_that_hears_a_little_late_does_as_it_should(words: list[str]) -> None:
    mesh = Mesh(2)
    for _ in range(2 * SLICE):
        mesh.add(1, "REPLICATE", 1)
    path = SlowPath(mesh, 1)
    client = mesh[0].client()
    mesh[0].send(client, *words)
    mesh.advance(PATIENCE / 2000)
    assert mesh[0].replies(client) == []
    path.deliver()
    mesh.advance(1)
    assert mesh[0].replies(client) == [2 * SLICE]
    assert mesh[1].number_queued() == 0
