"""``disque-server``: the command line of the node."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import trio

from disque_trio.config import (
    Config,
    ConfigError,
    check_file,
    load_config,
    load_config_text,
    parse_overrides,
)
from disque_trio.form import form
from disque_trio.server.install import install_hints
from disque_trio.server.listeners import ListenError
from disque_trio.server.logs import Logging
from disque_trio.server.processes import Processes, command_line
from disque_trio.server.restart import STARTED_IN, Handover, replace_process, take_handover
from disque_trio.server.server import Server, StartError
from disque_trio.server.siblings import OneOfSeveral, PlaceError, check, take_place
from disque_trio.server.systemd import Notifier, SocketError, adopt_sockets
from disque_trio.version import VERSION

USAGE = """\
Usage: disque-server [FILE | -] [--name value ...]
       disque-server --check-config FILE
       disque-server --install-hints
       disque-server -v | --version
       disque-server -h | --help

Starts a Disque node. FILE holds the settings, in YAML (.yaml, .yml) or in the syntax of
disque.conf; "-" reads the latter from the standard input. Without FILE the defaults hold.
Every setting can be given as an option and then overrides the file:

  disque-server
  disque-server config/disque.yaml
  disque-server config/disque.conf --port 7712 --loglevel verbose
  disque-server --port 7712 --bind 127.0.0.1 ::1 --maxmemory 2gb
  disque-server --processes 2

--check-config FILE reads the file, says all that is wrong with it, and starts nothing.
The exit status is 0, or 1 where something is wrong.

--install-hints shows the commands that install the node as a systemd service.
"""


def main(argv: list[str] | None = None) -> int:
    """Run the node; returns the exit status."""
    args = sys.argv[1:] if argv is None else argv
    if args and args[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if args and args[0] in ("-v", "--version"):
        print(f"disque-trio {VERSION}, {form()} (Python {sys.version.split()[0]})")
        return 0
    if args and args[0] == "--check-config":
        return _check(args[1:])
    if args == ["--install-hints"]:
        print(install_hints(), end="")
        return 0
    # Until it is listened to, SIGHUP would end the process, and at a RESTART as well: what holds
    # now holds again when the node has stopped, and goes over to the program that replaces it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    place = take_place(os.environ)
    load = _loader(args, Path.cwd(), place)
    try:
        config = load()
    except ConfigError as problem:
        print(f"disque-server: the configuration is wrong\n{problem}", file=sys.stderr)
        return 1
    try:
        os.chdir(config.dir)
    except OSError as problem:
        print(f"disque-server: dir {config.dir}: {problem.strerror}", file=sys.stderr)
        return 1
    handover = take_handover(os.environ)
    several = place is None and config.processes > 1
    if several and args[:1] == ["-"]:
        print("disque-server: with processes the settings have to be in a file", file=sys.stderr)
        return 1
    if config.daemonize and handover is None:
        _daemonize(config.logfile)
    try:
        logging = Logging(
            config.loglevel,
            config.log_format,
            config.logfile,
            config.syslog_ident if config.syslog_enabled else None,
            config.syslog_facility,
        )
    except OSError as problem:
        print(f"disque-server: logfile {config.logfile}: {problem.strerror}", file=sys.stderr)
        return 1
    if several:
        return _run_several(config, logging)
    return _run(config, logging, None if args[:1] == ["-"] else load, handover, place)


def _check(args: list[str]) -> int:
    if len(args) != 1:
        print(USAGE, end="", file=sys.stderr)
        return 1
    problems: list[Exception] = [*check_file(args[0])]
    if not problems:
        config = load_config(args[0])
        try:
            if config.processes > 1:
                check(config)
        except PlaceError as wrong:
            problems.append(PlaceError(f"{args[0]}: {wrong}"))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    print(f"{args[0]}: ok")
    return 0


def _loader(args: list[str], directory: Path, place: OneOfSeveral | None) -> Callable[[], Config]:
    """Loads the settings now and at a reload, when the node has gone to its ``dir``: arguments
    and file may name things relative to where it was started."""

    def load() -> Config:
        with chdir(directory):
            config = _load(args)
        return config if place is None else place.settings(config)

    return load


def _load(args: list[str]) -> Config:
    """The settings of the file, if one is named, and of the options behind it."""
    if args and not args[0].startswith("--"):
        overrides = parse_overrides(args[1:])
        if args[0] == "-":
            return load_config_text(sys.stdin.read(), overrides)
        return load_config(args[0], overrides)
    return load_config(None, parse_overrides(args))


def _daemonize(logfile: str) -> None:
    """Go on in the background, without a terminal."""
    sys.stdout.flush()
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def _run_several(config: Config, logging: Logging) -> int:
    """Run several processes to their end."""
    notifier = Notifier(os.environ)
    try:
        check(config)
        processes = Processes(
            command=command_line(),
            cwd=STARTED_IN,
            count=config.processes,
            directory=Path(config.dir),
            once=config.aof_enqueue_jobs_once,
            passed=adopt_sockets(os.environ),
            notifier=notifier,
            log=logging.log,
            pidfile=config.pidfile if config.daemonize else "",
        )
        return trio.run(processes.run)
    except (PlaceError, SocketError, OSError) as problem:
        return _cannot_start(problem, logging, notifier)
    finally:
        notifier.close()
        logging.close()


def _cannot_start(problem: Exception, logging: Logging, notifier: Notifier) -> int:
    logging.log.warning("cannot start", reason=str(problem))
    notifier.status(f"cannot start: {problem}")
    print(f"disque-server: cannot start: {problem}", file=sys.stderr)
    return 1


def _run(
    config: Config,
    logging: Logging,
    load: Callable[[], Config] | None,
    handover: Handover | None,
    place: OneOfSeveral | None,
) -> int:
    """Run the node to its end, or until another process takes the place of this one."""
    notifier = Notifier(os.environ)
    if place is not None and "LISTEN_FDS" in os.environ:
        os.environ["LISTEN_PID"] = str(os.getpid())  # who started it could not know
    try:
        activated = adopt_sockets(os.environ)
        server = Server(config, logging, notifier, activated, load, handover, place)
        trio.run(server.run)
    except (StartError, ListenError, SocketError, OSError) as problem:
        return _cannot_start(problem, logging, notifier)
    finally:
        notifier.close()
        logging.close()
    if server.restarting:
        try:
            replace_process(notifier, server.activated, server.own, server.dumped_at)
        except OSError as problem:
            print(f"disque-server: cannot restart: {problem}", file=sys.stderr)
            return 1
    return 0
