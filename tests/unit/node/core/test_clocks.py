"""Nodes compare their clocks, with clocks that the test moves."""

from disque_trio.node.core.clocks import KEPT, TIMEOUT
from disque_trio.protocol.bus import ANSWER, packet_type
from tests.support.mesh import Mesh

SECOND = 1_000


def compare(mesh: Mesh, late: int = 0) -> list[int]:
    """The first node asks the others; their answers come ``late`` ms later. Returns by how much it
    is certain that their clocks are ahead by more than a second."""
    first = mesh[0]
    first.node.clocks.ask(first.now)
    first.now += late
    first.node.now = first.now
    mesh.settle()
    return [ahead for _, ahead in first.node.clocks.ahead(first.now, SECOND)]


def shift(mesh: Mesh, index: int, by: int) -> None:
    mesh[index].now += by
    mesh[index].node.now = mesh[index].now


def test_equal_clocks_are_no_news() -> None:
    assert compare(Mesh(3)) == []


def test_a_clock_that_is_ahead_or_behind_is_found() -> None:
    mesh = Mesh(3)
    shift(mesh, 1, 3_600_000)
    shift(mesh, 2, -5_000)
    assert sorted(compare(mesh)) == [-5_000, 3_600_000]
    found = dict(mesh[0].node.clocks.ahead(mesh[0].now, SECOND))
    assert found == {mesh.ids[1]: 3_600_000, mesh.ids[2]: -5_000}


def test_what_the_way_may_have_taken_does_not_count() -> None:
    mesh = Mesh(2)
    shift(mesh, 1, 2_000)
    assert compare(mesh, late=1_500) == []  # it may be ahead by half a second only


def test_an_offset_is_forgotten_when_nobody_confirms_it() -> None:
    mesh = Mesh(2)
    shift(mesh, 1, 9_000)
    assert compare(mesh) == [9_000]
    first = mesh[0]
    assert first.node.clocks.ahead(first.now + KEPT, SECOND) == []


def test_a_node_that_does_not_answer_or_knows_nothing_of_it_says_nothing() -> None:
    mesh = Mesh(3)
    for index in (1, 2):
        shift(mesh, index, 9_000)
    mesh.peers[0].as_c.add(mesh.ids[1])
    mesh.lose = lambda source, target, packet: packet_type(packet) == ANSWER
    assert compare(mesh) == []
    assert mesh[0].node.rpc.open
    mesh[0].node.tick(mesh[0].now + TIMEOUT)
    assert not mesh[0].node.rpc.open
