"""Which nodes support extensions, and when jobs may carry trailers."""

import pytest

from disque_trio.protocol.bus import (
    ENDJOB,
    HEADER_SIZE,
    MAX_CONTROL_PACKET,
    PING,
    QUESTION,
    REPLJOB,
    UPDATEJOB,
    YOURJOBS,
    Gossip,
    PacketWriter,
    packet_type,
    sender_extensions,
)
from tests.support.cluster_bench import Machine, Wires

ME = b"a" * 40


def heard_by(machines: list[Machine], about: Machine, wanted: bool) -> bool:
    """Whether all ``machines`` have heard that ``about`` supports extensions, or does not."""
    return all(
        m.member.understands(about.id) is wanted for m in machines if m.member is not about.member
    )


def test_nodes_that_know_each_other_may_have_trailers() -> None:
    wires = Wires()
    machines = wires.join(3)
    wires.wait(lambda: all(heard_by(machines, about, True) for about in machines), 20)
    assert [machine.member.extended for machine in machines] == [True] * 3
    assert not machines[0].member.understands(b"e" * 40)


def test_what_the_other_side_would_break_the_connection_for_is_not_sent() -> None:
    first, second = Wires().join(2)
    longest = bytes(MAX_CONTROL_PACKET - HEADER_SIZE)
    for data in (longest, longest + b"x"):
        for type in (REPLJOB, YOURJOBS, UPDATEJOB, QUESTION, ENDJOB):
            first.member.send(second.id, first.member.packets.packet(type, data))
    first.wires.run(1)
    arrived = [(packet_type(packet), len(packet) - HEADER_SIZE) for _, packet in second.jobs]
    too_long = len(longest) + 1
    assert [type for type, size in arrived if size < too_long] == [
        *(REPLJOB, YOURJOBS, UPDATEJOB, QUESTION, ENDJOB)
    ]
    assert [type for type, size in arrived if size == too_long] == [REPLJOB, YOURJOBS, UPDATEJOB]


def test_a_node_alone_may_have_trailers_unless_the_setting_is_no() -> None:
    (alone,) = Wires().add(1)
    assert alone.member.extended
    alone.member.set_extensions("no")
    assert (alone.member.extended, alone.member.plain) == (False, True)
    alone.member.set_extensions("yes")
    assert (alone.member.extended, alone.member.plain) == (True, False)


def test_one_node_that_does_not_say_so_keeps_all_from_it_until_it_is_gone() -> None:
    wires = Wires()
    first, second, other = machines = wires.join(3)
    other.member.set_extensions("no")
    wires.wait(lambda: heard_by(machines, other, False), 20)
    assert [machine.member.extended for machine in machines] == [False] * 3
    assert first.member.understands(second.id)
    assert not other.member.understands(first.id)
    first.member.forget(other.id)
    assert first.member.extended
    other.member.set_extensions("auto")
    wires.wait(lambda: second.member.extended and other.member.extended, 20)


def test_with_yes_jobs_may_have_trailers_beside_nodes_that_do_not_know_them() -> None:
    wires = Wires()
    first, other = machines = wires.join(2)
    other.member.set_extensions("no")
    wires.wait(lambda: heard_by(machines, other, False), 20)
    first.member.set_extensions("yes")
    assert first.member.extended
    assert not first.member.understands(other.id)


def test_a_new_member_that_does_not_know_them_ends_it() -> None:
    wires = Wires()
    first, second = wires.join(2)
    wires.wait(lambda: first.member.extended, 20)
    (other,) = wires.add(1)
    other.member.set_extensions("no")
    other.member.meet(first.ip, first.port)
    wires.wait(wires.meshed, 20)
    assert (first.member.extended, second.member.extended) == (False, False)


@pytest.mark.parametrize(("setting", "said"), [("auto", 63), ("yes", 63), ("no", 0)])
def test_what_a_node_says_of_itself(setting: str, said: int) -> None:
    (machine,) = Wires().add(1)
    machine.member.set_extensions(setting)
    packet = machine.member.packets.gossip(PING, [])
    assert sender_extensions(packet) == said


def test_without_extensions_all_that_c_nodes_leave_0_is_0() -> None:
    packets = PacketWriter(ME, 7711)
    packets.extensions = 0
    packets.refresh()
    packet = packets.gossip(PING, [Gossip(b"e" * 40, 1, 2, "10.7.7.7", 7711, 0)])
    assert packet[102:136] == bytes(34)
    assert packet[141:144] == bytes(3)
