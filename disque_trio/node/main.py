"""``disque-server``: parses the command line and runs the node. ``command`` is the entry point."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import chdir, nullcontext
from pathlib import Path

import trio

from disque_trio.config import (
    TABLE,
    Config,
    ConfigError,
    check_settings_file,
    load_settings,
    load_settings_text,
    parse_arguments,
)
from disque_trio.node.commands.table import build_table
from disque_trio.node.server import Server
from disque_trio.node.texts import INSTALL_HINTS, USAGE
from disque_trio.node.worker import Worker, WorkerError, check_workers, take_worker
from disque_trio.process.arguments import hide
from disque_trio.process.logs import Logging
from disque_trio.process.process import detach
from disque_trio.process.restart import (
    Handover,
    command_line,
    replace_process,
    take_handover,
)
from disque_trio.process.systemd import Notifier, SocketError, adopt_shared, adopt_sockets
from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.acl.users import Users
from disque_trio.respserver.daemon import StartError
from disque_trio.respserver.io.listeners import ListenError, listen_everywhere, open_shared
from disque_trio.respserver.io.metrics import open_metrics
from disque_trio.respserver.user_file import UserFileError, check_users


def main(args: list[str]) -> int:
    """Run the node, or do what else the command line asks for; return the exit status."""
    if args and args[0] == "--check-config":
        return _check(args[1:])
    if args == ["--install-hints"]:
        print(INSTALL_HINTS, end="")
        return 0
    # Before there is a handler, SIGHUP would end the process, also during a RESTART: this setting
    # applies again when the node has stopped, and is inherited by the program that replaces it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    worker = take_worker(os.environ)
    load = _loader(args, Path.cwd(), worker)
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
    if not config.secrets().isdisjoint(" ".join(args).split()):
        hide(config.secrets())
    handover = take_handover(os.environ)
    several = worker is None and config.processes > 1
    if several and args[:1] == ["-"]:
        print("disque-server: with processes, the settings have to be in a file", file=sys.stderr)
        return 1
    served = detach() if config.daemonize and handover is None else lambda: None
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
        return _run_several(config, logging, served)
    reload = None if args[:1] == ["-"] else load
    return _run(config, logging, served, reload, handover, worker)


def _check(args: list[str]) -> int:
    """``--check-config``: print what is wrong with a file; return the exit status."""
    if len(args) != 1:
        print(USAGE, end="", file=sys.stderr)
        return 1
    problems: list[Exception] = [*check_settings_file(Config, args[0])]
    if not problems:
        config = load_settings(Config, args[0])
        try:
            if config.processes > 1:
                check_workers(config)
        except WorkerError as wrong:
            problems.append(WorkerError(f"{args[0]}: {wrong}"))
        try:
            check_users(Users(Catalog(build_table().values())), config)
        except UserFileError as wrong_users:
            problems.append(UserFileError(f"{args[0]}: {wrong_users}"))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    print(f"{args[0]}: ok")
    return 0


def _loader(args: list[str], directory: Path, worker: Worker | None) -> Callable[[], Config]:
    """Return a function that loads the settings, now and at each reload. The node has by then
    changed to its ``dir``, while arguments and file may name paths relative to where it started."""

    def load() -> Config:
        # The first time, the process is still there, and may lack the permission to enter it again.
        with nullcontext() if Path.cwd() == directory else chdir(directory):
            config = _load(args)
        return config if worker is None else worker.settings(config)

    return load


def _load(args: list[str]) -> Config:
    """Load the settings of the file, if one is named, and of the options that follow it."""
    if args and not args[0].startswith("--"):
        overrides = parse_arguments(TABLE, args[1:])
        if args[0] == "-":
            return load_settings_text(Config, sys.stdin.read(), overrides)
        return load_settings(Config, args[0], overrides)
    return load_settings(Config, None, parse_arguments(TABLE, args))


def _run_several(config: Config, logging: Logging, served: Callable[[], None]) -> int:
    """Run several processes until they end. Calls ``served`` when all of them serve."""
    from disque_trio.node.supervisor import Sockets, Supervisor

    notifier = Notifier(os.environ, served)
    try:
        check_workers(config)
        passed = adopt_sockets(os.environ)
        shared = open_shared(config, logging.log, passed)
        if config.tls_port:  # for those who mean the first process
            shared += listen_everywhere(config, config.tls_port + config.processes, logging.log)
        if config.metrics_port:
            shared += open_metrics(config, config.metrics_port, logging.log)
        supervisor = Supervisor(
            command=command_line(),
            cwd=Path(config.started_in),
            count=config.processes,
            directory=Path(config.dir),
            once=config.aof_enqueue_jobs_once,
            sockets=Sockets(passed, shared),
            notifier=notifier,
            logging=logging,
            pidfile=config.pidfile if config.daemonize else "",
        )
        status = trio.run(supervisor.run)
        if supervisor.problem and config.daemonize:
            # The process had no standard error to say so itself.
            print(f"disque-server: {supervisor.problem}", file=sys.stderr)
        return status
    except (WorkerError, ListenError, SocketError, OSError) as problem:
        return _cannot_start(problem, logging, notifier)
    except Exception:
        logging.log.warning("the processes failed", exc_info=True)
        raise
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
    served: Callable[[], None],
    load: Callable[[], Config] | None,
    handover: Handover | None,
    worker: Worker | None,
) -> int:
    """Run the node until it ends, or until another process takes its place. Calls ``served`` when
    it serves."""
    notifier = Notifier(os.environ, served)
    if worker is not None and "LISTEN_FDS" in os.environ:
        os.environ["LISTEN_PID"] = str(os.getpid())  # its parent could not know
    try:
        activated = [*adopt_sockets(os.environ), *adopt_shared(os.environ)]
        server = Server(config, logging, notifier, activated, load, handover, worker)
        trio.run(server.daemon.run)
    except (StartError, ListenError, SocketError, OSError) as problem:
        return _cannot_start(problem, logging, notifier)
    except Exception:
        logging.log.warning("the node failed", exc_info=True)
        raise
    finally:
        notifier.close()
        logging.close()
    daemon = server.daemon
    if daemon.restarting:
        try:
            replace_process(
                notifier, config.started_in, server.foreign, daemon.own, daemon.stopped_at
            )
        except OSError as problem:
            print(f"disque-server: cannot restart: {problem}", file=sys.stderr)
            return 1
    return 0
