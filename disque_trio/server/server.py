"""A running node: puts the parts together, supervises their tasks, starts and stops them.

The nursery holds: the engine (client turns), the requeue timer, the regular work, one task for
each listening socket, and the signals. If one of them fails the node ends with its error, rather
than go on without, say, its timers; whatever supervises the process starts it again.
"""

import os
import random
import resource
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from disque_trio.commands.table import build_table
from disque_trio.config import Config
from disque_trio.core import node as core_node
from disque_trio.core.command import Command
from disque_trio.core.node import Node
from disque_trio.core.peers import Peers
from disque_trio.server.clock import Clock
from disque_trio.server.engine import Engine
from disque_trio.server.host import ServerHost
from disque_trio.server.listeners import (
    accept,
    close_listeners,
    open_listeners,
    open_to_the_world,
)
from disque_trio.server.logs import Log, Logging
from disque_trio.server.stats import Stats
from disque_trio.server.timers import RequeueTimer, collect_garbage, run_cron
from disque_trio.version import VERSION

RESERVED_FILES = 64  # descriptors for everything but clients
FLUSH_SECONDS = 2  # for replies that are not sent when the node stops


def form() -> str:
    """Which form of the state machine runs: compiled by mypyc, or as it was written."""
    return "pure Python" if core_node.__file__.endswith(".py") else "compiled"


class StartError(Exception):
    """The node cannot be put together from its settings."""


class Server:
    """One node in this process.

    Args:
        config: the settings; CONFIG SET changes them.
        logging: where the log goes.

    Raises:
        StartError: a command that is renamed does not exist.
        ListenError: a socket cannot be listened on (from ``run``).
    """

    def __init__(self, config: Config, logging: Logging) -> None:
        self.config = config
        self.log: Log = logging.log
        self._logging = logging
        stats = Stats()
        clock = Clock()
        self._host = ServerHost(config, clock, stats, secrets.token_hex(20))
        self.node = Node(
            id=secrets.token_hex(20).encode(),
            commands=_rename(build_table(), config.rename_commands),
            host=self._host,
            peers=Peers(),
            entropy=os.urandom,
            rng=random.Random(),
            clock=time.perf_counter_ns,
            maxmemory=config.maxmemory,
        )
        self.engine = Engine(self.node, config, clock, stats, self.log)
        self._host.engine = self.engine
        self._host.apply = self._apply
        self._host.stop = lambda: self.stop("a client asked for it")
        self._stopping = trio.Event()
        self._apply(list(config.values()))

    async def run(self) -> None:
        """Serve until a signal or SHUTDOWN ends it."""
        listeners = open_listeners(self.config, self.log)
        try:
            self._check_descriptors()
            self._say_hello()
            collect_garbage()
            with _pidfile(self.config):
                await self._serve(listeners)
            self.log.notice("stopped", jobs=self.node.jobs.count)
        finally:
            self.engine.close_all()
            close_listeners(listeners)

    async def _serve(self, listeners: list[socket.socket]) -> None:
        timer = RequeueTimer(self.engine)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.engine.run)
            nursery.start_soon(timer.run)
            nursery.start_soon(run_cron, self.engine)
            for listener in listeners:
                nursery.start_soon(accept, listener, self.engine)
            await nursery.start(self._watch_signals)
            await self._stopping.wait()
            await self.engine.flush_all(FLUSH_SECONDS)
            nursery.cancel_scope.cancel()

    async def _watch_signals(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP:
                    continue
                if self._stopping.is_set():
                    self.log.warning("a second signal, no waiting", signal=number)
                    os._exit(1)
                self.stop(signal.Signals(number).name)

    def stop(self, reason: str) -> None:
        """End ``run`` in good order; ``reason`` is for the log."""
        self.log.notice("stopping", reason=reason)
        self._stopping.set()

    def _apply(self, names: list[str]) -> None:
        """Make changed settings take effect where they are not read when they matter."""
        config = self.config
        node = self.node
        node.memory.set_limit(config.maxmemory)
        node.memory.policy_acks = config.maxmemory_policy == "acks"
        node.slowlog.max_len = config.slowlog_max_len
        node.slowlog.trim()
        node.watch_durations(config.slowlog_log_slower_than, config.latency_monitor_threshold)
        self._logging.set_level(config.loglevel)
        if "requirepass" in names and not config.requirepass:
            for client in self._host.clients():
                client.authenticated = True
        for connection in self.engine.connections.values():
            parser = connection.parser
            parser.trusted = connection.client.authenticated
            parser.max_bulk = config.proto_max_bulk_len
            parser.max_inline = config.proto_inline_max_size
            parser.max_query = config.client_query_buffer_limit
        if "maxclients" in names:
            self._check_descriptors()
        if "dir" in names:
            os.chdir(config.dir)

    def _check_descriptors(self) -> None:
        """Raise the limit of open files to what maxclients needs, or lower maxclients."""
        wanted = self.config.maxclients + RESERVED_FILES
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft >= wanted:
            return
        try:
            most = max(hard, wanted) if hard != resource.RLIM_INFINITY else hard
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        except (OSError, ValueError):
            soft = hard
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            if soft < wanted:
                self.config.maxclients = max(soft - RESERVED_FILES, 1)
                self.log.warning(
                    "the system allows too few open files: maxclients is lowered",
                    maxclients=self.config.maxclients,
                    allowed=soft,
                )

    def _say_hello(self) -> None:
        config = self.config
        log = self.log
        log.notice(
            "disque-trio starts",
            version=f"{VERSION}, {form()}",
            node=self.node.id.decode(),
            dir=os.getcwd(),  # noqa: PTH109
            config=config.file or "defaults",
        )
        if config.port:
            host = config.bind[0] if config.bind else "127.0.0.1"
            where = f"-h {host} -p {config.port}"
            log.notice(
                "ready to accept connections",
                port=config.port,
                bind=" ".join(config.bind) or "*",
                connect=f"disque {where}  (or: redis-cli {where})",
            )
        if config.unixsocket:
            log.notice("ready to accept connections", unixsocket=config.unixsocket)
        log.notice("AOF off: jobs live in memory only, a restart loses them")
        if open_to_the_world(config):
            if config.protected_mode:
                log.warning(
                    "bound to all interfaces without a password: only clients of this machine "
                    "are served (protected-mode)"
                )
            else:
                log.warning(
                    "bound to all interfaces without a password and without protected-mode: "
                    "everybody who reaches this machine can use the node"
                )


@contextmanager
def _pidfile(config: Config) -> Iterator[None]:
    """The process id in a file for as long as the node runs. It is written when the sockets are
    there, so that a second node, which finds them taken, leaves the file of the first alone."""
    if not (config.daemonize and config.pidfile):
        yield
        return
    path = Path(config.pidfile).absolute()
    path.write_text(f"{os.getpid()}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _rename(commands: dict[bytes, Command], renamed: dict[str, str]) -> dict[bytes, Command]:
    """The table with ``rename-command`` carried out; an empty new name removes the command.

    Raises:
        StartError: there is no such command, or the new name is taken.
    """
    for old, new in renamed.items():
        command = commands.pop(old.lower().encode("utf-8", "surrogateescape"), None)
        if command is None:
            raise StartError(f"rename-command: there is no command {old!r}")
        name = new.lower().encode("utf-8", "surrogateescape")
        if name in commands:
            raise StartError(f"rename-command: {new!r} is a command already")
        if name:
            commands[name] = command
    return commands
