"""What Prometheus gets of a worker: ``disque_worker_*``."""

from collections.abc import Callable, Iterator

from disque_trio.metrics.labels import label_value
from disque_trio.metrics.sheet import Family, Sheet, pairs
from disque_trio.version import VERSION
from disque_trio.worker.fleet import State
from disque_trio.worker.view import View

_PREFIX = "disque_worker_"


class Figures:
    """The figures of a worker, for a scrape.

    Args:
        view: returns how it is.
    """

    def __init__(self, view: Callable[[], View]) -> None:
        self._view = view

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """See ``Source``."""
        view = self._view()
        _jobs(sheet, view)
        _processes(sheet, view)
        yield
        yield from _tasks(sheet, view)


def _jobs(sheet: Sheet, view: View) -> None:
    tally = view.tally
    gauge, counter = sheet.gauge, sheet.counter
    info = gauge(f"{_PREFIX}build_info", "Always 1")
    _add(info, 1, version=VERSION)
    gauge(f"{_PREFIX}in_hand", "Tasks that run", view.in_hand)
    gauge(f"{_PREFIX}slots", "Tasks that the processes that serve can run at once", view.slots)
    counter(f"{_PREFIX}wait_seconds_total", "Time that slots waited for a job", tally.waited)
    counter(f"{_PREFIX}poll_errors_total", "Times that no job could be taken", tally.errors)
    gauge(
        f"{_PREFIX}last_job_timestamp_seconds",
        "When the last job was taken; 0: none was",
        tally.last_job,
    )
    lengths = gauge(f"{_PREFIX}queue_jobs", "Jobs that are queued, at the node in use")
    for queue, length in view.lengths.items():
        _add(lengths, length, queue=_label(queue))


def _processes(sheet: Sheet, view: View) -> None:
    gauge = sheet.gauge
    processes = gauge(f"{_PREFIX}processes", "Worker processes")
    for state in State:
        _add(processes, view.count(state), state=state.value)
    stuck = sum(process.stuck for process in view.processes)
    gauge(f"{_PREFIX}processes_stuck", "Worker processes that a task blocks", stuck)
    connected = sum(
        process.connected and process.state is State.SERVING for process in view.processes
    )
    gauge(f"{_PREFIX}connected_processes", "Of those that serve, how many have a node", connected)
    restarts = sheet.counter(f"{_PREFIX}restarts_total", "Processes that took another's place")
    for why, count in sorted(view.restarts.items()):
        _add(restarts, count, reason=why)
    memory = gauge(f"{_PREFIX}memory_bytes", "Memory of the worker processes")
    for process in view.processes:
        _add(memory, process.memory, pid=str(process.pid))


def _tasks(sheet: Sheet, view: View) -> Iterator[None]:
    tasks = sheet.counter(f"{_PREFIX}tasks_total", "Runs of tasks, by how they ended")
    for (task, queue, outcome), count in sorted(view.tally.counts.items()):
        _add(tasks, count, task=_label(task), queue=_label(queue), outcome=outcome)
        yield
    seconds = sheet.histogram(f"{_PREFIX}task_seconds", "How long runs of tasks took")
    for task, histogram in sorted(view.tally.seconds.items()):
        seconds.add_histogram(histogram, pairs({"task": _label(task)}))
        yield


def _add(family: Family, value: float, **labels: str) -> None:
    family.add(value, pairs(labels))


def _label(name: str) -> str:
    """Of the name of a queue or a task, which may have bytes in it that are no UTF-8, or be text
    that cannot be written as UTF-8."""
    try:
        return label_value(name.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return label_value(name.encode("utf-8", "surrogatepass"))
