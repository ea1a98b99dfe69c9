"""The state of a worker, as the parent sees it, for terminals, probes and files."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from disque_trio import humanize
from disque_trio.process.fleet import State
from disque_trio.worker.tally import Tally

_SHOWN = ("done", "retried", "dead", "postponed", "repeated", "runaway", "cancelled", "lost")


class WorkerView(NamedTuple):
    """A worker process.

    Attributes:
        serial: its number among all processes that were started.
        pid: its process id.
        state: its state.
        stuck: whether it has given no sign of life for a long time.
        in_hand: the number of running tasks.
        memory: its memory in bytes.
        connected: whether it has a node.
        cpu_processes: how many processes it has for tasks that run there alone.
        cpu_memory: their memory in bytes.
    """

    serial: int
    pid: int
    state: State
    stuck: bool
    in_hand: int
    memory: int
    connected: bool
    cpu_processes: int = 0
    cpu_memory: int = 0


class View(NamedTuple):
    """A worker.

    Attributes:
        wanted: how many processes there should be now.
        processes: the processes that there are.
        concurrency: how many tasks each of them runs at a time.
        tally: what they have done.
        restarts: how many processes replaced another, by reason.
        lengths: the lengths of the queues, at the node in use.
        bounds: how few, and how many, processes there may be; None: the number does not change.
        oldest: how long ago the oldest job in these queues was added, in s; None: it is not asked.
    """

    wanted: int
    concurrency: int
    processes: list[WorkerView]
    tally: Tally
    restarts: Mapping[str, int]
    lengths: Mapping[str, int]
    bounds: tuple[int, int] | None = None
    oldest: float | None = None

    def count(self, state: State) -> int:
        """Return the number of processes in that state."""
        return sum(process.state is state for process in self.processes)

    @property
    def slots(self) -> int:
        """How many tasks the serving processes can run at once."""
        return self.concurrency * self.count(State.SERVING)

    @property
    def in_hand(self) -> int:
        """The number of running tasks."""
        return sum(process.in_hand for process in self.processes)

    @property
    def memory(self) -> int:
        """The memory of all processes, in bytes."""
        return sum(process.memory + process.cpu_memory for process in self.processes)

    @property
    def cpu_processes(self) -> int:
        """The number of processes for tasks that run there alone."""
        return sum(process.cpu_processes for process in self.processes)

    def health(self) -> tuple[bool, str]:
        """Return whether the worker works, and a line that describes its state."""
        serving = self.count(State.SERVING)
        stuck = [str(process.pid) for process in self.processes if process.stuck]
        if stuck:
            return False, f"stuck: a task blocks process {', '.join(stuck)}"
        if not serving:
            return False, f"no process serves ({self.count(State.STARTING)} starting)"
        return True, f"ok: {serving} of {self.wanted} processes serve, {self.in_hand} tasks run"

    def line(self, rate: float) -> str:
        """Return a line for a terminal. ``rate``: tasks a second."""
        parts = [f"{self.count(State.SERVING)}/{self.wanted} processes", f"{rate:,.0f}/s"]
        counts = [(kind, self.tally.of(kind)) for kind in _SHOWN]
        parts += [f"{count:,} {kind}" for kind, count in counts if count or kind in _SHOWN[:3]]
        parts.append(f"{self.in_hand} in hand")
        if self.cpu_processes:
            parts.append(f"{self.cpu_processes} CPU processes")
        if self.lengths:
            parts.append(f"{sum(self.lengths.values()):,} queued")
        parts.append(humanize.size(self.memory))
        return " | ".join(parts)

    def status(self, pid: int, time: float) -> dict[str, Any]:
        """Return what the status file has. ``time``: seconds since the epoch."""
        well, text = self.health()
        return {
            "pid": pid,
            "time": time,
            "well": well,
            "text": text,
            "tasks": {kind: self.tally.of(kind) for kind in _SHOWN},
            "in_hand": self.in_hand,
            "wanted": self.wanted,
            "queued": dict(self.lengths),
            "processes": [
                {**process._asdict(), "state": process.state.value} for process in self.processes
            ],
        }
