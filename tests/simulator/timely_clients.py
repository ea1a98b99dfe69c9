"""Clients that take jobs where they like; see ``clients`` for what a program is."""

from collections.abc import Callable

from tests.simulator.clients import Actor, Program
from tests.simulator.events import MS, SECOND
from tests.simulator.extended_clients import repeater, waiter
from tests.simulator.plan import DEAD, QUEUES
from tests.simulator.pushes import pushed_worker


def poller(actor: Actor) -> Program:
    """Asks one node after the other for jobs and letters, without waiting, and acknowledges, hands
    back or forgets them, often at another node."""
    world = actor.world
    rng = actor.rng
    while not world.stopping:
        line = yield from actor.connect()
        names = [rng.choice(QUEUES), DEAD] if rng.random() < 0.5 else [rng.choice(QUEUES)]
        replies = yield line.ask([b"GETJOB", b"NOHANG", b"COUNT", b"2", b"FROM", *names])
        line.close()
        if replies is None or not isinstance(replies[0], list):
            yield rng.randrange(60 * MS)
            continue
        for entry in replies[0]:
            yield rng.randrange(30 * MS)
            fate = rng.random()
            if fate < 0.1:
                continue  # the worker died
            elsewhere = yield from actor.connect()
            yield elsewhere.ask([b"ACKJOB" if fate < 0.55 else b"NACK", entry[1]])
            elsewhere.close()


def passer(actor: Actor) -> Program:
    """Waits for jobs for a short time, and goes to another node, sometimes without waiting for the
    end."""
    world = actor.world
    rng = actor.rng
    while not world.stopping:
        line = yield from actor.connect()
        names = rng.sample(QUEUES, rng.randrange(1, len(QUEUES) + 1))
        patience = rng.choice((20, 100, 1000))
        request = [b"GETJOB", b"TIMEOUT", b"%d" % patience, b"FROM", *names]
        if line.session is not None and rng.random() < 0.3:
            line.session.send(request)
            yield rng.randrange(patience * MS)
            line.close()
            continue
        replies = yield line.ask(request)
        if replies is not None and isinstance(replies[0], list):
            yield line.ask([b"ACKJOB" if rng.random() < 0.7 else b"NACK", replies[0][0][1]])
        line.close()
        yield rng.randrange(300 * MS)


def redriver(actor: Actor) -> Program:
    """Sends dead letters back, some or one at a time, from whichever node."""
    world = actor.world
    rng = actor.rng
    while not world.stopping:
        yield int(rng.expovariate(2 / SECOND)) + 1
        line = yield from actor.connect()
        yield line.ask([b"REDRIVE", DEAD, b"COUNT", rng.choice((b"1", b"1", b"20"))])
        line.close()


Programs = tuple[Callable[[Actor], Program], ...]
TIMELY_CLIENTS: Programs = (repeater, waiter, pushed_worker, passer, passer, redriver)
POLLING_CLIENTS: Programs = (*TIMELY_CLIENTS, poller, poller)
