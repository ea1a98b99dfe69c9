"""Runs the process of bananaq, from its settings to its exit status."""

import os
import sys
from collections.abc import Callable

import trio

from disque_bananaq.server import Server
from disque_bananaq.settings import BananaSettings
from disque_trio.process.logs import Logging
from disque_trio.process.systemd import Notifier, SocketError, adopt_sockets
from disque_trio.respserver.daemon import StartError
from disque_trio.respserver.io.listeners import ListenError


def run(settings: BananaSettings, load: Callable[[], BananaSettings]) -> int:
    """Run the daemon until it ends. Returns the exit status: 0, or 1 if it cannot start.

    Args:
        load: reads the settings again.
    """
    try:
        os.chdir(settings.dir)
        logging = Logging(settings.loglevel, settings.log_format, settings.logfile)
    except OSError as problem:
        print(f"bananaq: {problem.filename}: {problem.strerror}", file=sys.stderr)
        return 1
    notifier = Notifier(os.environ)
    try:
        server = Server(settings, logging, notifier, adopt_sockets(os.environ), load)
        trio.run(server.daemon.run)
    except (StartError, ListenError, SocketError, OSError) as problem:
        logging.log.warning("cannot start", reason=str(problem))
        notifier.status(f"cannot start: {problem}")
        print(f"bananaq: cannot start: {problem}", file=sys.stderr)
        return 1
    except Exception:
        logging.log.warning("bananaq failed", exc_info=True)
        raise
    finally:
        notifier.close()
        logging.close()
    return 0
