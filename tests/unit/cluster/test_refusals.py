"""A node is dead if its machine refuses connections for some time, or if a failing one is
forgotten; not if it is only silent."""

from disque_trio.cluster.failure import REFUSED_FOR, Refusals
from disque_trio.protocol.bus import EXTENDED
from tests.support.cluster_bench import Wires

NODE = b"n" * 40


def test_refusals_count_after_some_time_and_once() -> None:
    refusals = Refusals()
    assert [refusals.refused(NODE, at) for at in (5, 900, 5 + REFUSED_FOR - 1)] == [False] * 3
    assert refusals.refused(NODE, 5 + REFUSED_FOR)
    assert not refusals.refused(NODE, 9_999)


def test_an_answer_ends_the_time() -> None:
    refusals = Refusals()
    assert not refusals.refused(NODE, 5)
    refusals.answered(NODE)
    assert not refusals.refused(NODE, 5 + REFUSED_FOR)
    assert refusals.refused(NODE, 5 + 2 * REFUSED_FOR)
    refusals.answered(NODE)
    assert not refusals.refused(NODE, 5 + 3 * REFUSED_FOR)
    assert refusals.refused(NODE, 5 + 4 * REFUSED_FOR)


def test_a_process_that_is_gone_is_dead_for_each_node_that_is_refused() -> None:
    wires = Wires()
    one, two, three = wires.join(3)
    three.crash()
    wires.run(0.9)
    assert one.died == two.died == []
    wires.run(1.1)
    assert one.died == two.died == [three.id]
    wires.run(30)
    assert one.died == two.died == [three.id]


def test_a_process_that_is_soon_back_is_not() -> None:
    wires = Wires()
    one, two = wires.join(2)
    for _ in range(5):
        two.crash()
        wires.run(0.7)
        two.boot(two.id)
        wires.run(2)
    assert one.died == []


def test_a_node_that_dies_twice_is_dead_twice() -> None:
    wires = Wires()
    one, two = wires.join(2)
    for _ in range(2):
        two.crash()
        wires.run(3)
        two.boot(two.id)
        wires.wait(wires.meshed, 10)
    assert one.died == [two.id] * 2


def test_a_node_that_is_silent_is_not_dead() -> None:
    wires = Wires()
    machines = wires.join(3)
    wires.isolate(machines[2])
    wires.run(60)
    assert [machine.died for machine in machines] == [[], [], []]


def test_a_node_that_refuses_but_pings_is_not_dead() -> None:
    wires = Wires()
    one, two = wires.join(2)
    wires.run(2)
    for link in [link for link in one.links if link.outgoing]:
        link.close()  # while the one in the other direction stays
        one.member.lost(link, wires.now)
    two.port += 1
    wires.run(5)
    assert one.died == []


def test_a_failing_node_that_is_forgotten_is_dead() -> None:
    wires = Wires()
    one, two, three = wires.join(3)
    wires.isolate(three)
    wires.wait(lambda: not one.reaches(three), 60)
    assert one.member.forget(three.id)
    assert (one.died, two.died) == ([three.id], [])


def test_a_healthy_node_that_is_forgotten_is_not() -> None:
    wires = Wires()
    one, _, three = wires.join(3)
    assert one.member.forget(three.id)
    assert one.died == []


def test_a_node_of_an_older_release_did_not_tell_what_its_clients_have() -> None:
    wires = Wires()
    one, two = wires.join(2)
    two.member.packets.extensions = EXTENDED
    two.member.packets.refresh()
    wires.wait(lambda: not one.member.tells(two.id), 60)
    assert one.member.understands(two.id)
    two.crash()
    wires.run(5)
    assert one.died == []
