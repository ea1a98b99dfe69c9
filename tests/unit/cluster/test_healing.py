"""How soon a node that comes back is a full member again."""

import pytest

from disque_trio.cluster.heartbeat import RETRY_STEP, SHORTEST_WAIT
from disque_trio.protocol.bus import PING, PacketWriter
from tests.support.cluster_bench import STEP, Machine, Wires

# Its connection and PING, the other node's connection and PING, and the PONG. A node that has just
# tried to connect tries again at its next tick.
SOON = 5 * STEP + RETRY_STEP


def back(wires: Wires, machine: Machine) -> int:
    """Let time pass until all nodes are connected with each other; return the ms from the moment
    ``machine`` begins to connect."""
    machine.connects.clear()
    wires.wait(lambda: bool(machine.connects), 1)
    began = wires.now
    wires.wait(wires.meshed, 30)
    return wires.now - began


@pytest.mark.parametrize("count", [3, 7])
@pytest.mark.parametrize("away", [2, 120])
def test_a_node_that_restarts_is_reachable_as_soon_as_it_has_spoken(count: int, away: int) -> None:
    wires = Wires(node_timeout=1000)
    machines = wires.join(count)
    *rest, dead = machines
    dead.crash()
    wires.run(away)
    assert not any(machine.reaches(dead) for machine in rest)
    dead.boot(dead.id)
    assert back(wires, dead) <= SOON


def test_a_node_that_restarts_on_another_port_is_reachable_as_soon_as_it_has_spoken() -> None:
    wires = Wires(node_timeout=1000)
    *_, dead = wires.join(3)
    dead.crash()
    wires.run(30)
    dead.port = 7799
    dead.boot(dead.id)
    assert back(wires, dead) <= SOON


def test_a_ping_replaces_a_connection_that_was_begun_while_nothing_answered() -> None:
    wires = Wires(node_timeout=60_000)
    first, second = wires.join(2)
    wires.isolate(second)  # its machine is off
    second.crash()
    first.links[0].close()
    first.member.lost(first.links[0], wires.now)
    wires.run(5)
    wires.blocked.clear()
    second.boot(second.id)
    assert back(wires, second) <= SOON


def speak(machine: Machine, other: Machine) -> None:
    """Give ``machine`` a PING of ``other`` over a link that has closed since."""
    link = machine.links[-1]
    packet = PacketWriter(other.id, other.port).gossip(PING, [])
    machine.receive(link, packet, machine.wires.now)


def test_a_member_that_speaks_but_cannot_be_reached_is_tried_now_and_then() -> None:
    wires = Wires()
    first, second, _ = wires.join(3)
    second.crash()
    wires.run(10)
    first.connects.clear()
    began = wires.now
    while wires.now < began + 1000:
        for _ in range(20):
            speak(first, second)
        wires.run(STEP / 1000)
    tried = [ip for ip, _ in first.connects if ip == second.ip]
    assert len(tried) <= 1000 // SHORTEST_WAIT + 1


@pytest.mark.parametrize("count", [2, 7])
def test_all_hear_of_each_connection_to_a_node_that_joins_and_restarts(count: int) -> None:
    wires = Wires(node_timeout=1000)
    machines = wires.join(count)
    *rest, dead = machines
    wires.run(5)
    for machine in machines:
        others = {(other.id, False) for other in machines if other is not machine}
        assert set(machine.linked_to) == others
        machine.linked_to.clear()
    dead.crash()
    wires.run(2)
    dead.boot(dead.id)
    back(wires, dead)
    assert [machine.linked_to for machine in rest] == [[(dead.id, True)]] * (count - 1)
    assert sorted(dead.linked_to) == sorted((machine.id, True) for machine in rest)


def test_a_node_that_loads_is_connected_and_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wires = Wires(node_timeout=10_000)
    first, second = wires.join(2)
    assert first.member.answers(second.id)
    second.crash()
    wires.run(1)
    assert not first.member.answers(second.id)
    second.boot(second.id)
    with monkeypatch.context() as patch:
        patch.setattr(second, "receive", lambda link, packet, now: None)
        wires.run(3)
        assert first.member.linked(second.id)
        assert not first.member.answers(second.id)
    wires.run(15)
    assert first.member.answers(second.id)
