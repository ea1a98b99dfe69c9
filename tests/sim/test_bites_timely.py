"""The checks of a healthy cluster bite: its promises about starts, copies and times are broken."""

from copy import copy

import pytest

from disque_trio.node.core import node as core_node
from disque_trio.node.core.federation.exports import Exports, Wanted
from disque_trio.node.core.federation.farewell import Farewell
from disque_trio.node.core.jobs.job import FLAG_DELIVERED, FLAG_PAUSED, Job
from disque_trio.node.core.jobs.progress import Progress
from disque_trio.node.core.jobs.uniques import Uniques
from disque_trio.node.core.lifecycle.ack_gc import AckGc
from disque_trio.node.core.lifecycle.dead_nodes import DeadNodes
from disque_trio.node.core.lifecycle.requeue import Requeue
from disque_trio.node.core.lifecycle.successors import Successors
from disque_trio.node.core.queues import store
from disque_trio.node.core.queues.limits import Limits
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.shares import Limit
from disque_trio.node.core.shared.schedules import Schedule
from disque_trio.node.core.ticks import Plan, Ticks
from disque_trio.protocol.keyrecord import KeyRecord
from disque_trio.protocol.trailer import DEAD, Ending
from tests.simulator.plan import TIMELY
from tests.simulator.spoiled import MadeOf, found, only_kills, only_stops
from tests.simulator.world import World

if not core_node.__file__.endswith(".py"):
    pytest.skip("a compiled node cannot be made worse", allow_module_level=True)


def as_it_is(world: World) -> None:
    """Spoil nothing else."""


class ForgetfulUniques(Uniques):
    """Do not load the keys of jobs that are elsewhere."""

    def load(self, record: KeyRecord) -> None:
        pass


def test_votes_that_are_forgotten_at_a_start_are_found(made_of: MadeOf) -> None:
    assert found(made_of(ForgetfulUniques), TIMELY, "has stopped with keys", first=14)


class LonelyLetters(Successors):
    """Make no copies of letters."""

    def make(self, job: Job, ending: Ending, queue_it: bool) -> None:
        if queue_it or ending.kind != DEAD:
            super().make(job, ending, queue_it)


def test_letters_without_copies_are_found(made_of: MadeOf) -> None:
    assert found(made_of(LonelyLetters), TIMELY, "has copies on the nodes")


class SilentSuccessors(Successors):
    """Do not tell who asks about a job that another one has followed it."""

    def tell_followed(self, sender: bytes, id: bytes) -> bool:
        return True


class HastyAckGc(AckGc):
    """Forget jobs that have ended without waiting for holders that are away."""

    def _not_confirmed(self, job: Job) -> list[bytes]:
        return [id for id in super()._not_confirmed(job) if self._peers.linked(id)]

    def _is_confirmed(self, job: Job) -> bool:
        return not self._not_confirmed(job)


def test_jobs_that_come_again_after_their_letters_are_found(made_of: MadeOf) -> None:
    made_of(HastyAckGc)
    assert found(made_of(SilentSuccessors), TIMELY, "has become another job")


class HastySuccessors(Successors):
    """Offer a letter before the other holders know where it is queued."""

    def make(self, job: Job, ending: Ending, queue_it: bool) -> None:
        super().make(job, ending, queue_it)
        if queue_it:
            self.offer(ending)


class Confident(Requeue):
    """Do not ask again about a job that was left to another node. That heals the former in 1 s."""

    def _ask_again(self, job: Job) -> None:
        pass


def test_letters_that_are_given_away_before_they_are_announced_are_found(made_of: MadeOf) -> None:
    made_of(Confident)
    assert found(made_of(HastySuccessors), TIMELY, "in no queue and in no hand")


class OwnKeys(Ticks):
    """Give the job of a tick a key that no other node would."""

    def _add(self, plan: Plan, schedule: Schedule) -> None:
        schedule = copy(schedule)
        schedule.name += self._replicas.own[:8]
        super()._add(plan, schedule)


def test_keys_of_ticks_that_differ_by_node_are_found(made_of: MadeOf) -> None:
    assert found(made_of(OwnKeys), TIMELY, "more than one job")


class SilentProgress(Progress):
    """Does not note which jobs clients get."""

    def write_taken(self) -> None:
        self.taken = []

    def write_block(self) -> None:
        self.taken = []
        super().write_block()

    def note(self, job: Job) -> None:
        if job.flags & (FLAG_DELIVERED | FLAG_PAUSED) != FLAG_DELIVERED:
            super().note(job)


def test_deliveries_that_are_not_recorded_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "Progress", SilentProgress)
    assert found(as_it_is, TIMELY, "delivers again what", first=7)


class RestlessProgress(Progress):
    """Forgets at a stop which jobs pause."""

    def records_of(self, jobs: list[Job]) -> list[bytes]:
        return super().records_of([job for job in jobs if not job.flags & FLAG_PAUSED])


def test_pauses_that_a_restart_forgets_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "Progress", RestlessProgress)
    assert found(as_it_is, TIMELY, "has stopped with pauses", first=14)


class HastyFarewell(Farewell):
    """Stop without waiting for what others have sent."""

    def is_over(self, now: int) -> bool:
        return True


def test_jobs_that_are_lost_on_their_way_to_a_node_that_stops_are_found(made_of: MadeOf) -> None:
    made_of(HastyFarewell)
    assert found(only_stops, TIMELY, "a job with RETRY 0 was lost")


class SelfishExports(Exports):
    """Keep imported jobs for clients that have left, although one waits elsewhere."""

    def _spare(self, queue: Queue, waits: bool, recent: bool) -> int:
        return super()._spare(queue, False, False)


def test_jobs_that_stay_where_nobody_waits_are_found(made_of: MadeOf) -> None:
    assert found(made_of(SelfishExports), TIMELY, "and node")


class SelfishAsking(Exports):
    """Do so only where clients wait by pattern."""

    def give(self, id: bytes, queue: Queue, count: int, wanted: Wanted) -> int:
        return super().give(id, queue, count, Wanted(count, 0, wanted.until, False))


def test_jobs_that_stay_where_nobody_waits_by_pattern_are_found(made_of: MadeOf) -> None:
    assert found(made_of(SelfishAsking), TIMELY, "and node", first=99)


class GreedyLimits(Limits):
    """Leave no room to others that clients here do not use."""

    def _spare(self, limit: Limit) -> None:
        pass


def test_room_that_stays_where_nobody_wants_it_is_found(made_of: MadeOf) -> None:
    assert found(made_of(GreedyLimits), TIMELY, "waits for", first=48)


class PatientNodes(DeadNodes):
    """Leave what a dead node had queued to its retry time."""

    def died(self, node: bytes) -> None:
        pass


def test_jobs_of_a_dead_node_that_nobody_queues_are_found(made_of: MadeOf) -> None:
    assert found(made_of(PatientNodes), TIMELY, "nobody queues it", first=5)


class SilentNodes(DeadNodes):
    """Tell nobody what clients have."""

    def tell(self, now: int) -> None:
        self._places.take(now)


def test_what_clients_of_a_dead_node_have_is_found_if_it_is_delivered(made_of: MadeOf) -> None:
    made_of(SilentNodes)
    assert found(only_kills, TIMELY, "which is gone, has had")
