"""What QSTAT says that clients did, compared with the counters of the whole node and of the
cluster."""

from typing import TYPE_CHECKING, Final

from disque_trio.node.core.queues.traffic import STEP, Traffic
from tests.simulator.plan import CALM

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.world import World

_TOTALS: Final = ("added", "delivered", "acked")


def check_counts(world: "World") -> None:
    """Check that the counters of the queues of each node add up to at most what its clients did
    (those of a queue that is forgotten are gone), and that what moved was given by somebody."""
    given = taken = 0
    lost = False
    for machine in world.machines:
        traffic = _all(machine)
        for name in _TOTALS:
            found = sum(int(getattr(one, name)) for one in traffic)
            total = getattr(machine.node.store, f"total_{name}")
            if found > total:
                world.oracle.problem(f"node {machine.index}: {found} {name} of {total}")
        for one in traffic:
            for times, count in ((one.wait, one.delivered), (one.processing, one.acked)):
                timed = 0 if times is None else sum(times.total)
                if timed > count or (times is one.wait and timed + STEP <= count):
                    world.oracle.problem(f"node {machine.index}: {timed} times of {count}")
        given += sum(int(one.exported) for one in traffic)
        taken += sum(int(one.imported) for one in traffic)
        lost = lost or machine.incarnation > 1 or bool(machine.removed)
    # A giver may have been restarted, or have forgotten the queue.
    if taken > given and world.plan.mode == CALM and not lost:
        world.oracle.problem(f"{taken} jobs were taken from other nodes, which gave {given}")


def _all(machine: "Machine") -> list[Traffic]:
    queues = machine.node.queues
    return [*(queue.traffic for queue in queues.by_name.values()), *queues.absent.values()]
