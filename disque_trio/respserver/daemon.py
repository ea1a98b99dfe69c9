"""A running daemon: supervises the tasks of a RESP server, starts and stops them.

The nursery contains the engine (client turns), the requeue timer, the regular work, one task for
each listening socket, the signals, the append-only file, and what the product adds. If one of them
fails, the daemon ends with its error, rather than go on without, say, its timers; whatever
supervises the process starts it again.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import trio

from disque_trio.aof.loading import LoadError
from disque_trio.aof.persistence import Persistence
from disque_trio.health.keeper import Fact
from disque_trio.process.logs import Log, Logging
from disque_trio.process.process import pidfile
from disque_trio.process.systemd import Notifier
from disque_trio.process.tls import TlsError, TlsSettings, dates_of, for_clients
from disque_trio.respserver.exposure import Exposure
from disque_trio.respserver.health import Certificate, CommonFacts, Health
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.links import Limits
from disque_trio.respserver.io.listeners import (
    Places,
    accept_clients,
    close_listeners,
    open_listeners,
)
from disque_trio.respserver.io.tasks import (
    RequeueTimer,
    collect_garbage,
    feed_watchdog,
    flush_all,
    report,
    run_cron,
    serve_ahead,
)

BUSY_SECONDS = 5  # for groups and large writes of clients when the daemon is about to stop
FLUSH_SECONDS = 2  # for unsent replies when the daemon stops


class StartError(Exception):
    """The daemon cannot start, or cannot continue; the text says why."""


class DaemonSettings(Limits, Places, TlsSettings, Protocol):
    """The settings that the daemon uses."""

    @property
    def loglevel(self) -> str: ...


class Product:
    """Interface of the server that a daemon runs, a Disque node or bananaq. The daemon calls its
    methods in this order; those that the product does not override do nothing."""

    def listen(self, listeners: Sequence[socket.socket]) -> Exposure:
        """Open the sockets that the product adds, after those for clients, and log that it listens.
        Returns the doors that are open to strangers. Raises ``ListenError``."""
        raise NotImplementedError

    async def begin(self, nursery: trio.Nursery) -> None:
        """Start the tasks that run before clients are admitted."""

    def load(self) -> None:
        """Called before the append-only file is loaded."""

    def loaded(self) -> None:
        """Called after the append-only file is loaded, before anything is appended to it."""

    def serve(self, nursery: trio.Nursery) -> None:
        """Start the tasks that need the loaded data."""

    async def take_leave(self) -> None:
        """Called when the daemon is about to stop, while it still serves: tell whoever has to know,
        and wait for what they still have for it."""

    async def end(self) -> None:
        """Called when the daemon has stopped cleanly."""

    def close(self) -> None:
        """Release everything, however the daemon ended."""

    def read_certificates(self, settings: TlsSettings) -> Callable[[], None]:
        """Read the certificates in ``settings`` that are not for clients; return a function that
        starts to use them. Raises ``TlsError``."""
        return lambda: None

    def facts(self, now: int) -> Iterator[Fact]:
        """What is wrong at ``now`` (ms) that not any server can have."""
        return iter(())

    def apply(self, names: Sequence[str]) -> None:
        """Apply the settings ``names``, which have changed."""

    def reload(self) -> None:
        """Handle SIGHUP: apply the current configuration, as far as it can be SET."""


class Inherited(NamedTuple):
    """What a process gets from the one that started it, or that it replaces.

    Attributes:
        activated: listening sockets that somebody else opened.
        own: other listening sockets that the process was given.
        requeue: load the file whether it is on or not, and put jobs back into their queues.
        written_at: when the file was written, if nothing has happened since, in ms; 0: something
            may have.
        shared: listening sockets at which other processes accept clients as well, and the product
            does so itself; some of them may be among the ``activated``.
    """

    activated: Sequence[socket.socket] = ()
    own: Sequence[socket.socket] = ()
    requeue: bool = False
    written_at: int = 0
    shared: Sequence[socket.socket] = ()


class Daemon:
    """Runs a RESP server from start to stop.

    Args:
        product: what differs between daemons.
        engine, timer, persistence: serve clients, call the machine, keep its records.
        settings: those of ``engine``.
        logging: the log.
        notifier: tells systemd the state of the daemon.
        inherited: what the process was given.
        pidfile: contains the id of the process while it serves; empty: there is none.

    Attributes:
        engine, persistence: as given.
        health: what is wrong.
        activated: the listening sockets that somebody else opened. shared: see ``Inherited``.
        own: the listening sockets that nobody else opened, once it runs.
        restarting: the process will be replaced after ``run``; the sockets stay open.
        stopped_at: when the restart began, in ms of the machine's time.

    Raises:
        StartError: the certificates cannot be used, or the file cannot be loaded (from ``run``).
        ListenError: a socket cannot be listened on (from ``run``).
    """

    def __init__(
        self,
        product: Product,
        engine: Engine,
        timer: RequeueTimer,
        persistence: Persistence,
        settings: DaemonSettings,
        logging: Logging,
        notifier: Notifier,
        inherited: Inherited,
        pidfile: str = "",
    ) -> None:
        self.engine = engine
        self.persistence = persistence
        self.activated = inherited.activated
        self.own = inherited.own
        self.shared = inherited.shared
        self.restarting = False
        self.stopped_at = 0
        self._product = product
        self._timer = timer
        self._settings = settings
        self._logging = logging
        self._log: Log = logging.log
        self._notifier = notifier
        self._pidfile = pidfile
        self._requeue = inherited.requeue
        self._written_at = inherited.written_at
        self._exposure: Exposure | None = None  # once they are open
        self._stopping = trio.Event()
        self._facts = CommonFacts(engine, persistence)
        self.health = Health(self._log, self._look_around)
        try:
            self.read_certificates(settings)()
        except TlsError as problem:
            raise StartError(f"Failed to configure TLS: {problem}") from problem

    @property
    def certificate(self) -> Certificate | None:
        """The certificate in use; None: none is."""
        return self._facts.certificate

    def _look_around(self, now: int) -> Iterator[Fact]:
        """What is wrong at ``now`` (ms)."""
        slow = self._facts.is_slow()
        if slow != self.engine.node.slow_disk:
            self.engine.node.set_slow_disk(slow)
        yield from self._facts.find(now)
        if self._exposure is not None:
            for door, text in self._exposure.doors():
                yield Fact("open-door", text, door)
        yield from self._product.facts(now)

    async def run(self) -> None:
        """Serve until a signal, ``stop`` or ``restart``."""
        listeners: list[socket.socket] = []
        machine = self.engine.node
        try:
            listeners = open_listeners(self._settings, self._log, [*self.activated, *self.own])
            self.own = listeners[len(self.activated) :]
            self._exposure = self._product.listen(listeners)
            collect_garbage()
            with pidfile(self._pidfile):
                await self._serve(listeners)
            self.health.deeds.end()
            self._log.notice("stopped", **{machine.holds: machine.held()})
        except BaseException:
            self.restarting = False
            raise
        finally:
            self.engine.close_all()
            self._product.close()
            if not self.restarting:
                close_listeners(listeners, self.activated)

    async def _serve(self, listeners: list[socket.socket]) -> None:
        """Run all tasks until the daemon has to stop. Raises ``StartError``."""
        engine = self.engine
        persistence = self.persistence
        notifier = self._notifier
        failure: StartError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_ahead, engine)
            nursery.start_soon(self._timer.run, engine)
            nursery.start_soon(run_cron, engine)
            nursery.start_soon(self.health.run, engine)
            await self._product.begin(nursery)
            for listener in listeners:
                if listener not in self.shared:
                    nursery.start_soon(accept_clients, listener, engine)
            await nursery.start(self._watch_signals)
            if notifier.watchdog:
                nursery.start_soon(feed_watchdog, notifier, engine)
            try:
                await self._restore()
            except (LoadError, OSError) as problem:
                # Raised inside the nursery, it would arrive in an exception group.
                failure = StartError(str(problem))
            else:
                # If it was stopped while loading, it must not do anything with partly loaded data.
                if not self._stopping.is_set():
                    nursery.start_soon(persistence.run, engine)
                    self._product.serve(nursery)
                    notifier.ready()
                    if notifier.enabled:
                        nursery.start_soon(report, notifier, engine)
                    await self._stopping.wait()
                    await self._be_free()
                    await self._product.take_leave()
                    # Half a group must not be written, nor packets be dropped that wait for its
                    # end, or that of a large write.
                    engine.halt()
                    await persistence.file.until_stored()
                    await flush_all(engine, FLUSH_SECONDS)
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        persistence.close()
        await self._product.end()

    async def _be_free(self) -> None:
        """Wait until nothing holds back packets for other nodes: no group, and no large write. If
        clients keep the daemon busy with these, serve them no more."""
        file = self.persistence.file
        with trio.move_on_after(BUSY_SECONDS) as scope:
            await file.until_stored()
        if scope.cancelled_caught:
            self.engine.halt()
            await file.until_stored()

    async def _restore(self) -> None:
        """Load the append-only file, if there should be one. Clients get -LOADING meanwhile."""
        persistence = self.persistence
        if not (persistence.file.wanted or self._requeue):
            return
        machine = self.engine.node
        # The time when the jobs were written: a job whose delay ended since then was not delivered.
        machine.now = self._written_at or self.engine.clock.now()
        self._product.load()
        held = await persistence.loading.load(self._requeue, self._notifier, self._stopping.is_set)
        if self._stopping.is_set():
            return
        self._log.notice("loaded", file=persistence.file.path, **{machine.holds: held})
        self._product.loaded()
        if persistence.file.wanted:
            persistence.file.open()

    async def _watch_signals(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP:
                    self._logging.reopen()
                    self._product.reload()
                    continue
                if self._stopping.is_set() and not self.restarting:
                    self._log.warning("a second signal, no waiting", signal=number)
                    os._exit(1)
                self.stop(signal.Signals(number).name)

    def stop(self, reason: str) -> None:
        """Make ``run`` stop cleanly; ``reason`` is for the log."""
        self._log.notice("stopping", reason=reason)
        self.restarting = False
        self._notifier.stopping()
        self._stopping.set()

    def restart(self) -> None:
        """Make ``run`` end so that a new process can replace this one."""
        self._log.notice("restarting", reason="a client asked for it")
        self.restarting = True
        self.stopped_at = self.engine.node.now
        self._notifier.reloading()
        self._stopping.set()

    def read_certificates(self, settings: TlsSettings) -> Callable[[], None]:
        """Read the certificates in ``settings``, for clients and for other uses of the product.
        Returns a function that starts to use all of them for new connections; until then, nothing
        changes.

        Raises:
            TlsError: a certificate is missing or unusable.
        """
        context = for_clients(settings)
        use_others = self._product.read_certificates(settings)
        file = settings.tls_cert_file if context is not None or settings.tls_cluster else ""

        def use() -> None:
            self.engine.clients.handshakes.context = context
            use_others()
            dates = dates_of(file) if file else None
            self._facts.certificate = Certificate(file, *dates) if dates else None

        return use

    def apply(self, names: Sequence[str]) -> None:
        """Make changes of the settings ``names`` take effect, except those that are read when they
        are needed."""
        self.engine.apply(names)
        self._logging.set_level(self._settings.loglevel)
        self.persistence.rewriting.apply()
        self._product.apply(names)
        self.look()

    def look(self) -> None:
        """Warn of doors that are open to strangers now."""
        if self._exposure is not None:
            self._exposure.look()
