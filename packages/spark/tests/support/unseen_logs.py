"""The event logs of three nodes that lack something, as an audit may get them."""

import json
from pathlib import Path

NODES = tuple(letter * 40 for letter in "abc")
A, B, C = range(3)
START = 1_795_290_000_000  # ms
MINUTE = 60_000


class Story:
    """The logs of nodes that all work alike: each has a job every ten seconds, and begins a segment
    every minute.

    Attributes:
        directory: where the logs are.
        at: the time now, ms.
        nodes: ids of the nodes of the cluster.
        old: write what nodes of the last release write.
    """

    def __init__(self, directory: Path, *, nodes: int = 3, old: bool = False) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.at = START
        self.nodes = list(NODES[:nodes])
        self._old = old
        self._up = dict.fromkeys(NODES, START)
        self._since = dict.fromkeys(NODES, START)
        self._lines: dict[str, list[str]] = {}
        self._before: dict[str, tuple[str, int]] = {}
        self._jobs = 0

    # ---- what nodes do ------------------------------------------------------------------------

    def begin(self, *places: int, up: int = 0) -> None:
        """The logs of nodes begin; the nodes have run since ``up`` (ms; 0: now)."""
        for node in map(NODES.__getitem__, places):
            self._up[node] = up or self.at
            self._since[node] = self.at
            self.say(node, "started")

    def stop(self, *places: int, why: str = "shutdown") -> None:
        """The logs of nodes end cleanly."""
        for node in map(NODES.__getitem__, places):
            self.say(node, "stopped", **({} if self._old else {"reason": why}))
            self.close(node)

    def work(self, minutes: int, *places: int) -> None:
        """Nodes work."""
        for _ in range(minutes):
            for _ in range(6):
                self.at += 10_000
                for node in map(NODES.__getitem__, places):
                    self.job(node)
            for node in map(NODES.__getitem__, places):
                self.close(node)

    def job(self, node: str) -> None:
        """A job is added, taken and done, all on one node."""
        self._jobs += 1
        id = f"D-{node[:8]}-{self._jobs:024d}-05a1"
        facts = {"nacks": 0, "deliveries": 0, "size": 3, "repl": 1, "copies": 1, "retry": 0}
        facts |= {"ttl": 86_400, "delay": 0, "ctime": self.at * 1_000_000}
        self.say(node, "added", id=id, queue="q", client="shop", **facts)
        self.say(node, "queued", id=id, queue="q", reason="add")
        self.say(node, "delivered", id=id, queue="q", client="w", nacks=0, deliveries=0)
        self.say(node, "acked", id=id, queue="q", reason="client", client="w")

    def say(self, node: str, event: str, **more: object) -> None:
        line = {"time": self.at, "node": node, "event": event, **more}
        self._lines.setdefault(node, []).append(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self, node: str) -> None:
        """The segment of a node is closed."""
        lines = self._lines.pop(node, [])
        if not lines:
            return
        time = json.loads(lines[0])["time"]
        name = f"events-{node[:8]}-{time:013d}-{len(self.segments(node))}.jsonl"
        head = {"time": time, "node": node, "event": "segment", "name": name}
        if node in self._before:
            head["after"], head["events"] = self._before[node]
        if not self._old:
            head |= {"run": f"{self._up[node]:x}", "up": self._up[node]}
            head |= {"since": self._since[node], "nodes": self.nodes}
        self._before[node] = (name, len(lines))
        text = json.dumps(head, separators=(",", ":")) + "\n" + "".join(lines)
        (self.directory / name).write_text(text)

    # ---- what happens to their files ----------------------------------------------------------

    def segments(self, node: str | int) -> list[Path]:
        """The closed segments of a node."""
        name = NODES[node] if isinstance(node, int) else node
        return sorted(self.directory.glob(f"events-{name[:8]}-*.jsonl"))

    def remove(self, node: int, *places: int) -> None:
        """Remove the segments at these places among those of a node; none: all of them."""
        found = self.segments(node)
        for path in [found[place] for place in places] or found:
            path.unlink()
