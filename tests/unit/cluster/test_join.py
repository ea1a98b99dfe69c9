"""How nodes find each other."""

import itertools
from inspect import isfunction

import pytest

from disque_trio.cluster.heartbeat import Heartbeat
from disque_trio.protocol.bus import (
    NODE_HANDSHAKE,
    NODE_NOADDR,
    NODE_PFAIL,
    PING,
    PONG,
    Gossip,
    PacketWriter,
)
from tests.support.cluster_bench import Machine, Wires


@pytest.mark.parametrize("count", [2, 3, 7, 20])
def test_a_chain_of_meets_becomes_a_full_mesh_in_seconds(count: int) -> None:
    wires = Wires()
    machines = wires.add(count)
    for left, right in itertools.pairwise(machines):
        left.member.meet(right.ip, right.port)
    wires.wait(wires.meshed, 20)
    for machine in machines:
        assert machine.member.size == count
        assert machine.member.reachable == sorted(m.id for m in machines if m is not machine)
        assert machine.member.endpoint() == (machine.ip, machine.port)
        assert {p.priority for p in machine.member.others()} == {1}


def test_all_nodes_that_meet_one_become_a_full_mesh() -> None:
    wires = Wires()
    first, *others = wires.add(9)
    for other in others:
        other.member.meet(first.ip, first.port)
    wires.wait(wires.meshed, 15)


def test_two_clusters_become_one_when_two_of_their_nodes_meet() -> None:
    wires = Wires()
    left, right = wires.join(3), wires.add(3)
    right[0].member.meet(right[1].ip, right[1].port)
    right[0].member.meet(right[2].ip, right[2].port)
    wires.wait(lambda: wires.meshed(right), 15)
    left[1].member.meet(right[2].ip, right[2].port)
    wires.wait(wires.meshed, 20)


def test_a_cluster_that_is_complete_begins_no_more_connections() -> None:
    wires = Wires()
    machines = wires.join(5)
    wires.run(5)
    for machine in machines:
        machine.connects.clear()
        machine.saves = 0
    wires.run(120)
    assert wires.meshed()
    assert all(machine.connects == [] and machine.saves == 0 for machine in machines)


def test_meeting_a_member_again_changes_nothing() -> None:
    wires = Wires()
    first, second = wires.join(2)
    before = first.member.dump_conf(), second.member.dump_conf()
    first.member.meet(second.ip, second.port)
    first.member.meet(second.ip, second.port)
    assert len(first.member.others()) == 2  # one handshake, not two
    wires.run(1)
    assert wires.meshed()
    assert before[0].split()[:3] == first.member.dump_conf().split()[:3]


def test_both_may_meet_each_other_at_the_same_time() -> None:
    wires = Wires()
    first, second = wires.add(2)
    first.member.meet(second.ip, second.port)
    second.member.meet(first.ip, first.port)
    wires.wait(wires.meshed, 2)
    wires.run(5)
    assert wires.meshed()


@pytest.mark.parametrize("ip", ["10.0.0.1", "127.0.0.1"])
def test_a_node_that_meets_itself_is_alone_afterwards(ip: str) -> None:
    wires = Wires()
    (machine,) = wires.add(1)
    machine.member.meet(ip, machine.port)
    wires.run(2)
    assert machine.member.others() == []
    assert machine.member.size == 1
    sent = machine.member.messages_sent
    wires.run(30)
    assert machine.member.messages_sent == sent  # it stopped talking to itself
    assert machine.member.endpoint()[0] != "127.0.0.1"


def test_a_handshake_is_shown_but_takes_part_in_nothing() -> None:
    wires = Wires()
    (machine,) = wires.add(1)
    machine.member.meet("10.9.9.9", 7711)
    (peer,) = machine.member.others()
    assert (peer.ip, peer.port, peer.priority) == ("10.9.9.9", 7711, 5)
    assert " 10.9.9.9:7711 handshake 0 0 disconnected\n" in machine.member.describe()
    assert machine.member.size == 1
    assert machine.member.everyone() == machine.member.reachable == []
    assert not machine.member.knows(peer.id)
    assert peer.id.decode() not in machine.member.dump_conf()
    machine.member.send(peer.id, b"never")
    assert machine.member.messages_sent == 0


@pytest.mark.parametrize(("timeout", "gone_after"), [(15_000, 150), (200, 60)])
def test_meeting_a_dead_address_is_given_up_after_ten_node_timeouts(
    timeout: int, gone_after: int
) -> None:
    wires = Wires(timeout)
    (machine,) = wires.add(1)
    given_up: list[tuple[str, int]] = []
    machine.member.heartbeat.unmet = lambda ip, port: given_up.append((ip, port))
    machine.member.meet("10.9.9.9", 7711)
    wires.run(gone_after - 0.2)
    assert len(machine.member.others()) == 1
    assert not given_up
    assert 2 <= len(machine.connects) <= 2 * gone_after
    wires.run(0.5)
    assert machine.member.others() == []
    assert machine.saves == 0
    assert given_up == [("10.9.9.9", 7711)]


def test_a_handshake_with_an_address_that_never_answers_leaves_the_connection_to_tcp() -> None:
    wires = Wires()
    machine, silent = wires.add(2)
    wires.isolate(silent)
    machine.member.meet(silent.ip, silent.port)
    wires.run(14)
    assert machine.connects == [(silent.ip, silent.port + 10_000)]
    wires.run(137)
    assert 2 <= len(machine.connects) <= 10
    assert machine.member.others() == []


@pytest.mark.parametrize("seconds", [8, 60, 140])
def test_a_node_that_starts_after_it_was_met_is_met(seconds: int) -> None:
    wires = Wires()
    first, late = wires.add(2)
    late.crash()
    first.member.meet(late.ip, late.port)
    wires.run(seconds)
    late.boot(late.id)
    wires.wait(wires.meshed, 3)


@pytest.mark.parametrize("seconds", [8, 60, 120])
def test_a_node_whose_answers_are_lost_for_a_while_is_met(seconds: int) -> None:
    wires = Wires()
    first, second = wires.add(2)
    wires.block((second, first))
    first.member.meet(second.ip, second.port)
    wires.run(seconds)
    wires.blocked.clear()
    wires.wait(wires.meshed, 16)


in_python = pytest.mark.skipif(
    not isfunction(Heartbeat.begin_handshake), reason="a compiled method cannot be replaced"
)


@in_python
def test_a_node_that_cannot_take_another_in_at_once_does_so_later() -> None:
    wires = Wires()
    first, second = wires.add(2)
    second.member.heartbeat.begin_handshake = lambda *args, **kwargs: None  # type: ignore[method-assign]
    first.member.meet(second.ip, second.port)
    wires.run(100)
    assert first.knows(second)
    assert not second.knows(first)
    del second.member.heartbeat.begin_handshake
    wires.wait(wires.meshed, 3)


@in_python
def test_a_node_that_never_takes_another_in_is_no_longer_met_after_a_while() -> None:
    wires = Wires()
    first, second = wires.add(2)
    given_up: list[tuple[str, int]] = []
    first.member.heartbeat.unmet = lambda ip, port: given_up.append((ip, port))
    second.member.heartbeat.begin_handshake = lambda *args, **kwargs: None  # type: ignore[method-assign]
    first.member.meet(second.ip, second.port)
    wires.run(148)
    assert not given_up
    wires.run(10)
    assert given_up == [(second.ip, second.port)]
    sent = first.member.messages_sent
    wires.run(100)
    assert first.member.messages_sent - sent <= 101


@in_python
def test_meeting_a_member_that_has_forgotten_this_node_brings_it_back() -> None:
    wires = Wires()
    first, second = wires.join(2)
    assert second.member.forget(first.id)
    begin = second.member.heartbeat.begin_handshake
    second.member.heartbeat.begin_handshake = lambda *args, **kwargs: None  # type: ignore[method-assign]
    first.member.meet(second.ip, second.port)
    wires.run(5)
    second.member.heartbeat.begin_handshake = begin  # type: ignore[method-assign]
    wires.wait(wires.meshed, 3)


def test_more_nodes_than_one_greets_at_once_may_meet_it() -> None:
    wires = Wires()
    first, *others = wires.add(140)
    for other in others:
        other.member.meet(first.ip, first.port)
    wires.wait(lambda: first.member.size == 140, 5)


def test_a_ping_of_a_stranger_is_answered_and_does_not_let_it_in() -> None:
    wires = Wires()
    first, second = wires.join(2)
    second.conf = ""
    second.crash()
    second.boot(second.id)  # it has lost its nodes.conf
    wires.run(40)
    assert first.knows(second)
    assert first.reaches(second)
    assert not second.knows(first)


def test_jobs_pass_between_members_only() -> None:
    wires = Wires()
    first, second, stranger = wires.add(3)
    first.member.meet(second.ip, second.port)
    wires.wait(lambda: wires.meshed([first, second]), 3)
    packet = first.member.packets.about_job(11, b"j" * 40)
    sent, received = first.member.messages_sent, second.member.messages_received
    first.member.send(second.id, packet)
    assert first.member.messages_sent == sent + 1
    wires.run(0.02)
    assert second.member.messages_received == received + 1
    assert second.jobs == [(first.id, packet)]
    (link,) = [link for link in second.links if not link.outgoing]
    forged = PacketWriter(stranger.id, 7711).about_job(11, b"j" * 40)
    second.receive(link, forged, wires.now)
    assert len(second.jobs) == 1


def test_what_is_sent_to_a_node_without_a_connection_is_lost() -> None:
    wires = Wires()
    first, second = wires.join(2)
    second.crash()
    wires.run(0.1)
    sent = first.member.messages_sent
    first.member.send(second.id, b"x")
    first.member.send(b"f" * 40, b"x")
    assert first.member.messages_sent == sent
    assert not first.member.linked(second.id)
    assert not first.member.linked(b"f" * 40)


# ---- addresses ----------------------------------------------------------------------------------


def test_a_node_that_restarts_on_another_port_is_followed() -> None:
    wires = Wires()
    machines = wires.join(3)
    moved = machines[2]
    moved.crash()
    moved.port = 8811
    moved.boot(b"0" * 40)
    assert moved.id != b"0" * 40  # the saved ID counts
    wires.wait(wires.meshed, 5)
    assert machines[0].line(moved).port == 8811
    assert machines[1].line(moved).port == 8811


def test_a_node_that_restarts_on_another_machine_is_followed() -> None:
    wires = Wires()
    machines = wires.join(3)
    moved = machines[2]
    moved.crash()
    moved.ip = "10.0.0.99"
    wires.run(40)  # it is down by now
    moved.boot(b"0" * 40)
    wires.wait(wires.meshed, 10)
    assert machines[0].line(moved).ip == "10.0.0.99"


def test_an_announced_address_counts_more_than_that_of_the_connection() -> None:
    wires = Wires()
    first, second = wires.add(2)
    second.source_ip = "192.168.0.7"  # behind NAT
    second.member.packets.ip = second.ip
    second.member.packets.refresh()
    second.member.meet(first.ip, first.port)
    wires.wait(wires.meshed, 3)
    wires.run(30)
    assert wires.meshed()
    assert first.line(second).ip == second.ip
    assert second.member.endpoint() == (second.ip, second.port)


def test_another_node_at_the_address_of_a_member_is_not_taken_for_it() -> None:
    wires = Wires()
    first, second, usurper = wires.join(3)
    second.crash()
    wires.machines.remove(second)
    usurper.crash()
    usurper.ip = second.ip
    usurper.boot(b"0" * 40)
    wires.wait(lambda: first.line(second).ip == "", 5)
    assert " :0 noaddr " in first.member.describe()
    assert not first.reaches(second)
    assert first.reaches(usurper)
    assert first.line(usurper).ip == usurper.ip
    wires.machines.append(second)
    second.ip = "10.0.0.50"
    second.boot(second.id)
    wires.wait(wires.meshed, 5)
    assert first.line(second).ip == "10.0.0.50"


def test_two_nodes_with_one_id_do_not_take_each_other_in() -> None:
    wires = Wires()
    first, clone = wires.add(2)
    clone.boot(first.id)
    first.member.meet(clone.ip, clone.port)
    wires.run(3)
    assert first.member.others() == clone.member.others() == []
    assert first.member.size == 1


@pytest.mark.parametrize(
    ("ips", "learned"),
    [
        (["10.0.0.1", "127.0.0.1"], "10.0.0.1"),
        (["127.0.0.1", "10.0.0.1"], "10.0.0.1"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.2"),
        (["::ffff:10.0.0.1"], "10.0.0.1"),
        (["fd00::1", "::1"], "fd00::1"),
        (["127.0.0.1"], "127.0.0.1"),
        (["nonsense", ""], ""),
    ],
)
def test_the_own_ip_is_the_one_by_which_others_met_it(ips: list[str], learned: str) -> None:
    wires = Wires()
    machine, other = wires.join(2)
    machine.member.me.ip = ""
    (link,) = [link for link in machine.links if not link.outgoing]
    for ip in ips:
        link.local_ip = ip
        machine.receive(link, other.member.packets.gossip(2, []), wires.now)
    assert machine.member.endpoint()[0] == learned


def test_a_ping_teaches_the_own_ip_only_if_it_was_unknown_or_of_no_use_to_others() -> None:
    wires = Wires()
    machine, other = wires.join(2)
    (link,) = [link for link in machine.links if not link.outgoing]
    machine.member.me.ip = ""
    for ip, learned in [
        ("127.0.0.1", "127.0.0.1"), ("10.0.0.1", "10.0.0.1"), ("10.0.0.2", "10.0.0.1"),
    ]:  # fmt: skip
        link.local_ip = ip
        machine.receive(link, other.member.packets.gossip(0, []), wires.now)
        assert machine.member.endpoint()[0] == learned


def test_the_own_ip_of_a_time_before_a_restart_is_replaced_by_the_next_that_is_used() -> None:
    wires = Wires()
    machines = wires.join(2)
    moved = machines[0]
    wires.run(1)
    moved.crash()
    moved.ip = "10.0.0.66"
    moved.boot(b"0" * 40)
    assert moved.member.endpoint()[0] == "10.0.0.1"
    wires.wait(wires.meshed, 5)
    wires.run(10)
    assert moved.member.endpoint()[0] == "10.0.0.66"
    (link,) = [link for link in moved.links if not link.outgoing]
    link.local_ip = "10.0.0.67"  # another of its addresses
    moved.receive(link, machines[1].member.packets.gossip(PING, []), wires.now)
    assert moved.member.endpoint()[0] == "10.0.0.66"


@pytest.mark.parametrize(
    ("ip", "port", "followed"),
    [
        ("10.0.0.77", 7711, True),
        ("10.0.0.77", 8811, True),
        ("10.0.0.2", 8811, True),
        ("127.0.0.1", 7711, False),  # works from this machine only, and the known one works too
        ("127.0.0.1", 8811, True),  # the known one no longer works
        ("nonsense", 7711, False),
        ("10.0.0.77", 0, False),
        ("10.0.0.77", 60_000, False),
    ],
)
def test_a_member_that_pings_from_another_address_is_followed_if_that_is_of_use(
    ip: str, port: int, followed: bool
) -> None:
    wires = Wires()
    first, second = wires.join(2)
    wires.run(1)
    (link,) = [link for link in first.links if not link.outgoing]
    link.remote_ip = ip
    packet = PacketWriter(second.id, port).gossip(PING, [])
    first.receive(link, packet, wires.now)
    line = first.line(second)
    assert (line.ip, line.port) == ((ip, port) if followed else (second.ip, second.port))
    assert first.member.linked(second.id) is not followed
    assert first.member.config_changed is followed


def test_a_loopback_address_is_followed_when_the_known_one_does_not_work() -> None:
    wires = Wires()
    first, second = wires.join(2)
    (link,) = [link for link in first.links if not link.outgoing]
    (out,) = [link for link in first.links if link.outgoing]
    out.close()
    first.member.lost(out, wires.now)
    link.remote_ip = "127.0.0.1"
    first.receive(link, second.member.packets.gossip(PING, []), wires.now)
    assert first.line(second).ip == "127.0.0.1"


def handshake_with(machine: Machine, other: Machine, ip: str, hearsay_of: Machine | None) -> None:
    """Have ``machine`` begin a handshake with ``ip``, which ``other`` answers."""
    wires = machine.wires
    if hearsay_of is None:
        machine.member.meet(ip, other.port)
    else:
        machine.member._known[other.id].flags |= NODE_PFAIL
        entry = Gossip(other.id, 0, 0, ip, other.port, 0)
        (link,) = [
            k for k in machine.links if not k.outgoing and k.other and k.other.machine is hearsay_of
        ]
        machine.receive(link, hearsay_of.member.packets.gossip(PING, [entry]), wires.now)
        machine.member._known[other.id].flags &= ~NODE_PFAIL
    machine.member.cron(wires.now)
    (handshake,) = machine.member._members.handshakes.values()
    link = handshake.link  # type: ignore[assignment]
    link.up = True
    link.remote_ip = ip
    machine.receive(link, other.member.packets.gossip(PONG, []), wires.now)
    assert not machine.member._members.handshakes


def test_hearsay_does_not_move_a_member_that_is_well_but_a_meet_does() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    handshake_with(first, third, "10.0.0.88", second)
    assert first.line(third).ip == third.ip
    handshake_with(first, third, "10.0.0.88", None)
    assert first.line(third).ip == "10.0.0.88"


def test_a_member_without_an_address_is_found_by_hearsay() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    member = first.member._known[third.id]
    first.member.heartbeat.unlink(member)
    member.flags |= NODE_NOADDR
    member.ip, member.port = "", 0
    entry = Gossip(third.id, 0, 0, third.ip, third.port, 0)
    (link,) = [k for k in first.links if not k.outgoing and k.other and k.other.machine is second]
    wires.block((third, first))  # it cannot say so itself
    first.receive(link, second.member.packets.gossip(PING, [entry]), wires.now)
    wires.blocked.clear()
    wires.wait(wires.meshed, 2)


def handshakes(machine: Machine) -> int:
    return sum(line.count("handshake") for line in machine.member.describe().splitlines())


def test_a_handshake_is_no_flag_of_a_member() -> None:
    wires = Wires()
    first, second = wires.join(2)
    assert handshakes(first) == 0
    assert first.line(second).flags & NODE_HANDSHAKE == 0
