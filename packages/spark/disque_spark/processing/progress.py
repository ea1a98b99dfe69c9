"""Reports the progress of a run."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from disque_spark.nodes import Nodes
from disque_spark.processing.options import WorkOptions
from disque_trio.respclient.blocking import Reply

PROGRESS = 1.0  # s


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run, according to the nodes that can be reached.

    Attributes:
        queued: jobs waiting in the queues.
        acknowledged: jobs of these queues acknowledged since the run began, by anybody.
        seconds: seconds since the run began.
    """

    queued: int
    acknowledged: int
    seconds: float


@contextmanager
def reporting(
    progress: Callable[[RunProgress], None] | None, options: WorkOptions
) -> Iterator[None]:
    """Call ``progress`` every second during the block."""
    if progress is None or not options.queues:
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_tell, args=(progress, options, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _tell(
    progress: Callable[[RunProgress], None], options: WorkOptions, stop: threading.Event
) -> None:
    began = time.monotonic()
    requests = [("QSTAT", queue) for queue in options.queues]
    with closing(Nodes(options.nodes, options.login, False, options.timeout)) as nodes:
        before: dict[str, int] = {}
        while True:
            queued = acknowledged = 0
            for address, replies in nodes.ask(requests).items():
                queued += sum(_field(reply, b"len") for reply in replies)
                acked = sum(_field(reply, b"jobs-acked") for reply in replies)
                acknowledged += acked - before.setdefault(address, acked)
            progress(RunProgress(queued, acknowledged, time.monotonic() - began))
            if stop.wait(PROGRESS):
                return


def _field(stat: Reply, name: bytes) -> int:
    if not isinstance(stat, list) or name not in stat:
        return 0
    value = stat[stat.index(name) + 1]
    return value if isinstance(value, int) else 0
