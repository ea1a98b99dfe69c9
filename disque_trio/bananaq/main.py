"""``bananaq``: the command line of the daemon. Its options are in ``options``."""

import os
import sys
from collections.abc import Callable
from contextlib import chdir

import trio

from disque_trio.bananaq.daemon import Daemon, StartError
from disque_trio.bananaq.options import parse, settings_or_exit
from disque_trio.bananaq.settings import BananaSettings
from disque_trio.server.listeners import ListenError
from disque_trio.server.logs import Logging
from disque_trio.server.systemd import Notifier, SocketError, adopt_sockets


def main(argv: list[str] | None = None) -> int:
    """Run bananaq; returns the exit status: 0, 1 when it cannot start, 2 for wrong options."""
    environ = dict(os.environ)
    try:
        settings = settings_or_exit(argv, environ)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    try:
        os.chdir(settings.dir)
        logging = Logging(settings.loglevel, settings.log_format, settings.logfile)
    except OSError as problem:
        print(f"bananaq: {problem.filename}: {problem.strerror}", file=sys.stderr)
        return 1
    arguments = sys.argv[1:] if argv is None else argv

    def load() -> BananaSettings:
        # The process has gone to its `dir` since.
        with chdir(settings.started_in):
            return parse(arguments, environ)

    return _run(settings, logging, load)


def _run(settings: BananaSettings, logging: Logging, load: Callable[[], BananaSettings]) -> int:
    notifier = Notifier(os.environ)
    try:
        daemon = Daemon(settings, logging, notifier, adopt_sockets(os.environ), load)
        trio.run(daemon.run)
    except (StartError, ListenError, SocketError, OSError) as problem:
        logging.log.warning("cannot start", reason=str(problem))
        notifier.status(f"cannot start: {problem}")
        print(f"bananaq: cannot start: {problem}", file=sys.stderr)
        return 1
    finally:
        notifier.close()
        logging.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
