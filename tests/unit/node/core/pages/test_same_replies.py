"""A node whose queues lie on disk answers like one that has them in memory: random histories of
commands on both."""

import random
from typing import Any

import pytest

from disque_trio.respserver.client import Client
from disque_trio.respserver.slices import do_slice
from tests.support.node_bench import Bench
from tests.support.paged import PagedBench
from tests.support.policies import set_policy

CLIENTS = 4
STEPS = 120
SLOW_SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in [*range(2, 10), 65, 70]]
SLOW_GROUPS = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 16)]
TIMES = (b"next-requeue-within", b"next-awake-within")  # are spread at random


class PlainBench(Bench):
    """A node that keeps all jobs in memory."""

    def finish(self, client: Client) -> None:
        while client.in_slices or client.in_flight:
            if self.node.batches.waiting:
                do_slice(self.node, self.now)
            else:
                self.node.tick(self.now)
            self.node.commit()


class Pair:
    """Two nodes that get the same commands; ``groups``: as in the policy of their queues."""

    def __init__(self, seed: int, groups: str = "") -> None:
        self.groups = groups
        self.rng = random.Random(seed)
        late = seed if seed % 2 else None
        self.paged = PagedBench(
            seed=seed, jitter=0, above=1, late=late, most=self.rng.choice((4, 8))
        )
        self.plain = PlainBench(seed=seed, jitter=0)
        self.paged.node.journaling = True
        for bench in (self.paged, self.plain):
            set_policy(bench, name=b"*", groups=groups)
        self.clients = [(self.paged.client(), self.plain.client()) for _ in range(CLIENTS)]
        self.ids: list[bytes] = []
        self.taken: list[bytes] = []
        self.most_on_disk = 0
        self.log: list[str] = []

    def settle(self) -> None:
        self.paged.settle()
        self.plain.node.commit()
        while (due := self.plain.node.next_wake()) and due <= self.plain.now:
            self.plain.node.tick(self.plain.now)
        self.most_on_disk = max(self.most_on_disk, self.paged.pages.jobs)

    def ask(self, *args: bytes | str | int) -> Any:
        """The reply of both."""
        self.log.append(" ".join(map(str, args)))
        one, other = self.paged(*args), self.plain(*args)
        assert comparable(args, one) == comparable(args, other), self.log
        self.settle()
        return one

    def check(self) -> None:
        for name in ("a", "b"):
            self.ask("QLEN", name)
            self.ask("QPEEK", name, 1000)
            self.ask("QPEEK", name, -1000)
        self.ask("JSCAN", "BUSYLOOP", "REPLY", "all")
        self.ask("JSCAN", "BUSYLOOP", "REPLY", "all", "HEADER", "colour", "red")
        for paged, plain in self.clients:
            assert self.paged.replies(paged) == self.plain.replies(plain), self.log
            assert paged.blocked == plain.blocked, self.log

    # ---- steps ------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        queue = rng.choice("aaab")
        what = rng.randrange(100)
        if what < 30:
            for _ in range(rng.choice((1, 10, 40))):
                self.add(queue)
        elif what < 45:
            count = rng.choice((1, 1, 3, 20, 150))
            names = (queue, "b") if count == 1 else (queue,)
            found = self.ask("GETJOB", "NOHANG", "COUNT", count, "WITHCOUNTERS", "FROM", *names)
            self.taken += [entry[1] for entry in found or []]
        elif what < 50:
            self.block(queue)
        elif what < 60:
            self.ask("ACKJOB", *self.some(rng.choice((1, 5, 30))))
        elif what < 85:
            self.by_id(queue)
        elif what < 90:
            self.look(queue)
        elif what < 92:
            self.whole_queue(queue)
        elif what < 94:
            self.ask("MULTI")
            for id in self.some(3):
                self.ask(rng.choice(("SHOW", "NACK", "CANCEL")), id)
            self.ask("GETJOB", "NOHANG", "FROM", queue)
            self.ask("EXEC")
        else:
            self.pass_time()

    def add(self, queue: str) -> None:
        rng = self.rng
        options: list[str | int] = []
        if rng.random() < 0.3:
            options += ["RETRY", rng.choice((0, 97))]
        if rng.random() < 0.1:
            options += ["TTL", rng.choice((130, 400))]
        if rng.random() < 0.25:
            options += ["DELAY", rng.choice((1, 30, 90))]
        if rng.random() < 0.05:
            options += ["PRIORITY", rng.choice((1, 7))]
        if rng.random() < 0.2:
            options += ["HEADERS", 1, "colour", "red" * rng.choice((1, 1, 5, 20))]
        if rng.random() < 0.05:
            options += ["NOTE", "a note"]
        if rng.random() < (0.8 if self.groups else 0.05):
            options += ["GROUP", rng.choice("xxxxxyyz" if self.groups else "xy")]
        if rng.random() < 0.05:
            options += ["MAXLEN", 100]
        if rng.random() < 0.05:
            options += ["MAXBYTES", 1000]
        if rng.random() < 0.05:
            options += ["UNIQUE", f"key{rng.randrange(9)}"]
            if rng.random() < 0.5:
                options += ["FOR", rng.choice((5, 300))]
        body = "x" * rng.choice((0, 3, 3, 3, 40))
        reply = self.ask("ADDJOB", queue, body, 0, *options)
        if isinstance(reply, bytes):
            self.ids.append(reply)

    def some(self, count: int) -> list[bytes]:
        """Some ids."""
        pool = self.ids + self.taken[-10:] + [b"D-00000000-" + b"x" * 24 + b"-05a1"]
        return [self.rng.choice(pool) for _ in range(count)]

    def block(self, queue: str) -> None:
        paged, plain = self.rng.choice(self.clients)
        if not (paged.blocked or plain.blocked):
            self.log.append(f"block {queue}")
            timeout = self.rng.choice((0, 5000))
            self.paged.send(paged, "GETJOB", "TIMEOUT", timeout, "FROM", queue)
            self.plain.send(plain, "GETJOB", "TIMEOUT", timeout, "FROM", queue)
            self.settle()

    def by_id(self, queue: str) -> None:
        rng = self.rng
        name = rng.choice(
            ("SHOW", "NACK", "WORKING", "ENQUEUE", "DEQUEUE", "PROMOTE", "CANCEL", "FASTACK",
             "DELJOB", "UPDATEJOB", "WAITJOB", "RESULT")
        )  # fmt: skip
        if name in ("SHOW", "WORKING"):
            self.ask(name, *self.some(1))
        elif name == "UPDATEJOB":
            change = rng.choice((("BODY", "new"), ("DELAY", 3), ("QUEUE", queue), ("TTL", 500)))
            self.ask(name, *self.some(1), *change)
        elif name == "WAITJOB":
            ids = self.some(1)
            self.ask("MULTI")
            self.ask(name, 0, *ids)
            self.ask("EXEC")
        elif name == "RESULT":
            self.ask("ACKJOB", *self.some(2), "RESULT", "done")
        elif name == "NACK":
            self.ask(name, *self.some(rng.choice((1, 3, 120))), *rng.choice(((), ("DELAY", 2))))
        else:
            self.ask(name, *self.some(rng.choice((1, 3, 120))))

    def look(self, queue: str) -> None:
        count = self.rng.choice((1, 5, 50))
        self.ask("QPEEK", queue, self.rng.choice((count, -count)))
        self.ask("QSTAT", queue)
        self.ask("QSTAT", queue, "FULL")
        self.ask("QSCAN", "BUSYLOOP", "MINLEN", count)

    def whole_queue(self, queue: str) -> None:
        if self.groups or self.rng.random() < 0.5:
            self.ask("QPURGE", queue)
        else:
            self.ask("QMOVE", queue, "b" if queue == "a" else "a", "COUNT", 30)

    def pass_time(self) -> None:
        seconds = self.rng.choice((0.7, 3.3, 3.3, 31.1, 207.7))
        self.log.append(f"advance {seconds}")
        self.paged.advance(seconds)
        self.plain.advance(seconds)
        self.settle()
        # What lies on disk expires up to two seconds late.
        self.paged.advance(3.1)
        self.plain.advance(3.1)
        self.settle()


def comparable(args: tuple[Any, ...], reply: Any) -> Any:
    """``reply`` without what may differ."""
    name = args[0]
    if isinstance(reply, Exception):
        return str(reply)
    if name == "JSCAN":
        return sorted(without_times(job) for job in reply[1])
    if name in ("SHOW", "EXEC"):
        return without_times(reply)
    if name == "QSTAT" and reply is not None:
        # When the disk is late, jobs on it expire late.
        reply = dict(zip(reply[::2], reply[1::2], strict=True))
        reply.pop(b"jobs-paged", None)
        del reply[b"idle"]
    return reply


def without_times(reply: Any) -> Any:
    """``reply`` without the times that are spread at random."""
    if not isinstance(reply, list):
        return str(reply) if isinstance(reply, Exception) else reply
    found = [without_times(part) for part in reply]
    for at, part in enumerate(found):
        if part in TIMES:
            found[at + 1] = found[at + 1] is None
    return found


@pytest.mark.parametrize("seed", [0, 1, 39, 45, 57, 105, 108, *SLOW_SEEDS])
def test_a_node_with_queues_on_disk_answers_like_one_without(seed: int) -> None:
    compare(Pair(seed))


@pytest.mark.parametrize("groups", ["fair", "fifo"])
# What comes back at the same moment may come in another order, and so may the turns of its groups.
@pytest.mark.parametrize("seed", [0, 1, 3, 5, *SLOW_GROUPS])
def test_queues_with_groups_do_so_too(seed: int, groups: str) -> None:
    compare(Pair(seed, groups))


def compare(pair: Pair) -> None:
    for step in range(STEPS):
        pair.step()
        if step % 20 == 0:
            pair.check()
    assert pair.most_on_disk > 20
