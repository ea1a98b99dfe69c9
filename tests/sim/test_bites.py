"""The checks bite: a cluster broken on purpose does not pass."""

from typing import ClassVar

import pytest

from disque_trio.cluster.membership import Membership
from disque_trio.node.core import node as core_node
from disque_trio.node.core.copies.placement import Placement
from disque_trio.node.core.copies.replication import Replication
from disque_trio.node.core.federation.exports import Exports
from disque_trio.node.core.federation.federation import Federation
from disque_trio.node.core.jobs.job import ACKED, ACTIVE, FLAG_DELIVERED, Job
from disque_trio.node.core.jobs.waits import ReplicationWait, ReplicationWaits
from disque_trio.node.core.lifecycle.ack_gc import AckGc
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.store import JobStore
from disque_trio.protocol import bus
from disque_trio.protocol.bus import JobMessage, JobsMessage, QueueMessage
from disque_trio.respserver.client import Client
from tests.simulator.disk import ALWAYS
from tests.simulator.events import SECOND
from tests.simulator.machine import BEFORE_PERSIST
from tests.simulator.plan import CALM, LIVENESS, SAFETY
from tests.simulator.spoiled import MadeOf, Spoil, found
from tests.simulator.world import World

if not core_node.__file__.endswith(".py"):
    pytest.skip("a compiled node cannot be made worse", allow_module_level=True)


def losing(*types: int) -> Spoil:
    """Clusters in which packets of some types never arrive."""

    def spoil(world: World) -> None:
        world.drops = lambda packet: bus.packet_type(packet) in types

    return spoil


def test_the_cluster_as_it_is_passes() -> None:
    assert not found(lambda world: None, SAFETY, "", seeds=5)


def test_replies_before_the_journal_is_written_are_found() -> None:
    def spoil(world: World) -> None:
        world.replies_first = True
        world.plan.faults = 20
        faults = world.faults
        for machine in world.machines:
            machine.disk.policy = ALWAYS

        def crash() -> None:
            machine = faults.rng.choice(world.machines)
            machine.kill(BEFORE_PERSIST, machine=False)
            world.loop.after(SECOND, lambda: world.revive(machine))

        for kind in ("partition", "crash", "stop", "pause", "clock", "break_links"):
            setattr(faults, kind, crash)

    assert found(spoil, SAFETY, "never delivered", "lost a job")


class ForgetfulJournal(Replication):
    """Takes copies without writing them to its file."""

    def on_repljob(self, sender: bytes, message: JobsMessage) -> None:
        super().on_repljob(sender, message)
        self._machine.journal.clear()


def test_copies_that_are_not_in_the_file_are_found(made_of: MadeOf) -> None:
    assert found(made_of(ForgetfulJournal), SAFETY, "lost a job that its file should have")


class GenerousStore(JobStore):
    """Forgets that a job with RETRY 0 was delivered."""

    def take_job(self, queue: Queue) -> Job:
        job = super().take_job(queue)
        job.flags &= ~FLAG_DELIVERED
        return job


def test_a_second_delivery_of_an_at_most_once_job_is_found(made_of: MadeOf) -> None:
    assert found(made_of(GenerousStore), SAFETY, "RETRY 0 was delivered again")


class KeepingExports(Exports):
    """Keeps the at-most-once jobs that it hands to others, each once."""

    kept: ClassVar[set[bytes]] = set()

    def on_needjobs(self, sender: bytes, message: QueueMessage) -> None:
        store = self._store
        queue = store.queues.by_name.get(message.queue)
        before = [] if queue is None else [job for job in queue.first_to_last() if job.retry == 0]
        super().on_needjobs(sender, message)
        for job in before:
            if store.jobs.get(job.id) is None and job.id not in self.kept:
                self.kept.add(job.id)
                job.state = ACTIVE
                job.awake = 0
                store.register(job)
                store.put(job)


def test_an_at_most_once_job_in_two_places_is_found(made_of: MadeOf) -> None:
    assert found(made_of(KeepingExports), SAFETY, "RETRY 0 was delivered again")


def test_acknowledges_that_do_not_arrive_are_found() -> None:
    assert found(losing(bus.SETACK), SAFETY, "left on node", seeds=3)


def test_acknowledges_that_are_not_confirmed_are_found() -> None:
    assert found(losing(bus.GOTACK), SAFETY, "left on node", seeds=3)


class DeafGc(AckGc):
    """Confirms acknowledgements and ignores them."""

    def on_setack(self, sender: bytes, message: JobMessage) -> None:
        self._notices.add(sender, bus.GOTACK, message.id, 1, 0)

    def on_deljob(self, sender: bytes, message: JobMessage) -> None:
        pass


def test_acknowledged_jobs_that_come_back_are_found(made_of: MadeOf) -> None:
    assert found(made_of(DeafGc), SAFETY, "came back")


class PromisingReplication(Replication):
    """Confirms copies that it does not take."""

    def on_repljob(self, sender: bytes, message: JobsMessage) -> None:
        id = message.jobs[0][4:44]
        self._peers.send(sender, self._packets.about_job(bus.GOTJOB, id, 1))


def test_copies_that_do_not_exist_are_found(made_of: MadeOf) -> None:
    assert found(made_of(PromisingReplication), SAFETY, "says GOTJOB", seeds=3)


class HastyReplication(Replication):
    """Is content with one copy fewer."""

    def on_gotjob(self, sender: bytes, message: JobMessage) -> None:
        wait = self._waits.by_job.get(message.id)
        if wait is not None and wait.needed > 1:
            wait.needed -= 1
        super().on_gotjob(sender, message)


def test_too_few_copies_are_found(made_of: MadeOf) -> None:
    assert found(made_of(HastyReplication), SAFETY, "confirmed with")


class ConfusedWaits(ReplicationWaits):
    """Mixes up the replies to a client with several pending requests."""

    def begin(self, client: Client, job: Job, needed: int, external: bool, timeout: int) -> None:
        super().begin(client, job, needed, external, timeout)
        client.reply_queue.rotate(1)


def test_replies_in_the_wrong_order_are_found(made_of: MadeOf) -> None:
    assert found(made_of(ConfusedWaits), CALM, "another job")


def test_clients_that_wait_for_long_are_found() -> None:
    assert found(losing(bus.GOTJOB), CALM, "was answered after", seeds=2)


class StubbornWaits(ReplicationWaits):
    """Never asks again when a copy is not confirmed."""

    def due(self, now: int) -> ReplicationWait | None:
        for _, wait in self.attempts:
            wait.repeat = now + 3_600_000
        self.attempts.clear()
        return None

    def next_due(self) -> int:
        return 0


def test_clients_that_wait_for_ever_are_found(made_of: MadeOf) -> None:
    assert found(made_of(StubbornWaits), SAFETY, "is stuck")


class SilentFederation(Federation):
    """Never asks others for jobs."""

    def need_jobs(self, queue: Queue, again: bool = False) -> None:
        pass


def test_jobs_that_do_not_move_to_their_consumers_are_found(made_of: MadeOf) -> None:
    assert found(made_of(SilentFederation), CALM, "late", "never delivered")


class LeakingStore(JobStore):
    """Does not account for the bytes of acknowledged jobs."""

    def delete(self, job: Job) -> None:
        used = self.machine.memory.used
        acked = job.state == ACKED
        super().delete(job)
        if acked:
            self.machine.memory.used = used


def test_memory_that_is_never_given_back_is_found(made_of: MadeOf) -> None:
    assert found(made_of(LeakingStore), CALM, "accounts", seeds=3)


class LazyStore(JobStore):
    """Never queues a job again."""

    def retry_time(self, job: Job) -> int:
        return 0


def test_jobs_that_are_never_queued_again_are_found(made_of: MadeOf) -> None:
    assert found(made_of(LazyStore), SAFETY, "left on node", "never delivered", seeds=5)


class TrustingPlacement(Placement):
    """Picks nodes that are gone."""

    def choose(self, job: Job, count: int, external: bool) -> list[bytes]:
        return self._peers.everyone()[:count]


class TrustingReplication(Replication):
    """Never tries other nodes."""

    def try_more(self, now: int) -> None:
        pass


class PatientWaits(ReplicationWaits):
    """Asks for no wake-up, so nothing tries again."""

    def next_due(self) -> int:
        return 0


def test_a_majority_that_cannot_go_on_is_found(made_of: MadeOf) -> None:
    made_of(TrustingPlacement)
    made_of(TrustingReplication)
    assert found(made_of(PatientWaits), LIVENESS, "was answered after")


def test_an_addjob_that_waits_for_the_next_ping_of_a_dead_node_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Membership, "expect", lambda peers, ids, now: None)
    assert found(lambda world: None, LIVENESS, "was answered after", membership="gossip")
