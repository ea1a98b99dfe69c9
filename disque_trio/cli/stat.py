"""``disque --stat``: a line of counters and rates once a second."""

import time
from collections.abc import Mapping

from disque_trio.cli.connection import Connection, ConnectionFailed, Disconnected
from disque_trio.cli.options import Options
from disque_trio.cli.runner import complain, connected

_LINES_PER_HEADER = 20

_COUNTERS = (
    ("jobs", 10, "registered_jobs"),
    ("queues", 8, "registered_queues"),
    ("clients", 8, "connected_clients"),
    ("blocked", 8, "blocked_clients"),
    ("mem", 9, "used_memory_human"),
)
_RATES = (
    ("adds/s", 9, "total_jobs_added"),
    ("gets/s", 9, "total_jobs_delivered"),
    ("acks/s", 9, "total_jobs_acked"),
    ("commands/s", 11, "total_commands_processed"),
)
HEADER = "".join([title.ljust(width) for title, width, _ in (*_COUNTERS, *_RATES)]).rstrip()


def parse_info(text: str) -> dict[str, str]:
    """INFO's fields by name."""
    fields = [line.partition(":") for line in text.splitlines() if not line.startswith("#")]
    return {name: value for name, colon, value in fields if colon}


def stat_line(now: Mapping[str, str], before: Mapping[str, str] | None, seconds: float) -> str:
    """One line: current counters, rates since ``before``, and ``-`` for unknown values."""
    cells = [now.get(name, "-").ljust(width) for _, width, name in _COUNTERS]
    for _, width, name in _RATES:
        rate = "-"
        if before is not None and name in now and name in before and seconds > 0:
            # A restarted node counts from zero again.
            rate = str(round(max(0, int(now[name]) - int(before[name])) / seconds))
        cells.append(rate.ljust(width))
    return "".join(cells).rstrip()


def run_stat(options: Options) -> int:
    """Print lines until interrupted, or as many as ``-r`` says. Returns the exit status.

    Fails if the node is down at the start; if it goes down later, waits for it.
    """
    interval = options.interval or 1.0
    remaining = options.repeat if options.repeat_given else -1
    connection: Connection | None = None
    before: dict[str, str] | None = None
    measured = 0.0
    lines = 0
    while remaining != 0:
        try:
            if connection is None:
                connection = connected(options)
            now = parse_info(connection.execute(b"INFO").text.decode(errors="replace"))
        except (ConnectionFailed, Disconnected) as error:
            complain(str(error))
            if before is None:
                return 1
            connection = None
        else:
            if lines % _LINES_PER_HEADER == 0:
                print(HEADER)
            moment = time.monotonic()
            print(stat_line(now, before, moment - measured), flush=True)
            before, measured = now, moment
            lines += 1
        remaining -= 1
        if remaining != 0:
            time.sleep(interval)
    return 0
