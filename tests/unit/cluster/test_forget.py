"""FORGET and RESET, and how nodes treat invalid packets."""

import random

import pytest

from disque_trio.cluster.blacklist import MAX_FORGOTTEN, Blacklist
from disque_trio.cluster.handlers import MAX_HANDSHAKES
from disque_trio.cluster.heartbeat import MAX_MEMBERS
from disque_trio.protocol.bus import (
    MEET,
    NODE_FAIL,
    NODE_NOADDR,
    PING,
    PONG,
    SETTLED,
    Gossip,
    PacketWriter,
)
from tests.support.cluster_bench import Machine, MemoryLink, Wires


def incoming(machine: Machine, other: Machine) -> MemoryLink:
    """Return the link over which ``other`` talks to ``machine``."""
    (link,) = [
        k for k in machine.links if not k.outgoing and k.up and k.other and k.other.machine is other
    ]
    return link


def test_a_node_that_all_forgot_stays_away() -> None:
    wires = Wires()
    *rest, gone = wires.join(4)
    for machine in rest:
        assert machine.member.forget(gone.id)
        assert machine.member.size == 3
        assert not machine.knows(gone)
        assert not machine.reaches(gone)
        assert not any(
            link.outgoing and link.up and link.other and link.other.machine is gone
            for link in machine.links
        )
    wires.run(120)
    assert wires.meshed(rest)
    assert gone.member.size == 4  # nobody told it


def test_a_forgotten_node_that_goes_on_running_does_not_come_back_through_new_ones() -> None:
    wires = Wires()
    *rest, gone = wires.join(4)
    for machine in rest:
        assert machine.member.forget(gone.id)
    new = wires.add(2)
    for machine in new:
        machine.member.meet(rest[0].ip, rest[0].port)
    wires.run(300)
    assert wires.meshed([*rest, *new])
    assert gone.member.size == 4
    assert gone.reaches(rest[0])  # it still talks to them, and they answer


def test_a_forgotten_node_does_not_come_back_by_hearsay_for_a_minute() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    assert first.member.forget(third.id)
    wires.run(58)
    assert not first.knows(third)
    wires.wait(lambda: first.knows(third), 20)
    wires.wait(wires.meshed, 5)
    assert second.knows(third)


def test_a_forgotten_node_that_meets_a_member_is_taken_in_at_once() -> None:
    wires = Wires()
    first, second = wires.join(2)
    assert first.member.forget(second.id)
    assert second.member.forget(first.id)
    wires.run(3)
    assert not first.knows(second)
    first.member.meet(second.ip, second.port)
    wires.wait(wires.meshed, 3)


def test_a_handshake_that_was_under_way_by_hearsay_does_not_undo_forgetting() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    third.crash()
    third.ip = "10.0.0.77"
    third.boot(third.id)
    wires.wait(lambda: second.line(third).ip == third.ip, 5)
    first.member._known[third.id].flags |= 1  # no news of it from its old address
    first.member._known[third.id].ip = "10.0.0.76"
    entry = Gossip(third.id, 0, 0, third.ip, third.port, 0)
    first.receive(incoming(first, second), second.member.packets.gossip(PING, [entry]), wires.now)
    assert len(first.member.others()) == 3
    assert first.member.forget(third.id)
    wires.run(5)
    assert not first.knows(third)
    assert len(first.member.others()) == 1


def test_after_a_reset_nothing_is_held_against_those_that_were_forgotten() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    assert first.member.forget(third.id)
    first.member.reset(first.id)
    first.member.meet(second.ip, second.port)
    wires.wait(wires.meshed, 10)
    assert first.knows(third)


def test_a_handshake_can_be_forgotten_and_a_stranger_cannot() -> None:
    wires = Wires()
    (machine,) = wires.add(1)
    machine.member.meet("10.9.9.9", 7711)
    (peer,) = machine.member.others()
    assert machine.member.forget(peer.id)
    assert machine.member.others() == []
    assert not machine.member.forget(peer.id)
    assert not machine.member.forget(machine.id)


def test_a_reset_forgets_all_others_and_keeps_the_id_the_address_and_leaving() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    first.member.set_leaving(True)
    first.member.meet("10.9.9.9", 7711)
    id = first.id
    first.member.reset(id)
    assert first.id == id
    assert first.member.others() == []
    assert first.member.everyone() == first.member.reachable == []
    assert first.member.size == 1
    assert first.member.endpoint() == (first.ip, first.port)
    assert first.member.leaving
    assert not any(link.up for link in first.links if link.outgoing)
    first.member.set_leaving(False)
    wires.run(20)
    assert first.member.size == 1
    assert second.knows(first)
    first.member.meet(third.ip, third.port)
    wires.wait(wires.meshed, 10)


def test_after_a_hard_reset_the_others_see_a_new_node_and_not_the_old_one() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    old = first.id
    first.member.reset(b"ab" * 20)
    assert first.id == b"ab" * 20
    assert first.member.packets.about_job(11, b"j" * 40)[16:56] == first.id
    for machine in (second, third):
        (link,) = [k for k in machine.links if k.outgoing and k.node_id == old]
        link.close()
        machine.member.lost(link, wires.now)
    wires.wait(lambda: old not in second.member.reachable, 5)
    first.member.meet(second.ip, second.port)
    wires.wait(lambda: all(m.reaches(first) for m in (second, third)), 5)
    assert second.member.forget(old)
    assert third.member.forget(old)
    wires.wait(wires.meshed, 5)


def test_a_restart_with_a_saved_table_needs_no_meet() -> None:
    wires = Wires()
    machines = wires.join(5)
    ids = [machine.id for machine in machines]
    wires.run(1)
    for machine in machines:
        machine.crash()
    for machine in machines:
        machine.boot(b"0" * 40)
    assert [machine.id for machine in machines] == ids
    wires.wait(wires.meshed, 3)


# ---- invalid packets ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        Gossip(b"E" * 40, 0, 0, "10.7.7.7", 7711, 0),
        Gossip(b"\0" * 40, 0, 0, "10.7.7.7", 7711, 0),
        Gossip(b"e" * 40, 0, 0, "10.7.7.7", 7711, NODE_NOADDR),
        Gossip(b"e" * 40, 0, 0, "", 7711, 0),
        Gossip(b"e" * 40, 0, 0, "example.org", 7711, 0),
        Gossip(b"e" * 40, 0, 0, "10.7.7.7 10.7.7.8", 7711, 0),
        Gossip(b"e" * 40, 0, 0, "0.0.0.0", 7711, 0),
        Gossip(b"e" * 40, 0, 0, "224.0.0.1", 7711, 0),
        Gossip(b"e" * 40, 0, 0, "fe80::1%eth0", 7711, 0),
        Gossip(b"e" * 40, 0, 0, "10.7.7.7", 0, 0),
        Gossip(b"e" * 40, 0, 0, "10.7.7.7", 55536, 0),
        Gossip(b"e" * 40, 0, 0, "10.0.0.1", 7711, 0),  # the receiver's own address
    ],
    ids=lambda entry: f"{entry.id[:1].decode()} {entry.ip} {entry.port} {entry.flags}",
)
def test_invalid_gossip_starts_no_handshake(entry: Gossip) -> None:
    wires = Wires()
    first, second = wires.join(2)
    packet = second.member.packets.gossip(PING, [entry])
    first.receive(incoming(first, second), packet, wires.now)
    assert len(first.member.others()) == 1
    good = Gossip(b"e" * 40, 0, 0, "10.7.7.7", 7711, 0)
    first.receive(incoming(first, second), second.member.packets.gossip(PING, [good]), wires.now)
    assert len(first.member.others()) == 2


def test_gossip_about_the_receiver_or_the_sender_starts_nothing() -> None:
    wires = Wires()
    first, second = wires.join(2)
    before = first.member.describe()
    entries = [
        Gossip(first.id, 0, 0, "10.7.7.7", 7711, NODE_FAIL),
        Gossip(second.id, 0, 0, "10.7.7.8", 7711, NODE_FAIL),
    ]
    packet = second.member.packets.gossip(PING, entries)
    first.receive(incoming(first, second), packet, wires.now)
    assert first.member.describe() == before


def test_a_flood_of_invented_nodes_is_bounded_and_goes_away() -> None:
    wires = Wires()
    first, second = wires.join(2)
    rng = random.Random(1)
    for start in range(0, 10_000, 1000):
        entries = [
            Gossip(b"%040x" % rng.getrandbits(160), 0, 0, f"10.7.{n // 250}.{n % 250}", 7711, 0)
            for n in range(start, start + 1000)
        ]
        packet = second.member.packets.gossip(PING, entries)
        first.receive(incoming(first, second), packet, wires.now)
    assert len(first.member.others()) == 1 + MAX_HANDSHAKES
    wires.run(1)
    for n in range(300):
        meet = PacketWriter(b"%040x" % n, 7000 + n).gossip(MEET, [])
        first.receive(incoming(first, second), meet, wires.now)
    assert len(first.member.others()) == 1 + MAX_HANDSHAKES
    first.member.meet("10.8.8.8", 7711)  # an operator may still do it
    assert len(first.member.others()) == 2 + MAX_HANDSHAKES
    wires.run(16)
    assert len(first.member.others()) == 2
    wires.run(136)
    assert wires.meshed()


def test_there_is_a_limit_to_members() -> None:
    wires = Wires()
    (machine,) = wires.add(1)
    for n in range(MAX_MEMBERS + 10):
        machine.member.meet("10.8.8.8", 1 + n)
    assert len(machine.member.others()) == MAX_MEMBERS


def test_the_blacklist_is_bounded_and_forgets_the_oldest_first() -> None:
    blacklist = Blacklist()
    for n in range(MAX_FORGOTTEN + 10):
        blacklist.add(b"%040x" % n, 1000 + n)
    assert len(blacklist) == MAX_FORGOTTEN
    assert not blacklist.has(b"%040x" % 9, 2000)
    assert blacklist.has(b"%040x" % 10, 2000)
    blacklist.add(b"%040x" % 10, 30_000)
    assert blacklist.has(b"%040x" % 10, 89_999)
    assert not blacklist.has(b"%040x" % 10, 90_000)
    blacklist.add(b"new", 100_000)
    assert len(blacklist) == 1


@pytest.mark.parametrize("type", [PING, PONG, MEET])
@pytest.mark.parametrize("sender", [b"\0" * 40, b"F" * 40, b"g" * 40, b" " * 40])
def test_a_sender_with_an_invalid_id_is_ignored(type: int, sender: bytes) -> None:
    wires = Wires()
    first, second = wires.join(2)
    before = first.member.describe(), first.member.messages_sent
    packet = PacketWriter(sender, 7711).gossip(type, [])
    first.receive(incoming(first, second), packet, wires.now)
    assert (first.member.describe(), first.member.messages_sent) == before
    assert first.member.malformed == 1


def test_packets_of_wrong_lengths_types_and_versions_are_ignored() -> None:
    wires = Wires()
    first, second = wires.join(2)
    link = incoming(first, second)
    packets = second.member.packets
    entry = Gossip(b"e" * 40, 0, 0, "10.7.7.7", 7711, 0)
    good = packets.gossip(PING, [entry])
    before = first.member.describe(), first.member.messages_sent
    first.receive(link, packets.packet(PING, b"x" * 50, 0, 1), wires.now)
    first.receive(link, packets.packet(PING, b"", 0, 1), wires.now)
    first.receive(link, packets.packet(3, b"x" * 41), wires.now)
    assert first.member.malformed == 3
    first.receive(link, packets.packet(SETTLED + 1, b"x" * 44), wires.now)
    first.receive(link, packets.packet(65_535, b""), wires.now)
    first.receive(link, good[:8] + b"\0\2" + good[10:], wires.now)
    assert first.jobs == []
    assert (first.member.describe(), first.member.messages_sent) == before
    received = first.member.messages_received
    first.receive(link, good, wires.now)
    assert len(first.member.others()) == 2
    assert first.member.messages_received == received + 1


def test_a_packet_on_a_link_that_was_given_up_does_not_count_for_it() -> None:
    wires = Wires()
    first, second = wires.join(2)
    (old,) = [link for link in first.links if link.outgoing]
    first.member.forget(second.id)
    first.receive(old, second.member.packets.gossip(PONG, []), wires.now)
    first.member.lost(old, wires.now)
    assert first.member.others() == []
    assert first.member.size == 1


def test_random_bytes_behind_a_good_header_never_raise() -> None:
    wires = Wires()
    first, second = wires.join(2)
    link = incoming(first, second)
    rng = random.Random(5)
    for _ in range(3000):
        type = rng.randrange(20)
        size = rng.choice([0, 8, 40, 44, 104, 208, rng.randrange(300)])
        packet = second.member.packets.packet(type, rng.randbytes(size), 0, size // 104)
        first.receive(link, packet, wires.now)
    wires.run(20)
    wires.wait(wires.meshed, 20)
