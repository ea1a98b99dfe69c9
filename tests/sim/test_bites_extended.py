"""The checks of the extensions bite: each property is broken on purpose."""

from typing import Any

import pytest

from disque_trio.node.core import node as core_node
from disque_trio.node.core.changes.scatter_gather import ScatterGathers
from disque_trio.node.core.changes.updates import Updates
from disque_trio.node.core.delivery import deliveries
from disque_trio.node.core.jobs.job import FLAG_IN_HAND, FLAGS_PRIORITY, Job
from disque_trio.node.core.jobs.key_messages import KeyMessage, Vote
from disque_trio.node.core.jobs.outcomes import Outcome
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.node.core.lifecycle.ack_gc import AckGc
from disque_trio.node.core.lifecycle.dead_letters import DeadLetters
from disque_trio.node.core.lifecycle.job_waits import JobWaits
from disque_trio.node.core.lifecycle.successors import Successors
from disque_trio.node.core.queues import group_limits, grouping, limits, queues
from disque_trio.node.core.queues.bus_codec import BusCodec
from disque_trio.node.core.queues.entries import job_entry_with
from disque_trio.node.core.queues.group_limits import LimitedGroup, LimitedGroups
from disque_trio.node.core.queues.grouping import JobGroups
from disque_trio.node.core.queues.limits import Limits
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.shares import Limit
from disque_trio.node.core.shared.schedules import Schedule
from disque_trio.node.core.ticks import Plan, Ticks
from disque_trio.node.core.topics import Topics
from disque_trio.node.core.unique.claims import Claims
from disque_trio.node.core.unique.voter import Voter
from disque_trio.protocol import trailer as endings
from disque_trio.protocol.trailer import Ending, Trailer
from disque_trio.respserver import groups
from disque_trio.respserver.client import Client
from disque_trio.respserver.machine import Machine
from tests.simulator.plan import EXTENDED
from tests.simulator.spoiled import MadeOf, found
from tests.simulator.world import World

if not core_node.__file__.endswith(".py"):
    pytest.skip("a compiled node cannot be made worse", allow_module_level=True)


def as_it_is(world: World) -> None:
    """Spoil nothing else."""


def test_the_cluster_as_it_is_passes() -> None:
    assert not found(as_it_is, EXTENDED, "", seeds=5)


class GenerousVotes(Voter):
    """Voter for whoever asks for a key."""

    def claim(self, message: KeyMessage) -> Vote | None:
        entry = self._uniques.find(message.queue, message.key)
        if entry is not None and entry.id != message.id:
            self._uniques.drop(entry)
        return super().claim(message)


def test_two_jobs_with_one_key_are_found(made_of: MadeOf) -> None:
    assert found(made_of(GenerousVotes), EXTENDED, "two jobs have one key")


class CredulousClaims(Claims):
    """Answers with the ID of a job that somebody only wanted to add."""

    def known(self, queue: bytes, trailer: Trailer, replace: bool) -> bytes:
        entry = self._uniques.find(queue, trailer.key)
        return b"" if entry is None else entry.id


def test_ids_of_jobs_that_do_not_exist_are_found(made_of: MadeOf) -> None:
    assert found(made_of(CredulousClaims), EXTENDED, "that is nowhere", first=7)


class HalfheartedGc(AckGc):
    """Cancels nothing but claims that it did."""

    def end(self, job: Job, ending: Ending, reason: Any) -> bool:
        return ending.kind == endings.CANCELLED or super().end(job, ending, reason)


def test_cancelled_jobs_that_are_delivered_are_found(made_of: MadeOf) -> None:
    assert found(made_of(HalfheartedGc), EXTENDED, "knew that the job was cancelled")


class DeafGc(AckGc):
    """Ignores that a job was cancelled elsewhere."""

    def on_endjob(self, sender: bytes, fields: list[Any]) -> None:
        pass


def test_endings_that_are_not_heard_are_found(made_of: MadeOf) -> None:
    texts = ("knew that the job was cancelled", "left on node")
    assert found(made_of(DeafGc), EXTENDED, *texts, seeds=5)


class LyingWaits(JobWaits):
    """Report the wrong way in which jobs ended."""

    def _resolve(self, id: bytes, outcome: Outcome) -> None:
        kind = endings.EXPIRED if outcome.kind == endings.ACKED else endings.ACKED
        super()._resolve(id, Outcome(kind))


def test_endings_that_did_not_happen_are_found(made_of: MadeOf) -> None:
    assert found(made_of(LyingWaits), EXTENDED, "which is not true")


class InventiveWaits(JobWaits):
    """Report results that nobody gave."""

    def _resolve(self, id: bytes, outcome: Outcome) -> None:
        super()._resolve(id, Outcome(outcome.kind, b"all is well"))


def test_results_that_nobody_gave_are_found(made_of: MadeOf) -> None:
    assert found(made_of(InventiveWaits), EXTENDED, "a result that nobody gave")


class SilentWaits(JobWaits):
    """Never report an end."""

    def _resolve(self, id: bytes, outcome: Outcome) -> None:
        pass


def test_waits_that_never_end_are_found(made_of: MadeOf) -> None:
    assert found(made_of(SilentWaits), EXTENDED, "[b'WAITJOB', b'0'", first=5)


def test_waits_that_end_late_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Machine.begin_wait

    def begin_long(self: Machine, client: Client, names: list[bytes], timeout: int) -> None:
        begin(self, client, names, 4 * timeout)

    monkeypatch.setattr(Machine, "begin_wait", begin_long)
    assert found(as_it_is, EXTENDED, "WAITJOB 500 was answered after")


class ForgetfulUpdates(Updates):
    """Confirm changes that they do not apply."""

    def take(self, job: Job, new: Job, trailer: Trailer | None) -> bool:
        return True


def test_changes_that_do_not_reach_all_are_found(made_of: MadeOf) -> None:
    assert found(made_of(ForgetfulUpdates), EXTENDED, "does not have the change", first=7)


class UnstableUpdates(Updates):
    """Undo a change when another node asks whether to queue the job."""

    def _offer(self, sender: bytes, id: bytes) -> None:
        super()._offer(sender, id)
        job = self._store.jobs.get(id)
        if job is not None and job.body is not None and self.version(job):
            body = job.body.partition(b"/")[0]
            self._store.machine.memory.used += len(body) - len(job.body)
            job.body = body


def test_old_contents_are_found(made_of: MadeOf) -> None:
    assert found(made_of(UnstableUpdates), EXTENDED, "after the change", first=7)


class LocalMoves(Updates):
    """Apply all of a change but the queue."""

    def take(self, job: Job, new: Job, trailer: Trailer | None) -> bool:
        new.queue = job.queue
        return super().take(job, new, trailer)


def test_moves_that_stay_on_one_node_are_found(made_of: MadeOf) -> None:
    assert found(made_of(LocalMoves), EXTENDED, "one change made it")


class WanderingMoves(Updates):
    """Move jobs to a queue that nobody asked for."""

    def move(self, job: Job, queue: bytes) -> None:
        super().move(job, b"c" if queue == b"a" else b"a")


def test_jobs_in_the_wrong_queue_are_found(made_of: MadeOf) -> None:
    assert found(made_of(WanderingMoves), EXTENDED, "to which nobody moved it")


def test_deliveries_from_the_queue_before_a_move_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def from_the_first_queue(job: Job, queue: Queue, details: int, trailers: Trailers) -> bytes:
        trailer = trailers.of(job)
        if trailer is not None and trailer.added_to:
            queue = Queue(trailer.added_to, 0)
        return job_entry_with(job, queue, details, trailers)

    monkeypatch.setattr(deliveries, "job_entry_with", from_the_first_queue)
    assert found(as_it_is, EXTENDED, "after it was moved", first=39)


class ForgetfulCounting(ScatterGathers):
    """Count only some jobs for QSTAT FULL."""

    def do_slice(self) -> None:
        self.state_counter._shard = max(self.state_counter._shard, 900)
        if not self.state_counter._counting:
            self.state_counter._counting, self.state_counter._next = self.state_counter._next, {}
        super().do_slice()


def test_jobs_that_are_not_counted_are_found(made_of: MadeOf) -> None:
    assert found(made_of(ForgetfulCounting), EXTENDED, "in hand and says", first=10)


class CarelessCodec(BusCodec):
    """Loses headers in transit."""

    def decode(self, data: bytes) -> Job | None:
        job = super().decode(data)
        if self.trailer is not None:
            self.trailer.headers = []
        return job


def test_lost_headers_are_found(made_of: MadeOf) -> None:
    assert found(made_of(CarelessCodec), EXTENDED, "delivered with the headers")


def test_dead_letters_without_their_notes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def inherit(trailer: Trailer, before: Trailer) -> None:
        trailer.headers = before.headers
        trailer.group = before.group

    monkeypatch.setattr(Trailer, "inherit", inherit)
    assert found(as_it_is, EXTENDED, "delivered with the note b''")


class LevellingCodec(BusCodec):
    """Loses priorities in transit."""

    def decode(self, data: bytes) -> Job | None:
        job = super().decode(data)
        if job is not None:
            job.flags &= ~FLAGS_PRIORITY
        return job


def test_lost_priorities_are_found(made_of: MadeOf) -> None:
    assert found(made_of(LevellingCodec), EXTENDED, "delivered with the priority")


class ImpoliteQueue(Queue):
    """Delivers the last job first."""

    def pop(self) -> Job:
        job = next(self.last_to_first())
        self.remove(job)
        return job


def test_a_wrong_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "Queue", ImpoliteQueue)
    assert found(as_it_is, EXTENDED, "delivered behind less urgent jobs")


class HastyLetters(DeadLetters):
    """Count one attempt too many."""

    def attempts(self, job: Job) -> int:
        return super().attempts(job) + 1


def test_jobs_that_die_early_are_found(made_of: MadeOf) -> None:
    assert found(made_of(HastyLetters), EXTENDED, "dead after")


class LosingSuccessors(Successors):
    """Make no dead letters."""

    def make(self, job: Job, ending: Ending, queue_it: bool) -> None:
        if ending.kind != endings.DEAD:
            super().make(job, ending, queue_it)


def test_lost_letters_are_found(made_of: MadeOf) -> None:
    assert found(made_of(LosingSuccessors), EXTENDED, "that nobody acknowledged is gone")


class LosingRedrives(Successors):
    """Send no dead letters back."""

    def make(self, job: Job, ending: Ending, queue_it: bool) -> None:
        if ending.kind != endings.REDRIVEN:
            super().make(job, ending, queue_it)


def test_letters_that_are_lost_on_their_way_back_are_found(made_of: MadeOf) -> None:
    assert found(made_of(LosingRedrives), EXTENDED, "that nobody acknowledged is gone")


def test_groups_that_are_run_in_another_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = groups._run

    def run_backwards(runner: Any, client: Client, requests: list[list[bytes]], now: int) -> None:
        run(runner, client, requests[::-1], now)

    monkeypatch.setattr(groups, "_run", run_backwards)
    assert found(as_it_is, EXTENDED, "another job")


class IdleTicks(Ticks):
    """Adds no job."""

    def _add(self, plan: Plan, schedule: Schedule) -> None:
        self._done(plan)


def test_a_schedule_that_does_not_tick_is_found(made_of: MadeOf) -> None:
    assert found(made_of(IdleTicks), EXTENDED, "a schedule does not tick", seeds=5)


class EagerTicks(Ticks):
    """Never waits for the nodes before it."""

    def _place(self, name: bytes) -> int:
        return 0


def test_a_tick_that_two_nodes_add_is_found(
    made_of: MadeOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_node, "Ticks", EagerTicks)
    assert found(made_of(GenerousVotes), EXTENDED, "was added more than once")


def test_eager_nodes_alone_do_no_harm(made_of: MadeOf) -> None:
    assert not found(made_of(EagerTicks), EXTENDED, "", seeds=10)


class LazyTopics(Topics):
    """Leave the last queue out."""

    def add(self, client: Client, args: list[bytes], queues: list[bytes]) -> None:
        super().add(client, args, queues[:-1])


def test_a_bound_queue_that_gets_no_job_is_found(made_of: MadeOf) -> None:
    assert found(made_of(LazyTopics), EXTENDED, "was answered [", seeds=5)


class MonotonousTopics(Topics):
    """Put all jobs into one queue."""

    def add(self, client: Client, args: list[bytes], queues: list[bytes]) -> None:
        super().add(client, args, queues[:1] * len(queues))


def test_a_job_for_another_queue_is_found(made_of: MadeOf) -> None:
    assert found(made_of(MonotonousTopics), EXTENDED, "the job for b'b' is in b'a'", seeds=5)


class DisorderlyTopics(Topics):
    """Answer with made-up IDs before the jobs are added."""

    def settle(self) -> None:
        for fan_out in self.waiting.values():
            fan_out.part.out.append(b"+" + b"D" * 40 + b"\r\n")
        super().settle()


def test_ids_of_nothing_in_the_answer_of_a_topic_are_found(made_of: MadeOf) -> None:
    assert found(made_of(DisorderlyTopics), EXTENDED, "was answered [", seeds=5)


class SilentTopics(Topics):
    """Never answer."""

    def settle(self) -> None:
        pass


def test_a_topic_that_never_answers_is_found(made_of: MadeOf) -> None:
    assert found(made_of(SilentTopics), EXTENDED, "is stuck with", "still waits", seeds=5)


class DeafTopics(Topics):
    """Ignore the bindings of other nodes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sharing._take = lambda entries, reached: None  # type: ignore[method-assign]


def test_a_binding_that_not_all_know_is_found(made_of: MadeOf) -> None:
    assert found(made_of(DeafTopics), EXTENDED, "knows the bindings", seeds=5)


class SelfishLimit(Limit):
    """Gives each node the whole limit."""

    def room(self, own: bytes, active: int) -> int:
        return active


def test_more_in_hand_than_the_limit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "Limit", SelfishLimit)
    assert found(as_it_is, EXTENDED, "in hand, not", first=48, seeds=10)


class SelfishLimitedGroup(LimitedGroup):
    """Gives each node the whole limit."""

    def room(self, own: bytes, active: int) -> int:
        return active


def test_more_of_a_group_in_hand_than_its_limit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_limits, "LimitedGroup", SelfishLimitedGroup)
    assert found(as_it_is, EXTENDED, "of the group", first=56, seeds=15)


class ForgetfulLimitedGroups(LimitedGroups):
    """Do not notice that a client is done with a job."""

    def taken_back(self, job: Job) -> None:
        pass


def test_a_group_that_is_held_back_for_good_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LimitedGroups", ForgetfulLimitedGroups)
    assert found(as_it_is, EXTENDED, "never delivered", first=28, seeds=8)


class ForgetfulLimits(Limits):
    """Do not notice that a client is done with a job."""

    def taken_back(self, job: Job, timed_out: bool = False) -> None:
        job.flags &= ~FLAG_IN_HAND
        if self.on_taken_back is not None:
            self.on_taken_back(job, timed_out)


def test_a_queue_that_is_held_back_for_good_is_found(made_of: MadeOf) -> None:
    assert found(made_of(ForgetfulLimits), EXTENDED, "never delivered", first=51, seeds=10)


class ImpatientGroups(JobGroups):
    """Deliver the next job of a group while one is still out."""

    def pop(self) -> Job:
        job = super().pop()
        self.release(job)
        return job


def test_two_jobs_of_a_group_at_once_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "JobGroups", ImpatientGroups)
    assert found(as_it_is, EXTENDED, "another job of its group is out", first=5, seeds=10)


class ForgetfulGroups(JobGroups):
    """Go on waiting for a job of a group after it has ended."""

    def release(self, job: Job) -> None:
        pass


def test_a_group_that_waits_for_good_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "JobGroups", ForgetfulGroups)
    assert found(as_it_is, EXTENDED, "never delivered", first=8, seeds=10)
