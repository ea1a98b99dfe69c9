"""Schedules in a cluster after faults: each tick has one job."""

from random import Random
from typing import TYPE_CHECKING

from disque_trio.node.core.ticks import STAGGER
from tests.simulator.events import MS, SECOND

if TYPE_CHECKING:
    from tests.simulator.world import World

QUEUE = b"ticks"
EVERY = 5 * SECOND
LONG = 90 * SECOND  # clocks may be a minute apart, and the one that is ahead adds
IN_STEP = 40 * SECOND  # the same if all show the same time
SHORT = 10 * SECOND


def check_ticks(world: "World") -> None:
    """Set a schedule, let it tick, delete it, and check what was added."""
    complain = world.oracle.problem
    first, last = world.usable[0], world.usable[-1]
    options = [b"TTL", b"3600", b"RETRY", b"3600"]
    world.command(first, [b"CRON", b"SET", b"sim", b"@every 5s", QUEUE, b"0", *options])
    timely = world.timely is not None
    if timely:
        _stall(world)
    world.loop.run_until(world.loop.now + (IN_STEP if timely else LONG))
    for machine in world.usable:
        if machine.node.ticks.schedules.named(b"sim") is None:
            complain(f"node {machine.index} does not know the schedule")
    world.command(last, [b"CRON", b"DEL", b"sim"])
    world.loop.run_until(world.loop.now + SHORT)
    added: dict[bytes, set[bytes]] = {}
    ticks: dict[int, set[bytes]] = {}
    for machine in world.usable:
        if machine.node.ticks.schedules.named(b"sim") is not None:
            complain(f"node {machine.index} does not know that the schedule was deleted")
        if machine.node.ticks.adding:
            complain(f"node {machine.index} still adds the job of a schedule")
        store = machine.node.store
        for job in machine.jobs.values():
            trailer = store.trailers.of(job)
            if trailer is not None and job.queue == QUEUE:
                added.setdefault(trailer.key, set()).add(job.id)
                ticks.setdefault(job.ctime // 1_000_000 // (EVERY // MS), set()).add(job.id)
    if not added:
        complain("a schedule does not tick")
    for key, ids in added.items():
        if len(ids) > 1:
            complain(f"{key.decode()} was added more than once", *ids)
    if timely:
        for ids in ticks.values():
            if len(ids) > 1:
                complain("a tick has more than one job", *ids)


def _stall(world: "World") -> None:
    """At each tick, let some node stand still until another one adds the job in its place."""
    rng = Random(f"ticks {world.plan.seed}")
    now = world.machines[0].now()
    every = EVERY // MS
    for tick in range(now - now % every + 2 * every, now + IN_STEP // MS, every):
        machine = rng.choice(world.usable)
        length = STAGGER * MS + rng.randrange(8 * MS)
        begin = machine.clock.when(tick) - MS
        world.loop.at(begin, lambda machine=machine, length=length: machine.pause(length + MS))  # type: ignore[misc]
