"""A running node: assembles its parts, and adds the bus, the event log and the worker processes to
the generic daemon.
"""

import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from disque_trio.aof.disk import TimedDisk
from disque_trio.aof.persistence import Persistence
from disque_trio.cluster.bus import Bus
from disque_trio.cluster.cluster import Cluster, ClusterError
from disque_trio.cluster.listeners import accept_nodes, open_bus_listeners
from disque_trio.cluster.membership import Membership
from disque_trio.cluster.tls import bus_tls
from disque_trio.config import Config, ConfigError
from disque_trio.eventlog.recorder import EventLog, Settings
from disque_trio.form import form
from disque_trio.health.keeper import Fact
from disque_trio.health.story import FAILED, Known, Story
from disque_trio.node.commands.table import build_table
from disque_trio.node.core.jobs.counts import JobCounts
from disque_trio.node.core.node import Node
from disque_trio.node.health import NodeFacts
from disque_trio.node.host import NodeHost
from disque_trio.node.index_file import IndexFile
from disque_trio.node.metrics import ClusterFigures, JobFigures, PagingFigures
from disque_trio.node.page_files import PageFiles
from disque_trio.node.progress_file import ProgressFile
from disque_trio.node.shared_file import (
    SharedFileError,
    bindings_file,
    pauses_file,
    policies_file,
    schedules_file,
)
from disque_trio.node.worker import Worker
from disque_trio.process.clock import Clock
from disque_trio.process.logs import Log, Logging
from disque_trio.process.restart import Handover
from disque_trio.process.systemd import Notifier
from disque_trio.process.tls import TlsSettings
from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.acl.users import Users
from disque_trio.respserver.command import Command
from disque_trio.respserver.daemon import Daemon, Inherited, Product, StartError
from disque_trio.respserver.exposure import Exposure
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.listeners import (
    at,
    close_listeners,
    say_where,
    shared_of,
    tcp_endpoints,
)
from disque_trio.respserver.io.measured import MeasuredEngine
from disque_trio.respserver.io.metrics import Metrics, MetricsPlace
from disque_trio.respserver.io.poller import Poller
from disque_trio.respserver.io.stats import Stats
from disque_trio.respserver.io.tasks import RequeueTimer
from disque_trio.respserver.process_host import reload_users
from disque_trio.respserver.reload import reload
from disque_trio.respserver.user_file import UserFileError, check_users
from disque_trio.version import VERSION

if TYPE_CHECKING:
    from disque_trio.node.siblings import Siblings

FIRST_CLOCKS_SECONDS = 3.0  # until clocks are compared for the first time
CLOCKS_SECONDS = 30.0  # and for the next times
LOOK_SECONDS = 0.002  # between looks at whether all other nodes have answered


class Server(Product):
    """The Disque node that runs in this process.

    Args:
        config: the settings; CONFIG SET changes them.
        logging: where the log goes.
        notifier: tells systemd the state of the node.
        passed: listening sockets that the process was given.
        load: reads the configuration again; None: it cannot be read twice.
        handover: from the process that this one replaces. Jobs and queues then come from the file,
            whether it is on or not.
        worker: which process of the server this is, if there are several.

    Attributes:
        foreign: the listening sockets that somebody else opened.

    Raises:
        StartError: rename-command names a command that does not exist, or something is wrong with
            nodes.conf, the policies beside it or the certificates of the cluster.
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
        worker: Worker | None = None,
    ) -> None:
        self.config = config
        self.notifier = notifier or Notifier()
        self.log: Log = logging.log
        self._load = load
        self._worker = worker
        self._requeue = config.aof_enqueue_jobs_once or handover is not None
        self._bus_listeners: list[socket.socket] = []
        self._metrics = Metrics.of(config, self.log)
        foreign = len(passed) if handover is None else handover.foreign
        activated = self.foreign = passed[:foreign]
        shared: Sequence[socket.socket] = ()
        self._over_tls: Sequence[socket.socket] = ()  # of shared ones, and of the first process
        if worker is not None:
            activated = self._share_metrics(worker, activated)
        own_tls = False
        if worker is not None and worker.server:  # that of 0.1 shares nothing
            first = config.tls_port - worker.number if config.tls_port else 0
            own = at(activated, first + config.processes) if first else []
            activated = [listener for listener in activated if listener not in own]
            over_tls = at(activated, first)
            shared = [*shared_of(activated, first), *over_tls]
            own_tls = bool(own) and worker.number == 0
            self._over_tls = [*over_tls, *own] if own_tls else over_tls
        if worker is not None and worker.number:
            activated = ()
        commands = build_table()
        catalog = Catalog(commands.values())  # rules name commands as they are called here
        commands = _rename(commands, config.rename_commands)
        stats, clock, poller = Stats(), Clock(), Poller()
        other_workers = worker.other_workers(config) if worker is not None else ()
        try:
            self.cluster = Cluster(config, clock, stats, self.log, poller, other_workers)
        except ClusterError as problem:
            raise StartError(str(problem)) from problem
        membership = self.cluster.membership
        if own_tls:
            self.cluster.tls_offset = config.processes
        if worker is not None:
            self.cluster.packets.process = worker.announced(config.processes)
            self.cluster.packets.refresh()
        run_id = os.urandom(20).hex()
        self._host = NodeHost(
            self,
            config,
            run_id,
            self.cluster,
            worker,
            self.notifier,
            self.foreign,
        )
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
        self.node.users = Users(catalog)
        for makers in (self.node.ticks.makers, self.node.topics.makers):
            makers.tell = self._tell_rights
        self.node.store.uniques.warn = self.log.warning
        try:
            self._shared_files = [
                policies_file(config, self.node, membership, self.log),
                schedules_file(config, self.node, self.log),
                bindings_file(config, self.node, self.log),
                pauses_file(config, self.node, self.log),
            ]
        except SharedFileError as problem:
            self.cluster.close()
            raise StartError(str(problem)) from problem
        self.bus = Bus(
            self.cluster.links,
            membership,
            self.node.receive,
            self.node.replication.wants_copy,
            self._cluster_changed,
            config,
            clock,
            stats,
            self.log,
        )
        self.progress_file = ProgressFile(self.node, config, self.log)
        self.page_files = PageFiles(self.node, config, clock, self.log)
        self.index_file = IndexFile(
            self.node, config, self.page_files, self.progress_file, self.log
        )
        id = self.node.id.decode()
        self.event_log = EventLog(
            self.node.notes,
            id,
            self.log,
            run=run_id,
            nodes=partial(_with_members, id, membership),
        )
        disk = TimedDisk() if self._metrics else None
        persistence = Persistence(self.node, config, self.log, disk)
        persistence.file.on_more_room = self.progress_file.find_room
        persistence.loading.ahead = self.index_file
        timer = RequeueTimer(clock)
        engine_class = MeasuredEngine if self._metrics else Engine
        self.engine = engine_class(
            self.node,
            self.bus,
            config,
            clock,
            stats,
            self.log,
            persistence,
            poller,
            timer.wake_at,
            self.event_log.turn,
        )
        if self._metrics is not None and disk is not None:
            counts = JobCounts(config.metrics_max_queues)
            self.node.notes.count(counts)
            about = ClusterFigures(self.cluster, self.event_log, stats)
            jobs = JobFigures(self.node, counts)
            paging = PagingFigures(self.node.paging.pages, self.page_files.space)
            self._metrics.measure(
                "disque", self.engine, persistence, disk, [paging, about], self._watched, [jobs]
            )
        try:
            self.daemon = Daemon(
                self,
                self.engine,
                timer,
                persistence,
                config,
                logging,
                self.notifier,
                Inherited(
                    activated,
                    passed[foreign:],
                    self._requeue,
                    handover.time if handover is not None else 0,
                    shared,
                ),
                config.pidfile if config.daemonize else "",
            )
        except StartError:
            self.cluster.close()
            raise
        self.siblings: Siblings | None = None
        self._story = Story(self._tell_story)
        self._facts = NodeFacts(
            self.node,
            membership,
            self.page_files,
            self.event_log,
            [self.cluster, self.progress_file, *self._shared_files],
            lambda: self.siblings.silent() if self.siblings is not None else [],
        )
        if worker is not None and worker.server:
            from disque_trio.node import siblings

            self.siblings = siblings.Siblings(
                self.engine,
                self.node,
                worker.number,
                config.processes,
                worker.server,
                self._host.report,
                self.log,
            )
            self._host.work_together(self.siblings)
        self.daemon.apply(list(config.values()))
        try:
            self._host.read_users()
        except UserFileError as problem:
            self.cluster.close()
            raise StartError(str(problem)) from problem

    def _share_metrics(
        self, worker: Worker, activated: Sequence[socket.socket]
    ) -> Sequence[socket.socket]:
        """Take those of the ``activated`` sockets at which all processes answer scrapes; returns
        the rest."""
        metrics = self._metrics
        if metrics is None:
            return activated
        ours = at(activated, metrics.port)
        if ours:
            metrics.share(ours, MetricsPlace(worker.number, self.config.processes, worker.server))
        else:
            metrics.port += worker.number  # the supervisor is of an older release
        return [listener for listener in activated if listener not in ours]

    def _cluster_changed(self) -> None:
        """Handle a change of what nodes.conf has."""
        self.cluster.changed()
        self.event_log.cluster_changed()

    def _tell_rights(self, what: str, details: str) -> None:
        self.log.warning(what, details=details)

    def restart_problem(self) -> str | None:
        """Return why a new process could not take over from this one, or None.

        Checked while the node still runs, as far as possible.
        """
        if self._load is None:
            return "the configuration came from standard input"
        try:
            new = self._load()
            _rename(build_table(), new.rename_commands)
            check_users(self.node.users, new)
        except (ConfigError, OSError, StartError, UserFileError) as problem:
            return "the configuration is wrong: " + "; ".join(str(problem).splitlines())
        config = self.config
        for name in ("dir", "appendfilename", "cluster-config-file", "tls-port"):
            if new.get(name) != config.get(name):
                return f"{name} has changed in the configuration"
        if not os.access(sys.executable, os.X_OK):
            return f"{sys.executable} cannot be run"
        return None

    # ---- called by the daemon ---------------------------------------------------------------

    def _watched(self) -> Daemon:
        """Return what knows how the node is; before it runs, there is none."""
        return self.daemon

    def facts(self, now: int) -> Iterator[Fact]:
        self._story.look(self.cluster.membership.known_nodes(), now)
        return self._facts.find(now)

    def _tell_story(self, what: str, node: Known) -> None:
        """Log ``what`` became of another node."""
        tell = self.log.warning if what == FAILED else self.log.notice
        tell(what, node=node.id.decode("ascii", "replace"), address=node.address)

    def listen(self, listeners: Sequence[socket.socket]) -> Exposure:
        bus = self._bus_listeners = open_bus_listeners(self.config, listeners)
        self._host.listens(listeners)
        self.cluster.listens(listeners, bus)
        self._say_hello(listeners)
        links = self.cluster.links
        figures = self._metrics.listen() if self._metrics else ()
        exposure = Exposure(
            tcp_endpoints(listeners),
            tcp_endpoints(bus),
            self.config,
            self.log,
            figures=figures,
            guarded=lambda: links.guarded,
            users=self.node.users,
        )
        exposure.look_first(self.config.processes, self._worker.number if self._worker else 0)
        return exposure

    async def begin(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.event_log.run, self.engine.when_stirred)
        nursery.start_soon(self.progress_file.run)
        if self._metrics is not None:
            nursery.start_soon(self._metrics.run)
        if self._worker is not None:
            nursery.start_soon(self._watch_supervisor)

    def load(self) -> None:
        self.progress_file.load(self._requeue)
        self.index_file.prepare()

    def loaded(self) -> None:
        self.index_file.loaded()
        self.node.recovery.finish()
        self.node.updates.resume()
        if self._requeue:
            self._reset_once()

    def serve(self, nursery: trio.Nursery) -> None:
        self.event_log.runs(self.engine.clock.now())
        self.progress_file.start()
        self.index_file.started = True
        nursery.start_soon(self.page_files.run, self.engine)
        self.node.queue_pauses.resume()
        # Other nodes wait, too: this one must not answer before it has loaded all jobs.
        nursery.start_soon(self.cluster.run, self.engine)
        nursery.start_soon(self._compare_clocks)
        for file in self._shared_files:
            nursery.start_soon(file.run)
        for listener in self._bus_listeners:
            nursery.start_soon(accept_nodes, listener, self.engine, self.bus)
        if self.siblings is not None:
            over_tls = self._over_tls
            plain = [listener for listener in self.daemon.shared if listener not in over_tls]
            nursery.start_soon(self.siblings.run, plain, over_tls)

    async def _compare_clocks(self) -> None:
        """Ask the other nodes for their time again and again, until cancelled."""
        engine = self.engine
        await trio.sleep(FIRST_CLOCKS_SECONDS)
        while not engine.halted:
            if self.node.peers.reachable and not engine.hold.on:
                self.node.clocks.ask(engine.clock.now())
                engine.after_node()
            await trio.sleep(CLOCKS_SECONDS)

    async def take_leave(self) -> None:
        if self.siblings is not None:
            self.siblings.close()
        farewell = self.node.farewell
        clock = self.engine.clock
        farewell.begin(clock.now())
        self.engine.after_node()
        while True:
            if farewell.is_over(clock.now()):
                self.node.replication.give_up()
                self.engine.after_node()
                return
            await trio.sleep(LOOK_SECONDS)

    async def end(self) -> None:
        self.progress_file.stop(self.daemon.restarting)
        if self.daemon.persistence.complete:
            self.index_file.write(self.daemon.stopped_at or self.node.now)
        await self.event_log.close(restarts=self.daemon.restarting)

    def close(self) -> None:
        self.event_log.abandon()
        self.progress_file.close()
        for file in self._shared_files:
            file.close()
        self.cluster.close()
        if self._metrics is not None:
            self._metrics.close()
        close_listeners(self._bus_listeners)

    def read_certificates(self, settings: TlsSettings) -> Callable[[], None]:
        tls = bus_tls(settings)

        def use() -> None:
            self.cluster.links.tls = tls

        return use

    def apply(self, names: Sequence[str]) -> None:
        config = self.config
        self.node.store.evicts = config.maxmemory_policy == "acks"
        self.node.queues.max_idle = config.queue_max_idle_time * 1000
        self.node.store.outcomes.result_ttl = config.result_ttl
        self.node.replicas.default_copies = config.default_replicate
        if self.node.notes.counts is not None:
            self.node.notes.counts.limit(config.metrics_max_queues)
        self.cluster.apply()
        if "dir" in names:
            os.chdir(config.dir)
            self.cluster.move()
            for file in self._shared_files:
                file.move()
        self.event_log.apply(self._event_log_settings())
        self.page_files.apply()
        if "appendonly" in names or "appendfsync" in names:
            self.progress_file.apply()

    def reload(self) -> None:
        load = self._load
        if load is None or not self.config.file:
            load = lambda: self.config  # noqa: E731 - only certificates can be read again
        self.notifier.reloading()
        fresh = reload(load, self.config, self._host.config_set, self.log, self.daemon)
        if fresh is not None:
            reload_users(self._host, fresh, self.log)
        self.notifier.reloaded()

    # ---- the rest ---------------------------------------------------------------------------

    async def _watch_supervisor(self) -> None:
        """Stop when the supervisor, which holds the other end of standard input, is gone."""
        await trio.lowlevel.wait_readable(0)
        self.daemon.stop("the supervisor is gone")

    def _reset_once(self) -> None:
        """Reset the setting that restored the queues, so that the next start does not do it
        again."""
        config = self.config
        was_set = config.aof_enqueue_jobs_once
        config.aof_enqueue_jobs_once = False
        if not config.appendonly:
            self.daemon.persistence.file.set_aside()
        if was_set and config.file:
            try:
                self._host.write_settings()
            except (ConfigError, OSError) as problem:
                self.log.warning(
                    "aof-enqueue-jobs-once could not be reset in the file: do it by hand",
                    reason=str(problem),
                )

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
            dir=os.getcwd(),
            config=config.file or "defaults",
        )
        say_where(
            listeners, config, log, "disque {where}  (or: redis-cli {where})", self.node.users
        )
        if config.appendonly:
            log.notice(
                "AOF on: jobs are kept on disk",
                file=config.appendfilename,
                fsync=config.appendfsync,
            )
        else:
            log.notice("AOF off: jobs live in memory only, a restart loses them")


def _with_members(own: str, membership: Membership) -> list[str]:
    """The ids of all nodes of the cluster of the node ``own``."""
    return sorted([own, *(id.decode() for id in membership.everyone())])


def _rename(
    commands: dict[bytes, Command[Node]], renamed: dict[str, str]
) -> dict[bytes, Command[Node]]:
    """Apply ``rename-command`` to the table; an empty new name removes the command.

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
