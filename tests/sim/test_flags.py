"""Flag bits unknown to this version, in whole clusters with crashes and files."""

from zlib import crc32

import pytest

from disque_trio.node.core import node as core_node
from disque_trio.node.core.jobs.job import FLAGS_CARRIED, Job
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.store import JobStore
from tests.simulator.campaign import simulate
from tests.simulator.plan import SAFETY

if not core_node.__file__.endswith(".py"):
    pytest.skip("a compiled node cannot be derived from", allow_module_level=True)

SEEDS = 8


def marks(id: bytes) -> int:
    return crc32(id) & FLAGS_CARRIED


class LaterStore(JobStore):
    """Sets the bits of each job to a part of the checksum of its ID."""

    elsewhere = 0  # deliveries by nodes that did not make the job
    wrong: list[Job] = []  # noqa: RUF012

    def make_job(
        self, queue: bytes, body: bytes, repl: int, delay: int, retry: int, ttl: int
    ) -> Job:
        job = super().make_job(queue, body, repl, delay, retry, ttl)
        job.flags |= marks(job.id)
        return job

    def take_job(self, queue: Queue) -> Job:
        job = super().take_job(queue)
        LaterStore.elsewhere += job.id[2:10] != self.replicas.own[:8]
        if job.flags & FLAGS_CARRIED != marks(job.id):
            self.wrong.append(job)
        return job


def test_the_bits_of_a_job_are_those_of_its_creator_wherever_it_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_node, "JobStore", LaterStore)
    for seed in range(SEEDS):
        assert not simulate(seed, SAFETY, "static").problems
    assert not LaterStore.wrong
    assert LaterStore.elsewhere > SEEDS
