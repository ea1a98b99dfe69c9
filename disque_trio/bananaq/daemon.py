"""A running bananaq: puts the parts together, supervises their tasks, starts and stops them.

Owns nothing that the node of Disque has as well: the engine, timers, listeners, the append-only
file, the log and systemd are the node's parts around another state machine.
"""

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from disque_trio.bananaq.check import EventSurvey
from disque_trio.bananaq.commands.table import build_table
from disque_trio.bananaq.core.broker import Broker
from disque_trio.bananaq.core.embedded import EmbeddedStore
from disque_trio.bananaq.core.store import Store
from disque_trio.bananaq.options import rewrite
from disque_trio.bananaq.settings import BananaSettings
from disque_trio.config import ConfigError
from disque_trio.server.clock import Clock
from disque_trio.server.engine import Engine
from disque_trio.server.host import ProcessHost
from disque_trio.server.links import NoLinks
from disque_trio.server.listeners import (
    accept_clients,
    close_listeners,
    open_listeners,
    say_where,
    tcp_endpoints,
)
from disque_trio.server.logs import Log, Logging
from disque_trio.server.loop import flush_all, serve
from disque_trio.server.persistence import LoadError, Persistence
from disque_trio.server.process import pidfile
from disque_trio.server.reload import take_over
from disque_trio.server.stats import Stats
from disque_trio.server.systemd import Notifier, feed_watchdog, report
from disque_trio.server.timers import RequeueTimer, collect_garbage, run_cron
from disque_trio.version import VERSION

FLUSH_SECONDS = 2  # for replies that are not sent when the daemon stops


class StartError(Exception):
    """The daemon cannot start, or not go on."""


class _RemoteStore(Store, Protocol):
    """A store outside of the process."""

    on_answers_end: Callable[[], None]

    async def run_forever(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None: ...


class _FileSettings:
    """What of the settings is about the append-only file. There is none when a Redis keeps the
    events."""

    def __init__(self, settings: BananaSettings) -> None:
        self._settings = settings

    @property
    def appendonly(self) -> bool:
        return self._settings.appendonly and self._settings.store == "embedded"

    @property
    def appendfilename(self) -> str:
        return self._settings.appendfilename

    @property
    def appendfsync(self) -> str:
        return self._settings.appendfsync

    @property
    def aof_load_truncated(self) -> bool:
        return self._settings.aof_load_truncated

    @property
    def auto_aof_rewrite_percentage(self) -> int:
        return self._settings.auto_aof_rewrite_percentage

    @property
    def auto_aof_rewrite_min_size(self) -> int:
        return self._settings.auto_aof_rewrite_min_size


class BananaHost(ProcessHost):
    """What the commands can do beyond the state machine."""

    product = "bananaq"

    def __init__(self, settings: BananaSettings, clock: Clock, stats: Stats) -> None:
        super().__init__(settings, clock, stats, secrets.token_hex(20))
        self._own = settings
        self.port = settings.port

    def write_settings(self) -> None:
        rewrite(self._own)

    def rewrite_aof(self) -> str | None:
        if self._own.store != "embedded":
            return "ERR the events are kept in a Redis"
        return super().rewrite_aof()

    def shutdown(self, rewrite_aof: bool) -> str | None:
        if rewrite_aof and self._own.store != "embedded":
            return "ERR the events are kept in a Redis"
        return super().shutdown(rewrite_aof)


class Daemon:
    """One bananaq in this process.

    Args:
        settings: CONFIG SET changes them.
        logging: where the log goes.
        notifier: tells systemd how the daemon is.
        activated: listening sockets that somebody else opened.
        load: reads the settings again, for a reload; None: they cannot be had twice.

    Raises:
        StartError: the store cannot be used (from ``run``).
        ListenError: a socket cannot be listened on (from ``run``).
    """

    def __init__(
        self,
        settings: BananaSettings,
        logging: Logging,
        notifier: Notifier | None = None,
        activated: Sequence[socket.socket] = (),
        load: Callable[[], BananaSettings] | None = None,
    ) -> None:
        self.settings = settings
        self.notifier = notifier or Notifier()
        self.log: Log = logging.log
        self._logging = logging
        self._activated = activated
        self._load = load
        clock = Clock()
        stats = Stats()
        self._host = BananaHost(settings, clock, stats)
        self._remote: _RemoteStore | None = None
        embedded: EmbeddedStore | None = None
        store: Store
        if settings.store == "embedded":
            store = embedded = EmbeddedStore()
        else:
            store = self._remote = _redis_store(settings)
        self.broker = Broker(
            store, embedded, build_table(settings.okq_compat), self._host, time.perf_counter_ns
        )
        self.engine = Engine(self.broker, NoLinks(), settings, clock, stats, self.log)
        self._host.engine = self.engine
        self.persistence = Persistence(
            self.broker,
            _FileSettings(settings),
            self.log,
            survey=EventSurvey,
            checker="bananaq-check-aof",
        )
        self._host.persistence = self.persistence
        self.engine.persist = self.persistence.turn
        self._host.apply = self._apply
        self._host.stop = lambda: self.stop("a client asked for it")
        if self._remote is not None:
            self._remote.on_answers_end = self._answers_end
            self._remote.on_available = self._heard
            self.engine.linger = 0.0
            self.engine.others_wait = 0
        self._stopping = trio.Event()
        self._apply(list(settings.values()))

    async def run(self) -> None:
        """Serve until a signal or SHUTDOWN ends it."""
        listeners: list[socket.socket] = []
        try:
            listeners = open_listeners(self.settings, self.log, list(self._activated))
            self._host.port = next((port for _, port in tcp_endpoints(listeners)), 0)
            self._say_hello(listeners)
            collect_garbage()
            with pidfile(self.settings.pidfile):
                await self._serve(listeners)
            self.log.notice("stopped", events=self.broker.held())
        finally:
            self.engine.close_all()
            close_listeners(listeners, self._activated)

    async def _serve(self, listeners: list[socket.socket]) -> None:
        failure: StartError | None = None
        timer = RequeueTimer(self.engine)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, self.engine)
            nursery.start_soon(timer.run)
            nursery.start_soon(run_cron, self.engine)
            if self._remote is not None:
                await nursery.start(self._remote.run_forever)
            for listener in listeners:
                nursery.start_soon(accept_clients, listener, self.engine)
            await nursery.start(self._watch_signals)
            if self.notifier.watchdog:
                nursery.start_soon(feed_watchdog, self.notifier, self.engine)
            try:
                await self._restore()
            except (LoadError, OSError) as problem:
                failure = StartError(str(problem))  # out of the nursery it would come as a group
            else:
                if not self._stopping.is_set():
                    nursery.start_soon(self.persistence.run)
                    self.notifier.ready()
                    if self.notifier.enabled:
                        nursery.start_soon(report, self.notifier, self.engine)
                    await self._stopping.wait()
                    await flush_all(self.engine, FLUSH_SECONDS)
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        self.persistence.close()

    async def _restore(self) -> None:
        """Load the append-only file, if there is to be one. Clients get -LOADING meanwhile."""
        if not (self.settings.appendonly and self.settings.store == "embedded"):
            return
        self.broker.now = self.engine.clock.now()
        events = await self.persistence.load(False, self.notifier, self._stopping.is_set)
        if self._stopping.is_set():
            return
        self.log.notice("loaded", file=self.persistence.path, events=events)
        self.persistence.open()

    async def _watch_signals(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP:
                    self._reload()
                    continue
                if self._stopping.is_set():
                    self.log.warning("a second signal, no waiting", signal=number)
                    os._exit(1)
                self.stop(signal.Signals(number).name)

    def stop(self, reason: str) -> None:
        """End ``run`` in good order; ``reason`` is for the log."""
        self.log.notice("stopping", reason=reason)
        self.notifier.stopping()
        self._stopping.set()

    def _reload(self) -> None:
        """Let what file, environment and command line say hold from now on, as far as it can be
        SET."""
        if self._load is None:
            return
        self.notifier.reloading()
        try:
            fresh = self._load()
        except ConfigError as problem:
            self.log.warning("not reloaded, the configuration is wrong", reason=str(problem))
        else:
            if take_over(fresh, self.settings, self._host.config_set, self.log):
                self.settings.below = fresh.below
        self.notifier.reloaded()

    def _heard(self, queue: bytes, group: bytes | None) -> None:
        """The store heard of something outside of a turn: let those who wait have it soon."""
        self.broker.available(queue, group)
        trio.lowlevel.current_trio_token().run_sync_soon(self._answers_end, idempotent=True)

    def _answers_end(self) -> None:
        self.broker.answers_ended(self.engine.clock.now())
        self.engine.after_node()

    def _apply(self, names: list[str]) -> None:
        """Make changed settings take effect where they are not read when they matter."""
        settings = self.settings
        broker = self.broker
        self.engine.apply(names)
        broker.okq = settings.okq_compat
        broker.okq_group = settings.okq_group.encode("utf-8", "surrogateescape")
        broker.okq_expire = settings.okq_expire * 1_000_000
        broker.background_limit = settings.bg_qadd_pool_size * 10
        self._logging.set_level(settings.loglevel)
        self.persistence.apply()

    def _say_hello(self, listeners: Sequence[socket.socket]) -> None:
        settings = self.settings
        log = self.log
        for warning in settings.warnings:
            log.warning(warning)
        log.notice(
            "bananaq starts",
            version=VERSION,
            store=settings.store,
            dir=os.getcwd(),  # noqa: PTH109
            config=settings.file or "defaults",
        )
        say_where(listeners, settings, log, "redis-cli {where}")
        if settings.store == "embedded" and not settings.appendonly:
            log.notice("AOF off: events live in memory only, a restart loses them")


def _redis_store(settings: BananaSettings) -> _RemoteStore:
    try:
        from disque_trio.bananaq.redis_store import RedisStore
    except ImportError as problem:
        raise StartError(
            "store redis needs more than is installed: pip install disque-trio[redis]"
        ) from problem
    first, *others = settings.redis_addr
    return RedisStore(
        first.host,
        first.port,
        others=[(other.host, other.port) for other in others],
        cluster=settings.redis_cluster,
        db=settings.redis_db,
        password=settings.redis_password or None,
        prefix=settings.redis_prefix,
        pool_size=settings.redis_pool_size,
    )
