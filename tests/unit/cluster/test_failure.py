"""Failure detection: which nodes count as alive."""

import pytest

from disque_trio.protocol.bus import (
    GOTJOB,
    NODE_FAIL,
    NODE_LEAVING,
    NODE_MYSELF,
    NODE_PFAIL,
    PING,
    PONG,
    Gossip,
    packet_type,
    read_gossip,
)
from tests.support.cluster_bench import START, Machine, MemoryLink, Wires


def state(machine: Machine, other: Machine) -> int:
    return machine.line(other).flags & (NODE_PFAIL | NODE_FAIL)


def states(machines: list[Machine]) -> list[dict[str, int]]:
    """In which states each of ``machines`` says that nodes are, and how many."""
    return [machine.member.states() for machine in machines]


def link_to(machine: Machine, other: Machine) -> MemoryLink:
    """Return the outgoing link of ``machine`` to ``other``."""
    (link,) = [
        link for link in machine.links if link.outgoing and link.other and link.other.up
        and link.other.machine is other
    ]  # fmt: skip
    return link


@pytest.mark.parametrize("count", [3, 5, 9])
def test_a_dead_node_is_suspected_then_down_and_comes_back(count: int) -> None:
    wires = Wires()
    *rest, dead = wires.join(count)
    dead.crash()
    died = wires.now
    wires.run(14)
    assert all(state(machine, dead) == 0 for machine in rest)
    assert states(rest) == [{"ok": count, "pfail": 0, "fail": 0, "handshake": 0}] * (count - 1)
    wires.wait(lambda: any(state(machine, dead) == NODE_PFAIL for machine in rest), 10)
    assert {"ok": count - 1, "pfail": 1, "fail": 0, "handshake": 0} in states(rest)
    wires.wait(lambda: all(state(machine, dead) == NODE_FAIL for machine in rest), 15)
    assert states(rest) == [{"ok": count - 1, "pfail": 0, "fail": 1, "handshake": 0}] * (count - 1)
    assert wires.now - died < 31_000
    for machine in rest:
        assert not machine.reaches(dead)
        assert machine.priority(dead) == 100
        assert machine.member.size == count  # still a member
        assert machine.knows(dead)
    assert wires.meshed(rest) is False
    dead.boot(dead.id)
    wires.wait(wires.meshed, 3)
    assert all(state(machine, dead) == 0 for machine in rest)


def test_of_two_nodes_none_is_ever_down() -> None:
    wires = Wires()
    first, second = wires.join(2)
    wires.run(1)
    saves = first.saves
    second.crash()
    wires.wait(lambda: state(first, second) == NODE_PFAIL, 30)
    assert first.saves == saves  # a suspicion alone is not saved
    assert not first.reaches(second)
    assert first.priority(second) == 10
    wires.run(120)
    assert state(first, second) == NODE_PFAIL
    second.boot(second.id)
    wires.wait(wires.meshed, 3)


def test_a_minority_does_not_take_the_majority_to_be_down() -> None:
    wires = Wires()
    machines = wires.join(5)
    few, many = machines[:2], machines[2:]
    for one in few:
        for other in many:
            wires.block((one, other), (other, one))
    wires.run(90)
    assert {state(one, other) for one in few for other in many} == {NODE_PFAIL}
    assert {state(one, other) for one in many for other in few} == {NODE_FAIL}
    assert few[0].reaches(few[1])
    wires.blocked.clear()
    wires.wait(wires.meshed, 20)
    wires.run(60)
    assert wires.meshed()


def test_a_node_that_hears_nothing_suspects_all_and_is_suspected_by_all() -> None:
    wires = Wires()
    machines = wires.join(4)
    deaf = machines[0]
    wires.block(*[(other, deaf) for other in machines[1:]])
    wires.run(90)
    assert {state(deaf, other) for other in machines[1:]} == {NODE_PFAIL}
    assert {state(other, deaf) for other in machines[1:]} == {NODE_FAIL}
    wires.blocked.clear()
    wires.wait(wires.meshed, 20)


def test_a_link_that_dies_in_silence_is_replaced_before_the_node_is_suspected() -> None:
    wires = Wires()
    first, second, _ = wires.join(3)
    wires.run(16)
    stuck = link_to(first, second)
    stuck.other = None  # packets sent over it are lost
    for _ in range(400):
        wires.run(0.1)
        assert state(first, second) == 0
    assert stuck.closed
    assert wires.meshed()


def test_a_connection_that_is_never_answered_is_tried_again() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    wires.block((first, second), (second, first))
    link_to(first, second).close()
    first.connects.clear()
    wires.run(60)
    tried = [ip for ip, _ in first.connects if ip == second.ip]
    assert 5 <= len(tried) <= 12  # every half node timeout
    assert state(first, second) == NODE_PFAIL
    assert state(third, second) == 0  # one report, without its own view: no majority of three
    wires.blocked.clear()
    wires.wait(wires.meshed, 10)


def test_links_that_flap_do_no_harm() -> None:
    wires = Wires()
    machines = wires.join(5)
    for turn in range(120):
        machine = machines[turn % 5]
        for link in list(machine.links)[: 1 + turn % 4]:
            link.close()
            # The transport closed the link, so the membership has lost it too.
            machine.member.lost(link, wires.now)
        wires.run(0.7)
        assert not any(state(m, o) for m in machines for o in machines if o is not m)
    wires.wait(wires.meshed, 3)


def test_tries_of_a_refused_connection_become_rarer_up_to_one_a_second() -> None:
    wires = Wires()
    first, second = wires.join(2)
    second.crash()
    wires.run(10)
    first.connects.clear()
    wires.run(60)
    assert 50 <= len(first.connects) <= 70
    second.boot(second.id)
    wires.wait(wires.meshed, 2)


def test_a_process_that_stood_still_suspects_nobody() -> None:
    wires = Wires()
    machines = wires.join(3)
    sleeper = machines[0]
    sleeper.up = False
    wires.run(10)
    sleeper.up = True
    wires.now += 600_000  # as after a suspend
    sleeper.member.cron(wires.now)
    assert all(sleeper.reaches(other) for other in machines[1:])
    wires.wait(wires.meshed, 20)


@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000, -1])
def test_a_clock_that_is_set_changes_nothing(jump: int) -> None:
    wires = Wires()
    machines = wires.join(3)
    machines[2].crash()
    wires.run(1)
    wires.now += jump
    wires.run(10)
    assert machines[0].reaches(machines[1])
    assert machines[0].reaches(machines[2])
    line = machines[0].line(machines[1])
    assert 0 <= wires.now - line.pong_received < 8000  # the shown time follows the clock
    line = machines[0].line(machines[2])
    assert 10_000 < wires.now - line.ping_sent < 12_000
    wires.wait(lambda: state(machines[0], machines[2]) == NODE_FAIL, 30)
    assert machines[0].reaches(machines[1])


def incoming(machine: Machine, other: Machine) -> MemoryLink:
    """Return the link over which ``other`` talks to ``machine``."""
    (link,) = [
        k for k in machine.links if not k.outgoing and k.up and k.other and k.other.machine is other
    ]
    return link


def report(to: Machine, by: Machine, about: Machine, flags: int) -> None:
    """Have ``by`` report ``flags`` of ``about`` to ``to``."""
    entry = Gossip(about.id, 0, 0, about.ip, about.port, flags)
    packet = by.member.packets.gossip(PONG, [entry])
    to.receive(incoming(to, by), packet, to.wires.now)


def silent_death(wires: Wires, count: int) -> list[Machine]:
    """Return a cluster whose last node is dead and whose first hears nothing from the others."""
    machines = wires.join(count)
    for other in machines[1:]:
        wires.block((other, machines[0]))
    machines[-1].crash()
    return machines


def test_a_report_that_is_taken_back_does_not_count() -> None:
    wires = Wires()
    first, second, third, dead = silent_death(wires, 4)
    wires.wait(lambda: state(first, dead) == NODE_PFAIL, 30)
    report(first, second, dead, NODE_PFAIL)
    report(first, second, dead, 0)
    report(first, third, dead, NODE_FAIL)
    assert state(first, dead) == NODE_PFAIL  # two of four
    report(first, second, dead, NODE_PFAIL)
    assert state(first, dead) == NODE_FAIL


def test_reports_that_came_before_the_own_suspicion_count() -> None:
    wires = Wires()
    first, second, third, dead = silent_death(wires, 4)
    wires.run(8)
    report(first, second, dead, NODE_PFAIL)
    report(first, third, dead, NODE_PFAIL)
    assert state(first, dead) == 0
    wires.run(15)
    assert state(first, dead) == NODE_FAIL


def test_the_reports_of_a_node_that_is_forgotten_do_not_count() -> None:
    wires = Wires()
    first, second, third, fourth, dead = silent_death(wires, 5)
    wires.wait(lambda: state(first, dead) == NODE_PFAIL, 30)
    report(first, second, dead, NODE_PFAIL)
    assert first.member.forget(second.id)
    report(first, third, dead, NODE_PFAIL)
    assert state(first, dead) == NODE_PFAIL  # two of four
    report(first, fourth, dead, NODE_PFAIL)
    assert state(first, dead) == NODE_FAIL


def test_that_a_node_is_down_and_up_again_is_saved() -> None:
    wires = Wires()
    first, _, dead = wires.join(3)
    dead.crash()
    wires.wait(lambda: state(first, dead) == NODE_FAIL, 40)
    wires.run(0.1)
    assert " fail " in first.conf
    dead.boot(dead.id)
    wires.wait(wires.meshed, 5)
    wires.run(0.1)
    assert " fail " not in first.conf


@pytest.mark.parametrize("count", [3, 20])
def test_every_member_is_asked_for_an_answer_in_half_a_node_timeout(count: int) -> None:
    wires = Wires(4000)
    machines = wires.join(count)
    wires.run(3)
    for _ in range(100):
        wires.run(0.1)
        for line in machines[0].nodes().others:
            assert wires.now - line.pong_received <= 2300


def test_an_old_report_does_not_count() -> None:
    wires = Wires()
    first, second, dead = wires.join(3)
    (link,) = [k for k in first.links if not k.outgoing and k.other and k.other.machine is second]
    entry = Gossip(dead.id, 0, 0, dead.ip, dead.port, NODE_PFAIL)
    first.receive(link, second.member.packets.gossip(PONG, [entry]), wires.now)
    wires.isolate(second)
    wires.run(25)
    dead.crash()
    wires.run(16)
    assert state(first, dead) == NODE_PFAIL


def test_a_verdict_is_believed_and_does_not_last_if_the_node_answers() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    (link,) = [k for k in first.links if not k.outgoing and k.other and k.other.machine is second]
    packet = second.member.packets.fail(third.id)
    first.receive(link, packet, wires.now)
    assert state(first, third) == NODE_FAIL
    assert not first.reaches(third)
    wires.wait(lambda: state(first, third) == 0, 8)
    assert first.reaches(third)


@pytest.mark.parametrize("about", ["itself", "a stranger"])
def test_a_verdict_about_oneself_or_a_stranger_changes_nothing(about: str) -> None:
    wires = Wires()
    first, second = wires.join(2)
    (link,) = [link for link in first.links if not link.outgoing]
    before = first.member.describe()
    id = first.id if about == "itself" else b"f" * 40
    first.receive(link, second.member.packets.fail(id), wires.now)
    assert first.member.describe() == before


def test_gossip_of_strangers_is_not_believed() -> None:
    wires = Wires()
    first, second, dead, stranger = *wires.join(3), *wires.add(1)
    (link,) = [k for k in first.links if not k.outgoing and k.other and k.other.machine is second]
    entry = Gossip(dead.id, 0, 0, dead.ip, dead.port, NODE_FAIL)
    unknown = Gossip(b"e" * 40, 0, 0, "10.7.7.7", 7711, 0)
    packets = stranger.member.packets
    first.receive(link, packets.gossip(PING, [entry, unknown]), wires.now)
    first.receive(link, packets.fail(dead.id), wires.now)
    assert state(first, dead) == 0
    assert len(first.member.others()) == 2


# ---- leaving ------------------------------------------------------------------------------------


def test_a_node_that_leaves_is_known_to_the_others_soon_and_is_not_reachable() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    third.member.set_leaving(True)
    wires.run(0.1)
    assert not first.reaches(third)
    assert not second.reaches(third)
    assert first.line(third).flags == NODE_LEAVING
    assert first.priority(third) == 100
    assert first.member.linked(third.id)
    assert third.reaches(first)
    assert third.nodes().myself.flags == NODE_MYSELF | NODE_LEAVING
    third.member.set_leaving(False)
    wires.wait(wires.meshed, 10)


def test_leaving_lasts_over_a_restart() -> None:
    wires = Wires()
    first, second = wires.join(2)
    second.member.set_leaving(True)
    wires.run(10)
    for machine in (first, second):
        machine.crash()
        machine.boot(b"0" * 40)
    assert second.member.leaving
    assert not first.reaches(second)
    wires.run(10)
    assert second.member.leaving
    assert not first.reaches(second)
    assert first.member.linked(second.id)


def test_only_a_node_itself_can_say_that_it_leaves() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    (link,) = [k for k in first.links if not k.outgoing and k.other and k.other.machine is second]
    entry = Gossip(third.id, 0, 0, third.ip, third.port, NODE_LEAVING)
    first.receive(link, second.member.packets.gossip(PING, [entry]), wires.now)
    assert first.reaches(third)


# ---- gossip -------------------------------------------------------------------------------------


def told(machine: Machine, link: MemoryLink) -> list[Gossip]:
    """Return the gossip that ``machine`` sends over ``link`` when it is pinged."""
    sent: list[bytes] = []

    class Tap(MemoryLink):
        def send(self, packet: bytes) -> None:
            sent.append(packet)

    tap = Tap(machine, False)
    tap.up = True
    assert link.other is not None
    machine.receive(tap, link.machine.member.packets.gossip(PING, []), machine.wires.now)
    (packet,) = sent
    assert packet_type(packet) == PONG
    return read_gossip(packet)


def test_a_pong_tells_of_three_others_in_a_small_cluster_and_not_of_who_asks() -> None:
    wires = Wires()
    machines = wires.join(7)
    entries = told(machines[0], link_to(machines[1], machines[0]))
    assert len({entry.id for entry in entries}) == 3
    assert not {entry.id for entry in entries} & {machines[0].id, machines[1].id}
    for entry in entries:
        (machine,) = [m for m in machines if m.id == entry.id]
        assert (entry.ip, entry.port) == (machine.ip, machine.port)
        assert entry.flags == 0
        lag = (wires.now - entry.pong_received) & 0xFFFFFFFF  # the packet has the lower 32 bits
        assert 0 <= lag < 10_000
    assert wires.now > START


def test_a_pong_tells_c_nodes_and_new_ones_of_a_tenth_of_a_large_cluster_and_others_of_three() -> (
    None
):
    wires = Wires()
    first, second, other = wires.join(60)[:3]
    stranger, *_ = wires.add(1)
    assert len(told(first, link_to(second, first))) == 3
    stranger.member.meet(first.ip, first.port)
    wires.wait(lambda: first.knows(stranger), 1)
    assert not first.member._known[stranger.id].pinged
    assert len(told(first, link_to(stranger, first))) == 6
    other.member.set_extensions("no")  # like a C node
    told(first, link_to(other, first))
    assert len(told(first, link_to(other, first))) == 6


def test_what_a_node_sends_grows_no_faster_than_its_cluster() -> None:
    sent = []
    for count in (30, 60):
        wires = Wires()
        machines = wires.join(count)
        wires.run(20)
        before = sum(machine.bytes_received for machine in machines)
        wires.run(15)
        sent.append((sum(machine.bytes_received for machine in machines) - before) / count)
    assert sent[1] < 2.2 * sent[0]


def test_a_pong_tells_of_all_nodes_that_are_suspected() -> None:
    wires = Wires()
    machines = wires.join(9)
    for dead in machines[4:]:
        dead.crash()
    wires.wait(lambda: all(state(machines[0], dead) == NODE_PFAIL for dead in machines[4:]), 40)
    entries = told(machines[0], link_to(machines[1], machines[0]))
    assert {dead.id for dead in machines[4:]} <= {entry.id for entry in entries}


def test_gossip_omits_handshakes_and_nodes_without_an_address() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    first.member.meet("10.9.9.9", 7711)
    assert [entry.id for entry in told(first, link_to(second, first))] == [third.id]
    line = first.member._known[third.id]
    line.flags |= 16
    assert told(first, link_to(second, first)) == []


def died_long_before_a_ping(wires: Wires) -> tuple[Machine, Machine, Machine]:
    """A cluster of three nodes, the last of which dies when the first one has just heard of it:
    the next PING is due half a node timeout later."""
    first, second, dead = wires.join(3)
    wires.run(20)
    wires.isolate(dead)
    wires.wait(lambda: not first.member._known[dead.id].ping_sent, 1)
    return first, second, dead


def test_a_node_that_owes_an_answer_and_says_nothing_is_suspected_after_the_node_timeout() -> None:
    wires = Wires()
    first, second, dead = died_long_before_a_ping(wires)
    first.member.expect([dead.id, second.id], wires.now)
    wires.run(14.9)
    assert first.reaches(dead)
    first.member.expect([dead.id], wires.now)  # still: this is no reason to wait longer
    wires.run(0.3)
    assert state(first, dead) == NODE_PFAIL
    assert first.reaches(second)
    assert state(second, dead) == 0  # which expects nothing


@pytest.mark.parametrize("type", [GOTJOB, PING])
def test_a_node_that_says_anything_has_answered(type: int) -> None:
    wires = Wires()
    first, _, dead = died_long_before_a_ping(wires)
    first.member.expect([dead.id], wires.now)
    wires.run(10)
    packets = dead.member.packets
    packet = packets.gossip(PING, []) if type == PING else packets.about_job(type, b"D" * 40)
    first.receive(MemoryLink(first, False), packet, wires.now)
    wires.run(6)
    assert first.reaches(dead)
    first.member.expect([dead.id], wires.now)
    wires.run(15.2)
    assert not first.reaches(dead)


def test_a_node_that_is_well_owes_nothing_for_long() -> None:
    wires = Wires()
    first, second, third = wires.join(3)
    for _ in range(60):
        first.member.expect([second.id, third.id], wires.now)
        wires.run(2)
        assert first.reaches(second)
        assert first.reaches(third)
