"""The command line of ``disque-worker``. Needs neither Trio nor the app."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

from disque_trio.glob import is_glob, pattern_problem
from disque_trio.process.one_line import add_debug_option
from disque_trio.process.options import (
    Parser,
    add_log_options,
    add_metrics_option,
    add_otel_option,
    add_version_option,
    count,
    period,
    size,
)
from disque_trio.worker.round_robin import QueueWeight, parse_queues

_EPILOG = """\
Name the app as for uvicorn or celery: `module:app`. `app:module` also works if there is no module
`app`, and `module` alone means `module:app`.

weights: with --queues mail,sms:5, a free slot asks sms first five times for each time that it asks
mail first. While both have jobs, five jobs of sms run for each one of mail; when one queue is
empty, all slots take jobs from the other. --queues mail,sms is the same with 1:1. With --strict, a
job of a queue is taken only if the queues named before it have none. (A node delivers its own jobs
first, and those of other nodes when it has none.)

patterns: with --queues 'hooks.*', the worker takes jobs from all queues that match, also from those
that come into being later (but from queues of dead letters, hooks.a.dead, only if the pattern ends
in .dead). Their queues take turns. A backslash makes *, ?, [ and \\ literal.

CPU work: tasks with process=True run each in a process that runs nothing else meanwhile, at most
--cpu-processes at a time for each worker process. At its timeout only that process ends.

autoscale: with --processes 2..8 there are two processes at first. There are more, up to eight, when
the oldest job in a queue of the worker waits longer than --scale-age while nearly all slots are
busy, if memory allows that (--scale-memory), and fewer when fewer have been enough for
--scale-idle. A process that is no longer wanted takes no more jobs, and ends when its tasks have
ended.

stopping: after SIGTERM or SIGINT (Ctrl-C) the worker takes no new jobs, and gives tasks --grace
seconds to finish. It then queues the jobs of the others again at once, which does not count as a
failure. A second signal does that immediately. SIGHUP starts new processes with the current code;
each old one takes no more jobs once its replacement does, and ends when its tasks have ended.

exit status: 0 it was stopped; 1 it could not start, or its processes kept dying; 2 wrong arguments.
With --check: 0 all is well; 1 it is not.
"""


def queues(text: str) -> list[QueueWeight]:
    """See ``parse_queues``."""
    try:
        found = parse_queues(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None
    for name, _ in found:
        if _is_pattern(name) and (problem := pattern_problem(name.encode())):
            raise argparse.ArgumentTypeError(f"{name!r}: {problem}")
    return found


def bounds(text: str) -> tuple[int, int]:
    """Read one number, or two with .. between them."""
    least, dots, most = text.partition("..")
    found = count(least), count(most if dots else least)
    if found[0] > found[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: {found[0]} is more than {found[1]}")
    return found


def _is_pattern(name: str) -> bool:
    return is_glob(name.encode(errors="surrogateescape"))


@dataclass(frozen=True, slots=True)
class Options:
    """The command line.

    Attributes:
        app: its name, as ``target.load`` reads it. app_dir: an extra directory for modules.
        queues: with weights; if none, those of the app's tasks.
        strict: whether to try the queues in order, without weights.
        concurrency: tasks at a time in each process. processes: how many, at least.
        most_processes: how many at most. scale_age: how long (s) a job may wait until there are
            more. scale_idle: how long (s) fewer have to be enough until there are. scale_memory:
            bytes that all together may use; None: as much as there is.
        cpu_processes: how many tasks with ``process=True`` run at a time for each process.
        grace: seconds for tasks to finish when stopping. wait: seconds to wait for a node at the
            start.
        stuck_after: seconds without a sign of life after which a process is replaced; None: never.
        restarts: how often in a row a process may die before the worker gives up.
        max_memory, max_tasks: bytes, and tasks, after which a process is replaced.
        reload: replace the processes when a source file changes.
        metrics: host and port. status_file: where to write the state, or empty.
        check: only check the health, for at most check_timeout seconds.
        log_level, log_format: as for the node.
        quiet: whether to omit the line with counts.
        otel: whether to trace, as configured by the environment.
        debug: whether to show tracebacks.
    """

    app: str
    app_dir: str
    queues: tuple[QueueWeight, ...]
    strict: bool
    concurrency: int
    processes: int
    most_processes: int
    scale_age: float
    scale_idle: float
    scale_memory: int | None
    cpu_processes: int
    grace: float
    wait: float
    restarts: int
    stuck_after: float | None
    max_memory: int | None
    max_tasks: int | None
    reload: bool
    metrics: tuple[str, int] | None
    status_file: str
    check: bool
    check_timeout: float
    log_level: str
    log_format: str
    quiet: bool
    otel: bool
    debug: bool

    @property
    def scales(self) -> bool:
        """Whether the number of processes changes."""
        return self.most_processes > self.processes

    @property
    def patterns(self) -> list[str]:
        """Those of ``queues`` that stand for all queues that match."""
        return [queue.name for queue in self.queues if _is_pattern(queue.name)]

    def to_json(self) -> dict[str, Any]:
        """Convert the options to values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Read the values made by ``to_json``."""
        named = tuple(QueueWeight(*pair) for pair in values["queues"])
        return cls(**{**values, "queues": named})


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="disque-worker",
        description="Run the tasks of an app: take jobs from a Disque cluster and call functions.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("app", metavar="module:app", help="the app, such as shop.tasks:app")
    add("--app-dir", default=".", metavar="DIR", help="search for modules here first (default: .)")
    add(
        "-q",
        "--queues",
        type=queues,
        default=[],
        metavar="Q[:W],...",
        help="queues, or patterns such as 'mail.*', with their weights, see below (default: the"
        " queues of the app's tasks)",
    )
    add("--strict", action="store_true", help="try the queues in order, without weights")
    add(
        "-c",
        "--concurrency",
        type=count,
        default=8,
        help="tasks at a time per process (default: 8)",
    )
    add(
        "-p",
        "--processes",
        type=bounds,
        default=(1, 1),
        metavar="N[..M]",
        help="worker processes; 2..8: as many as the work needs, see below (default: 1)",
    )
    add(
        "--scale-age",
        type=period(0.1),
        metavar="TIME",
        help="with -p 2..8: more processes when a job waits longer (default: 5s)",
    )
    add(
        "--scale-idle",
        type=period(0.1),
        metavar="TIME",
        help="with -p 2..8: fewer when fewer have been enough for so long (default: 30s)",
    )
    add(
        "--scale-memory",
        type=size,
        metavar="SIZE",
        help="with -p 2..8: what all processes together may use (default: nine tenths of what there"
        " is)",
    )
    add(
        "--cpu-processes",
        type=count,
        metavar="N",
        help="processes for tasks with process=True, beside each worker process, started when"
        " needed (default: one for each CPU, shared by the worker processes)",
    )
    add(
        "--grace",
        type=period(),
        default=30.0,
        metavar="TIME",
        help="how long tasks have to finish when stopping (default: 30s)",
    )
    add(
        "--wait",
        type=period(),
        default=30.0,
        metavar="TIME",
        help="how long to wait for a node at the start (default: 30s)",
    )
    add(
        "--restarts",
        type=count,
        default=10,
        help="give up after this many processes in a row die before taking a job (default: 10)",
    )
    add(
        "--stuck-after",
        type=period(3),
        metavar="TIME",
        help="replace a process that does not answer for so long, stopped or blocked by a task"
        " (default: never; a task beyond its timeout always ends)",
    )
    add(
        "--max-memory",
        type=size,
        metavar="SIZE",
        help="replace a process that uses more memory, such as 500mb (k is 1000, kb is 1024)",
    )
    add("--max-tasks", type=count, metavar="N", help="replace a process after this many tasks")
    add("--reload", action="store_true", help="replace the processes when a source file changes")
    add_metrics_option(add, "/metrics (for Prometheus) and /healthz")
    add(
        "--status-file",
        default="",
        metavar="FILE",
        help="write the state to this file every second",
    )
    add(
        "--check",
        action="store_true",
        help="only check that the app can be imported, that a node answers and accepts the password"
        " and, with --metrics or --status-file, that the worker with that option is alive and not"
        " stuck",
    )
    add(
        "--check-timeout",
        type=period(),
        default=10.0,
        metavar="TIME",
        help="time limit of --check (default: 10s)",
    )
    add_log_options(add)
    add("--quiet", action="store_true", help="show no status line")
    add_otel_option(add)
    add_debug_option(add)
    add_version_option(parser)
    return parser


_SCALE: Final[dict[str, float | None]] = {
    "scale_age": 5.0,
    "scale_idle": 30.0,
    "scale_memory": None,
}
"""What is meant without these options, which say how the number of processes changes."""


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line; None: that of the process. Exits for --help, --version and wrong
    arguments."""
    parser = _parser()
    values = vars(parser.parse_args(arguments))
    values["queues"] = tuple(values["queues"])
    values["processes"], values["most_processes"] = values["processes"]
    for name, default in _SCALE.items():
        if values[name] is None:
            values[name] = default
        elif values["processes"] == values["most_processes"]:
            parser.error(f"--{name.replace('_', '-')} needs bounds, such as --processes 2..8")
    if values["cpu_processes"] is None:
        cpus = len(os.sched_getaffinity(0))
        values["cpu_processes"] = max(1, cpus // values["most_processes"])
    return Options(**{field.name: values[field.name] for field in fields(Options)})
