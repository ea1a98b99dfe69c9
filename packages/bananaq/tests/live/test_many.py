"""Many producers, groups and consumers: each group gets every event once, and none is skipped."""

import os
import random
import selectors
import time
from collections import defaultdict

import hiredis
import pytest

from packages.bananaq.tests.support.banana_daemons import STATS, Daemon, Given, pack
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.harness import HANG_SECONDS, Wire

pytestmark = pytest.mark.live

EVENTS = int(os.environ.get("CROWD_EVENTS", "1500"))
GROUPS = ("mail", "sms", "log")
CONSUMERS = 8  # per group
PRODUCERS = 8
HOLDS = (1.5, 3.0)  # seconds: minimum and maximum
MISSED = 0.1  # fraction of events that their first consumer does not acknowledge
EXPIRY = 86_400  # s: no event may expire, however long a busy machine takes for all of them


class Producer:
    """Adds its share of the events, several at a time."""

    def __init__(self, wire: Wire, crowd: "Crowd", bodies: list[int]) -> None:
        self.wire = wire
        self._crowd = crowd
        self._bodies = bodies
        self._pending = 0

    def begin(self) -> None:
        some = [self._bodies.pop() for _ in range(min(16, len(self._bodies)))]
        self._pending = len(some)
        if some:
            self.wire.raw(b"".join(pack("QADD", self._crowd.queue, EXPIRY, body) for body in some))

    def take(self, reply: object) -> None:
        assert isinstance(reply, bytes), reply
        self._crowd.added.append(reply)
        self._pending -= 1
        if not self._pending:
            self.begin()


class Consumer:
    """Takes one event after the other, and acknowledges most of them."""

    def __init__(self, wire: Wire, crowd: "Crowd", group: str) -> None:
        self.wire = wire
        self._crowd = crowd
        self._group = group
        self._asked = 0.0
        self._hold = 0.0
        self._expected: list[str] = []
        self._acked: Given | None = None

    def begin(self) -> None:
        self.ask(b"")

    def ask(self, before: bytes) -> None:
        """Ask for the next event, usually waiting for it."""
        self._hold = round(self._crowd.rng.uniform(*HOLDS), 3)
        words: list[str] = ["QGET", self._crowd.queue, self._group, "EX", str(self._hold)]
        if self._crowd.rng.random() < 0.7:
            words += ["BLOCK", "0.5"]
        self._expected.append("event")
        self._asked = time.time()
        self.wire.raw(before + pack(*words))

    def take(self, reply: object) -> None:
        assert not isinstance(reply, hiredis.ReplyError), reply
        what = self._expected.pop(0)
        if what == "ack":
            assert self._acked is not None
            if reply == 1:
                self._crowd.acks[self._group, self._acked.base] += 1
            self._acked = None
        elif what == "news":
            self.ask(b"")
        elif reply is None:
            if not self._crowd.done:
                self._expected.append("news")
                self.wire.send("QNOTIFY", self._group, "0.5", self._crowd.queue)
        else:
            self._have(Given(reply))

    def _have(self, event: Given) -> None:
        crowd = self._crowd
        crowd.given(self._group, event, self._asked, self._hold)
        before = b""
        if not (event.delivery == 1 and crowd.rng.random() < MISSED):
            self._acked = event
            self._expected.append("ack")
            before = pack("QACK", crowd.queue, self._group, event.id)
            if crowd.rng.random() < 0.02:
                crowd.later.append((time.time() + crowd.rng.random() / 20, self, before))
                return
        self.ask(before)


class Crowd:
    """All producers and consumers, and what they recorded.

    Attributes:
        added: ids of events. acks: valid acknowledgements, by group and event.
        later: which consumers finish which events, and when.
    """

    def __init__(self, queue: str, seed: int) -> None:
        self.queue = queue
        self.rng = random.Random(seed)
        self.added: list[bytes] = []
        self.acks: dict[tuple[str, bytes], int] = defaultdict(int)
        self.later: list[tuple[float, Consumer, bytes]] = []
        self.bodies: dict[str, set[bytes]] = {group: set() for group in GROUPS}
        self.done = False
        self.missed = 0
        self._given: dict[tuple[str, bytes], tuple[int, float]] = {}

    def given(self, group: str, event: Given, asked: float, hold: float) -> None:
        """A consumer has received an event for ``hold`` s; it asked for it at ``asked``."""
        now = time.time()
        key = (group, event.base)
        last = self._given.get(key)
        if last is None:
            assert event.delivery == 1
        else:
            delivery, ends = last
            assert event.delivery == delivery + 1
            # The previous one had it from its request, or from when the event was added.
            assert now >= ends - 0.002, "two have it at a time"
            self.missed += 1
        self._given[key] = (event.delivery, max(asked, event.added / 1e6) + hold)
        self.bodies[group].add(event.body)

    def run(self, daemon: Daemon, events: int, daemons: list[Daemon] | None = None) -> None:
        """Run until each group has acknowledged all events."""
        places = daemons or [daemon]
        bodies = list(range(events))
        members: list[Producer | Consumer] = [
            Producer(daemon.wire(), self, bodies[n::PRODUCERS]) for n in range(PRODUCERS)
        ]
        for group in GROUPS:
            members += [
                Consumer(places[n % len(places)].wire(), self, group) for n in range(CONSUMERS)
            ]
        so_far, hangs_at = -1, 0.0
        with selectors.DefaultSelector() as selector:
            readers: dict[int, hiredis.Reader] = {}
            for member in members:
                selector.register(member.wire.sock, selectors.EVENT_READ, member)
                readers[member.wire.sock.fileno()] = hiredis.Reader()
                member.begin()
            while len(self.acks) < events * len(GROUPS):
                if len(self.acks) + len(self.added) > so_far:
                    so_far = len(self.acks) + len(self.added)
                    hangs_at = time.monotonic() + HANG_SECONDS
                assert time.monotonic() < hangs_at, f"{len(self.acks)} acks, {len(self.added)} adds"
                for key, _ in selector.select(0.01):
                    reader = readers[key.fd]
                    data = key.data.wire.sock.recv(65536)
                    assert data
                    reader.feed(data)
                    while (reply := reader.gets()) is not False:
                        key.data.take(reply)
                self._return()
        self.done = True

    def _return(self) -> None:
        now = time.time()
        due = [entry for entry in self.later if entry[0] <= now]
        if due:
            self.later = [entry for entry in self.later if entry[0] > now]
            for _, consumer, before in due:
                consumer.ask(before)

    def check(self, daemon: Daemon, events: int) -> None:
        """Check that each group acknowledged each event exactly once."""
        assert len(self.added) == len(set(self.added)) == events
        assert set(self.acks) == {(group, id) for group in GROUPS for id in self.added}
        assert set(self.acks.values()) == {1}
        assert self.bodies == {group: {b"%d" % n for n in range(events)} for group in GROUPS}
        assert self.missed > events * len(GROUPS) * MISSED / 2
        for group in GROUPS:
            counts = daemon.status(self.queue, group)
            counts.pop("consumers")
            assert counts == dict(zip(STATS[:5], (events, 0, 0, events, 0), strict=True))
            assert daemon.ask("QGET", self.queue, group) is None


def test_each_group_acknowledges_each_event_once(bananaq: Daemon, queue: str) -> None:
    crowd = Crowd(queue, random.randrange(1 << 30))
    crowd.run(bananaq, EVENTS)
    crowd.check(bananaq, EVENTS)
    bananaq.ask("QFLUSH", queue)


def test_each_event_is_delivered_once_whichever_daemon_is_asked(
    run_bananaq: DaemonFactory, queue: str
) -> None:
    """Producers on one daemon; consumers on it and on another one with the same Redis."""
    first = run_bananaq("redis")
    second = run_bananaq("redis", *first.options)
    crowd = Crowd(queue, random.randrange(1 << 30))
    crowd.run(first, 1_000, [first, second])
    crowd.check(second, 1_000)
