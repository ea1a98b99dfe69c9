"""The checks of GETJOB PATTERN bite: each property is broken on purpose."""

import pytest

from disque_trio.node.core.delivery import interests, patterns
from disque_trio.node.core.delivery.patterns import Interest, InterestIndex, ReadyQueues
from disque_trio.node.core.queues.queue import Queue
from tests.simulator.plan import EXTENDED
from tests.simulator.spoiled import found
from tests.simulator.world import World

if not interests.__file__.endswith(".py"):
    pytest.skip("a compiled node cannot be made worse", allow_module_level=True)


class ForgetfulFinder(ReadyQueues):
    """Does not notice that a queue has jobs again."""

    def note(self, queue: Queue) -> None:
        if queue.length > 1:
            super().note(queue)


class GenerousIndex(InterestIndex):
    """Mistakes every queue for ``a``."""

    def matching(self, name: bytes) -> list[Interest]:
        return super().matching(b"a")


def as_it_is(world: World) -> None:
    """Spoil nothing else."""


def test_a_client_that_waits_while_there_is_a_job_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interests, "ReadyQueues", ForgetfulFinder)
    assert found(as_it_is, EXTENDED, "lets client", seeds=5)


def test_a_job_of_a_queue_that_was_not_named_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "InterestIndex", GenerousIndex)
    assert found(as_it_is, EXTENDED, "a job of the queue", seeds=5)
