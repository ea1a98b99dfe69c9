"""The decisions of the parent process, with a clock that the test moves."""

import math
from typing import Any

import pytest

from disque_trio.process.fleet import (
    FIRST_PAUSE,
    LAST_PAUSE,
    LONG_RUN,
    MARGIN,
    SILENCE,
    STUCK,
    Fleet,
    Member,
    State,
)

GRACE = 30.0
DEATHS = 5


class World:
    """A fleet, its clock, and a record of the orders that it gives."""

    def __init__(self, count: int = 1, stuck_after: float | None = None) -> None:
        self.now = 1000.0
        self.orders: list[tuple[Any, ...]] = []
        self.fleet = Fleet(self, count, grace=GRACE, deaths=DEATHS, stuck_after=stuck_after)
        self.fleet.begin(self.now)

    def start(self, member: Member) -> None:
        self.orders.append(("start", member.serial))

    def finish(self, member: Member, within: float | None) -> None:
        self.orders.append(("finish", member.serial, within))

    def hand_back(self, member: Member) -> None:
        self.orders.append(("hand back", member.serial))

    def terminate(self, member: Member) -> None:
        self.orders.append(("terminate", member.serial))

    def kill(self, member: Member) -> None:
        self.orders.append(("kill", member.serial))

    def restarting(self, member: Member, status: int, reason: str, pause: float) -> None:
        pass

    def say(self, event: str, *, urgent: bool = False, **fields: Any) -> None:
        pass

    # Events

    def ready(self, *serials: int) -> None:
        for serial in serials:
            self.fleet.ready(self.fleet.members[serial], self.now)

    def ended(self, serial: int, status: int = -9) -> None:
        self.fleet.ended(self.fleet.members[serial], status, self.now)

    def beat(self, *serials: int) -> None:
        for serial in serials:
            self.fleet.heard(self.fleet.members[serial], self.now)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.fleet.tick(self.now)

    def told(self) -> list[tuple[Any, ...]]:
        """Return the orders since the last call."""
        orders, self.orders = self.orders, []
        return orders


def served(count: int = 1) -> World:
    """Return a world whose processes serve."""
    world = World(count)
    world.ready(*range(count))
    world.told()
    return world


def test_all_are_started_at_once() -> None:
    world = World(2)
    assert world.told() == [("start", 0), ("start", 1)]
    world.ready(0)
    assert not world.fleet.complete
    world.ready(1)
    assert world.fleet.complete


# ---- the number of processes --------------------------------------------------------------------


def test_more_are_started_and_the_last_ones_end_when_their_tasks_have_ended() -> None:
    world = served(2)
    world.fleet.resize(4, world.now)
    assert world.told() == [("start", 2), ("start", 3)]
    world.ready(2, 3)
    assert len(world.fleet.serving()) == 4
    world.fleet.resize(1, world.now)
    assert world.told() == [("finish", serial, None) for serial in (1, 2, 3)]
    for serial in (1, 2, 3):
        world.ended(serial, 0)
    world.passes(LAST_PAUSE)
    assert world.told() == []
    assert world.fleet.restarts == {}
    world.fleet.resize(2, world.now)
    assert world.told() == [("start", 4)]


def test_the_number_does_not_change_before_all_have_served_and_after_the_stop() -> None:
    world = World(2)
    world.told()
    world.fleet.resize(3, world.now)
    assert world.told() == []
    world.ready(0, 1)
    world.fleet.stop(world.now)
    world.told()
    world.fleet.resize(3, world.now)
    assert world.told() == []


def test_one_more_that_does_not_start_stops_nobody() -> None:
    world = served()
    world.fleet.resize(2, world.now)
    world.ended(1, 1)
    assert not world.fleet.stopping
    world.told()
    world.passes(FIRST_PAUSE)
    assert world.told() == [("start", 2)]


def test_one_that_died_or_starts_in_a_place_that_is_no_more_is_not_started_again() -> None:
    world = served(3)
    world.ended(2)
    world.fleet.resize(4, world.now)
    assert world.told() == [("start", 3)]
    world.fleet.resize(2, world.now)
    assert world.told() == [("finish", 3, None)]
    world.ready(3)
    world.ended(3, 0)
    world.passes(LAST_PAUSE)
    assert world.told() == []


def test_a_reload_goes_on_with_the_places_that_are_left() -> None:
    world = served(3)
    world.fleet.reload(world.now)
    assert world.told() == [("start", 3)]
    world.ready(3)
    assert world.told() == [("finish", 0, None), ("start", 4)]
    world.fleet.resize(1, world.now)
    assert {order[:2] for order in world.told()} == {("finish", n) for n in (1, 2, 4)}
    for serial in (0, 1, 2, 4):
        world.ended(serial, 0)
    world.passes(LAST_PAUSE)
    assert world.told() == []
    world.fleet.reload(world.now)
    assert world.told() == [("start", 5)]


# ---- deaths -------------------------------------------------------------------------------------


def test_a_dead_process_is_restarted_after_a_pause() -> None:
    world = served()
    world.ended(0)
    assert world.told() == []
    world.passes(FIRST_PAUSE)
    assert world.told() == [("start", 1)]
    assert world.fleet.restarts == {"died": 1}


def test_the_pause_grows_and_the_worker_gives_up_when_none_serves_again() -> None:
    world = served(2)
    world.ended(0)
    world.passes(FIRST_PAUSE)
    ((_, serial),) = world.told()
    pauses = []
    for _ in range(DEATHS - 1):
        world.ended(serial)
        began = world.now
        while not (orders := world.told()):
            world.passes(FIRST_PAUSE / 2)
        ((_, serial),) = orders
        pauses.append(world.now - began)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(FIRST_PAUSE * 2 ** (DEATHS - 1), abs=FIRST_PAUSE)
    assert not world.fleet.stopping
    world.ended(serial)
    assert world.told() == [("finish", 1, GRACE)]
    world.ended(1, 0)
    assert world.fleet.over
    assert world.fleet.problem


def test_tasks_that_kill_processes_do_not_end_the_worker_and_the_pause_is_limited() -> None:
    assert FIRST_PAUSE * 2**20 > LAST_PAUSE
    world = served()
    for serial in range(50):
        world.ended(serial)
        world.passes(LAST_PAUSE)
        assert world.told() == [("start", serial + 1)]
        world.ready(serial + 1)


def test_deaths_long_ago_do_not_count() -> None:
    world = served()
    for serial in range(3 * DEATHS):
        world.passes(LONG_RUN + 1)
        world.beat(serial)
        world.ended(serial)
        world.passes(FIRST_PAUSE)
        world.ready(serial + 1)
    assert not world.fleet.stopping


def test_a_process_that_never_served_ends_the_worker_with_its_message() -> None:
    world = World(2)
    world.ready(1)
    world.fleet.failed(world.fleet.members[0], "there is no module 'shop'")
    world.ended(0, 1)
    world.ended(1, 0)
    assert world.fleet.over
    assert world.fleet.problem == "there is no module 'shop'"


def test_an_error_that_a_restart_cannot_fix_is_not_retried() -> None:
    world = served(2)
    world.fleet.failed(world.fleet.members[0], "the node gives this user no jobs", True)
    world.ended(0, 1)
    assert world.told() == [("finish", 1, GRACE)]
    world.ended(1, 0)
    assert world.fleet.over
    assert world.fleet.problem == "the node gives this user no jobs"


def test_an_end_without_a_message_is_a_death_whatever_its_status() -> None:
    world = served()
    world.ended(0, 0)
    world.passes(FIRST_PAUSE)
    assert world.told() == [("start", 1)]


# ---- those that are replaced --------------------------------------------------------------------


def test_a_process_that_wants_to_end_is_replaced_at_once_and_may_finish() -> None:
    world = served()
    world.fleet.wants_to_end(world.fleet.members[0], "memory", None, world.now)
    assert world.told() == [("finish", 0, None), ("start", 1)]
    world.ready(1)
    world.passes(100 * GRACE)
    world.beat(0, 1)
    world.ended(0, 0)
    assert world.told() == []
    assert world.fleet.restarts == {"memory": 1}


def test_a_process_with_a_runaway_task_is_killed_if_it_does_not_end_in_time() -> None:
    world = served()
    world.fleet.wants_to_end(world.fleet.members[0], "runaway", GRACE, world.now)
    world.ready(1)
    world.told()
    world.passes(GRACE)
    assert world.told() == []
    world.passes(MARGIN)
    assert world.told() == [("kill", 0)]
    world.ended(0)
    world.beat(1)
    world.passes(LAST_PAUSE)
    assert world.told() == []


def test_a_process_that_wants_to_end_during_a_shutdown_is_not_replaced() -> None:
    world = served()
    world.fleet.stop(world.now)
    world.told()
    world.fleet.wants_to_end(world.fleet.members[0], "memory", None, world.now)
    assert world.told() == []


# ---- a process that a task blocks ---------------------------------------------------------------


def test_a_silent_process_is_killed_when_its_task_is_overdue_and_replaced_at_once() -> None:
    world = served()
    world.fleet.members[0].deadline = world.now + 60
    world.passes(61)
    assert world.told() == []
    world.passes(SILENCE)
    assert world.told() == [("kill", 0)]
    world.passes(0.1)
    assert world.told() == []
    world.ended(0)
    assert world.told() == [("start", 1)]
    assert world.fleet.restarts == {"blocked": 1}


def test_a_process_that_sends_signs_of_life_handles_overdue_tasks_itself() -> None:
    world = served()
    world.fleet.members[0].deadline = world.now
    for _ in range(100):
        world.passes(1)
        world.beat(0)
    assert world.told() == []


def test_a_silent_process_without_a_task_limit_is_left_alone_but_stuck() -> None:
    world = served()
    member = world.fleet.members[0]
    world.passes(STUCK + 1)
    assert world.told() == []
    assert member.stuck(world.now)
    world.beat(0)
    assert not member.stuck(world.now)


def test_a_process_that_survives_its_kill_is_killed_again() -> None:
    world = served()
    world.fleet.members[0].deadline = world.now
    world.passes(SILENCE + 1)
    world.passes(MARGIN)
    assert world.told() == [("kill", 0), ("kill", 0)]


# ---- new code -----------------------------------------------------------------------------------


def test_processes_are_replaced_one_by_one_once_the_new_one_serves() -> None:
    world = served(2)
    world.fleet.reload(world.now)
    assert world.told() == [("start", 2)]
    world.ready(2)
    assert world.told() == [("finish", 0, None), ("start", 3)]
    world.ready(3)
    assert world.told() == [("finish", 1, None)]
    world.ended(0, 0)
    world.ended(1, 0)
    assert world.told() == []
    assert [member.place for member in world.fleet.serving()] == [0, 1]


def test_new_code_that_does_not_start_leaves_the_old_processes_at_work() -> None:
    world = served(2)
    world.fleet.reload(world.now)
    world.told()
    world.fleet.failed(world.fleet.members[2], "SyntaxError")
    world.ended(2, 1)
    world.passes(LAST_PAUSE)
    assert world.told() == []
    assert len(world.fleet.serving()) == 2
    world.fleet.reload(world.now)
    assert world.told() == [("start", 3)]


def test_a_second_change_during_a_reload_replaces_all_again() -> None:
    world = served(2)
    world.fleet.reload(world.now)
    world.fleet.reload(world.now)
    world.told()
    world.ready(2)
    assert world.told()[0] == ("finish", 0, None)
    serial = 3
    while world.fleet._newcomer is not None:
        world.ready(world.fleet._newcomer.serial)
        serial += 1
        assert serial < 10
    serving = world.fleet.serving()
    assert {member.place for member in serving} == {0, 1}
    assert all(member.serial > 2 for member in serving)


def test_a_reload_does_not_wait_for_a_process_that_is_to_be_restarted() -> None:
    world = served()
    world.ended(0)
    world.fleet.reload(world.now)
    assert world.told() == [("start", 1)]
    world.ready(1)
    world.passes(LAST_PAUSE)
    assert world.told() == []


def test_a_process_that_starts_during_a_reload_is_replaced_when_it_serves() -> None:
    world = served(2)
    world.ended(0)
    world.passes(FIRST_PAUSE)
    world.told()
    world.fleet.reload(world.now)
    world.ready(2)
    world.ready(*(serial for _, serial, *_ in world.told() if serial > 2))
    while world.fleet._newcomer is not None:
        world.ready(world.fleet._newcomer.serial)
    assert all(member.serial > 2 for member in world.fleet.serving())
    assert len(world.fleet.serving()) == 2


def test_a_process_that_dies_during_its_replacement_leaves_its_slot_to_the_new_one() -> None:
    world = served()
    world.fleet.reload(world.now)
    world.ended(0)
    world.passes(FIRST_PAUSE)
    world.ready(1)
    world.passes(LAST_PAUSE)
    serving = [m for m in world.fleet.members.values() if m.state is not State.RETIRING]
    assert len(serving) == 1


# ---- the end ------------------------------------------------------------------------------------


def test_all_may_finish_within_the_grace() -> None:
    world = served(2)
    world.fleet.stop(world.now)
    assert world.told() == [("finish", 0, GRACE), ("finish", 1, GRACE)]
    world.ended(0, 0)
    assert not world.fleet.over
    world.ended(1, 0)
    assert (world.fleet.over, world.fleet.problem) == (True, "")


def test_a_second_signal_makes_them_requeue_their_jobs_at_once() -> None:
    world = served()
    world.fleet.stop(world.now)
    world.told()
    world.fleet.stop_now(world.now)
    assert ("hand back", 0) in world.told()
    world.passes(MARGIN)
    assert world.told() == [("kill", 0)]


def test_a_starting_process_is_ended_by_a_signal() -> None:
    world = World()
    world.told()
    world.fleet.stop(world.now)
    assert world.told() == [("terminate", 0)]
    world.ended(0, -15)
    assert (world.fleet.over, world.fleet.problem) == (True, "")


def test_no_process_is_restarted_during_a_shutdown() -> None:
    world = served(2)
    world.ended(0)
    world.fleet.stop(world.now)
    world.ended(1)
    world.passes(LAST_PAUSE)
    assert [order for order in world.told() if order[0] == "start"] == []
    assert world.fleet.over


# ---- a server with several processes -------------------------------------------------------------


class Server(World):
    """Two processes that are looked after by other means, and never given up once they served."""

    def __init__(self) -> None:
        super().__init__(2)
        self.fleet = Fleet(self, 2, grace=math.inf, deaths=math.inf, watched=False)
        self.orders.clear()
        self.fleet.begin(self.now)
        self.ready(0, 1)
        self.told()


def test_a_process_of_a_server_is_started_again_for_ever() -> None:
    world = Server()
    serial = 0
    for _ in range(2000):
        world.ended(serial)
        assert world.told() == []
        pause = world.fleet.next_due() - world.now
        assert FIRST_PAUSE * 0.99 <= pause <= LAST_PAUSE * 1.01
        world.passes(pause + 0.001)
        [(order, serial)] = world.told()
        assert order == "start"
    assert world.fleet.problem == ""
    assert world.fleet.next_due() == math.inf


def test_a_silent_process_of_a_server_is_left_to_its_watchdog() -> None:
    world = Server()
    world.passes(10 * STUCK)
    world.fleet.members[0].deadline = 0.0
    world.passes(STUCK)
    assert world.told() == []


def test_the_processes_of_a_server_have_all_the_time_to_stop() -> None:
    world = Server()
    world.fleet.stop(world.now)
    assert world.told() == [("finish", 0, math.inf), ("finish", 1, math.inf)]
    world.passes(1e6)
    assert world.told() == []
    world.ended(0, 0)
    assert not world.fleet.over
    world.ended(1, 0)
    assert world.fleet.over


def test_nothing_is_due_after_a_stop() -> None:
    world = Server()
    world.ended(0)
    world.fleet.stop(world.now)
    assert world.fleet.next_due() == math.inf
    world.ended(1, 0)
    assert world.fleet.over


def test_a_death_that_a_task_may_have_caused_does_not_slow_down_the_restart() -> None:
    world = served()
    for serial in range(20):
        world.fleet.members[serial].busy = True
        world.ended(serial)
        world.passes(FIRST_PAUSE)
        assert world.told() == [("start", serial + 1)]
        world.ready(serial + 1)
    assert world.fleet.problem == ""


def test_a_process_that_does_not_answer_is_killed_after_a_time_if_that_is_wanted() -> None:
    world = World(stuck_after=7)
    world.ready(0)
    world.told()
    world.passes(6.9)
    assert world.told() == []
    world.passes(0.2)
    world.passes(0.1)
    assert world.told() == [("kill", 0)]
    world.ended(0)
    assert world.told() == [("start", 1)]
    assert world.fleet.restarts == {"stuck": 1}
