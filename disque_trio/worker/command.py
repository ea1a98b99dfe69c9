"""``disque-worker``: the entry point of the command.

Help, the version and wrong arguments need neither Trio nor the app.
"""

import os
import sys

from disque_trio.process.one_line import one_line
from disque_trio.worker.options import Options, parse


@one_line("disque-worker")
def main() -> int:
    """Run the command and return the exit status."""
    open_closed()
    options = parse()
    if options.check:
        from disque_trio.worker.check import check

        well, text = check(options)
        print(f"disque-worker: {text}", file=sys.stdout if well else sys.stderr)
        return 0 if well else 1
    return _run(options)


def open_closed() -> None:
    """Open standard streams that were closed at the start. Otherwise, sockets would get their
    descriptors, and output of tasks would go there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115 - as long as the process lives
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _run(options: Options) -> int:
    from disque_trio.process.imports import to_stay

    with to_stay():
        import trio

        from disque_trio.process.logs import Logging
        from disque_trio.process.systemd import Notifier
        from disque_trio.respclient.log import lines_go_to
        from disque_trio.worker.parent import Parent

    notifier = Notifier(os.environ)
    log = Logging(options.log_level, options.log_format).log
    lines_go_to(log)
    parent = Parent(options, notifier, log)
    problem = trio.run(parent.run)
    if problem:
        notifier.status(problem)
        print(f"disque-worker: {problem}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
