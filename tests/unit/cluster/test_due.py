"""The periodic work of the membership is due only when there is something to do."""

from disque_trio.cluster.heartbeat import MAX_STEP, PING_PERIOD
from disque_trio.protocol.bus import NODE_NOADDR
from tests.support.cluster_bench import Wires


def test_a_node_that_is_alone_has_nothing_to_do_until_it_meets_another() -> None:
    wires = Wires()
    (alone,) = wires.add(1)
    wires.run(1)
    heartbeat = alone.member.heartbeat
    assert heartbeat.next_due() == 0
    hurried: list[int] = []
    heartbeat.hurry = lambda: hurried.append(1)
    alone.member.meet("10.0.0.99", 7711)
    assert hurried
    assert 0 < heartbeat.next_due() <= wires.now + PING_PERIOD


def test_nodes_that_are_well_have_nothing_to_do_but_to_ping_once_in_a_second() -> None:
    wires = Wires()
    machines = wires.join(3)
    wires.run(5)
    crons = [0] * 3
    for _ in range(1_000):
        before = [machine.cron_at for machine in machines]
        wires.run(0.01)
        for number, machine in enumerate(machines):
            crons[number] += machine.cron_at != before[number]
    assert all(10 <= count <= 11 for count in crons)


def test_a_node_whose_address_is_not_known_any_more_gives_nothing_to_do() -> None:
    wires = Wires()
    machines = wires.join(3)
    wires.run(5)
    first, _, lost = machines
    line = first.member._known[lost.id]
    line.flags |= NODE_NOADDR
    first.member.heartbeat.unlink(line)
    lost.up = False
    crons = 0
    for _ in range(1_000):
        before = first.cron_at
        wires.run(0.01)
        crons += first.cron_at != before
    assert crons <= 12


def test_pings_that_are_due_at_about_the_same_time_take_one_turn() -> None:
    wires = Wires()
    first, *_ = wires.join(60)
    wires.run(20)
    turns, sent = 0, first.member.messages_sent
    for _ in range(1_000):
        before = first.cron_at
        wires.run(0.01)
        turns += first.cron_at != before
    assert first.member.messages_sent - sent >= 2 * 59  # its PINGs, and its PONGs
    assert turns <= 30


def test_a_node_timeout_that_is_lowered_counts_at_once() -> None:
    wires = Wires(node_timeout=60_000)
    first, second = wires.join(2)
    wires.isolate(second)
    wires.run(5)
    first.member.heartbeat.node_timeout = 1_000
    wires.wait(lambda: not first.reaches(second), 3)


def test_to_wait_for_what_is_due_is_not_to_stand_still() -> None:
    wires = Wires()
    machines = wires.join(2)
    wires.run(5)
    heartbeat = machines[0].member.heartbeat
    wires.wait(lambda: machines[0].member.heartbeat.next_due() > wires.now + MAX_STEP, 2)
    due = heartbeat.next_due()
    began, time = heartbeat.now, heartbeat.time
    heartbeat.pass_time(due)
    assert heartbeat.time - time == due - began
    heartbeat.pass_time(due + 3_600_000)
    assert heartbeat.time - time == due - began + MAX_STEP


def test_a_node_that_was_alone_for_long_meets_another_all_the_same() -> None:
    wires = Wires(node_timeout=1_000)
    first, second = wires.add(2)
    wires.run(3_600)
    first.member.meet(second.ip, 7711)
    wires.wait(wires.meshed, 2)
