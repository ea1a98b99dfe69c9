"""The promises to clients that take jobs by patterns."""

from functools import cache
from typing import TYPE_CHECKING

from disque_trio.glob import Glob
from disque_trio.node.core.queues.queue import PAUSED_OUT

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.world import World

PATTERNS = (b"[ab]", b"?", b"c*", b"[^a]")


@cache  # clients use the same few again and again
def matches(pattern: bytes, name: bytes) -> bool:
    """Whether ``pattern`` stands for the queue ``name``."""
    return Glob(pattern).matches(name)


def check_queues(world: "World", request: list[bytes], entries: list[list[bytes]]) -> None:
    """The GETJOB ``request`` was answered with ``entries``: check that it named their queues."""
    start = request.index(b"FROM")
    names = request[start + 1 :]
    for entry in entries:
        if b"PATTERN" not in request[:start]:
            named = entry[0] in names
        else:
            named = any(matches(pattern, entry[0]) for pattern in names)
        if not named:
            world.oracle.problem(f"a job of the queue {entry[0]!r} for {names}", entry[1])


def check_waits(world: "World", machine: "Machine") -> None:
    """A turn of ``machine`` has ended: check that no client waits by pattern for a job that is
    there."""
    plan = world.plan
    interests = machine.node.deliveries.interests
    if interests.in_work():
        return
    stocked = [queue for queue in machine.node.queues.by_name.values() if queue.length]
    if not stocked:
        return
    limited = plan.active or plan.rate or plan.groups
    for client, its_interests in interests.by_client.items():
        for queue in stocked:
            if any(matches(interest.pattern, queue.name) for interest in its_interests):
                stands = any(interest.stand_in in queue.waiters for interest in its_interests)
                held = limited or queue.paused & PAUSED_OUT or queue.dry  # or its jobs are on disk
                if not held or not stands:
                    world.oracle.problem(
                        f"node {machine.index} lets client {client.id} wait for {queue.name!r}"
                    )
