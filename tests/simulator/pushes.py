"""Clients that jobs are pushed to, and checks that the nodes push as they should."""

from typing import TYPE_CHECKING

from disque_trio.node.core.delivery.consumers import Consumer
from disque_trio.node.core.jobs.job import ACTIVE, FLAG_IN_HAND
from tests.simulator.clients import DETAILS, Actor, Program, work_on
from tests.simulator.events import MS
from tests.simulator.patterns import PATTERNS
from tests.simulator.plan import QUEUES

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.world import World


def pushed_worker(actor: Actor) -> Program:
    """Consumes queues over a connection, and ends the jobs, puts them back, or forgets them."""
    world = actor.world
    rng = actor.rng
    while not world.stopping:
        best_for = actor.choose()
        line = yield from actor.connect(best_for)
        queues = best_for or rng.sample(QUEUES, rng.randrange(1, len(QUEUES) + 1))
        by_pattern = rng.random() < 0.3
        if by_pattern:
            queues = rng.sample(PATTERNS, rng.randrange(1, 3))
        credit = rng.choice((1, 2, 5, 20))
        request = [b"CONSUME", *queues, b"CREDIT", b"%d" % credit]
        if rng.random() < 0.5:
            request += DETAILS
        if rng.random() < 0.2:
            request += [b"ONLOSS", rng.choice((b"retry", b"soon"))]
        if by_pattern:
            request += rng.choice(([b"PATTERN"], [b"PATTERN", b"NODEAD"]))
        replies = yield line.ask([b"HELLO", b"3"], request)
        if replies is None or replies[1] != b"OK":  # the node is leaving
            line.close()
            yield 50 * MS
            continue
        for _ in range(rng.randrange(3, 60)):
            yield rng.randrange(100 * MS)
            while line.pushed and line.session is not None:
                yield from work_on(actor, line, line.pushed.popleft(), False)
            if line.session is None or line.stopped or world.stopping:
                break
            if rng.random() < 0.05:
                yield line.ask([b"CREDIT", rng.choice((b"0", b"1", b"8"))])
            elif rng.random() < 0.02:
                yield line.ask([b"CONSUME", b"STOP"])
                break
        line.close()
        yield 10 * MS


def check_consumers(world: "World", machine: "Machine") -> None:
    """A turn of ``machine`` has ended: check that each client has what it may have, and waits for
    more."""
    consumers = machine.node.consumers
    jobs = machine.jobs
    for consumer in consumers.by_client.values():
        for id in consumer.in_hand:
            job = jobs.get(id)
            if job is None or job.state != ACTIVE or not job.flags & FLAG_IN_HAND:
                world.oracle.problem(f"node {machine.index} thinks that a client has it", id)
        if consumer.size != sum(consumer.in_hand.values()):
            world.oracle.problem(f"node {machine.index} counts {consumer.size} bytes in hand")
        waits = _waits(machine, consumer)
        if waits != (consumer.patterns or consumer.names if consumer.waits else []):
            world.oracle.problem(f"node {machine.index} lets a client wait in {waits}")
        if consumer.room() and not consumer.waits and not consumers.due:
            world.oracle.problem(f"node {machine.index} forgets a client that has credit")


def _waits(machine: "Machine", consumer: Consumer) -> list[bytes]:
    """The queues, or patterns, of ``consumer`` in which it waits."""
    if consumer.patterns:
        by_client = machine.node.deliveries.interests.by_client
        return [interest.wanted for interest in by_client.get(consumer.waiter, [])]
    queues = machine.node.queues.by_name
    waiter = consumer.waiter
    return [
        name
        for name in consumer.names
        if (queue := queues.get(name)) is not None and waiter in queue.waiters
    ]
