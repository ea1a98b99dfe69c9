"""A running bananaq: assembles its parts, and adds the event store to the generic daemon."""

import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from disque_bananaq.check import EventScanner
from disque_bananaq.commands.table import build_table
from disque_bananaq.core.broker import Broker
from disque_bananaq.core.embedded import EmbeddedStore
from disque_bananaq.core.store import Store
from disque_bananaq.metrics import EventFigures, RedisFigures
from disque_bananaq.settings import BananaSettings
from disque_trio.aof.disk import TimedDisk
from disque_trio.aof.persistence import Persistence
from disque_trio.metrics.sheet import Source
from disque_trio.process.clock import Clock
from disque_trio.process.logs import Log, Logging
from disque_trio.process.systemd import Notifier
from disque_trio.respserver.commands.info import Fields
from disque_trio.respserver.daemon import Daemon, Inherited, Product, StartError
from disque_trio.respserver.exposure import Exposure
from disque_trio.respserver.io.engine import LINGER, OTHERS_WAIT, Engine
from disque_trio.respserver.io.links import Links
from disque_trio.respserver.io.listeners import say_where, tcp_endpoints
from disque_trio.respserver.io.measured import MeasuredEngine
from disque_trio.respserver.io.metrics import Metrics
from disque_trio.respserver.io.stats import Stats
from disque_trio.respserver.io.tasks import RequeueTimer
from disque_trio.respserver.process_host import ProcessHost, Program, reload_users
from disque_trio.respserver.reload import reload
from disque_trio.respserver.user_file import UserFileError
from disque_trio.version import VERSION

if TYPE_CHECKING:
    from disque_bananaq.redis_store.store import RedisStore


class BananaHost(ProcessHost):
    """Gives the commands of bananaq access to its process."""

    def __init__(
        self, program: Program, settings: BananaSettings, remote: "RedisStore | None"
    ) -> None:
        super().__init__(
            program, settings, secrets.token_hex(20), settings.port or settings.tls_port, "bananaq"
        )
        self._own = settings
        self._remote = remote

    def info(self) -> dict[str, Fields]:
        sections = super().info()
        if self._remote is not None:
            sections["redis"] = self._remote.info()
        return sections

    def rewrite_aof(self) -> str | None:
        if self._own.store != "embedded":
            return "ERR the events are kept in a Redis"
        return super().rewrite_aof()

    def shutdown(self, rewrite_aof: bool) -> str | None:
        if rewrite_aof and self._own.store != "embedded":
            return "ERR the events are kept in a Redis"
        return super().shutdown(rewrite_aof)


class Server(Product):
    """The bananaq that runs in this process.

    Args:
        settings: the settings, which CONFIG SET changes.
        logging: where the log goes.
        notifier: tells systemd about the state of the daemon.
        activated: listening sockets opened by somebody else, such as systemd.
        load: reads the settings again, for a reload; None: they cannot be read again.

    Raises:
        StartError: the users are not valid, or the store cannot be used (from ``run``).
        ListenError: it cannot listen on a socket (from ``run``).
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
        self._load = load
        self._metrics = Metrics.of(settings, self.log)
        self._remote: RedisStore | None = None
        figures: Source
        store: Store
        if settings.store == "embedded":
            store = embedded = EmbeddedStore()
            figures = EventFigures(embedded, lambda: settings.metrics_max_queues)
        else:
            store = self._remote = _redis_store(settings, self.log, self._take_answers)
            figures = RedisFigures(self._remote)
        self._host = BananaHost(self, settings, self._remote)
        self.broker = Broker(
            store, build_table(settings.okq_compat), self._host, time.perf_counter_ns
        )
        disk = TimedDisk() if self._metrics else None
        persistence = Persistence(
            self.broker,
            settings,
            self.log,
            disk,
            scanner=EventScanner,
            checker="bananaq-check-aof",
            allowed=self._remote is None,
        )
        clock = Clock()
        timer = RequeueTimer(clock)
        engine_class = MeasuredEngine if self._metrics else Engine
        engine = engine_class(
            self.broker,
            Links(),
            settings,
            clock,
            Stats(),
            self.log,
            persistence,
            on_wake=timer.wake_at,
            # Tasks that talk to a Redis get their turns at once.
            linger=LINGER if self._remote is None else 0.0,
            others_wait=OTHERS_WAIT if self._remote is None else 0,
        )
        if self._metrics is not None and disk is not None:
            self._metrics.measure(
                "bananaq", engine, persistence, disk, [], self._watched, [figures]
            )
        self.daemon = Daemon(
            self,
            engine,
            timer,
            persistence,
            settings,
            logging,
            self.notifier,
            Inherited(activated),
            settings.pidfile,
        )
        self.daemon.apply(list(settings.values()))
        try:
            self._host.read_users()
        except UserFileError as problem:
            raise StartError(str(problem)) from problem

    def _watched(self) -> Daemon:
        """Return what knows how it is; before it runs, there is none."""
        return self.daemon

    # ---- what the daemon asks for -----------------------------------------------------------

    def listen(self, listeners: Sequence[socket.socket]) -> Exposure:
        places = tcp_endpoints(listeners)
        self._host.listens(listeners)
        self._say_hello(listeners)
        holds = self.broker.holds
        figures = self._metrics.listen() if self._metrics else ()
        exposure = Exposure(
            places,
            (),
            self.settings,
            self.log,
            figures=figures,
            holds=holds,
            setting="listen-addr",
            users=self.broker.users,
        )
        exposure.look_first()
        return exposure

    async def begin(self, nursery: trio.Nursery) -> None:
        if self._remote is not None:
            await nursery.start(self._remote.run_forever)
        if self._metrics is not None:
            nursery.start_soon(self._metrics.run)

    def close(self) -> None:
        if self._metrics is not None:
            self._metrics.close()

    def apply(self, names: Sequence[str]) -> None:
        settings = self.settings
        broker = self.broker
        broker.okq = settings.okq_compat
        broker.okq_group = settings.okq_group.encode("utf-8", "surrogateescape")
        broker.okq_expire = settings.okq_expire * 1_000_000
        broker.background_limit = settings.bg_qadd_pool_size * 10

    def reload(self) -> None:
        if self._load is None:
            return
        self.notifier.reloading()
        fresh = reload(self._load, self.settings, self._host.config_set, self.log, self.daemon)
        if fresh is not None:
            self.settings.below = fresh.below
            reload_users(self._host, fresh, self.log)
        self.notifier.reloaded()

    # ---- the rest ---------------------------------------------------------------------------

    def _take_answers(self) -> None:
        """Handle the results of the store in a Redis."""
        engine = self.daemon.engine
        self.broker.take_answers(engine.clock.now())
        engine.after_node()

    def _say_hello(self, listeners: Sequence[socket.socket]) -> None:
        settings = self.settings
        log = self.log
        for warning in settings.warnings:
            log.warning(warning)
        log.notice(
            "bananaq starts",
            version=VERSION,
            store=settings.store,
            dir=os.getcwd(),
            config=settings.file or "defaults",
        )
        say_where(listeners, settings, log, "redis-cli {where}", self.broker.users)
        if settings.store == "embedded" and not settings.appendonly:
            log.notice("AOF off: events live in memory only, a restart loses them")


def _redis_store(settings: BananaSettings, log: Log, on_news: Callable[[], None]) -> "RedisStore":
    # Imported here, since daemons with an embedded store do not need it and start sooner.
    from disque_bananaq.redis_store.health import Notice
    from disque_bananaq.redis_store.store import RedisStore
    from disque_trio.redis.servers import Options
    from disque_trio.respclient.tls import Encryption, Tls

    def tell(lines: list[Notice]) -> None:
        for line in lines:
            (log.warning if line.urgent else log.notice)(line.event, **line.fields)

    tls = Tls(
        ca_file=settings.redis_tls_ca_cert_file or None,
        cert_file=settings.redis_tls_cert_file or None,
        key_file=settings.redis_tls_key_file or None,
        check_hostname=settings.redis_tls_check_hostname,
    )
    if settings.redis_tls:
        try:
            Encryption.of(tls)
        except ValueError as error:
            raise StartError(f"redis-tls: {error}") from error
    first, *others = settings.redis_addr
    return RedisStore(
        first.host,
        first.port,
        others=[(other.host, other.port) for other in others],
        cluster=settings.redis_cluster,
        db=settings.redis_db,
        username=settings.redis_username or None,
        password=settings.redis_password or None,
        tls=tls if settings.redis_tls else None,
        service=settings.redis_service,
        sentinels=Options(
            username=settings.redis_sentinel_username or None,
            password=settings.redis_sentinel_password or None,
            tls=tls if settings.redis_tls else None,
        ),
        prefix=settings.redis_prefix,
        pool_size=settings.redis_pool_size,
        reply_seconds=settings.redis_timeout,
        tell=tell,
        on_news=on_news,
    )
