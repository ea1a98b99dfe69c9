"""Event logs of any size with planted anomalies.

The log is that of a cluster of three nodes, one of them with a wrong clock. The faults of each job
are known, so that an audit can be checked against them. A torn log has additional nodes with
missing parts (``planted_gaps``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packages.spark.tests.support.planted_gaps import plant_gaps
from packages.spark.tests.support.planted_lines import NODES, QUEUES, RETRY, START, TTL, Key, Lines

__all__ = ["JOBS_A_SECOND", "NODES", "QUEUES", "START", "Key", "about_of", "generate"]

SKEW = 5_000  # ms by which the clock of the last node is ahead
CHUNK = 40_000  # jobs per segment on each node
JOBS_A_SECOND = 400


class Log(Lines):
    """A log in the making, and the possible lives of a job."""

    def healthy(self, at: int) -> None:
        """A job that is delivered once and acknowledged, on any nodes."""
        rng = self.rng
        chance = rng.random()
        delay = 5 if chance < 0.02 else 0
        repl = 1 if chance > 0.9 else 2
        holders = self.add(at, delay, repl=repl)
        node = holders[0]
        at += delay * 1000 + 2 + int(rng.expovariate(1 / 400))
        if chance < 0.15:
            other = (node + 1 + rng.randrange(2)) % 3
            self.say(at, node, "exported", f',"peer":"{self.nodes[other]}"')
            self.say(at + 1, other, "imported", f',"peer":"{self.nodes[node]}"')
            self.queued(at + 1, other, "import")
            node = other
            holders = [*holders, *({other} - set(holders))]
            at += 3
        self.delivered(at, node)
        at += 5 + int(rng.expovariate(1 / 900))
        if chance > 0.98:
            self.say(at, node, "working", ',"client":"worker"')
            at += 50
        # Often the worker acknowledges at a different node.
        told = node if chance < 0.7 else holders[-1]
        self.acked(at, told, holders)

    # ---- faults, and what only looks like one ---------------------------------------------------

    def never_delivered(self, at: int) -> None:
        """Confirmed, but not queued."""
        self.add(at, why="")
        self.expect("never-delivered")

    def waiting(self, at: int) -> None:
        """In a queue that nobody reads; perhaps handed back to it."""
        first = self.add(at)[0]
        if at % 2:
            self.delivered(at + 100, first)
            self.nacked(at + 200, first)
            self.queued(at + 200, first, "nack")

    def given_up(self, at: int) -> None:
        """Not confirmed, and deleted at once, as it should be."""
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
        """Both holders queue it, without knowing of each other."""
        holders = self.add(at)
        self.queued(at + RETRY * 1000, holders[1], "retry")
        self.delivered(at + RETRY * 1000 + 10, holders[1])
        self.delivered(at + RETRY * 1000 + 90, holders[0])
        self.acked(at + RETRY * 1000 + 300, holders[1], holders)
        self.expect("delivered-twice", "partition")

    def unexplained(self, at: int) -> None:
        """Delivered again, although nothing brought it back into the queue."""
        holders = self.add(at)
        self.delivered(at + 100, holders[0])
        self.delivered(at + 9000, holders[0])
        self.acked(at + 9100, holders[0], holders)
        self.expect("delivered-twice", "unknown")

    def line_twice(self, at: int) -> None:
        """The line about the delivery is there twice."""
        holders = self.add(at)
        for _ in range(2):
            self.delivered(at + 100, holders[0])
        self.acked(at + 200, holders[0], holders)
        self.expect("delivered-twice", "line-twice")

    def once_twice(self, at: int) -> None:
        """To be delivered at most once, but delivered again."""
        holders = self.add(at, repl=1, retry=0)
        self.delivered(at + 100, holders[0])
        self.delivered(at + 9000, holders[0])
        self.acked(at + 9100, holders[0], holders)
        self.expect("once-delivered-twice", "unknown")

    def expired(self, at: int) -> None:
        for holder in self.add(at, ttl=60):
            self.say(at + 60_000, holder, "expired")
        self.expect("expired-undelivered")

    def taken(self, at: int) -> None:
        """A client got it; neither the client nor the job is ever seen again."""
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

    def acked_unknown(self, at: int) -> None:
        """No node ever had it."""
        self.new(0)
        self.say(at, 1, "acked", ',"reason":"client","client":"worker-9"')
        # If logs are missing, it may have been there.
        self.expect("acknowledged-unseen", "log-missing" if self.is_torn else "unknown-job")

    def heard(self, at: int) -> None:
        """A node delivers a job that it knows to be done."""
        holders = self.add(at)
        self.delivered(at + 100, holders[0])
        self.acked(at + 200, holders[0], holders)
        self.delivered(at + 900, holders[1])
        self.expect("delivered-after-ack", "heard")

    def _again(self, at: int, why: str) -> None:
        holders = self.add(at)
        self.delivered(at + 100, holders[0])
        self.queued(at + 500, holders[0], why)
        self.delivered(at + 600, holders[0])
        self.acked(at + 900, holders[0], holders)
        self.expect("delivered-twice", why)

    def enqueued(self, at: int) -> None:
        self._again(at, "enqueue")

    def redriven(self, at: int) -> None:
        self._again(at, "redrive")

    def disconnected(self, at: int) -> None:
        self._again(at, "disconnect")

    def evicted(self, at: int) -> None:
        self.say(at + 50, self.add(at, repl=1)[0], "evicted")
        self.expect("never-delivered")

    def _dies(self, at: int, why: str) -> None:
        """It becomes a dead letter, which a client takes."""
        holders = self.add(at)
        if why != "expired":
            self.delivered(at + 100, holders[0])
        self.say(at + 200, holders[0], "dead", f',"reason":"{why}"')
        for other in holders[1:]:
            self.say(at + 202, other, "dead", f',"reason":"peer","peer":"{self.nodes[holders[0]]}"')
        for holder in holders:
            self.say(at + 210, holder, "deleted", ',"reason":"collected"')
        self.expect("dead", why)
        letter = self.add(at + 200, on=holders, why="death")
        self.delivered(at + 300, letter[0])
        self.acked(at + 400, letter[0], letter)

    def died_of_attempts(self, at: int) -> None:
        self._dies(at, "attempts")

    def died_of_age(self, at: int) -> None:
        self._dies(at, "expired")

    def refused(self, at: int) -> None:
        self._dies(at, "refused")

    def letter(self, at: int) -> None:
        self.add(at, why="death")
        self.expect("letter-waiting")

    def cancelled(self, at: int) -> None:
        """Cancelled by a client, whether delivered or not."""
        holders = self.add(at)
        if at % 2:
            self.delivered(at + 100, holders[0])
        self.say(at + 200, holders[0], "cancelled", ',"reason":"client","client":"shop"')
        for other in holders[1:]:
            self.say(at + 202, other, "cancelled", ',"reason":"peer"')
        for holder in holders:
            self.say(at + 210, holder, "deleted", ',"reason":"collected"')

    def pauses(self, at: int) -> None:
        """Returned with a pause longer than the log; or its queue is paused."""
        holders = self.add(at, ttl=30 * TTL)
        if at % 2:
            self.delivered(at + 100, holders[0])
            self.nacked(at + 200, holders[0])
        self.paused(at + 200, holders[0], "nack" if at % 2 else "queue", at + 20_000 * TTL)

    def pause_forgotten(self, at: int) -> None:
        """Its pause is over, but no node queues it."""
        holders = self.add(at)
        self.delivered(at + 100, holders[0])
        self.nacked(at + 200, holders[0])
        self.paused(at + 200, holders[0], "nack", at + 30_000)
        self.expect("not-requeued")

    def scheduled(self, at: int) -> None:
        """A tick of a schedule, handled correctly; two nodes log that it was missed, or is done."""
        holders = self.add(at, client="cron:nightly")
        self.delivered(at + 100, holders[0])
        self.acked(at + 200, holders[0], holders)
        self.tick(at + 5, holders[0], "ticked", at)
        if at % 2:
            self.tick(at + 90, holders[-1], "missed", at, ',"reason":"down"')
        else:
            self.tick(at + 7, holders[-1], "ticked", at)

    def _missed(self, at: int, why: str) -> None:
        self.new(0)
        self._schedule = f"backup-{self._id}"
        for node, more in ((0, f',"until":{at + 9000}'), (1, "")):
            self.tick(at + 61_000 + node, node, "missed", at, f',"reason":"{why}"{more}')
        self.planted.setdefault(("schedule-missed", why), set()).add(self._schedule)

    def missed_while_down(self, at: int) -> None:
        self._missed(at, "down")

    def missed_and_refused(self, at: int) -> None:
        self._missed(at, "refused")

    def doubled(self, at: int) -> None:
        """Both sides of a partition add the job."""
        for node in (0, 1):
            self.add(at, on=[node], repl=1)
            self._schedule = f"report-{at}"
            self.tick(at + 5 + node, node, "ticked", at)
            self.delivered(at + 100, node)
            self.acked(at + 200, node, [node])
        self.expect("schedule-doubled")


def about_of(finding: Any) -> str:
    """The subject of a finding, as planted: a job, a schedule, or two nodes."""
    if finding.kind == "schedule-missed":
        return str(finding.detail).partition(":")[0]
    return str(finding.job or " ".join(finding.nodes))


def generate(
    directory: Path,
    events: int,
    *,
    anomalies: int = 20,
    seed: int = 1,
    skew: int = SKEW,
    chunk: int = CHUNK,
    torn: bool = False,
    rate: float = JOBS_A_SECOND,
) -> dict[Key, set[str]]:
    """Write a log of about ``events`` events, with ``anomalies`` jobs of each kind.

    Args:
        torn: whether to add jobs with incomplete logs, on separate nodes.
        rate: jobs per second.

    Returns:
        The jobs that an audit must find, by kind of finding and reason.
    """
    log = Log(directory, seed, skew, torn)
    kinds = [
        log.never_delivered,
        log.given_up,
        log.deleted_before,
        log.after_ack,
        log.retried,
        log.nacked_once,
        log.poison,
        log.partition,
        log.unexplained,
        log.line_twice,
        log.once_twice,
        log.waiting,
        log.expired,
        log.taken,
        log.never_acked,
        log.taken_once,
        log.expired_unacked,
        log.acked_only,
        log.acked_unknown,
        log.heard,
        log.enqueued,
        log.redriven,
        log.disconnected,
        log.evicted,
        log.died_of_attempts,
        log.died_of_age,
        log.refused,
        log.letter,
        log.cancelled,
        log.pauses,
        log.pause_forgotten,
        log.scheduled,
        log.missed_while_down,
        log.missed_and_refused,
        log.doubled,
    ]
    jobs = max(events // 9, 1)
    odd = [kind for kind in kinds for _ in range(anomalies)]
    log.rng.shuffle(odd)
    every = max(jobs // (len(odd) + 1), 1)
    at = START
    log.all_say("started", at)
    if torn:
        plant_gaps(log, at, anomalies)
    for number in range(1, jobs + 1):
        at = START + int(number * 1000 / rate)
        log.healthy(at)
        if odd and number % every == 0:
            odd.pop()(at)
        if number % chunk == 0:
            log.flush()
    for kind in odd:  # if the log is too short to spread them
        kind(at)
    # Jobs that are waiting or in progress at the end are young, not lost; the log continues for a
    # while.
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
