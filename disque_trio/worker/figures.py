"""The worker's metrics for Prometheus: ``disque_worker_*``."""

from collections.abc import Callable, Iterator

from disque_trio.metrics.labels import label_value
from disque_trio.metrics.sheet import Family, Sheet, pairs
from disque_trio.process.fleet import State
from disque_trio.version import VERSION
from disque_trio.worker.view import View

_PREFIX = "disque_worker_"


class Figures:
    """The metrics of a worker.

    Args:
        view: returns the state of the worker.
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
    info = gauge(f"{_PREFIX}build_info", "Version of the worker; always 1.")
    _add(info, 1, version=VERSION)
    gauge(f"{_PREFIX}in_hand", "Running tasks.", view.in_hand)
    gauge(f"{_PREFIX}slots", "Tasks that all serving processes can run at once.", view.slots)
    counter(f"{_PREFIX}wait_seconds_total", "Total time that slots waited for a job.", tally.waited)
    counter(f"{_PREFIX}poll_errors_total", "Times that a slot failed to take a job.", tally.errors)
    gauge(
        f"{_PREFIX}last_job_timestamp_seconds",
        "Unix time at which the last job was taken; 0 if there was none.",
        tally.last_job,
    )
    lengths = gauge(f"{_PREFIX}queue_jobs", "Jobs queued on the node in use.")
    for queue, length in view.lengths.items():
        _add(lengths, length, queue=_label(queue))


def _processes(sheet: Sheet, view: View) -> None:
    gauge = sheet.gauge
    processes = gauge(f"{_PREFIX}processes", "Worker processes, by state.")
    for state in State:
        _add(processes, view.count(state), state=state.value)
    least, most = view.bounds or (view.wanted, view.wanted)
    gauge(f"{_PREFIX}processes_wanted", "Worker processes that there should be.", view.wanted)
    gauge(f"{_PREFIX}processes_least", "The fewest that there may be.", least)
    gauge(f"{_PREFIX}processes_most", "The most that there may be.", most)
    if view.oldest is not None:
        gauge(
            f"{_PREFIX}oldest_job_seconds",
            "How long ago the oldest queued job was added; with a changing number of processes.",
            view.oldest,
        )
    stuck = sum(process.stuck for process in view.processes)
    gauge(f"{_PREFIX}processes_stuck", "Worker processes blocked by a task.", stuck)
    connected = sum(
        process.connected and process.state is State.SERVING for process in view.processes
    )
    gauge(f"{_PREFIX}connected_processes", "Serving processes connected to a node.", connected)
    restarts = sheet.counter(f"{_PREFIX}restarts_total", "Processes replaced, by reason.")
    for why, count in sorted(view.restarts.items()):
        _add(restarts, count, reason=why)
    memory = gauge(f"{_PREFIX}memory_bytes", "Resident memory of each worker process.")
    for process in view.processes:
        _add(memory, process.memory, pid=str(process.pid))
    gauge(
        f"{_PREFIX}cpu_processes", "Processes for tasks that run there alone.", view.cpu_processes
    )
    gauge(
        f"{_PREFIX}cpu_memory_bytes",
        "Resident memory of the processes for tasks that run there alone.",
        sum(process.cpu_memory for process in view.processes),
    )


def _tasks(sheet: Sheet, view: View) -> Iterator[None]:
    tasks = sheet.counter(f"{_PREFIX}tasks_total", "Runs of tasks, by outcome.")
    for (task, queue, outcome), count in sorted(view.tally.counts.items()):
        _add(tasks, count, task=_label(task), queue=_label(queue), outcome=outcome)
        yield
    seconds = sheet.histogram(f"{_PREFIX}task_seconds", "Duration of runs of tasks.")
    for task, histogram in sorted(view.tally.seconds.items()):
        seconds.add_histogram(histogram, pairs({"task": _label(task)}))
        yield


def _add(family: Family, value: float, **labels: str) -> None:
    family.add(value, pairs(labels))


def _label(name: str) -> str:
    """Return the label for a queue or a task, whose name may contain bytes that are not UTF-8, or
    characters that UTF-8 cannot encode."""
    try:
        return label_value(name.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return label_value(name.encode("utf-8", "surrogatepass"))
