"""Kill a loaded node with SIGKILL at random moments, restart it, and compare its state with what
its clients were told.

    python -m tools.soak_kill [--rounds 50] [--policy always|everysec|no|both] [--seed N]

These promises must be kept at any moment, even in the middle of a rewrite or a start:

- a job whose ADDJOB was answered with an id is there, unless somebody asked to acknowledge it;
- a job whose ACKJOB was answered is neither there nor delivered again;
- a job with RETRY 0 is never delivered twice;
- after the last start every job that is there is delivered.

A crash of the process alone loses nothing with any policy; tests with a simulated disk cover
crashes of the machine. The exit status is 0, or 1 if a promise was broken.
"""

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.harness import LiveNode, Wire, free_port, start_process, wait_for_ping

PRODUCERS = 3
CONSUMERS = 3
OFTEN = ("often-0", "often-1")
ONCE = "once"
START_SECONDS = 30.0
LOAD_SECONDS = (0.05, 0.6)
EARLY = 0.15  # fraction of the rounds in which the node is killed while starting
BATCH = 100


class Broken(Exception):
    """A promise was broken; the text says which."""


def take(wire: Wire, count: int = 5) -> list[tuple[str, bytes]]:
    """Take jobs; returns their queues and ids."""
    reply = wire("GETJOB", "TIMEOUT", 20, "COUNT", count, "FROM", *OFTEN, ONCE)
    return [(job[0].decode(), job[1]) for job in reply] if isinstance(reply, list) else []


class Soak:
    """One node, repeatedly killed and restarted, and what its clients were told."""

    def __init__(self, policy: str, directory: Path, dice: random.Random) -> None:
        self.confirmed: set[bytes] = set()  # RETRY > 0
        self.ack_asked: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.once: set[bytes] = set()  # RETRY 0 jobs that were delivered
        self.problems: list[str] = []
        self._gone_for_good: frozenset[bytes] = frozenset()
        self._policy = policy
        self._directory = directory
        self._dice = dice

    def spawn(self) -> LiveNode:
        """Start a node, without waiting for it."""
        options = ("--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", self._policy)
        port = free_port()
        return start_process(self._directory, port, "--port", str(port), *options)

    def connect(self, node: LiveNode) -> Wire:
        """A connection to a node that has loaded its jobs.

        Raises:
            Broken: it does not start.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and wait_for_ping(node):
            wire = node.wire()
            if wire("PING") == b"PONG":
                return wire
            wire.close()
            time.sleep(0.01)
        raise Broken(f"the node does not start:\n{node.log.read_text()[-2000:]}")

    def round(self) -> None:
        """Start, compare, load, kill."""
        node = self.spawn()
        try:
            if self._dice.random() < EARLY:
                time.sleep(self._dice.uniform(0, 0.5))
                return
            wire = self.connect(node)
            self.compare(wire)
            self._load(wire, node)
        finally:
            node.close()

    def compare(self, wire: Wire) -> None:
        """Check that the node holds what it must. Raises Broken."""
        reply = wire("JSCAN", "BUSYLOOP")
        there = set(reply[1]) if isinstance(reply, list) else set()
        lost = self.confirmed - self.ack_asked - there
        back = self.acked & there
        if lost or back:
            raise Broken(f"{len(lost)} confirmed jobs lost, {len(back)} acknowledged ones back")
        self._gone_for_good = frozenset(self.acked)

    def _load(self, wire: Wire, node: LiveNode) -> None:
        seeds = [self._dice.random() for _ in range(PRODUCERS + CONSUMERS)]
        work = [self._produce] * PRODUCERS + [self._consume] * CONSUMERS
        threads = [
            threading.Thread(target=self._until_gone, args=(what, node.wire(), random.Random(seed)))
            for what, seed in zip(work, seeds, strict=True)
        ]
        for thread in threads:
            thread.start()
        time.sleep(self._dice.uniform(*LOAD_SECONDS))
        if self._dice.random() < 0.5:
            wire("BGREWRITEAOF")
            time.sleep(self._dice.uniform(0, 0.05))
        node.kill()
        for thread in threads:
            thread.join()
        if self.problems:
            raise Broken("; ".join(self.problems))

    def _until_gone(
        self, what: Callable[[Wire, random.Random], None], wire: Wire, dice: random.Random
    ) -> None:
        try:
            while True:
                what(wire, dice)
        except (OSError, EOFError):
            pass

    def _produce(self, wire: Wire, dice: random.Random) -> None:
        often = dice.random() < 0.7
        queue = dice.choice(OFTEN) if often else ONCE
        body = "x" * dice.randrange(300)
        id = wire("ADDJOB", queue, body, 0, "RETRY", int(often))
        if not isinstance(id, bytes):
            self.problems.append(f"ADDJOB: {id!r}")
        elif often:
            self.confirmed.add(id)

    def _consume(self, wire: Wire, dice: random.Random) -> None:
        for queue, id in take(wire):
            self._note(queue, id)
            if dice.random() < 0.8:
                self.ack_asked.add(id)
                wire("ACKJOB", id)
                self.acked.add(id)

    def _note(self, queue: str, id: bytes) -> None:
        if id in self._gone_for_good:
            self.problems.append(f"{id.decode()} was acknowledged and came back")
        if queue == ONCE:
            if id in self.once:
                self.problems.append(f"{id.decode()} with RETRY 0 was delivered twice")
            self.once.add(id)

    def finish(self) -> int:
        """Start once more and take everything; returns the number of remaining jobs.

        Raises:
            Broken: something is missing.
        """
        node = self.spawn()
        try:
            wire = self.connect(node)
            self.compare(wire)
            missing = self.confirmed - self.ack_asked
            rest = len(missing)
            deadline = time.monotonic() + START_SECONDS
            while missing and time.monotonic() < deadline:
                jobs = take(wire, BATCH)
                for queue, id in jobs:
                    self._note(queue, id)
                    missing.discard(id)
                if jobs:
                    wire("ACKJOB", *(id for _, id in jobs))
            if missing or self.problems:
                raise Broken("; ".join([f"{len(missing)} jobs never delivered", *self.problems]))
            return rest
        finally:
            node.close()


def run(policy: str, rounds: int, seed: int) -> bool:
    """Run the rounds and print the results; returns False if a promise was broken."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="disque-soak-") as name:
        soak = Soak(policy, Path(name), random.Random(seed))
        done = 0
        try:
            while done < rounds:
                soak.round()
                done += 1
            rest = soak.finish()
        except Broken as problem:
            print(f"{policy}: seed {seed}, after {done} rounds: BROKEN: {problem}")
            return False
    print(
        f"{policy}: seed {seed}: killed {rounds} times in {time.monotonic() - started:.0f} s; "
        f"{len(soak.confirmed)} jobs confirmed, {len(soak.acked)} acknowledged, "
        f"{len(soak.once)} delivered at most once, {rest} left to the end: "
        "none lost, none back, none twice",
        flush=True,
    )
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak_kill", description="Kill a loaded node again and again."
    )
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--policy", choices=["always", "everysec", "no", "both"], default="both")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args(argv)
    policies = ["always", "everysec"] if args.policy == "both" else [args.policy]
    broken = 0
    for policy in policies:
        broken += not run(policy, args.rounds, args.seed)
    return min(broken, 1)
