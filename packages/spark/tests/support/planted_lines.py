"""The lines and files of synthetic event logs."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

NODES = tuple(character * 40 for character in "abc")
# In a torn log: killed and restarted; with a log that ends early; without a log; two that know
# nobody else, the clock of one of which is set.
KILLED, SILENT, UNLOGGED, SET, ASIDE = range(3, 8)
TORN = tuple(character * 40 for character in "def01")
QUEUES = ("orders", "mail", "thumbnails", "invoices", "search")
START = 1_780_000_000_000  # ms
RETRY = 300
TTL = 86_400

Key = tuple[str, str]  # kind of finding, and the reason if there are several


class Lines:
    """A log in the making.

    Attributes:
        planted: the jobs that must be found, by kind of finding.
        count: events so far.
    """

    def __init__(self, directory: Path, seed: int, skew: int, torn: bool = False) -> None:
        self.nodes = NODES + TORN if torn else NODES
        self.planted: dict[Key, set[str]] = {}
        self.count = 0
        self.rng = random.Random(seed)
        self._directory = directory
        self.skew = [0, 0, skew, *[0] * len(TORN)]
        self._lines: list[list[tuple[int, str]]] = [[] for _ in self.nodes]
        self._segment = 0
        self._before: dict[str, tuple[str, int]] = {}  # the last segment of each node
        self._queue = ""
        self._id = ""
        self._nacks = 0
        self._deliveries = 0
        self._schedule = ""
        directory.mkdir(parents=True, exist_ok=True)

    # ---- one event ----------------------------------------------------------------------------

    def say(self, at: int, node: int, event: str, fields: str = "") -> None:
        """Log an event of the current job at ``at``, by a correct clock."""
        now = at + self.skew[node]
        line = (
            f'{{"time":{now},"node":"{self.nodes[node]}","event":"{event}","id":"{self._id}",'
            f'"queue":"{self._queue}"{fields}}}\n'
        )
        self._lines[node].append((now, line))
        self.count += 1

    def queued(self, at: int, node: int, reason: str) -> None:
        self.say(at, node, "queued", f',"reason":"{reason}"{self._counters()}')

    def delivered(self, at: int, node: int) -> None:
        self.say(at, node, "delivered", f',"client":"worker-{node}"{self._counters()}')

    def paused(self, at: int, node: int, reason: str, until: int) -> None:
        end = until + self.skew[node]
        self.say(at, node, "paused", f',"reason":"{reason}"{self._counters()},"until":{end}')

    def tick(self, at: int, node: int, event: str, moment: int, fields: str = "") -> None:
        """Log a tick of a schedule on a node, with the current job if it was added."""
        now = at + self.skew[node]
        job = f'"id":"{self._id}",' if event == "ticked" else ""
        line = (
            f'{{"time":{now},"node":"{self.nodes[node]}","event":"{event}",{job}'
            f'"queue":"{self._queue}"{fields},"schedule":"{self._schedule}","tick":{moment}}}\n'
        )
        self._lines[node].append((now, line))
        self.count += 1

    def nacked(self, at: int, node: int) -> None:
        self._nacks += 1
        self.say(at, node, "nacked", f',"client":"worker-{node}"{self._counters()}')

    def acked(self, at: int, node: int, holders: Sequence[int]) -> None:
        """Log that a client acknowledges the job at ``node``, which tells the others."""
        self.say(at, node, "acked", f',"reason":"client","client":"worker-{node}"')
        for other in holders:
            if other != node:
                self.say(at + 2, other, "acked", f',"reason":"peer","peer":"{self.nodes[node]}"')
        for holder in {node, *holders} if len(holders) > 1 else ():
            self.say(at + 5, holder, "deleted", ',"reason":"collected"')

    def _counters(self) -> str:
        return f',"nacks":{self._nacks},"deliveries":{self._deliveries}'

    def expect(self, kind: str, reason: str = "") -> None:
        """Note that the audit must find the current job."""
        self.planted.setdefault((kind, reason), set()).add(self._id)

    # ---- one job ------------------------------------------------------------------------------

    def new(self, node: int) -> None:
        """Start another job, created by ``node``."""
        self._schedule = "nightly"
        self._id = f"D-{self.nodes[node][:8]}-{self.rng.getrandbits(144):036x}"[:35] + "-05a1"
        self._queue = QUEUES[min(int(self.rng.expovariate(0.7)), 4)]
        self._nacks = self._deliveries = 0

    def facts(self, at: int, node: int, **known: int) -> str:
        """The facts in the line of a node to which the current job is new."""
        numbers = {"size": self.rng.randrange(40, 4000), "repl": 2, "copies": 1, "retry": RETRY}
        numbers |= {"ttl": TTL, "delay": 0, "ctime": (at + self.skew[node]) * 1_000_000}
        return self._counters() + "".join(
            f',"{name}":{value}' for name, value in (numbers | known).items()
        )

    def add(
        self,
        at: int,
        delay: int = 0,
        ttl: int = TTL,
        repl: int = 2,
        retry: int = RETRY,
        *,
        on: Sequence[int] = (),
        client: str = "shop",
        why: str = "add",
        copies: int = 1,
    ) -> list[int]:
        """Log a new, confirmed job. Returns the nodes that hold it, first the one that has it
        queued, ``on``, unless ``why`` is empty."""
        rng = self.rng
        first = rng.randrange(3)
        holders = list(on) or [first, (first + 1 + rng.randrange(2)) % 3][:repl]
        first = holders[0]
        self.new(first)
        facts = self.facts(at, first, repl=repl, retry=retry, ttl=ttl, delay=delay, copies=copies)
        for other in holders[1:]:
            self.say(at + 1, other, "copied", f',"peer":"{self.nodes[first]}"{facts}')
            self.say(at + 2, first, "replicated", facts)
        self.say(at + 2, first, "added", f',"client":"{client}"{facts}')
        if delay:
            self.queued(at + delay * 1000, first, "delay")
        elif why:
            self.queued(at + 2, first, why)
        return holders

    @property
    def is_torn(self) -> bool:
        return len(self.nodes) > len(NODES)

    # ---- files --------------------------------------------------------------------------------

    def all_say(self, event: str, at: int, nodes: Sequence[int] = range(len(NODES))) -> None:
        """Log that the nodes' logs begin or end."""
        for node in nodes:
            now = at + self.skew[node]
            text = f'{{"time":{now},"node":"{self.nodes[node]}","event":"{event}"}}\n'
            self._lines[node].append((now, text))
            self.count += 1

    def flush(self) -> None:
        """Close the segments of all nodes."""
        for node in range(len(self.nodes)):
            self.close(node)

    def close(self, place: int, before: int | None = None) -> None:
        """Close the segment of one node.

        Args:
            before: later events (ms) go into the next segment.
        """
        node, lines = self.nodes[place], sorted(self._lines[place])
        kept = [] if before is None else [line for line in lines if line[0] >= before]
        lines = lines[: len(lines) - len(kept)]
        self._lines[place] = kept
        if not lines:
            return
        name = f"events-{node[:8]}-{lines[0][0]:013d}-{self._segment}.jsonl"
        self._segment += 1
        head = {"time": lines[0][0], "node": node, "event": "segment", "name": name}
        if node in self._before:
            head["after"], head["events"] = self._before[node]
        self._before[node] = (name, len(lines))
        text = json.dumps(head, separators=(",", ":")) + "\n"
        (self._directory / name).write_text(text + "".join([line for _, line in lines]))
        self.count += 1
