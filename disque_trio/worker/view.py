"""How a worker is, as the parent sees it: for a terminal, Prometheus, probes and files."""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from disque_trio.worker.fleet import State
from disque_trio.worker.tally import BUCKETS, Tally

_SHOWN = ("done", "retried", "dead", "postponed", "runaway", "lost")


class ProcessView(NamedTuple):
    """A worker process.

    Attributes:
        serial: counts all that were started. pid: of the process.
        state: as named. stuck: it has given no sign of life for long.
        in_hand: tasks that run in it. memory: bytes that it has.
    """

    serial: int
    pid: int
    state: State
    stuck: bool
    in_hand: int
    memory: int


class View(NamedTuple):
    """A worker.

    Attributes:
        wanted: how many processes there are to be. processes: those that there are.
        tally: what became of tasks.
        restarts: how many processes took the place of another, by why.
        lengths: of the queues, at the node in use.
    """

    wanted: int
    processes: list[ProcessView]
    tally: Tally
    restarts: Mapping[str, int]
    lengths: Mapping[str, int]

    def count(self, state: State) -> int:
        """How many processes are in that state."""
        return sum(process.state is state for process in self.processes)

    @property
    def in_hand(self) -> int:
        """Tasks that run."""
        return sum(process.in_hand for process in self.processes)

    @property
    def memory(self) -> int:
        """Bytes that the worker processes have."""
        return sum(process.memory for process in self.processes)

    def health(self) -> tuple[bool, str]:
        """Whether it works, and a line that says how."""
        serving = self.count(State.SERVING)
        stuck = [str(process.pid) for process in self.processes if process.stuck]
        if stuck:
            return False, f"stuck: a task blocks process {', '.join(stuck)}"
        if not serving:
            return False, f"no process serves ({self.count(State.STARTING)} starting)"
        return True, f"ok: {serving} of {self.wanted} processes serve, {self.in_hand} tasks run"

    def line(self, rate: float) -> str:
        """A line for a terminal. ``rate``: tasks a second."""
        parts = [f"{self.count(State.SERVING)}/{self.wanted} processes", f"{rate:,.0f}/s"]
        counts = [(kind, self.tally.of(kind)) for kind in _SHOWN]
        parts += [f"{count:,} {kind}" for kind, count in counts if count or kind in _SHOWN[:3]]
        parts.append(f"{self.in_hand} in hand")
        if self.lengths:
            parts.append(f"{sum(self.lengths.values()):,} queued")
        parts.append(f"{self.memory >> 20} MB")
        return " | ".join(parts)

    def to_json(self, pid: int, time: float) -> str:
        """For a file that ``check`` reads. ``time``: s since the epoch."""
        well, text = self.health()
        return json.dumps(
            {
                "pid": pid,
                "time": time,
                "well": well,
                "text": text,
                "tasks": {kind: self.tally.of(kind) for kind in _SHOWN},
                "in_hand": self.in_hand,
                "queued": dict(self.lengths),
                "processes": [
                    {**process._asdict(), "state": process.state.value}
                    for process in self.processes
                ],
            }
        )


def metrics(view: View) -> str:
    """The text that Prometheus reads (version 0.0.4)."""
    return "".join(f"{line}\n" for line in _metrics(view))


def _metrics(view: View) -> Iterator[str]:
    yield from _head("tasks_total", "counter", "Runs of tasks, by how they ended.")
    for (task, queue, outcome), count in sorted(view.tally.counts.items()):
        yield _sample("tasks_total", count, task=task, queue=queue, outcome=outcome)
    yield from _head("task_seconds", "histogram", "How long runs of tasks took.")
    for task, seconds in sorted(view.tally.seconds.items()):
        below = 0
        for bound, count in zip((*BUCKETS, "+Inf"), seconds.counts, strict=True):
            below += count
            yield _sample("task_seconds_bucket", below, task=task, le=str(bound))
        yield _sample("task_seconds_sum", seconds.total, task=task)
        yield _sample("task_seconds_count", below, task=task)
    yield from _head("in_hand", "gauge", "Tasks that run.")
    yield _sample("in_hand", view.in_hand)
    yield from _head("processes", "gauge", "Worker processes.")
    for state in State:
        yield _sample("processes", view.count(state), state=state.value)
    yield from _head("processes_stuck", "gauge", "Worker processes that a task blocks.")
    yield _sample("processes_stuck", sum(process.stuck for process in view.processes))
    yield from _head("restarts_total", "counter", "Worker processes that took another's place.")
    for why, count in sorted(view.restarts.items()):
        yield _sample("restarts_total", count, reason=why)
    yield from _head("memory_bytes", "gauge", "Memory of the worker processes.")
    for process in view.processes:
        yield _sample("memory_bytes", process.memory, pid=str(process.pid))
    yield from _head("queue_jobs", "gauge", "Jobs that are queued, at the node in use.")
    for queue, length in view.lengths.items():
        yield _sample("queue_jobs", length, queue=queue)


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP disque_worker_{name} {text}", f"# TYPE disque_worker_{name} {kind}"


def _sample(name: str, value: float, **labels: str) -> str:
    pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"disque_worker_{name}{{{pairs}}} {value}" if pairs else f"disque_worker_{name} {value}"


def _escaped(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # names that are not UTF-8
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
