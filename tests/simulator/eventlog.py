"""The event log of one machine: what reaches its files, and what a crash destroys."""

import json
from pathlib import Path
from random import Random

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
        self._written: list[tuple[int, bytes]] = []  # when handed over, virtual µs; lines
        self._held: list[bytes] = []  # by the process
        self._handed = 0

    def start(self, node: Node, now: int) -> None:
        """A process starts; it has loaded its jobs."""
        node.notes.eventing = True
        self._handed = now
        self._say("started", node.now, now)

    def turn(self, node: Node, now: int) -> None:
        """A turn of the node has ended."""
        if now - self._handed >= TICK:
            self._hand_over(now)
        if node.notes.events:
            events, node.notes.events = node.notes.events, []
            self._held.append(self._writer.lines(events))

    def stop(self, node: Node, now: int) -> None:
        """The process ends cleanly."""
        self.turn(node, now)
        self._hand_over(now)
        self._handed = now + 1
        self._say("stopped", node.now, now)

    def dies(self, now: int, machine: bool) -> None:
        """The process dies, or the ``machine`` does."""
        self._held = []
        kept = self._handed
        if machine:
            kept = self._rng.randrange(max(now - UNSYNCED, 0), now + 1)
            self._written = [entry for entry in self._written if entry[0] <= kept]
            kept = max((at for at, _ in self._written), default=0)
        self.lost.append((kept, now))

    def save(self, directory: Path) -> None:
        """Write everything that is in files: a segment for each process."""
        self.saved.append((self._handed, len(self.lost)))
        number = -1
        for _, lines in self._written:
            if b'"started"' in lines[:100]:
                number += 1
            name = f"events-{self._node[:8]}-{number:013}-0.jsonl"
            with (directory / name).open("ab") as file:
                file.write(lines)

    def _hand_over(self, now: int) -> None:
        self._written += [(now, lines) for lines in self._held]
        self._held = []
        self._handed = now

    def _say(self, event: str, time: int, now: int) -> None:
        line = {"time": time, "node": self._node, "event": event}
        self._written.append((now, json.dumps(line).encode() + b"\n"))
