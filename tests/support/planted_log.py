"""Event logs of any size with planted anomalies.

The log is that of a cluster of three nodes, one of them with a clock that is wrong. What is wrong
with which job is known, so that an audit can be checked against it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

NODES = tuple(character * 40 for character in "abc")
QUEUES = ("orders", "mail", "thumbnails", "invoices", "search")
START = 1_780_000_000_000  # ms
SKEW = 5_000  # ms that the clock of the last node is ahead
RETRY = 300
TTL = 86_400
CHUNK = 40_000  # jobs to a segment of each node
JOBS_A_SECOND = 400

Key = tuple[str, str]  # kind of finding, and the reason if there are several


class Log:
    """A log in the making.

    Attributes:
        planted: of each kind of finding the jobs that have to be found.
        count: events so far.
    """

    def __init__(self, directory: Path, seed: int, skew: int) -> None:
        self.planted: dict[Key, set[str]] = {}
        self.count = 0
        self._rng = random.Random(seed)
        self._directory = directory
        self._skew = (0, 0, skew)
        self._lines: list[list[tuple[int, str]]] = [[], [], []]
        self._segment = 0
        self._before: dict[str, tuple[str, int]] = {}  # of each node the last segment
        self._queue = ""
        self._id = ""
        self._nacks = 0
        self._deliveries = 0
        directory.mkdir(parents=True, exist_ok=True)

    # ---- one event ----------------------------------------------------------------------------

    def say(self, at: int, node: int, event: str, fields: str = "") -> None:
        """An event of the current job at ``at``, by a clock that is right."""
        now = at + self._skew[node]
        line = (
            f'{{"time":{now},"node":"{NODES[node]}","event":"{event}","id":"{self._id}",'
            f'"queue":"{self._queue}"{fields}}}\n'
        )
        self._lines[node].append((now, line))
        self.count += 1

    def queued(self, at: int, node: int, reason: str) -> None:
        self.say(at, node, "queued", f',"reason":"{reason}"{self._counters()}')

    def delivered(self, at: int, node: int) -> None:
        self.say(at, node, "delivered", f',"client":"worker-{node}"{self._counters()}')

    def nacked(self, at: int, node: int) -> None:
        self._nacks += 1
        self.say(at, node, "nacked", f',"client":"worker-{node}"{self._counters()}')

    def acked(self, at: int, node: int, holders: Sequence[int]) -> None:
        """A client says so to ``node``, which tells the others."""
        self.say(at, node, "acked", f',"reason":"client","client":"worker-{node}"')
        for other in holders:
            if other != node:
                self.say(at + 2, other, "acked", f',"reason":"peer","peer":"{NODES[node]}"')
        for holder in {node, *holders} if len(holders) > 1 else ():
            self.say(at + 5, holder, "deleted", ',"reason":"collected"')

    def _counters(self) -> str:
        return f',"nacks":{self._nacks},"deliveries":{self._deliveries}'

    def expect(self, kind: str, reason: str = "") -> None:
        """The audit has to find the current job."""
        self.planted.setdefault((kind, reason), set()).add(self._id)

    # ---- one job ------------------------------------------------------------------------------

    def add(
        self, at: int, delay: int = 0, ttl: int = TTL, repl: int = 2, retry: int = RETRY
    ) -> list[int]:
        """A new job, confirmed. Returns the nodes that hold it, the one that it is queued on
        first."""
        rng = self._rng
        first = rng.randrange(3)
        holders = [first, (first + 1 + rng.randrange(2)) % 3][:repl]
        self._id = f"D-{NODES[first][:8]}-{rng.getrandbits(144):036x}"[:35] + "-05a1"
        self._queue = QUEUES[min(int(rng.expovariate(0.7)), 4)]
        self._nacks = self._deliveries = 0
        size = rng.randrange(40, 4000)
        ctime = (at + self._skew[first]) * 1_000_000
        counts = f'{self._counters()},"size":{size},"repl":{repl},"copies":1'
        times = f'"retry":{retry},"ttl":{ttl},"delay":{delay},"ctime":{ctime}'
        for other in holders[1:]:
            self.say(at + 1, other, "copied", f',"peer":"{NODES[first]}"{counts},{times}')
            self.say(at + 2, first, "replicated", f"{counts},{times}")
        self.say(at + 2, first, "added", f',"client":"shop"{counts},{times}')
        if delay:
            self.queued(at + delay * 1000, first, "delay")
        else:
            self.queued(at + 2, first, "add")
        return holders

    def healthy(self, at: int) -> None:
        """A job that is delivered once, somewhere, and acknowledged, somewhere."""
        rng = self._rng
        chance = rng.random()
        delay = 5 if chance < 0.02 else 0
        repl = 1 if chance > 0.9 else 2
        holders = self.add(at, delay, repl=repl)
        node = holders[0]
        at += delay * 1000 + 2 + int(rng.expovariate(1 / 400))
        if chance < 0.15:
            other = (node + 1 + rng.randrange(2)) % 3
            self.say(at, node, "exported", f',"peer":"{NODES[other]}"')
            self.say(at + 1, other, "imported", f',"peer":"{NODES[node]}"')
            self.queued(at + 1, other, "import")
            node = other
            holders = [*holders, *({other} - set(holders))]
            at += 3
        self.delivered(at, node)
        at += 5 + int(rng.expovariate(1 / 900))
        if chance > 0.98:
            self.say(at, node, "working", ',"client":"worker"')
            at += 50
        # Often the worker says it to a node that it did not get the job from.
        told = node if chance < 0.7 else holders[-1]
        self.acked(at, told, holders)

    # ---- what is wrong, and what only looks like it --------------------------------------------

    def never_delivered(self, at: int) -> None:
        self.add(at)
        self.expect("never-delivered")

    def given_up(self, at: int) -> None:
        """Not confirmed, deleted at once: as it should be."""
        first = self.add(at)[0]
        self._lines[first] = [line for line in self._lines[first] if self._id not in line[1]]
        self.say(at + 500, first, "deleted", ',"reason":"given-up"')

    def deleted_before(self, at: int) -> None:
        """Deleted by a client that changed its mind."""
        for holder in self.add(at):
            self.say(at + 200, holder, "deleted", ',"reason":"command"')

    def after_ack(self, at: int) -> None:
        holders = self.add(at)
        self.delivered(at + 100, holders[0])
        self.say(at + 200, holders[0], "acked", ',"reason":"client"')
        self.queued(at + RETRY * 1000, holders[1], "retry")
        self.delivered(at + RETRY * 1000 + 20, holders[1])
        self.acked(at + RETRY * 1000 + 90, holders[1], holders)
        self.expect("delivered-after-ack")

    def retried(self, at: int) -> None:
        holders = self.add(at)
        self.delivered(at + 100, holders[0])
        again = at + 100 + RETRY * 1000
        self._deliveries = 1
        self.queued(again, holders[1], "retry")
        self.delivered(again + 10, holders[1])
        self.acked(again + 50, holders[1], holders)
        self.expect("delivered-twice", "retry")

    def nacked_once(self, at: int) -> None:
        holders = self.add(at)
        self.delivered(at + 100, holders[0])
        self.nacked(at + 150, holders[0])
        self.queued(at + 150, holders[0], "nack")
        self.delivered(at + 150, holders[0])
        self.acked(at + 400, holders[0], holders)
        self.expect("delivered-twice", "nack")

    def poison(self, at: int) -> None:
        holders = self.add(at)
        for again in range(6):
            now = at + 10 + 1000 * again
            self.delivered(now + 5, holders[0])
            self.nacked(now + 60, holders[0])
            self.queued(now + 60, holders[0], "nack")
        self.delivered(at + 7000, holders[0])
        self.acked(at + 8000, holders[0], holders)
        self.expect("delivered-twice", "nack")
        self.expect("poison")

    def partition(self, at: int) -> None:
        """Both holders queue it, neither hears of the other."""
        holders = self.add(at)
        self.queued(at + RETRY * 1000, holders[1], "retry")
        self.delivered(at + RETRY * 1000 + 10, holders[1])
        self.delivered(at + RETRY * 1000 + 90, holders[0])
        self.acked(at + RETRY * 1000 + 300, holders[1], holders)
        self.expect("delivered-twice", "partition")

    def restarted(self, at: int) -> None:
        """The node comes back, and has the job in its queue again."""
        holders = self.add(at)
        self.delivered(at + 100, holders[0])
        self.delivered(at + 9000, holders[0])
        self.acked(at + 9100, holders[0], holders)
        self.expect("delivered-twice", "restart")

    def expired(self, at: int) -> None:
        for holder in self.add(at, ttl=60):
            self.say(at + 60_000, holder, "expired")
        self.expect("expired-undelivered")

    def taken(self, at: int) -> None:
        """Somebody got it, and is never heard of again; nor is the job."""
        self.delivered(at + 100, self.add(at)[0])
        self.expect("not-requeued")

    def never_acked(self, at: int) -> None:
        holders = self.add(at)
        for again in range(4):
            now = at + 100 + 1000 * again * RETRY
            if again:
                self._deliveries += 1
                self.queued(now, holders[0], "retry")
            self.delivered(now + 10, holders[0])
        self.queued(at + 100 + 4000 * RETRY, holders[0], "retry")
        self.expect("delivered-twice", "retry")
        self.expect("never-acknowledged")

    def taken_once(self, at: int) -> None:
        self.delivered(at + 100, self.add(at, repl=1, retry=0)[0])
        self.expect("lost-with-worker")

    def expired_unacked(self, at: int) -> None:
        holders = self.add(at, ttl=60)
        self.delivered(at + 100, holders[0])
        for holder in holders:
            self.say(at + 60_000, holder, "expired")
        self.expect("expired-unacknowledged")

    def acked_only(self, at: int) -> None:
        holders = self.add(at)
        self.acked(at + 300, holders[0], holders)
        self.expect("acknowledged-unseen")

    # ---- files --------------------------------------------------------------------------------

    def all_say(self, event: str, at: int) -> None:
        """That their logs begin, or end."""
        for node, lines in enumerate(self._lines):
            now = at + self._skew[node]
            lines.append((now, f'{{"time":{now},"node":"{NODES[node]}","event":"{event}"}}\n'))
            self.count += 1

    def flush(self) -> None:
        """Close the segments of all nodes."""
        for node, lines in zip(NODES, self._lines, strict=True):
            if lines:
                lines.sort()
                name = f"events-{node[:8]}-{lines[0][0]:013d}-{self._segment}.jsonl"
                head = {"time": lines[0][0], "node": node, "event": "segment", "name": name}
                if node in self._before:
                    head["after"], head["events"] = self._before[node]
                self._before[node] = (name, len(lines))
                text = json.dumps(head, separators=(",", ":")) + "\n"
                (self._directory / name).write_text(text + "".join([line for _, line in lines]))
                self.count += 1
                lines.clear()
        self._segment += 1


def generate(
    directory: Path,
    events: int,
    *,
    anomalies: int = 20,
    seed: int = 1,
    skew: int = SKEW,
    chunk: int = CHUNK,
) -> dict[Key, set[str]]:
    """Write a log of about ``events`` events, with ``anomalies`` jobs of each kind.

    Returns:
        The jobs that an audit has to find, by kind of finding and reason.
    """
    log = Log(directory, seed, skew)
    kinds = [
        log.never_delivered,
        log.given_up,
        log.deleted_before,
        log.after_ack,
        log.retried,
        log.nacked_once,
        log.poison,
        log.partition,
        log.restarted,
        log.expired,
        log.taken,
        log.never_acked,
        log.taken_once,
        log.expired_unacked,
        log.acked_only,
    ]
    jobs = max(events // 9, 1)
    odd = [kind for kind in kinds for _ in range(anomalies)]
    log._rng.shuffle(odd)
    every = max(jobs // (len(odd) + 1), 1)
    at = START
    log.all_say("started", at)
    for number in range(1, jobs + 1):
        at = START + number * 1000 // JOBS_A_SECOND
        log.healthy(at)
        if odd and number % every == 0:
            odd.pop()(at)
        if number % chunk == 0:
            log.flush()
    for kind in odd:  # a log that is too short to spread them
        kind(at)
    # What waits or is being done as the log ends is young, not lost; the log goes on for a while.
    last = at + 4 * RETRY * 1000
    log.healthy(last)
    log.add(last - 1000)
    log.delivered(last, log.add(last - 1000)[0])
    log.all_say("stopped", last + 30_000)
    log.flush()
    if skew:
        for node in (0, 1):
            pair = f"{NODES[node]} {NODES[2]}"
            log.planted.setdefault(("clock-skew", ""), set()).add(pair)
    return log.planted
