"""The event log of one machine: what reaches its files, and what a crash destroys."""

from pathlib import Path
from random import Random
from typing import Any

from disque_trio.eventlog.lines import LineWriter
from disque_trio.node.core.node import Node
from tests.simulator.events import MS, SECOND

TICK = 100 * MS  # how often the node passes on its events
UNSYNCED = 5 * SECOND  # what a machine that dies may have in its caches


class MachineLog:
    """See the module. It exists as long as the machine.

    Args:
        node: id of the node.
        rng: for what a crash destroys; a run must not depend on whether there is a log.

    Attributes:
        lost: the periods that crashes destroyed, in virtual µs.
        saved: for each save, the time up to which everything is there, likewise, and how many of
            these periods were over by then.
    """

    def __init__(self, node: bytes, rng: Random) -> None:
        self.lost: list[tuple[int, int]] = []
        self.saved: list[tuple[int, int]] = []
        self._node = node.decode()
        self._writer = LineWriter(self._node)
        self._rng = rng
        # When handed over, virtual µs; lines; at the beginning of a segment, its facts.
        self._written: list[tuple[int, bytes, dict[str, Any]]] = []
        self._runs = 0
        self._nodes: list[str] = []  # of the cluster
        self._held: list[bytes] = []  # by the process
        self._handed = 0

    def start(self, node: Node, now: int) -> None:
        """A process starts; it has loaded its jobs."""
        node.notes.eventing = True
        self._handed = now
        self._runs += 1
        self._nodes = self._members(node)
        facts = {"run": f"{self._runs:040x}", "up": node.now, "since": node.now}
        line = self._writer.lines([(node.now, "started")])
        self._written.append((now, line, facts | {"nodes": self._nodes}))

    def turn(self, node: Node, now: int) -> None:
        """A turn of the node has ended."""
        if now - self._handed >= TICK:
            self._hand_over(now)
        nodes = self._members(node)
        if nodes != self._nodes:
            self._nodes = nodes
            self._held.append(self._writer.lines([(node.now, "segment", " ".join(nodes))]))
        if node.notes.events:
            events, node.notes.events = node.notes.events, []
            self._held.append(self._writer.lines(events))

    def stop(self, node: Node, now: int) -> None:
        """The process ends cleanly."""
        self.turn(node, now)
        self._hand_over(now)
        self._handed = now + 1
        line = self._writer.lines([(node.now, "stopped", "shutdown")])
        self._written.append((now, line, {}))

    def dies(self, now: int, machine: bool) -> None:
        """The process dies, or the ``machine`` does."""
        self._held = []
        kept = self._handed
        if machine:
            kept = self._rng.randrange(max(now - UNSYNCED, 0), now + 1)
            self._written = [entry for entry in self._written if entry[0] <= kept]
            kept = max((entry[0] for entry in self._written), default=0)
        self.lost.append((kept, now))

    def save(self, directory: Path) -> None:
        """Write everything that is in files: a segment for each process."""
        self.saved.append((self._handed, len(self.lost)))
        segments: list[tuple[bytes, dict[str, Any]]] = []
        for _, lines, facts in self._written:
            if facts or not segments:
                segments.append((b"", facts))
            segments[-1] = (segments[-1][0] + lines, segments[-1][1])
        before, count = "", -1
        for number, (lines, facts) in enumerate(segments):
            name = f"events-{self._node[:8]}-{number:013}-0.jsonl"
            self._writer.facts = facts
            time = int(lines[8 : lines.index(b",")])  # after {"time":
            head = self._writer.head(time, name, before, count)
            (directory / name).write_bytes(head + lines)
            before, count = name, lines.count(b"\n")
        self._writer.facts = {}

    def _hand_over(self, now: int) -> None:
        self._written += [(now, lines, {}) for lines in self._held]
        self._held = []
        self._handed = now

    def _members(self, node: Node) -> list[str]:
        """The ids of all nodes of the cluster, as ``node`` knows it."""
        return sorted([self._node, *(id.decode() for id in node.peers.everyone())])
