"""The checks of pushed jobs bite: each property is broken on purpose."""

import pytest

from disque_trio.node.core.delivery import consumers, deliveries
from disque_trio.node.core.delivery.consumers import Consumer, Consumers
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.queues.queue import Queue
from disque_trio.respserver.client import Client
from tests.simulator.plan import EXTENDED
from tests.simulator.spoiled import found
from tests.simulator.world import World

if not consumers.__file__.endswith(".py"):
    pytest.skip("a compiled node cannot be made worse", allow_module_level=True)


class ForgetfulConsumers(Consumers):
    """Do not notice that a client is done with a job."""

    def _taken_back(self, job: Job, timed_out: bool) -> None:
        pass


class StingyConsumers(Consumers):
    """Give nothing more to a client that has credit again."""

    def _open_for(self, consumer: Consumer) -> None:
        if not consumer.in_hand:
            super()._open_for(consumer)


class StickyConsumers(Consumers):
    """Keep a client waiting that has no credit left."""

    def give(self, waiter: Client, queue: Queue, job: Job) -> None:
        super().give(waiter, queue, job)
        queue.waiters.setdefault(waiter, None)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ForgetfulConsumers, "thinks that a client has it"),
        (StingyConsumers, "forgets a client that has credit"),
        (StickyConsumers, "lets a client wait"),
    ],
)
def test_pushes_that_go_wrong_are_found(
    monkeypatch: pytest.MonkeyPatch, kind: type[Consumers], text: str
) -> None:
    monkeypatch.setattr(deliveries, "Consumers", kind)

    def as_it_is(world: World) -> None:
        """Spoil nothing else."""

    assert found(as_it_is, EXTENDED, text, seeds=5)
