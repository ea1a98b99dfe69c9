"""Pauses of queues in a cluster after faults: all nodes agree."""

from typing import TYPE_CHECKING

from tests.simulator.events import SECOND

if TYPE_CHECKING:
    from tests.simulator.world import World

SHORT = 10 * SECOND  # in which all nodes compare what they know


def check_pauses(world: "World") -> None:
    """Check that all nodes know the same pauses, those of the operators, and that none is left."""
    world.loop.run_until(world.loop.now + SHORT)
    first = world.usable[0].node.queue_pauses.known
    for machine in world.usable:
        pauses = machine.node.queue_pauses
        if pauses.known.digest != first.digest:
            world.oracle.problem(f"node {machine.index} knows other pauses than the first one")
        for queue in machine.node.queues.by_name.values():
            if queue.paused:
                world.oracle.problem(f"node {machine.index} still pauses {queue.name!r}")
