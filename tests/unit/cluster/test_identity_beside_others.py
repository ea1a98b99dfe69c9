"""cluster-identity optional in a cluster with nodes that know of no identities: those of an older
release, and C nodes."""

import pytest

from disque_trio.cluster.keyring import BY_MEMBER
from disque_trio.protocol.bus import PAUSE, PAUSES, REPLJOB, SETTLED
from tests.support.cluster_bench import Machine, Wires

LAST_KNOWN = {"an older release": PAUSES, "C": PAUSE}  # the last type of packet that each knows


def cluster(other: str, identity: str = "optional") -> tuple[Wires, list[Machine]]:
    """Two nodes with identities, and one of an ``other`` program in between, which they meet."""
    wires = Wires()
    machines = wires.add(3)
    for machine in (machines[0], machines[2]):
        machine.identity = identity
        machine.boot(machine.id)
    if other == "C":
        machines[1].member.packets.extensions = 0
        machines[1].member.packets.refresh()
    machines[0].member.meet(machines[1].ip, machines[1].port)
    machines[2].member.meet(machines[1].ip, machines[1].port)
    return wires, machines


@pytest.mark.parametrize("other", LAST_KNOWN)
def test_they_form_one_cluster_and_exchange_jobs(other: str) -> None:
    wires, (first, middle, last) = cluster(other)
    wires.wait(wires.meshed, 60)
    for source in (first, middle, last):
        for target in (first, middle, last):
            if target is not source:
                source.member.send(target.id, source.member.packets.packet(REPLJOB, b"a job"))
    wires.run(30)
    assert wires.meshed()
    for machine in (first, middle, last):
        assert len(machine.jobs) == 2
    assert [pin.id for pin in first.keyring.pins.values()] == [last.id]
    assert [pin.id for pin in last.keyring.pins.values()] == [first.id]


@pytest.mark.parametrize("other", LAST_KNOWN)
def test_they_are_sent_nothing_that_they_do_not_know(other: str) -> None:
    wires, (first, middle, last) = cluster(other)
    wires.wait(wires.meshed, 60)
    assert first.member.understands(middle.id) is (other != "C")
    assert first.member.understands(last.id)
    middle.crash()
    wires.run(5)
    middle.boot(middle.id)
    if other == "C":
        middle.member.packets.extensions = 0
        middle.member.packets.refresh()
    wires.wait(wires.meshed, 60)
    assert max(middle.heard) <= LAST_KNOWN[other]
    assert max(first.heard) > LAST_KNOWN[other]  # the keys, from the last one


@pytest.mark.parametrize("other", LAST_KNOWN)
def test_what_they_send_that_nobody_knows_is_ignored(other: str) -> None:
    wires, (first, middle, last) = cluster(other)
    wires.wait(wires.meshed, 60)
    for type in (SETTLED + 1, 39, 40, 41, 65535):
        for target in (first, last):
            middle.member.send(target.id, middle.member.packets.packet(type, b"x" * 72))
    wires.run(5)
    assert wires.meshed()
    assert first.jobs == last.jobs == []
    assert {first.member.malformed, last.member.malformed} == {0}
    assert len(first.keyring.pins) == len(last.keyring.pins) == 1


def test_a_node_that_gets_an_identity_later_is_pinned_as_a_member() -> None:
    wires, machines = cluster("an older release")
    first, middle, last = machines
    wires.wait(wires.meshed, 60)
    middle.crash()
    middle.identity = "optional"
    middle.boot(middle.id)
    wires.wait(lambda: wires.meshed() and len(first.keyring.pins) == 2, 90)
    assert first.keyring.pins[middle.id].by in (BY_MEMBER, last.id)
    for machine in machines:  # all show who they are: now it can be required
        machine.crash()
        machine.identity = "yes"
        machine.boot(machine.id)
        wires.wait(wires.meshed, 90)
    assert {len(machine.keyring.pins) for machine in machines} == {2}


@pytest.mark.parametrize("other", LAST_KNOWN)
def test_where_identity_is_required_they_are_not_heard(other: str) -> None:
    wires, (first, middle, last) = cluster(other, "yes")
    wires.run(60)
    assert not first.knows(middle)
    assert not last.knows(middle)
    assert not middle.heard


@pytest.mark.parametrize("other", LAST_KNOWN)
def test_an_expelled_node_leaves_those_without_identity_alone(other: str) -> None:
    wires, (first, middle, last) = cluster(other)
    wires.wait(wires.meshed, 60)
    trust = first.member.trust
    assert trust is not None
    trust.expel(last.key)
    wires.run(30)
    assert not first.knows(last)
    assert wires.meshed([first, middle]) or first.reaches(middle)
    assert first.member.linked(middle.id)
    first.member.send(middle.id, first.member.packets.packet(REPLJOB, b"a job"))
    wires.run(1)
    assert [packet[-5:] for _, packet in middle.jobs] == [b"a job"]
