"""Clients: programs that add jobs, take them, and end them in every way that programs do.

Each is a generator that yields how long it sleeps (µs) or a ``Line`` on which it waits for replies;
it is resumed with None, or with the replies, or with None if the connection broke.
"""

from collections import deque
from collections.abc import Generator, Sequence
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.events import MS, SECOND
from tests.simulator.patterns import PATTERNS
from tests.simulator.plan import DEAD, LIVENESS, QUEUES, TOPICS
from tests.simulator.records import (
    JobRecord,
    expected_group,
    expected_headers,
    expected_note,
    expected_priority,
)

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.session import Session
    from tests.simulator.world import World

# Commands that the oracle is told about when they are sent.
TOLD = {b"ACKJOB", b"FASTACK", b"NACK", b"ENQUEUE", b"CANCEL", b"UPDATEJOB", b"REDRIVE", b"QMOVE"}

# What GETJOB is asked to return besides the jobs.
DETAILS = [b"WITHCOUNTERS", b"WITHHEADERS"]

Replies = list[object] | None
Program = Generator["int | Line", Replies, None]


class Line:
    """A client's connection.

    Attributes:
        session: None once it is gone.
        pushed: the ids of jobs that were pushed and not processed yet. stopped: no more will be
            pushed.
    """

    def __init__(self, actor: "Actor", machine: "Machine") -> None:
        self._actor = actor
        self._wanted = 0
        self._got: list[object] = []
        self.asked: list[list[bytes]] = []
        self.pushed: deque[bytes] = deque()
        self.stopped = False
        self.machine = machine
        self.session: Session | None = machine.connect(self._replied, self._closed)
        if self.session is not None:
            self.session.pushed = self._pushed

    def ask(self, *requests: list[bytes]) -> "Line":
        """Send, unless the connection is gone; yield the result."""
        if self.session is None:
            return self
        self._wanted = len(requests)
        self._got = []
        self.asked = list(requests)
        for request in requests:
            if request[0] in TOLD:
                self._actor.world.oracle.asks(request)
        self.session.send(*requests)
        return self

    def close(self) -> None:
        """Hang up."""
        if self.session is not None:
            self.session.close()
            self.session = None

    def _replied(self, request: list[bytes], reply: object) -> None:
        self._got.append(reply)
        if request[0] == b"GETJOB" and isinstance(reply, list):
            for entry in reply:
                self._actor.world.oracle.received(entry[1])
        if len(self._got) == self._wanted:
            self._actor.resume(self._got)

    def _pushed(self, message: list[bytes]) -> None:
        if message[0] == b"job":
            self._actor.world.oracle.received(message[2])
            self.pushed.append(message[2])
        else:
            self.stopped = True

    def _closed(self) -> None:
        self.session = None
        if self._actor.waits_for is self:
            self._actor.world.oracle.promises.unanswered(self.asked)
            self._actor.resume(None)


class Actor:
    """Runs one program.

    Attributes:
        waits_for: the line on which it waits for replies, or None.
        done: the program has ended.
    """

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.rng = Random(f"{name} {world.plan.seed}")
        self.waits_for: Line | None = None
        self.done = False
        self._program: Program

    def start(self, program: Program) -> None:
        """Begin ``program`` soon."""
        self._program = program
        self.world.loop.after(self.rng.randrange(10 * MS), lambda: self.resume(None))

    def resume(self, value: Replies) -> None:
        """Resume the program."""
        self.waits_for = None
        try:
            wish = self._program.send(value)
        except StopIteration:
            self.done = True
            return
        if isinstance(wish, int):
            self.world.loop.after(wish, lambda: self.resume(None))
        else:
            self.waits_for = wish
            if wish.session is None:
                self.world.loop.after(MS, lambda: self.resume(None))

    def connect(self, queues: Sequence[bytes] = ()) -> Generator["int | Line", Replies, Line]:
        """Connect to some running node, or to the one of which it says that it is best for
        ``queues``, if that one runs."""
        while True:
            machine = self.rng.choice(self.world.usable)
            line = Line(self, machine)
            if queues and line.session is not None:
                line = yield from self._move(line, queues)
            if line.session is not None:
                return line
            yield 100 * MS

    def _move(self, line: Line, queues: Sequence[bytes]) -> Generator["int | Line", Replies, Line]:
        """Go to the node that is best for most of ``queues``, for the first if several are."""
        replies = yield line.ask([b"QOWNER", *queues])
        if replies is None or not isinstance(replies[0], list):
            return line
        ids = [id for id, _, _ in replies[0]]
        best = next(one for one in self.world.machines if one.id == max(ids, key=ids.count))
        if best is line.machine or best.removed:
            return line
        better = Line(self, best)
        if better.session is None:
            return line
        line.close()
        return better

    def choose(self) -> list[bytes]:
        """Choose queues, to go to the node that is best for them; none if any node will do."""
        if not self.world.plan.hints:
            return []
        return self.rng.sample(QUEUES, self.rng.randrange(1, len(QUEUES) + 1))


def producer(actor: Actor) -> Program:
    """Adds jobs, sometimes several at once."""
    world = actor.world
    rng = actor.rng
    while not world.stopping:
        queues = actor.choose()
        line = yield from actor.connect(queues)
        for _ in range(rng.randrange(3, 15)):
            count = 1 if rng.random() < 0.7 else rng.randrange(2, 7)
            requests = [_addjob(world, rng, queues or QUEUES) for _ in range(count)]
            if rng.random() < 0.05:
                # Anything but an ADDJOB has to wait for the requests before it.
                requests.insert(rng.randrange(len(requests) + 1), [b"PING"])
            if world.plan.attempts and rng.random() < 0.1:
                requests = [[b"MULTI"], *requests, [b"EXEC"]]
            replies = yield line.ask(*requests)
            if replies is None:
                break
            yield int(rng.expovariate(1 / world.plan.think)) + 1
            if world.stopping:
                break
        line.close()
        yield 10 * MS


def _addjob(world: "World", rng: Random, queues: Sequence[bytes]) -> list[bytes]:
    plan = world.plan
    queue = rng.choice(queues)
    most = plan.nodes - len(plan.minority) if plan.mode == LIVENESS else plan.nodes
    # After a node has been taken out, a client that asked for as many copies as there were nodes
    # waits forever, which is correct.
    repl = rng.randrange(1, most + 1 - (plan.leaving >= 0))
    retry = rng.choice(plan.retries)
    options: list[bytes] = []
    if rng.random() < 0.25:
        repl = 1
        retry = 0
    ttl = 86_400
    if not plan.careful and rng.random() < plan.brief:
        ttl = rng.randrange(2, 20)
    options += [b"TTL", b"%d" % ttl]
    delay = 0
    if rng.random() < 0.15:
        delay = rng.randrange(1, min(5, ttl))
        options += [b"DELAY", b"%d" % delay]
    is_async = not plan.careful and rng.random() < 0.15
    if is_async:
        options.append(b"ASYNC")
    if not plan.careful and rng.random() < 0.05:
        options += [b"MAXLEN", b"%d" % rng.randrange(1, 20)]
    timeout = 0 if plan.careful else rng.choice((0, 0, 300, 2000, 5000))
    what = queue
    others: list[bytes] = []
    if plan.attempts and rng.random() < 0.15:
        topic = rng.choice(sorted(TOPICS))
        what = b"@" + topic
        queue, *others = TOPICS[topic]
    record = world.oracle.new_job(queue, retry, ttl, delay, repl, is_async)
    for other in others:
        record.others[other] = world.oracle.new_job(other, retry, ttl, delay, repl, is_async)
        record.others[other].token = record.token
    if plan.attempts:
        options += more_options(record)
    return [
        b"ADDJOB", what, b"%d" % record.token, b"%d" % timeout,
        b"REPLICATE", b"%d" % repl, b"RETRY", b"%d" % retry, *options,
    ]  # fmt: skip


def adder(actor: Actor, machine: "Machine") -> Program:
    """Adds one job, with a copy on each node, at ``machine``, within a node timeout from now on."""
    world = actor.world
    plan = world.plan
    yield actor.rng.randrange(plan.node_timeout * MS)
    record = world.oracle.new_job(QUEUES[0], 10, 86_400, 0, plan.nodes, False)
    line = Line(actor, machine)
    yield line.ask(
        [b"ADDJOB", QUEUES[0], b"%d" % record.token, b"0", b"REPLICATE", b"%d" % plan.nodes,
         b"RETRY", b"10", b"TTL", b"86400"]
    )  # fmt: skip
    line.close()


def more_options(record: JobRecord) -> list[bytes]:
    """The options of ADDJOB that give the job its headers, its group, its note and its
    priority."""
    body = b"%d" % record.token
    pairs = expected_headers(body)
    options = [b"HEADERS", b"%d" % (len(pairs) // 2), *pairs] if pairs else []
    if group := expected_group(body):
        options += [b"GROUP", group]
    if note := expected_note(body):
        options += [b"NOTE", note]
    priority = expected_priority(body)
    return [*options, b"PRIORITY", b"%d" % priority] if priority else options


def consumer(actor: Actor) -> Program:
    """Takes jobs, and ends them, puts them back, or forgets them."""
    world = actor.world
    rng = actor.rng
    while not world.stopping:
        queues = actor.choose()
        line = yield from actor.connect(queues)
        for _ in range(rng.randrange(3, 40)):
            request = [b"GETJOB"]
            if rng.random() < 0.2 and world.plan.polls:
                request.append(b"NOHANG")
            else:
                request += [b"TIMEOUT", b"%d" % rng.choice((50, 500, 2000))]
            request += [b"COUNT", b"%d" % rng.choice((1, 1, 3, 10))]
            if world.plan.attempts and rng.random() < 0.3:
                request += DETAILS
            names = queues or rng.sample(QUEUES, rng.randrange(1, len(QUEUES) + 1))
            if world.plan.attempts and rng.random() < 0.3:
                request.append(b"PATTERN")
                names = rng.sample(PATTERNS, rng.randrange(1, 3))
            replies = yield line.ask([*request, b"FROM", *names])
            if replies is None:
                break
            entries = replies[0]
            if not isinstance(entries, list):
                if isinstance(entries, Exception):  # the node is leaving
                    break
                yield rng.randrange(50 * MS)
            else:
                for entry in entries:
                    yield from work_on(actor, line, entry[1], len(entries) == 1)
            if world.stopping or line.session is None:
                break
        line.close()
        yield 10 * MS


def work_on(
    actor: Actor, line: Line, id: bytes, alone: bool
) -> Generator[int | Line, Replies, None]:
    """Process the job, and end it in one of many ways; ``alone``: it was delivered alone."""
    rng = actor.rng
    if actor.world.plan.careful:
        retry = actor.world.oracle.by_id[id].retry
        if alone and retry in (2, 3) and rng.random() < 0.1:
            # The work takes longer than the retry time, and the client says so in time.
            yield line.ask([b"WORKING", id])
            yield retry * 600 * MS
            yield line.ask([b"WORKING", id])
            yield retry * 600 * MS
        yield rng.randrange(20 * MS)
        fate = rng.random()
        if retry and fate < 0.05:
            yield line.ask([b"NACK", id])
        elif fate < 0.2:
            yield from _ack_elsewhere(actor, id)
        else:
            yield line.ask([b"ACKJOB", id])
        return
    if rng.random() < 0.2:
        yield rng.randrange(1500 * MS)  # work
    fate = rng.random()
    if line.session is None or fate < 0.07:
        return  # the worker died
    if fate < 0.14:
        options = _nack_options(rng) if actor.world.plan.attempts else []
        yield line.ask([b"NACK", id, *options])
    elif fate < 0.16:
        yield line.ask([b"FASTACK", id])
    elif fate < 0.20:
        yield line.ask([b"ENQUEUE", id])
    elif fate < 0.28:
        yield line.ask([b"WORKING", id])
        yield rng.randrange(3 * SECOND)
        yield line.ask([b"ACKJOB", id])
    elif fate < 0.45:
        yield from _ack_elsewhere(actor, id)
    elif fate < 0.55 and actor.world.plan.attempts:
        yield line.ask([b"ACKJOB", id, b"RESULT", b"%d" % rng.randrange(1000)])
    elif fate < 0.58 and actor.world.plan.attempts:
        yield line.ask([b"CANCEL", id])
    else:
        yield line.ask([b"ACKJOB", id])


def _nack_options(rng: Random) -> list[bytes]:
    options: list[bytes] = []
    if rng.random() < 0.3:
        options += [b"REASON", b"%d" % rng.randrange(1000)]
    if rng.random() < 0.3:
        options += [b"DELAY", rng.choice((b"0", b"0.3", b"1", b"4", b"12"))]
    elif rng.random() < 0.2:
        options.append(b"DEAD")
    return options


def _ack_elsewhere(actor: Actor, id: bytes) -> Generator[int | Line, Replies, None]:
    """Acknowledge at some node, which may not know the job."""
    other = Line(actor, actor.rng.choice(actor.world.usable))
    yield other.ask([b"ACKJOB", id])
    other.close()


def drainer(actor: Actor, machine: "Machine", until: int = 1 << 60) -> Program:
    """Takes all jobs of one node and acknowledges them, until the given time or the end."""
    world = actor.world
    queues: tuple[bytes, ...] = (*QUEUES, DEAD) if world.plan.attempts else QUEUES
    more = DETAILS if world.plan.attempts else []
    if world.plan.by_pattern:
        queues = (b"[a-c]", b"dea?")
        more = [*DETAILS, b"PATTERN"]
    while not world.drained and world.loop.now < until:
        line = Line(actor, machine)
        while line.session is not None:
            how = [b"NOHANG"] if machine.node.peers.leaving else [b"TIMEOUT", b"3000"]
            request = [b"GETJOB", *how, b"COUNT", b"10", *more, b"FROM", *queues]
            replies = yield line.ask(request)
            if replies is None or world.drained or world.loop.now >= until:
                break
            entries = replies[0]
            if isinstance(entries, list):
                yield line.ask([b"ACKJOB", *[entry[1] for entry in entries]])
            else:
                yield 200 * MS
        line.close()
        yield 100 * MS


def copier(actor: Actor, machine: "Machine") -> Program:
    """Makes the copies that jobs of a node lack, again and again, while a node leaves."""
    world = machine.world
    while not world.faults.over and not any(one.removed for one in world.machines):
        line = Line(actor, machine)
        if line.session is not None:
            replies = yield line.ask([b"JSCAN", b"BUSYLOOP", b"FEWCOPIES"])
            found = replies[0] if replies else None
            if isinstance(found, list) and found[1]:
                yield line.ask([b"COPYJOB", b"500", *found[1][:100]])
            line.close()
        yield 200 * MS


def commander(actor: Actor, machine: "Machine", *requests: list[bytes]) -> Program:
    """Sends some commands to one node, once."""
    while not machine.removed:
        line = Line(actor, machine)
        if line.session is not None:
            replies = yield line.ask(*requests)
            if replies is not None:
                line.close()
                return
        yield 100 * MS
