"""The checks see what is wrong: a cluster that is broken on purpose does not pass."""

from collections.abc import Callable

import pytest
from sim.engine.campaign import simulate
from sim.engine.disk import ALWAYS
from sim.engine.events import SECOND
from sim.engine.machine import BEFORE_PERSIST
from sim.engine.plan import CALM, LIVENESS, SAFETY
from sim.engine.world import World

from disque_trio.core import node as core_node
from disque_trio.core.client import Client
from disque_trio.core.job import ACKED, ACTIVE, FLAG_DELIVERED, Job
from disque_trio.core.node import Node
from disque_trio.core.queue import Queue
from disque_trio.protocol import bus

if not core_node.__file__.endswith(".py"):
    pytest.skip("a compiled node cannot be made worse", allow_module_level=True)

SEEDS = 40

Spoil = Callable[[World], None]


def found(spoil: Spoil, mode: str, *texts: str, seeds: int = SEEDS) -> bool:
    """Whether a run of a spoiled cluster is blamed with one of ``texts``."""
    for seed in range(seeds):
        outcome = simulate(seed, mode, "static", spoil=spoil)
        for problem in outcome.problems:
            if any(text in problem.text for text in texts):
                return True
    return False


def made_of(kind: type[Node]) -> Spoil:
    """Clusters of worse nodes."""

    def spoil(world: World) -> None:
        world.make_node = kind

    return spoil


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


class ForgetfulJournal(Node):
    """Takes copies without writing them down."""

    def on_repljob(self, sender: bytes, packet: bytes) -> None:
        super().on_repljob(sender, packet)
        self.journal.clear()


def test_copies_that_are_not_in_the_file_are_found() -> None:
    assert found(made_of(ForgetfulJournal), SAFETY, "lost a job that its file should have")


class GenerousNode(Node):
    """Forgets that a job with RETRY 0 was delivered."""

    def take_job(self, queue: Queue) -> Job:
        job = super().take_job(queue)
        job.flags &= ~FLAG_DELIVERED
        return job


def test_a_second_delivery_of_an_at_most_once_job_is_found() -> None:
    assert found(made_of(GenerousNode), SAFETY, "RETRY 0 was delivered again")


class KeepingNode(Node):
    """Keeps the at-most-once jobs that it gives to others."""

    def on_needjobs(self, sender: bytes, packet: bytes) -> None:
        queue = self.queues.get(bus.read_about_queue(packet)[0])
        before = [] if queue is None else [job for job in queue.oldest_first() if job.retry == 0]
        super().on_needjobs(sender, packet)
        for job in before:
            if self.jobs.get(job.id) is None:
                job.state = ACTIVE
                job.awake = 0
                self._register(job)
                self._put(job)


def test_an_at_most_once_job_in_two_places_is_found() -> None:
    assert found(made_of(KeepingNode), SAFETY, "RETRY 0 was delivered again")


def test_acknowledges_that_do_not_arrive_are_found() -> None:
    assert found(losing(bus.SETACK), SAFETY, "left on node", seeds=3)


def test_acknowledges_that_are_not_confirmed_are_found() -> None:
    assert found(losing(bus.GOTACK), SAFETY, "left on node", seeds=3)


class DeafNode(Node):
    """Confirms acknowledges and does not mind them."""

    def on_setack(self, sender: bytes, packet: bytes) -> None:
        id, _ = bus.read_about_job(packet)
        self.peers.send(sender, self.packets.about_job(bus.GOTACK, id, 1))

    def on_deljob(self, sender: bytes, packet: bytes) -> None:
        pass


def test_acknowledged_jobs_that_come_back_are_found() -> None:
    assert found(made_of(DeafNode), SAFETY, "came back")


class PromisingNode(Node):
    """Confirms copies that it does not take."""

    def on_repljob(self, sender: bytes, packet: bytes) -> None:
        id = bus.read_jobs(packet)[0][4:44]
        self.peers.send(sender, self.packets.about_job(bus.GOTJOB, id, 1))


def test_copies_that_do_not_exist_are_found() -> None:
    assert found(made_of(PromisingNode), SAFETY, "says GOTJOB", seeds=3)


class HastyNode(Node):
    """Is content with one copy less."""

    def on_gotjob(self, sender: bytes, packet: bytes) -> None:
        adding = self._adding.get(bus.read_about_job(packet)[0])
        if adding is not None and adding.needed > 1:
            adding.needed -= 1
        super().on_gotjob(sender, packet)


def test_too_few_copies_are_found() -> None:
    assert found(made_of(HastyNode), SAFETY, "confirmed with")


class ConfusedNode(Node):
    """Mixes up the replies of a client with several requests under way."""

    def add_sync(self, client: Client, job: Job, external: bool, timeout: int) -> None:
        super().add_sync(client, job, external, timeout)
        client.line.rotate(1)


def test_replies_in_the_wrong_order_are_found() -> None:
    assert found(made_of(ConfusedNode), CALM, "another job")


def test_clients_that_wait_for_long_are_found() -> None:
    assert found(losing(bus.GOTJOB), CALM, "was answered after", seeds=2)


class StubbornNode(Node):
    """Asks nobody again when a copy is not confirmed."""

    def try_more(self, now: int) -> None:
        for _, adding in self._attempts:
            adding.repeat = now + 3_600_000
        self._attempts.clear()

    def next_attempt(self) -> int:
        return 0


def test_clients_that_wait_for_ever_are_found() -> None:
    assert found(made_of(StubbornNode), SAFETY, "is stuck")


class SilentNode(Node):
    """Never asks others for jobs."""

    def need_jobs(self, queue: Queue) -> None:
        pass


def test_jobs_that_do_not_move_to_their_consumers_are_found() -> None:
    assert found(made_of(SilentNode), CALM, "late", "never delivered")


class LeakingNode(Node):
    """Does not account for the bytes of acknowledged jobs."""

    def delete(self, job: Job) -> None:
        used = self.memory.used
        acked = job.state == ACKED
        super().delete(job)
        if acked:
            self.memory.used = used


def test_memory_that_is_never_given_back_is_found() -> None:
    assert found(made_of(LeakingNode), CALM, "accounts", seeds=3)


class LazyNode(Node):
    """Never queues a job again."""

    def _retry_time(self, job: Job) -> int:
        return 0


def test_jobs_that_are_never_queued_again_are_found() -> None:
    assert found(made_of(LazyNode), SAFETY, "left on node", "never delivered", seeds=5)


class TrustingNode(Node):
    """Counts on nodes that are gone."""

    def _choose(self, job: Job, count: int) -> list[bytes]:
        return self.peers.everyone()[:count]

    def try_more(self, now: int) -> None:
        pass

    def next_attempt(self) -> int:
        return 0


def test_a_majority_that_cannot_go_on_is_found() -> None:
    assert found(made_of(TrustingNode), LIVENESS, "was answered after")
