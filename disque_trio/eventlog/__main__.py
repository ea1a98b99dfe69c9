"""``python -m disque_trio.eventlog``: the process that a node starts for its event log."""

import argparse
import gc
import os
import signal
import sys
import time
from pathlib import Path

from disque_trio.eventlog.child import Child
from disque_trio.eventlog.closing import Closer, Retention
from disque_trio.eventlog.segments import Naming

NICE = 5  # the node has priority
_COLLECT_EVERY = 100_000  # objects; a batch has thousands, none of them in a cycle


def main(arguments: list[str] | None = None) -> int:
    """Run until standard input ends. The exit status is 1 if something could not be written."""
    parser = argparse.ArgumentParser("python -m disque_trio.eventlog", description=__doc__)
    parser.add_argument("node")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--segment-size", type=int, default=64 << 20)
    parser.add_argument("--segment-seconds", type=int, default=300)
    parser.add_argument("--compress", action="store_true")
    parser.add_argument("--keep-hours", type=int, default=0)
    parser.add_argument("--max-size", type=int, default=0)
    parser.add_argument("--resume", default="", help="the file of the process before this one")
    parser.add_argument("--known", type=int, default=0, help="how many bytes of it are valid")
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gc.set_threshold(_COLLECT_EVERY)
    try:
        os.nice(NICE)
    except OSError:
        pass
    closer = Closer(
        options.directory,
        Naming(options.node),
        Retention(options.compress, options.keep_hours * 3600, options.max_size),
        time.time,
        lambda text: child.tell_trouble(text),
    )
    child = Child(
        options.node,
        options.directory,
        options.segment_size,
        options.segment_seconds * 1000,
        closer,
        sys.stdin.fileno(),
        sys.stdout.fileno(),
    )
    try:
        try:
            child.recover(options.resume, options.known)
        except OSError as failure:
            # The leftover can wait; current events cannot.
            child.tell_trouble(f"{options.directory}: {failure.strerror or failure}")
        complete = child.run()
    finally:
        closer.finish()
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
