"""The command line of ``disque-worker``. It needs neither Trio nor the app."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from disque_trio.version import VERSION
from disque_trio.worker.rota import QueueWeight, parse_queues

_EPILOG = """\
The app is named as for uvicorn or celery, `module:app`; `app:module` does as well if there is no
module `app`. `module` alone means `module:app`.

weights: with --queues mail,sms:5 a slot that is free asks sms first five times for each time that
it asks mail first. As long as both have jobs, five of sms run for one of mail; when one of them is
empty, all slots take jobs of the other. --queues mail,sms is the same with 1:1. With --strict a job
of a queue is taken only when those that are named before it have none. (A node prefers the jobs
that it has itself: those of other nodes come when it has none.)

stopping: SIGTERM and SIGINT (Ctrl-C): no new jobs; those in hand may finish within --grace seconds,
then the others are queued again at once, which is no failure of theirs. A second signal does that
now. SIGHUP starts new processes, with the code as it is now; each old one takes no more jobs once
the new one in its place takes them, and ends when its tasks have.

exit status: 0 it was stopped, 1 it could not start or its processes kept dying, 2 wrong arguments;
of --check 0 all is well, 1 it is not.
"""


def positive(text: str) -> int:
    """A whole number from 1 on. Raises ValueError."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def seconds(text: str) -> float:
    """A time in seconds, 0 or more. Raises ValueError."""
    number = float(text)
    if not 0 <= number < 1e9:
        raise ValueError
    return number


def size(text: str) -> int:
    """Bytes: ``500mb``, ``2gb``, ``1000000``; units count in 1024. Raises ValueError."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text.strip().lower())
    if match is None or not int(match[1]):
        raise ValueError
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


def place(text: str) -> tuple[str, int]:
    """A place to listen at: ``9100``, ``0.0.0.0:9100``, ``[::1]:9100``; without a host it is
    127.0.0.1. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not 0 < int(port) < 65536:
        raise ValueError
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def queues(text: str) -> list[QueueWeight]:
    """See ``parse_queues``."""
    try:
        return parse_queues(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says.

    Attributes:
        app: where it is, as ``target.load`` reads it. app_dir: where modules are looked for, too.
        queues: with their weights; none: those of the app's tasks.
        strict: the queues are preferred in their order, without weights.
        concurrency: tasks at a time in each process. processes: how many.
        grace: seconds that tasks have when it stops. wait: seconds that it waits for a node at the
            start.
        restarts: how often in a row a process may die before all is given up.
        max_memory: bytes; a process that has more is replaced. max_tasks: tasks after which one is.
        reload: replace the processes when a source file changes.
        metrics: host and port. status_file: where the state is written; empty: nowhere.
        check: only look whether all is well, for check_timeout seconds at most.
        log_level, log_format: as of the node.
        quiet: no line with counts.
        otel: traces go where the environment says.
    """

    app: str
    app_dir: str
    queues: tuple[QueueWeight, ...]
    strict: bool
    concurrency: int
    processes: int
    grace: float
    wait: float
    restarts: int
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

    def to_json(self) -> dict[str, Any]:
        """For ``from_json``, by way of JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """What ``to_json`` gave."""
        named = tuple(QueueWeight(*pair) for pair in values["queues"])
        return cls(**{**values, "queues": named})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        # One line: the usage would push it out of sight.
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="disque-worker",
        description="Run the tasks of an app: take jobs from a Disque cluster and call functions.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("app", metavar="module:app", help="where the app is, such as shop.tasks:app")
    add("--app-dir", default=".", metavar="DIR", help="where modules are looked for first (.)")
    add(
        "-q",
        "--queues",
        type=queues,
        default=[],
        metavar="Q[:W],...",
        help="queues with their weights, see below; without it those of the app's tasks",
    )
    add("--strict", action="store_true", help="take queues in their order, without weights")
    add("-c", "--concurrency", type=positive, default=8, help="tasks at a time, a process (8)")
    add("-p", "--processes", type=positive, default=1, help="worker processes (1)")
    add("--grace", type=seconds, default=30.0, help="seconds for tasks to finish at a stop (30)")
    add("--wait", type=seconds, default=30.0, help="seconds to wait for a node at the start (30)")
    add(
        "--restarts",
        type=positive,
        default=10,
        help="give up when a process ended so often in a row before it took jobs (10)",
    )
    add("--max-memory", type=size, metavar="SIZE", help="replace a process that has more (500mb)")
    add("--max-tasks", type=positive, metavar="N", help="replace a process after so many tasks")
    add("--reload", action="store_true", help="replace the processes when a source file changes")
    add(
        "--metrics",
        type=place,
        metavar="[HOST:]PORT",
        help="serve /metrics in Prometheus' format and /healthz there",
    )
    add("--status-file", default="", metavar="FILE", help="write the state there each second")
    add(
        "--check",
        action="store_true",
        help="only look whether the app imports, a node answers and takes the password and, with"
        " --metrics or --status-file, the worker with the same option is alive and not stuck",
    )
    add("--check-timeout", type=seconds, default=10.0, help="seconds for --check at most (10)")
    levels = ("debug", "verbose", "notice", "warning")
    add("--log-level", choices=levels, default="notice", help="what is logged (notice)")
    add(
        "--log-format",
        choices=("auto", "console", "json"),
        default="auto",
        help="auto: for people on a terminal, else JSON",
    )
    add("--quiet", action="store_true", help="no line with counts")
    add(
        "--otel",
        action="store_true",
        help="trace with OpenTelemetry, as the environment says (OTEL_EXPORTER_OTLP_ENDPOINT, ...)",
    )
    add("--version", action="version", version=f"disque-trio {VERSION}")
    return parser


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line, that of the process if None. Ends the process for --help, --version
    and wrong arguments."""
    values = vars(_parser().parse_args(arguments))
    values["queues"] = tuple(values["queues"])
    return Options(**{field.name: values[field.name] for field in fields(Options)})
