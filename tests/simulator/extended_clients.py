"""Clients that use what C Disque does not have; see ``clients`` for what a program is."""

from collections.abc import Generator
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.clients import Actor, Line, Program, Replies, more_options
from tests.simulator.events import MS, SECOND
from tests.simulator.plan import DEAD, QUEUES
from tests.simulator.records import JobRecord

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.world import World

ERA = 3 * SECOND  # how long a key is in use
RECENT = 40  # ADDJOBs to choose from


def repeater(actor: Actor) -> Program:
    """Adds jobs with keys that another client also uses; repeats requests that were not answered,
    and some that were, on other nodes."""
    world = actor.world
    rng = actor.rng
    while not world.stopping:
        number = world.loop.now // ERA * 2 + rng.randrange(2)
        for _ in range(rng.randrange(1, 5)):
            line = yield from actor.connect()
            request = _with_key(world, rng, number)
            if rng.random() < 0.15:
                yield from _gives_up(actor, line.machine, request)
            else:
                replies = yield line.ask(request)
                if replies and isinstance(replies[0], bytes) and rng.random() < 0.7:
                    break
            line.close()
            yield rng.randrange(200 * MS)
        line.close()
        yield int(rng.expovariate(1 / SECOND)) + 1


def _with_key(world: "World", rng: Random, number: int) -> list[bytes]:
    """An ADDJOB UNIQUE; all with the same number have the same key and the same options."""
    plan = world.plan
    queue = QUEUES[number % 3]
    key = b"key %d" % number
    draw = Random(f"key {number} {plan.seed}").random
    retry = plan.retries[number % len(plan.retries)]
    repl = 1 + int(draw() * (plan.nodes - (plan.leaving >= 0)))
    if draw() < 0.15:
        retry, repl = 0, 1
    ttl = 15 if draw() < 0.1 else 86_400
    is_async = draw() < 0.1
    kept = int(2 + draw() * 10) if draw() < 0.2 else 0
    anyway = draw() < 0.15
    record = world.oracle.new_job(queue, retry, ttl, 0, repl, is_async)
    record.key = key
    record.kept = kept
    if not plan.older and not kept and draw() < 0.5:
        record.until_start = True
        record.replaces = draw() < 0.5
    options = [b"TTL", b"%d" % ttl, *more_options(record), b"UNIQUE", key]
    if kept:
        options += [b"FOR", b"%d" % kept]
    if record.replaces:
        options.append(b"REPLACE")
        if rng.random() < 0.3:
            options += [b"DELAY", rng.choice((b"0.5", b"2"))]
    elif record.until_start:
        options += [b"UNTIL", b"START"]
    if anyway and rng.random() < 0.5:
        options.append(b"ANYWAY")
        world.oracle.promises.anyway(record)
    if is_async:
        options.append(b"ASYNC")
    return [
        b"ADDJOB", queue, b"%d" % record.token, rng.choice((b"0", b"300", b"2000", b"5000")),
        b"REPLICATE", b"%d" % repl, b"RETRY", b"%d" % retry, *options,
    ]  # fmt: skip


def _gives_up(
    actor: Actor, machine: "Machine", request: list[bytes]
) -> Generator[int | Line, Replies, None]:
    """Send ``request``, and hang up before it is answered, or just afterwards."""
    session = machine.connect(_not_heard, _nothing)
    if session is not None:
        session.send(request)
        yield actor.rng.choice((200, 2 * MS, 20 * MS, 200 * MS))
        if session.open:
            session.close()


def _not_heard(request: list[bytes], reply: object) -> None:
    """The client does not look at replies."""


def _nothing() -> None:
    """Nor does it notice if the connection breaks."""


def _recent(actor: Actor) -> list[JobRecord]:
    """A few jobs that were added recently, in any order."""
    known = [record for record in actor.world.oracle.records[-RECENT:] if record.confirmed >= 0]
    return actor.rng.sample(known, min(len(known), 4))


def waiter(actor: Actor) -> Program:
    """Waits for jobs to end."""
    world = actor.world
    rng = actor.rng
    while not world.stopping:
        yield int(rng.expovariate(1 / SECOND)) + 1
        jobs = _recent(actor)
        if not jobs:
            continue
        timeout = rng.choice((50, 500, 500, 2_000, 2_000, 5_000))
        if rng.random() < 0.1:
            # A job that nobody has to acknowledge may not end for long.
            jobs = [job for job in jobs if job.retry]
            timeout = 0
        ids = [job.id for job in jobs]
        for job in jobs:
            ids += sorted(job.letters)[:1]
        if not ids:
            continue
        line = yield from actor.connect()
        began = world.loop.now
        replies = yield line.ask([b"WAITJOB", b"%d" % timeout, *ids])
        if replies is not None and isinstance(replies[0], list):
            world.oracle.promises.waited(began, timeout, line.machine, replies[0])
        line.close()


def meddler(actor: Actor) -> Program:
    """Cancels, changes and moves jobs, and sends dead letters back."""
    world = actor.world
    rng = actor.rng
    while not world.stopping:
        yield int(rng.expovariate(4 / SECOND)) + 1
        jobs = _recent(actor)
        if not jobs:
            continue
        job = jobs[0]
        line = yield from actor.connect()
        holders = [machine for machine in world.usable if machine.holds(job.id)]
        if holders and rng.random() < 0.8:
            line.close()
            line = Line(actor, rng.choice(holders))
        fate = rng.random()
        if fate < 0.25:
            yield line.ask([b"CANCEL", *[one.id for one in jobs[: rng.choice((1, 1, 2))]]])
        elif fate < 0.4:
            yield line.ask([b"REDRIVE", DEAD, b"COUNT", b"%d" % rng.randrange(1, 20)])
        elif fate < 0.5:
            count = [b"COUNT", b"%d" % rng.randrange(1, 5)] if rng.random() < 0.5 else []
            yield line.ask([b"QMOVE", *rng.sample(QUEUES, 2), *count])
        elif fate < 0.52 or job.replaces:  # a change would have the wrong headers
            yield line.ask([b"QSTAT", rng.choice(QUEUES), b"FULL"])
        else:
            yield line.ask(_update(job, rng))
        line.close()


def _update(job: JobRecord, rng: Random) -> list[bytes]:
    job.versions += 1
    request = [b"UPDATEJOB", job.id, b"BODY", b"%d/%d" % (job.token, job.versions)]
    if rng.random() < 0.2:
        request += [b"DELAY", rng.choice((b"0", b"0.5", b"2"))]
    if job.retry and rng.random() < 0.1:
        request += [b"RETRY", rng.choice((b"1", b"3"))]
    if rng.random() < 0.2:
        request += [b"QUEUE", rng.choice(QUEUES)]
    return request
