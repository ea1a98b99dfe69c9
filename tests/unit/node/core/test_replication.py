"""Copies: how a job gets them, and what its producer is told."""

import pytest

from disque_trio.node.core.jobs.job import WAIT_REPL
from disque_trio.node.core.queues.queue import PAUSED_IN
from disque_trio.protocol import bus
from tests.support.mesh import START, Mesh


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def ask(mesh: Mesh, *args: str | int, timeout: int = 0) -> None:
    """Send ADDJOB to node 0; the reply is read later."""
    mesh[0].send(mesh[0].me, "ADDJOB", "q", "body", timeout, *args)


def replies(mesh: Mesh) -> list[str]:
    return [str(r) if not isinstance(r, bytes) else r.decode() for r in mesh[0].replies(mesh[0].me)]


def test_a_job_is_queued_and_confirmed_only_when_its_copies_are(mesh: Mesh) -> None:
    ask(mesh, "REPLICATE", 3)
    assert replies(mesh) == []
    assert mesh[0].me.in_flight == 1
    assert mesh[0].node.queues.by_name.get(b"q") is None
    (job,) = mesh[0].node.store.jobs.values()
    id = job.id
    assert job.state == WAIT_REPL
    mesh.settle()
    assert replies(mesh) == [id.decode()]
    assert mesh.states(id) == ["queued", "active", "active"]
    assert mesh[0].me.in_flight == 0


def test_every_holder_knows_all_holders(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3)
    for bench in mesh.nodes:
        holders = bench.show(id)[b"nodes-delivered"]
        assert isinstance(holders, list)
        assert sorted(holders) == sorted(mesh.ids)


def test_a_copy_has_the_fields_of_the_job_and_its_time_runs_from_its_arrival(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 7, "TTL", 100, "DELAY", 3)
    first, other = mesh.holders(id)
    fields = mesh[other].show(id)
    own = mesh[first].show(id)
    for name in (b"queue", b"body", b"repl", b"retry", b"delay", b"ctime", b"nacks"):
        assert fields[name] == own[name]
    assert fields[b"ttl"] in (100, 101)
    assert fields[b"next-requeue-within"] == 10_000


def test_async_answers_at_once_and_the_copies_follow(mesh: Mesh) -> None:
    ask(mesh, "REPLICATE", 3, "ASYNC")
    (id,) = replies(mesh)
    assert mesh.states(id.encode()) == ["queued", "", ""]
    mesh.settle()
    assert mesh.states(id.encode()) == ["queued", "active", "active"]
    assert mesh.told("gotjob") == []


def test_one_more_node_is_tried_every_50_ms() -> None:
    mesh = Mesh(6)
    ring = sorted(range(6), key=mesh.ids.__getitem__)
    last = ring[ring.index(0) - 1]
    mesh.lose = lambda source, target, packet: target not in (0, last)
    ask(mesh, "REPLICATE", 2)
    mesh.settle()
    (job,) = mesh[0].node.store.jobs.values()
    for tried in range(1, 5):
        assert len(job.delivered or ()) == 1 + tried
        assert replies(mesh) == []
        mesh.advance(0.05)
    assert replies(mesh) == [job.id.decode()]
    assert mesh.holders(job.id) == sorted([0, last])


def test_an_answer_is_expected_of_nodes_that_do_not_confirm(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: target == 2
    ask(mesh, "REPLICATE", 3)
    mesh.advance(0.06)
    assert mesh.peers[0].expected == {mesh.ids[2]}


def test_what_was_lost_on_the_way_is_sent_again(mesh: Mesh) -> None:
    lost = []

    def lose(source: int, target: int, packet: bytes) -> bool:
        if bus.packet_type(packet) == bus.REPLJOB and len(lost) < 4:
            lost.append(target)
            return True
        return False

    mesh.lose = lose
    ask(mesh, "REPLICATE", 3)
    mesh.advance(2)
    (id,) = replies(mesh)
    assert mesh.holders(id.encode()) == [0, 1, 2]


def test_too_few_confirmations_in_time_is_an_error_and_cleans_up(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: (
        target == 2 and bus.packet_type(packet) == bus.REPLJOB
    )
    ask(mesh, "REPLICATE", 3, timeout=500)
    mesh.advance(0.4)
    assert replies(mesh) == []
    mesh.advance(0.2)
    assert replies(mesh) == [
        "NOREPL Timeout reached before replicating to the requested number of nodes"
    ]
    assert [bench.node.store.jobs.count for bench in mesh.nodes] == [0, 0, 0]
    assert mesh[0].node.memory.used == mesh[0].counted_memory()


def test_a_time_to_live_that_ends_first_is_an_error(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: source == 0
    ask(mesh, "REPLICATE", 3, "TTL", 2)
    mesh.advance(4)
    assert replies(mesh) == [
        "NOREPL job removed (expired?) before the requested replication level was achieved"
    ]


def test_a_producer_that_goes_takes_its_unconfirmed_job_with_it(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: target == 2
    ask(mesh, "REPLICATE", 3)
    mesh.settle()
    mesh[0].disconnect(mesh[0].me)
    mesh.settle()
    assert [bench.node.store.jobs.count for bench in mesh.nodes] == [0, 0, 0]


def test_several_addjobs_of_one_client_overlap_and_are_answered_in_order(mesh: Mesh) -> None:
    held: list[tuple[int, int, bytes]] = []
    mesh.lose = lambda source, target, packet: (
        len(held) < 2
        and bus.packet_type(packet) == bus.GOTJOB
        and not held.append(  # type: ignore[func-returns-value]
            (source, target, packet)
        )
    )
    ask(mesh, "REPLICATE", 3)
    mesh.settle()  # both confirmations of the first are held back
    ask(mesh, "REPLICATE", 2)
    ask(mesh, "REPLICATE", 1)
    ask(mesh, "REPLICATE", 9)
    mesh.settle()
    assert mesh[0].me.in_flight == 4
    assert replies(mesh) == []
    mesh.moving.extend(held)
    mesh.settle()
    first, second, third, fourth = replies(mesh)
    assert fourth.startswith("NOREPL Not enough reachable nodes")
    assert [i.decode() for i in mesh[0].get_all()] == [first, second, third]


def test_only_addjob_without_maxlen_may_overlap(mesh: Mesh) -> None:
    may = mesh[0].node.may_overlap
    assert may([b"ADDJOB", b"q", b"b", b"0"])
    assert may([b"addJob", b"maxlen", b"maxlen", b"0", b"ASYNC"])
    assert not may([b"ADDJOB", b"q", b"b", b"0", b"MaxLen", b"3"])
    assert not may([b"GETJOB", b"FROM", b"q"])
    assert not may([b"PING"])
    assert not may([b"QSET", b"q", b"TTL", b"5"])


def test_changes_of_what_nodes_share_may_overlap_and_are_written_at_once(mesh: Mesh) -> None:
    bench = mesh[0]
    may = bench.node.may_overlap
    written: list[list[bytes]] = []

    def keep(names: list[bytes]) -> None:
        written.append(names)

    bench.node.ticks.sharing.keep = keep
    bench.node.policy_sharing.keep = keep
    bench.send(bench.me, "CRON", "SET", "first", "@every 1h", "q", "job")
    assert may([b"CRON", b"SET", b"second", b"@every 1h", b"q", b"job"])
    assert may([b"cron", b"set"])
    assert may([b"QSET", b"q", b"TTL", b"5"])
    assert may([b"Bind", b"topic", b"q"])
    assert not may([b"CRON", b"DEL", b"first"])
    assert not may([b"CRON"])
    assert not may([b"PING"])
    bench.send(bench.me, "CRON", "SET", "wrong", "times", "q", "job")
    bench.send(bench.me, "CRON", "SET", "second", "@every 1h", "q", "job")
    bench.send(bench.me, "QSET", "q", "TTL", 5)
    first, wrong, *others = bench.replies(bench.me)
    assert [first, *others] == [b"OK"] * 3
    assert "five fields" in str(wrong)
    assert written == [[b"first", b"second"], [b"q"]]
    assert not may([b"QSET", b"q", b"TTL", b"5"])  # nothing of this turn is to be written


def test_reply_modes_hold_for_replies_that_come_late(mesh: Mesh) -> None:
    me = mesh[0].me
    mesh[0].send(me, "CLIENT", "REPLY", "SKIP")
    ask(mesh, "REPLICATE", 3)
    ask(mesh, "REPLICATE", 3)
    mesh.settle()
    assert len(replies(mesh)) == 1
    mesh[0].send(me, "CLIENT", "REPLY", "OFF")
    ask(mesh, "REPLICATE", 3)
    mesh.settle()
    assert replies(mesh) == []
    assert mesh[0]("CLIENT", "REPLY", "ON") == b"OK"


@pytest.mark.parametrize("why", ["leaving", "memory"])
def test_a_node_that_must_not_hold_jobs_places_them_elsewhere(mesh: Mesh, why: str) -> None:
    if why == "leaving":
        mesh[0].node.set_leaving(True)
    else:
        mesh[0].node.memory.external_above = 0
        mesh[0].node.queues.create(b"x")
    for options in (["REPLICATE", 2], ["REPLICATE", 2, "ASYNC"], ["REPLICATE", 1, "RETRY", 0]):
        id = mesh.add(0, *options)
        copies = int(options[1])
        assert 0 not in mesh.holders(id)
        assert len(mesh.holders(id)) == copies
        states = mesh.states(id)
        assert states.count("queued") == 1
        assert states.count("active") == copies - 1
    assert mesh[0].node.store.jobs.count == 0
    assert mesh[0].node.memory.used == mesh[0].counted_memory()
    refusal = mesh[0].error("ADDJOB", "q", "b", 0, "REPLICATE", 3)
    few = "NOREPL Not enough reachable nodes for the requested replication level"
    if why == "memory":
        assert refusal.startswith("NOREPL Memory is short: ")
    else:
        reason = "I'm unable to hold a copy of the message for the following reason"
        assert refusal == f"{few}, since {reason}: I'm leaving the cluster"
    # Even counting this node, there would be too few.
    assert (
        mesh[0]
        .error("ADDJOB", "q", "b", 0, "REPLICATE", 4)
        .startswith("NOREPL Not enough reachable nodes: ")
    )


def test_jobs_placed_elsewhere_are_counted_where_they_were_added(mesh: Mesh) -> None:
    mesh[0].node.set_leaving(True)
    mesh.add(0, "REPLICATE", 2)
    assert [bench.info("stats")["total_jobs_added"] for bench in mesh.nodes] == ["1", "0", "0"]


def test_a_delay_holds_for_jobs_placed_elsewhere(mesh: Mesh) -> None:
    mesh[0].node.set_leaving(True)
    for options in (["RETRY", 20, "REPLICATE", 2], ["RETRY", 0, "REPLICATE", 1]):
        id = mesh.add(0, "DELAY", 5, *options)
        assert "queued" not in mesh.states(id)
        mesh.advance(4.9)
        assert "queued" not in mesh.states(id)
        mesh.advance(0.2)
        assert mesh.states(id).count("queued") == 1
        holder = mesh.states(id).index("queued")
        assert mesh[holder].number(id, b"additional-deliveries") == 0


def test_async_waits_when_the_job_is_held_elsewhere_only(mesh: Mesh) -> None:
    mesh[0].node.set_leaving(True)
    mesh.lose = lambda source, target, packet: True
    ask(mesh, "REPLICATE", 1, "ASYNC", timeout=300)
    mesh.settle()
    assert replies(mesh) == []
    mesh.advance(0.4)
    assert replies(mesh)[0].startswith("NOREPL Timeout")


def test_a_node_refuses_copies_that_it_must_not_hold(mesh: Mesh) -> None:
    mesh[1].node.set_leaving(True)
    mesh[2].node.federation.pause(b"q", PAUSED_IN)
    ask(mesh, "REPLICATE", 2, timeout=300)
    mesh.advance(0.5)
    assert replies(mesh)[0].startswith("NOREPL Timeout")
    assert [mesh[i].node.store.jobs.count for i in (1, 2)] == [0, 0]


def test_a_large_copy_is_wanted_unless_there_is_a_reason_not_to_hold_it(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3)
    node = mesh[1].node
    other = id[:-1] + b"x"
    assert node.replication.wants_copy(other)
    node.memory.external_above = 0
    # It has to confirm again the copy that it already holds.
    assert [node.replication.wants_copy(it) for it in (other, id)] == [False, True]
    node.set_leaving(True)
    assert not node.replication.wants_copy(id)


def test_the_same_copy_twice_is_one_job_whose_holders_add_up(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    first = next(i for i in mesh.holders(id) if i)
    other = 3 - first
    copies = []
    for holders in ((mesh.ids[0], mesh.ids[first]), (mesh.ids[0], mesh.ids[other])):
        job.delivered = holders
        copies.append(mesh[0].node.packets.jobs(bus.REPLJOB, [mesh[0].node.bus_codec.encode(job)]))
    used = mesh[first].node.memory.used
    for copy in copies:
        mesh[first].node.receive(mesh.ids[0], copy, mesh[first].now)
        mesh[first].node.commit()
    assert mesh[first].node.memory.used == used
    assert set(mesh[first].node.store.jobs.get(id).delivered) == set(mesh.ids)  # type: ignore[union-attr, arg-type]
    assert mesh.told("gotjob")[-2:] == [(first, "gotjob", 0)] * 2


def test_malformed_packets_are_counted_and_change_nothing(mesh: Mesh) -> None:
    packets = mesh[1].node.packets
    node = mesh[0].node
    for type in range(4, 16):
        for data in (b"", b"x", bytes(8), b"\0\0\0\1\0\0\0\5hello", b"\xff" * 44, b"\xff" * 200):
            node.receive(mesh.ids[1], packets.packet(type, data), mesh[0].now)
    node.receive(mesh.ids[1], packets.packet(99, b"unknown"), mesh[0].now)
    assert node.bad_packets > 30
    assert node.store.jobs.count == 0
    # One of them says that a job has ended: that is confirmed, and repeated to who asks about it.
    sent = {bus.packet_type(packet) for _, _, packet in mesh.moving}
    assert sent <= {bus.GOTACK, bus.SETACK}


def test_addjob_over_flushed_jobs_is_answered(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: True
    ask(mesh, "REPLICATE", 3)
    other = mesh[0].client()
    mesh[0].ask(other, "DEBUG", "FLUSHALL")
    assert replies(mesh)[0].startswith("NOREPL job removed")


def test_a_job_held_elsewhere_may_be_processed_while_its_producer_waits(mesh: Mesh) -> None:
    mesh[0].node.set_leaving(True)
    mesh.lose = lambda source, target, packet: target == 2
    ask(mesh, "REPLICATE", 2, "RETRY", 1)
    mesh.advance(3)
    (job,) = mesh[0].node.store.jobs.values()
    assert mesh[1].get() == job.id
    mesh[1]("ACKJOB", job.id)
    mesh.settle()
    assert replies(mesh) == [job.id.decode()]
    mesh.lose = lambda source, target, packet: False
    mesh.advance(5)
    assert [bench.node.store.jobs.count for bench in mesh.nodes] == [0, 0, 0]


def test_an_at_most_once_job_placed_elsewhere_is_queued_by_nobody_else(mesh: Mesh) -> None:
    mesh[0].node.set_leaving(True)
    slow: list[tuple[int, int, bytes]] = []
    mesh.lose = lambda source, target, packet: (  # both get a copy, since the first is slow
        bus.packet_type(packet) == bus.GOTJOB
        and mesh[0].now == START
        and (slow.append((source, target, packet)) or True)  # type: ignore[func-returns-value]
    )
    ask(mesh, "REPLICATE", 1, "RETRY", 0)
    mesh.settle()
    (id,) = {job.id for job in mesh[0].node.store.jobs.values()}
    mesh.advance(0.06)
    assert replies(mesh) == [id.decode()]
    first = mesh.states(id).index("queued")
    other = 3 - first
    assert mesh[first].get() == id
    assert mesh[other]("ENQUEUE", id) == 0
    assert mesh[other]("NACK", id) == 0
    assert not mesh[other].held(id)


def test_a_copy_of_an_at_most_once_job_waits_for_its_creator(mesh: Mesh) -> None:
    job = mesh[0].node.store.make_job(b"q", b"b", 1, 0, 0, 100)
    mesh[0].node.replication.send_copy(job, [mesh.ids[1]], 0)
    mesh.settle()
    assert mesh[1]("ENQUEUE", job.id) == 0
    mesh[1].node.receive(
        mesh.ids[0], mesh[0].node.packets.about_job(bus.ENQUEUE, job.id), mesh[1].now
    )
    assert mesh[1].get() == job.id


def test_working_on_a_job_that_waits_for_its_copies_changes_nothing(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: True
    ask(mesh, "REPLICATE", 3, "RETRY", 2)
    (job,) = mesh[0].node.store.jobs.values()
    other = mesh[0].client()
    assert mesh[0].ask(other, "WORKING", job.id) == 2
    mesh.advance(10)
    assert mesh[0].node.next_wake() > mesh[0].now


def test_what_waits_at_this_side_is_not_sent_once_more(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: True
    mesh.peers[0].behind = lambda id: True  # type: ignore[method-assign]
    ask(mesh, "REPLICATE", 3)
    mesh.advance(5)
    assert len(mesh.told("repljob")) == 2


def test_nothing_is_kept_of_addjobs_that_are_over(mesh: Mesh) -> None:
    for _ in range(20):
        mesh[0]("ACKJOB", mesh.add(0, "REPLICATE", 3))
    mesh.settle()
    mesh[0].node.next_wake()
    assert not mesh[0].node.waits.attempts


def test_a_copy_that_comes_after_the_end_is_refused_and_its_sender_told(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    other = next(i for i in mesh.holders(id) if i)
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    late = mesh[0].node.packets.jobs(bus.REPLJOB, [mesh[0].node.bus_codec.encode(job)])
    mesh[other]("ACKJOB", id)
    mesh.settle()
    mesh.told()
    mesh[other].node.receive(mesh.ids[0], late, mesh[other].now)
    mesh.settle()
    assert mesh.holders(id) == []
    assert (other, "setack", 0) in mesh.told()
