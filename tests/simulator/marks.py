"""The marks of jobs (``node.core.jobs.marked``), against a look at all jobs."""

from typing import TYPE_CHECKING, Final

from disque_trio.node.core.changes.state_counts import FRESH, stage_of

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.world import World


EVERY: Final = 200  # turns


def check_marks(world: "World", machine: "Machine") -> None:
    """A turn of ``machine`` has ended: check that all jobs that lists may have to name are
    marked."""
    store, now = machine.node.store, machine.node.now
    marked = {id: job for shard in store.jobs.marked.shards if shard for id, job in shard.items()}
    for job in store.jobs.values():
        stage = stage_of(job, store.trailers, now)
        if stage and stage != FRESH and marked.get(job.id) is not job:
            world.oracle.problem(
                f"node {machine.index} has not marked a {stage.decode()} job", job.id
            )
