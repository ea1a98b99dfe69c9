"""Records what clients of a cluster did and were told, to compare with the nodes' logs."""

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tests.support.harness import Wire
from tests.support.live_cluster import LiveCluster


@dataclass
class Entry:
    """The record of a confirmed job.

    Attributes:
        confirmed: when the client was told, s since the epoch. first: when a client first got the
            job.
        delivered: the node of each delivery. commands: the commands about it, with counts.
    """

    queue: str
    confirmed: float
    first: float = 0.0
    delivered: list[int] = field(default_factory=list)
    commands: Counter[str] = field(default_factory=Counter)


class Books:
    """See the module.

    Attributes:
        jobs: by id. unsure: those whose last delivery may not be in the log, because the node was
            killed at once.
    """

    def __init__(self, cluster: LiveCluster) -> None:
        self.cluster = cluster
        self.jobs: dict[str, Entry] = {}
        self.unsure: set[str] = set()
        self._wires: dict[int, Wire] = {}

    def wire(self, node: int) -> Wire:
        """The connection to a node."""
        if node not in self._wires:
            self._wires[node] = self.cluster[node].wire()
        return self._wires[node]

    def forget(self, node: int) -> None:
        """Drop the connection to a killed node."""
        self._wires.pop(node).close()

    def add(self, node: int, queue: str, count: int, *options: str | int) -> list[bytes]:
        """Add jobs and wait for the confirmations. Returns their ids."""
        wire = self.wire(node)
        ids = []
        for number in range(count):
            id = wire("ADDJOB", queue, f"{queue} {number}", 2000, *options)
            assert isinstance(id, bytes), id
            self.jobs[id.decode()] = Entry(queue, time.time())
            ids.append(id)
        return ids

    def get(self, node: int, queue: str, count: int, seconds: float = 12) -> list[bytes]:
        """Take ``count`` jobs, whichever node has them."""
        wire = self.wire(node)
        found: list[bytes] = []
        end = time.monotonic() + seconds
        while len(found) < count:
            left = int(1000 * (end - time.monotonic()))
            assert left > 0, f"{len(found)} of {count} from {queue}"
            reply = wire("GETJOB", "TIMEOUT", left, "COUNT", count - len(found), "FROM", queue)
            now = time.time()
            for _, id, _ in reply if isinstance(reply, list) else ():
                entry = self.jobs[id.decode()]
                entry.delivered.append(node)
                entry.first = entry.first or now
                found.append(id)
        return found

    def get_each(self, node: int, queue: str, ids: Collection[bytes]) -> None:
        """Take each of these jobs, some perhaps several times."""
        missing = set(ids)
        while missing:
            missing.difference_update(self.get(node, queue, 1))

    def say(self, node: int, command: str, ids: Sequence[bytes], *options: str) -> int:
        """Send a command about some jobs. Returns the reply."""
        for id in ids:
            self.jobs[id.decode()].commands[command] += 1
        reply = self.wire(node)(command, *options, *ids)
        assert isinstance(reply, int), reply
        return reply

    def ids(self, queue: str) -> set[str]:
        """The jobs that were added to a queue."""
        return {id for id, entry in self.jobs.items() if entry.queue == queue}

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
