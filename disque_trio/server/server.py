"""A running node: puts the parts together, supervises their tasks, starts and stops them.

The nursery holds: the engine (client turns), the requeue timer, the regular work, that of the
cluster, one task for each listening socket, and the signals. If one of them fails the node ends
with its error, rather than go on without, say, its timers; whatever supervises the process starts
it again.
"""

import os
import random
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from disque_trio.commands.table import build_table
from disque_trio.config import Config, ConfigError
from disque_trio.core.command import Command
from disque_trio.core.node import Node
from disque_trio.eventlog.recorder import EventLog, Settings
from disque_trio.form import form
from disque_trio.server.clock import Clock
from disque_trio.server.cluster import Cluster, ClusterError
from disque_trio.server.engine import Engine
from disque_trio.server.host import ServerHost
from disque_trio.server.listeners import (
    accept_clients,
    accept_nodes,
    close_listeners,
    open_bus_listeners,
    open_listeners,
    say_where,
    tcp_endpoints,
)
from disque_trio.server.logs import Log, Logging
from disque_trio.server.loop import flush_all, serve
from disque_trio.server.persistence import LoadError, Persistence
from disque_trio.server.process import pidfile
from disque_trio.server.reload import take_over
from disque_trio.server.restart import Handover
from disque_trio.server.siblings import OneOfSeveral
from disque_trio.server.stats import Stats
from disque_trio.server.systemd import Notifier, feed_watchdog, report
from disque_trio.server.timers import RequeueTimer, collect_garbage, run_cron
from disque_trio.version import VERSION

FLUSH_SECONDS = 2  # for replies that are not sent when the node stops


class StartError(Exception):
    """The node cannot be put together from its settings."""


class Server:
    """One node in this process.

    Args:
        config: the settings; CONFIG SET changes them.
        logging: where the log goes.
        notifier: tells systemd how the node is.
        passed: listening sockets that the process was given.
        load: reads the configuration again; None: it cannot be had twice.
        handover: from the process that this one goes on for. Jobs and queues then come from the
            file, whether it is on or not.
        one_of_several: which of the processes of a server this is, if it has several.

    Attributes:
        activated: listening sockets that somebody else opened.
        own: the other ones, once the node runs.
        restarting: the process is to be replaced when ``run`` has ended; the sockets stay open.
        dumped_at: when the jobs were written for that, in ms.

    Raises:
        StartError: a command that is renamed does not exist, or there is something wrong with
            nodes.conf or the certificates of the cluster.
        OSError: nodes.conf is in use by another process, or cannot be written.
        ListenError: a socket cannot be listened on (from ``run``).
    """

    def __init__(
        self,
        config: Config,
        logging: Logging,
        notifier: Notifier | None = None,
        passed: Sequence[socket.socket] = (),
        load: Callable[[], Config] | None = None,
        handover: Handover | None = None,
        one_of_several: OneOfSeveral | None = None,
    ) -> None:
        self.config = config
        self.notifier = notifier or Notifier()
        foreign = len(passed) if handover is None else handover.foreign
        self.activated = passed[:foreign]
        self.own = passed[foreign:]
        self.restarting = False
        self.dumped_at = 0
        self._handover = handover
        self._load = load
        self.log: Log = logging.log
        self._logging = logging
        stats = Stats()
        clock = Clock()
        self._host = ServerHost(config, clock, stats, secrets.token_hex(20))
        commands = _rename(build_table(), config.rename_commands)
        try:
            self.cluster = Cluster(config, clock, stats, self.log)
        except ClusterError as problem:
            raise StartError(str(problem)) from problem
        membership = self.cluster.membership
        self.node = Node(
            id=self.cluster.packets.id,
            commands=commands,
            host=self._host,
            peers=membership,
            entropy=os.urandom,
            rng=random.Random(),
            clock=time.perf_counter_ns,
            maxmemory=config.maxmemory,
            packets=self.cluster.packets,
        )
        self.node.leaving = membership.leaving
        membership.deliver = self.node.receive
        self.engine = Engine(self.node, self.cluster.bus, config, clock, stats, self.log)
        self._host.engine = self.engine
        self._host.one_of_several = self._one_of_several = one_of_several
        if one_of_several is not None:
            self.cluster.siblings = one_of_several.siblings(config)
        self._host.notifier = self.notifier
        self._host.activated = self.activated
        self.persistence = Persistence(self.node, config, self.log)
        self._host.persistence = self.persistence
        self._host.cluster = self.cluster
        self.event_log = EventLog(self.node, self.node.id.decode(), self.log)
        self._host.event_log = self.event_log
        self.engine.on_events = self.event_log.turn
        self.engine.persist = self.persistence.turn
        self.engine.on_cluster_changed = self.cluster.changed
        self._host.apply = self._apply
        self._host.stop = lambda: self.stop("a client asked for it")
        self._host.check_restart = self._check_restart
        self._host.go_on_anew = self._go_on_anew
        self._stopping = trio.Event()
        self._apply(list(config.values()))

    async def run(self) -> None:
        """Serve until a signal, SHUTDOWN or RESTART ends it."""
        listeners: list[socket.socket] = []
        bus: list[socket.socket] = []
        try:
            listeners = open_listeners(self.config, self.log, [*self.activated, *self.own])
            self.own = listeners[len(self.activated) :]
            bus = open_bus_listeners(self.config, listeners)
            self._host.port = next((port for _, port in tcp_endpoints(listeners)), 0)
            self.cluster.listens(listeners, bus)
            self._say_hello(listeners)
            collect_garbage()
            with pidfile(self.config.pidfile if self.config.daemonize else ""):
                await self._serve(listeners, bus)
            self.log.notice("stopped", jobs=self.node.jobs.count)
        except BaseException:
            self.restarting = False
            raise
        finally:
            self.engine.close_all()
            self.event_log.abandon()
            self.cluster.close()
            close_listeners(bus)
            if not self.restarting:
                close_listeners(listeners, self.activated)

    async def _serve(self, listeners: list[socket.socket], bus: list[socket.socket]) -> None:
        timer = RequeueTimer(self.engine)
        failure: StartError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, self.engine)
            nursery.start_soon(timer.run)
            nursery.start_soon(run_cron, self.engine)
            nursery.start_soon(self.event_log.run)
            for listener in listeners:
                nursery.start_soon(accept_clients, listener, self.engine)
            await nursery.start(self._watch_signals)
            if self._one_of_several is not None:
                nursery.start_soon(self._watch_supervisor)
            if self.notifier.watchdog:
                nursery.start_soon(feed_watchdog, self.notifier, self.engine)
            try:
                await self._restore()
            except (LoadError, OSError) as problem:
                # Out of the nursery it would come as a group.
                failure = StartError(str(problem))
            else:
                # Stopped while loading, the node must not do anything with the half that it has.
                if not self._stopping.is_set():
                    nursery.start_soon(self.persistence.run)
                    # Other nodes wait, too: half of the jobs is no node.
                    nursery.start_soon(self.cluster.run, self.engine)
                    for listener in bus:
                        nursery.start_soon(accept_nodes, listener, self.engine, self.cluster.bus)
                    self.notifier.ready()
                    if self.notifier.enabled:
                        nursery.start_soon(report, self.notifier, self.engine)
                    await self._stopping.wait()
                    await flush_all(self.engine, FLUSH_SECONDS)
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        self.persistence.close()
        await self.event_log.close()

    async def _restore(self) -> None:
        """Load the append-only file, if there is to be one. Clients get -LOADING meanwhile."""
        config = self.config
        once = config.aof_enqueue_jobs_once or self._handover is not None
        if not (config.appendonly or once):
            return
        # By the time the jobs were written, a job whose delay has ended since was not delivered.
        self.node.now = self._handover.time if self._handover else self.engine.clock.now()
        jobs = await self.persistence.load(once, self.notifier, self._stopping.is_set)
        if self._stopping.is_set():
            return
        self.log.notice("loaded", file=self.persistence.path, jobs=jobs)
        if once:
            self._reset_once()
        if config.appendonly:
            self.persistence.open()

    def _reset_once(self) -> None:
        """The queues are restored, once: the next start must not do it again."""
        config = self.config
        was_set = config.aof_enqueue_jobs_once
        config.aof_enqueue_jobs_once = False
        if not config.appendonly:
            self.persistence.set_aside()
        if was_set and config.file:
            try:
                self._host.write_settings()
            except (ConfigError, OSError) as problem:
                self.log.warning(
                    "aof-enqueue-jobs-once could not be reset in the file: do it by hand",
                    reason=str(problem),
                )

    async def _watch_signals(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP:
                    self._reload()
                    continue
                if self._stopping.is_set() and not self.restarting:
                    self.log.warning("a second signal, no waiting", signal=number)
                    os._exit(1)
                self.stop(signal.Signals(number).name)

    async def _watch_supervisor(self) -> None:
        """Who started this process holds the other end of its standard input."""
        await trio.lowlevel.wait_readable(0)
        self.stop("the process that looks after this one is gone")

    def stop(self, reason: str) -> None:
        """End ``run`` in good order; ``reason`` is for the log."""
        self.log.notice("stopping", reason=reason)
        self.restarting = False
        self.notifier.stopping()
        self._stopping.set()

    def _check_restart(self) -> str | None:
        """Why a new process could not go on for this one, or None. What can be known is found out
        while there still is a node."""
        if self._load is None:
            return "the configuration came from the standard input"
        try:
            new = self._load()
            _rename(build_table(), new.rename_commands)
        except (ConfigError, OSError, StartError) as problem:
            return "the configuration is wrong: " + "; ".join(str(problem).splitlines())
        config = self.config
        for name in ("dir", "appendfilename", "cluster-config-file"):
            if new.get(name) != config.get(name):
                return f"{name} is not the same in the configuration"
        if not os.access(sys.executable, os.X_OK):
            return f"{sys.executable} cannot be run"
        return None

    def _go_on_anew(self) -> None:
        """End ``run``, so that a new process can take the place of this one."""
        self.log.notice("restarting", reason="a client asked for it")
        self.restarting = True
        self.dumped_at = self.node.now
        self.notifier.reloading()
        self._stopping.set()

    def _reload(self) -> None:
        """Let what the file says hold from now on, as far as it can be SET."""
        if self._load is None or not self.config.file:
            return
        self.notifier.reloading()
        try:
            fresh = self._load()
            self.cluster.read_certificates()
        except (ConfigError, ClusterError, OSError) as problem:
            self.log.warning("not reloaded, the configuration is wrong", reason=str(problem))
        else:
            take_over(fresh, self.config, self._host.config_set, self.log)
        self.notifier.reloaded()

    def _apply(self, names: list[str]) -> None:
        """Make changed settings take effect where they are not read when they matter."""
        config = self.config
        self.engine.apply(names)
        self.node.memory.policy_acks = config.maxmemory_policy == "acks"
        self._logging.set_level(config.loglevel)
        self.cluster.apply()
        self.persistence.apply()
        if "dir" in names:
            os.chdir(config.dir)
            self.cluster.move()
        self.event_log.apply(self._event_log_settings())

    def _event_log_settings(self) -> Settings | None:
        config = self.config
        if not config.event_log:
            return None
        return Settings(
            directory=Path(config.dir, config.event_log_dir),
            segment_size=config.event_log_segment_size,
            segment_seconds=config.event_log_segment_seconds,
            compress=config.event_log_compress,
            keep_hours=config.event_log_keep_hours,
            max_size=config.event_log_max_size,
        )

    def _say_hello(self, listeners: Sequence[socket.socket]) -> None:
        config = self.config
        log = self.log
        log.notice(
            "disque-trio starts",
            version=f"{VERSION}, {form()}",
            node=self.node.id.decode(),
            dir=os.getcwd(),  # noqa: PTH109
            config=config.file or "defaults",
        )
        say_where(listeners, config, log, "disque {where}  (or: redis-cli {where})")
        if config.appendonly:
            log.notice(
                "AOF on: jobs are kept on disk",
                file=config.appendfilename,
                fsync=config.appendfsync,
            )
        else:
            log.notice("AOF off: jobs live in memory only, a restart loses them")


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
