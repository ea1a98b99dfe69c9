"""``disque-worker``: the entry point of the command. Help, the version and wrong arguments need
neither Trio nor the app.
"""

import os
import sys

from disque_trio.worker.options import Options, parse


def main() -> int:
    """Run the command; returns the exit status."""
    options = parse()
    if options.check:
        from disque_trio.worker.check import check

        well, text = check(options)
        print(f"disque-worker: {text}", file=sys.stdout if well else sys.stderr)
        return 0 if well else 1
    return _run(options)


def _run(options: Options) -> int:
    import trio

    from disque_trio.process.logs import Logging
    from disque_trio.process.systemd import Notifier
    from disque_trio.worker.parent import Parent

    notifier = Notifier(os.environ)
    parent = Parent(options, notifier, Logging(options.log_level, options.log_format).log)
    problem = trio.run(parent.run)
    if problem:
        notifier.status(problem)
        print(f"disque-worker: {problem}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
