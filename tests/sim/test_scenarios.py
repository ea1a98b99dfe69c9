"""Single scenarios for a cluster, each written by hand."""

import pytest

from tests.simulator.events import MS, SECOND
from tests.simulator.stage import Stage


def test_a_job_survives_the_death_of_all_holders_but_one() -> None:
    stage = Stage(3, policy="off")
    id = stage.add(0, "REPLICATE", 3, "RETRY", 2)
    stage.kill(0, 1)
    stage.run(4)
    assert stage.get(2) == [id]


def test_a_job_survives_the_death_of_all_nodes_with_an_append_only_file() -> None:
    stage = Stage(3, policy="always")
    id = stage.add(0, "REPLICATE", 2, "RETRY", 2)
    stage.kill(0, 1, 2)
    stage.start(0, 1, 2)
    stage.run(4)
    assert [id] in [stage.get(index) for index in range(3)]


def test_an_acknowledge_reaches_a_holder_that_was_cut_off() -> None:
    stage = Stage(3)
    id = stage.add(0, "REPLICATE", 3, "RETRY", 1)
    stage.cut_off(2)
    assert stage.get(0) == [id]
    assert stage.ask(0, "ACKJOB", id) == 1
    stage.run(20)
    assert stage.holders(id) != []  # kept for the holder that does not know yet
    stage.repair()
    stage.run(60)
    assert stage.holders(id) == []
    assert stage.get(2) == []


def test_an_acknowledge_on_a_node_that_does_not_know_the_job_ends_it() -> None:
    stage = Stage(5)
    id = stage.add(0, "REPLICATE", 2, "RETRY", 60)
    stranger = next(index for index in range(5) if index not in stage.holders(id))
    assert stage.get(0) == [id]
    stage.ask(stranger, "ACKJOB", id)
    stage.run(5)
    assert stage.holders(id) == []


def test_one_holder_queues_a_job_again() -> None:
    stage = Stage(5)
    id = stage.add(0, "REPLICATE", 5, "RETRY", 2)
    assert stage.get(0) == [id]
    stage.run(4)
    assert len(stage.queued_on(id)) == 1


def test_a_client_that_asks_for_more_copies_than_there_can_be_is_told_so() -> None:
    stage = Stage(3)
    reply = stage.ask(0, "ADDJOB", "q", "", 0, "REPLICATE", 4)
    assert str(reply).startswith("NOREPL ")


def test_replies_keep_their_order_while_one_waits_for_a_holder_that_is_cut_off() -> None:
    stage = Stage(3)
    wire = stage.wire(0)
    stage.cut_off(0)
    for number in range(5):
        wire.send("ADDJOB", f"queue-{number}", "", 500, "REPLICATE", 3 if number == 0 else 1)
    wire.send("PING")
    stage.run(0.3)
    assert wire.got == []
    stage.run(1)
    assert str(wire.got[0]).startswith("NOREPL ")
    ids = wire.got[1:5]
    assert len({*ids}) == 4
    assert wire.got[5] == b"PONG"
    for number, id in enumerate(ids, 1):
        assert stage.get(0, f"queue-{number}") == [id]


def test_what_timed_out_is_deleted_where_it_was_copied() -> None:
    stage = Stage(3)
    stage.cut_off(2)
    reply = stage.ask(0, "ADDJOB", "q", "", 500, "REPLICATE", 3)
    assert str(reply).startswith("NOREPL ")
    stage.repair()
    stage.run(5)
    assert [machine.node.store.jobs.count for machine in stage.machines] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(10))
def test_copies_of_a_delayed_at_most_once_job_are_not_queued_by_a_restart(seed: int) -> None:
    stage = Stage(5, seed=seed)
    stage.ask(0, "CLUSTER", "LEAVING", "yes")
    stage.run(1)
    for index in range(2, 5):
        # Two nodes are asked; the one that answers late keeps a surplus copy.
        stage.machines[index].pause(300 * MS)
    id = stage.add(0, "REPLICATE", 1, "RETRY", 0, "DELAY", 4)
    stage.run(1)
    holders = stage.holders(id)
    assert holders
    stage.kill(*holders[1:])
    stage.start(*holders[1:])
    stage.run(8)
    delivered = [got for index in range(1, 5) for got in stage.get(index)]
    assert delivered == [id]


def test_jobs_move_to_where_their_consumer_waits() -> None:
    stage = Stage(3)
    wire = stage.wire(2)
    wire.send("GETJOB", "FROM", "q")
    stage.run(1)
    id = stage.add(0, "REPLICATE", 1)
    stage.run(31)
    (reply,) = wire.got
    assert isinstance(reply, list)
    assert reply[0][1] == id


def test_a_job_that_went_from_node_to_node_ends_on_all_of_them() -> None:
    stage = Stage(5)
    id = stage.add(0, "REPLICATE", 3, "RETRY", 60)
    _, second, third = stage.holders(id)
    strangers = [index for index in range(1, 5) if index not in (second, third)]
    place = 0
    for target in (strangers[0], second, third, strangers[1]):
        stage.move(place, target)
        assert stage.queued_on(id) == [target]
        place = target
        stage.run(6)  # a node that has just got jobs gives none away
    assert stage.get(place) == [id]
    assert stage.ask(place, "ACKJOB", id) == 1
    stage.run(70)
    assert stage.holders(id) == []
    assert [stage.get(index) for index in range(5)] == [[]] * 5


def test_a_node_bears_it_when_a_job_it_gives_away_was_also_to_expire() -> None:
    stage = Stage(3)
    stage.wire(1).send("GETJOB", "FROM", "q")
    stage.run(1)
    stage.add(0, "REPLICATE", 1, "RETRY", 0, "DELAY", 1, "TTL", 3)
    stage.machines[0].pause(6 * SECOND)
    stage.run(10)
    assert stage.ask(0, "PING") == b"PONG"
    assert stage.machines[0].node.store.jobs.count == 0


def test_a_producer_learns_that_its_job_was_done_by_others_before_it_had_all_copies() -> None:
    stage = Stage(3)
    stage.ask(0, "CLUSTER", "LEAVING", "yes")
    stage.run(1)
    stage.cut_off(2)
    wire = stage.wire(0)
    wire.send("ADDJOB", "q", "", 0, "REPLICATE", 2, "RETRY", 1)
    stage.run(3)
    (id,) = stage.get(1)
    assert stage.ask(1, "ACKJOB", id) == 1
    stage.run(5)
    assert len(wire.got) == 1


def test_what_a_killed_node_had_queued_is_soon_queued_elsewhere() -> None:
    stage = Stage(3)
    ids = [stage.add(0, "REPLICATE", 3, "RETRY", 300) for _ in range(5)]
    reply = stage.ask(0, "GETJOB", "COUNT", 2, "FROM", "q")
    assert isinstance(reply, list)
    taken = [entry[1] for entry in reply]
    stage.run(0.4)
    stage.kill(0)
    stage.run(4.5)
    queued = [id for id in ids if stage.queued_on(id)]
    assert queued == [id for id in ids if id not in taken]
    assert all(len(stage.queued_on(id)) == 1 for id in queued)


def test_what_a_silent_node_has_queued_stays_there() -> None:
    stage = Stage(3)
    id = stage.add(0, "REPLICATE", 3, "RETRY", 300)
    stage.cut_off(0)
    stage.run(20)
    assert stage.queued_on(id) == [0]


def test_a_node_that_is_back_does_not_deliver_what_another_took_over() -> None:
    stage = Stage(3)
    id = stage.add(0, "REPLICATE", 3, "RETRY", 300)
    stage.kill(0)
    stage.run(4.5)
    (there,) = stage.queued_on(id)
    stage.start(0)
    stage.run(4)
    assert stage.queued_on(id) == [there]
