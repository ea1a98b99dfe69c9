"""The figures of any server for Prometheus, and the port that serves them."""

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import trio

from disque_trio.aof.disk import TimedDisk
from disque_trio.aof.persistence import Persistence
from disque_trio.form import form
from disque_trio.health.keeper import Alarm
from disque_trio.health.table import CONDITIONS, NODE
from disque_trio.metrics.labels import label_value
from disque_trio.metrics.sheet import Sheet, Source, pairs
from disque_trio.metrics.web import Page, Web
from disque_trio.process.logs import Log
from disque_trio.respserver.daemon import StartError
from disque_trio.respserver.health import Certificate, Health
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.listeners import ListenError, listen_tcp, tcp_endpoints
from disque_trio.version import VERSION

_LAG_PERIOD = 0.5  # s
_BACKLOG = 128


class MetricsSettings(Protocol):
    """The settings that say where to read figures."""

    metrics_port: int
    metrics_bind: tuple[str, ...]
    metrics_max_queues: int


class Watched(Protocol):
    """Interface to what knows how a server is.

    Attributes:
        health: what is wrong. certificate: the one in use; None: none is.
    """

    @property
    def health(self) -> Health: ...

    @property
    def certificate(self) -> Certificate | None: ...


class MetricsPlace:
    """Which process of its server this is.

    Args:
        number: from 0. count: how many there are.
        server: a name that only they know.
    """

    def __init__(self, number: int, count: int, server: str) -> None:
        self.number = number
        self.count = count
        self._server = server

    def name(self, number: int) -> bytes:
        """The abstract name of the socket at which process ``number`` tells the others its
        figures."""
        return f"\0disque-{self._server}-{number}-metrics".encode()


class Metrics:
    """The figures of a process, and the port that serves them.

    Args:
        settings: ``metrics_port`` must not be 0.

    Attributes:
        port: where to listen, unless that is done already.

    Raises:
        StartError: the extra is not installed.
    """

    def __init__(self, settings: MetricsSettings, log: Log) -> None:
        try:
            # Not installed with the server, and nobody else has to wait for the import.
            import disque_trio.metrics.scrapes  # noqa: F401
        except ModuleNotFoundError as missing:
            from disque_trio.extras import how_to_install

            raise StartError(
                "metrics-port needs prometheus-client, which is not installed: "
                f"{how_to_install('metrics')}"
            ) from missing
        self.port = settings.metrics_port
        self._settings = settings
        self._log = log
        self._listeners: list[socket.socket] = []
        self._beside: list[socket.socket] = []  # at which the other processes ask
        self._place: MetricsPlace | None = None
        self._prefix = ""
        self._sources: list[Source] = []
        self._slow: Sequence[Source] = ()
        self._engine: Engine | None = None

    @staticmethod
    def of(settings: MetricsSettings, log: Log) -> "Metrics | None":
        """The metrics that ``settings`` ask for; None: they ask for none. Raises ``StartError``."""
        return Metrics(settings, log) if settings.metrics_port else None

    def measure(
        self,
        prefix: str,
        engine: Engine,
        persistence: Persistence,
        disk: TimedDisk,
        figures: Sequence[Source],
        watched: Callable[[], Watched],
        slow: Sequence[Source],
    ) -> None:
        """Measure ``engine``; the names of its figures begin with ``prefix``. ``figures``: those
        that not all servers have. ``watched``: returns what knows how the server is. ``slow``:
        figures that may take long."""
        engine.node.durations.count()
        self._engine = engine
        self._prefix = prefix
        self._slow = slow
        health = AlarmFigures(prefix, watched)
        self._sources = [health, ServerFigures(prefix, engine, persistence, disk), *figures]

    def share(self, listeners: Sequence[socket.socket], place: "MetricsPlace") -> None:
        """Answer at ``listeners``, as the other processes of the server do, for all of them."""
        # A process that replaces this one needs the sockets, after these are closed.
        self._listeners = [listener.dup() for listener in listeners]
        self._place = place

    def listen(self) -> list[tuple[str, int]]:
        """Listen, unless it is done already; returns addresses and ports. Raises
        ``ListenError``."""
        if not self._listeners:
            self._listeners = open_metrics(self._settings, self.port, self._log)
        if self._place is not None:
            self._beside = _listen_beside(self._place.name(self._place.number))
        places = tcp_endpoints(self._listeners)
        for address, port in places:
            self._log.notice("ready to be scraped", bind=address, port=port, path="/metrics")
        return places

    async def run(self) -> None:
        """Answer scrapes until cancelled."""
        from disque_trio.metrics.gathering import Gathering, label
        from disque_trio.metrics.scrapes import Scrapes

        assert self._engine is not None
        place = self._place
        common = label(place.number) if place is not None else ""
        engine = self._engine
        scrapes = own = Scrapes(
            self._prefix,
            self._sources,
            common,
            self._slow,
            lambda: not engine.node.loading,
            self._failed,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_measure_lag, engine)
            nursery.start_soon(own.keep)
            if place is not None:
                others = {n: place.name(n) for n in range(place.count) if n != place.number}
                scrapes = Gathering(self._prefix, own, place.number, others)
                beside = Web({"/": own.raw_page}, self._failed)
                nursery.start_soon(beside.serve, _for_trio(self._beside))
            pages: dict[str, Page] = {"/metrics": scrapes.page}
            await Web(pages, self._failed).serve(_for_trio(self._listeners))

    def _failed(self, error: Exception) -> None:
        self._log.warning("a scrape failed", exc_info=error)

    def close(self) -> None:
        """Stop listening."""
        for listener in (*self._listeners, *self._beside):
            listener.close()
        self._listeners.clear()
        self._beside.clear()


def open_metrics(settings: MetricsSettings, port: int, log: Log) -> list[socket.socket]:
    """Listen for scrapes at ``port``. Raises ``ListenError``."""
    listeners: list[socket.socket] = []
    try:
        for address in settings.metrics_bind or ("::", "0.0.0.0"):
            listener = listen_tcp(address, port, _BACKLOG)
            if listener is not None:
                listeners.append(listener)
            else:
                log.warning("this machine has no IPv6, not listening on it", address=address)
        if not listeners:
            raise ListenError(f"port {port}: there is no such network")
    except ListenError as problem:
        for listener in listeners:
            listener.close()
        raise ListenError(f"metrics-port: {problem}") from problem
    return listeners


def _listen_beside(name: bytes) -> list[socket.socket]:
    """Listen for the other processes at the abstract ``name``. Raises ``ListenError``."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(name)
        sock.listen(_BACKLOG)
    except OSError as problem:
        sock.close()
        raise ListenError(f"metrics-port: for the other processes: {problem}") from problem
    return [sock]


def _for_trio(listeners: Sequence[socket.socket]) -> list[trio.SocketListener]:
    return [trio.SocketListener(trio.socket.from_stdlib_socket(own)) for own in listeners]


async def _measure_lag(engine: Engine) -> None:
    """Record in ``stats.lags`` how late a timer is, until cancelled."""
    while True:
        due = trio.current_time() + _LAG_PERIOD
        await trio.sleep_until(due)
        engine.stats.lags.observe(max(round((trio.current_time() - due) * 1e9), 0))


class AlarmFigures:
    """What is wrong with a server.

    Args:
        prefix: of the names of the figures.
        watched: returns what knows how the server is.
    """

    def __init__(self, prefix: str, watched: Callable[[], Watched]) -> None:
        self._prefix = prefix
        self._watched = watched

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write the figures to ``sheet``."""
        prefix, watched = self._prefix, self._watched()
        found: dict[str, list[Alarm]] = {}
        for alarm in watched.health.alarms():
            found.setdefault(alarm.kind, []).append(alarm)
        holding = sheet.gauge(f"{prefix}_alarm", "Conditions that hold now, by kind.")
        since = sheet.gauge(
            f"{prefix}_alarm_since_timestamp_seconds",
            "When the oldest condition of the kind began; 0 if none holds.",
        )
        for condition in CONDITIONS.values():
            if condition.scope == NODE and prefix in condition.servers:
                labels = pairs({"kind": condition.kind, "severity": condition.severity})
                alarms = found.get(condition.kind, [])
                holding.add(len(alarms), labels)
                since.add(min([alarm.since for alarm in alarms], default=0) / 1000, labels)
        certificate = watched.certificate
        sheet.gauge(
            f"{prefix}_certificate_end_timestamp_seconds",
            "When the certificate in use ends; 0 if there is none.",
            certificate.last if certificate is not None else 0,
        )
        yield


class ServerFigures:
    """The figures that any server has.

    Args:
        prefix: of their names.
        persistence: the append-only file; disk: where it is.
    """

    def __init__(
        self, prefix: str, engine: Engine, persistence: Persistence, disk: TimedDisk
    ) -> None:
        self._prefix = prefix
        self._engine = engine
        self._persistence = persistence
        self._disk = disk

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write the figures to ``sheet``, in short steps."""
        self._state(sheet)
        yield
        self._clients_and_memory(sheet)
        yield
        yield from self._users(sheet)
        yield from self._commands(sheet)
        self._file(sheet)
        yield

    def _state(self, sheet: Sheet) -> None:
        prefix, node = self._prefix, self._engine.node
        sheet.gauge(
            f"{prefix}_up",
            "Whether the server serves clients (1) or is loading its file (0).",
            int(not node.loading),
        )
        build = sheet.gauge(f"{prefix}_build_info", "Version and build of the program; always 1.")
        build.add(1, pairs({"version": VERSION, "form": form()}))
        sheet.gauge(
            f"{prefix}_loading",
            "Whether the server is loading its append-only file (1 for yes).",
            int(node.loading),
        )

    def _clients_and_memory(self, sheet: Sheet) -> None:
        prefix, engine = self._prefix, self._engine
        node, stats = engine.node, engine.stats
        for name, text, value in (
            ("connected_clients", "Connected clients.", len(engine.clients.by_id)),
            ("blocked_clients", "Clients waiting in a blocking command.", node.blocked_clients),
            ("max_clients", "Maximum number of clients.", engine.config.maxclients),
        ):
            sheet.gauge(f"{prefix}_{name}", text, value)
        for name, text, value in (
            ("connections_received", "Connections accepted.", stats.connections),
            ("connections_rejected", "Connections refused.", stats.rejected),
            ("clients_evicted", "Clients dropped to free memory.", stats.evicted_clients),
            ("network_input_bytes", "Bytes received from clients.", stats.input_bytes),
            ("network_output_bytes", "Bytes sent to clients.", stats.output_bytes),
        ):
            sheet.counter(f"{prefix}_{name}_total", text, value)
        memory = node.memory
        held = engine.clients.close_queue.holdings.total
        for name, text, value in (
            ("used_bytes", "Memory in use, as counted against maxmemory.", memory.used),
            ("peak_bytes", "Peak of the memory in use.", memory.note_peak()),
            ("max_bytes", "Value of maxmemory; 0 for no limit.", memory.limit),
            ("level", "Use of maxmemory: 0 below 75%, 1 above that, 2 above 95%.", memory.level()),
            ("clients_bytes", "Memory used by requests and replies of clients.", held),
        ):
            sheet.gauge(f"{prefix}_memory_{name}", text, value)
        sheet.histogram(f"{prefix}_turn_seconds", "Duration of turns of the engine.", stats.turns)
        sheet.histogram(
            f"{prefix}_event_loop_lag_seconds",
            "Delay of a timer that fires twice a second.",
            stats.lags,
        )

    def _users(self, sheet: Sheet) -> Iterator[None]:
        prefix, node = self._prefix, self._engine.node
        used = sheet.gauge(f"{prefix}_user_used", "What users with a budget use of its limits.")
        limits = sheet.gauge(f"{prefix}_user_limit", "The limits in the budgets of users.")
        waits = sheet.counter(
            f"{prefix}_user_waits_total", "Times that connections waited for their user's rate."
        )
        refusals = sheet.counter(
            f"{prefix}_user_refusals_total", "Commands and logins beyond the limits of their user."
        )
        closed = sheet.counter(
            f"{prefix}_user_connections_closed_total",
            "Connections closed because of the replies that waited for their user.",
        )
        for user in node.users.sorted():
            if user.budget is None:
                continue
            name = {"user": label_value(user.name)}
            in_use = node.used_by(user)
            for what, limit in user.budget.limits().items():
                labels = pairs({**name, "limit": what})
                limits.add(limit, labels)
                if what != "rate":
                    used.add(in_use.get(what, 0), labels)
            for family, count in (
                (waits, user.use.waited),
                (refusals, user.use.refused),
                (closed, user.use.closed),
            ):
                family.add(count, pairs(name))
            yield

    def _commands(self, sheet: Sheet) -> Iterator[None]:
        prefix, node = self._prefix, self._engine.node
        calls = sheet.counter(f"{prefix}_commands_total", "Commands executed.")
        time = sheet.counter(
            f"{prefix}_commands_duration_seconds_total", "Total time spent executing commands."
        )
        durations = sheet.histogram(f"{prefix}_command_duration_seconds", "Duration of commands.")
        counted = node.durations.counts or {}
        for command in list(node.commands.values()):
            if not command.calls:
                continue
            labels = pairs({"cmd": command.name})
            calls.add(command.calls, labels)
            time.add(command.nanoseconds / 1e9, labels)
            histogram = counted.get(command.name)
            if histogram is not None:
                durations.add_histogram(histogram, labels)
            yield

    def _file(self, sheet: Sheet) -> None:
        prefix = f"{self._prefix}_aof"
        info = self._persistence.info()
        good = info["aof_last_write_status"] == "ok"
        rewritten = info["aof_last_bgrewrite_status"] == "ok"
        for name, text, value in (
            ("enabled", "Whether there is an append-only file (1 for yes).", info["aof_enabled"]),
            (
                "last_write_ok",
                "Whether the last write to the file succeeded (1 for yes).",
                int(good),
            ),
            ("fsync_behind_seconds", "Age of the current fsync.", self._persistence.behind()),
            ("size_bytes", "Size of the file.", info.get("aof_current_size", 0)),
            (
                "base_size_bytes",
                "Size of the file after its last rewrite.",
                info.get("aof_base_size", 0),
            ),
            (
                "buffer_bytes",
                "Size of the records not yet written to the file.",
                info.get("aof_buffer_length", 0),
            ),
            (
                "checksummed_bytes",
                "Size of the part of the file that has checksums.",
                info.get("aof_checksummed_bytes", 0),
            ),
            (
                "damaged_places",
                "Damaged places found in the file since the start.",
                info["aof_damaged_places"],
            ),
            (
                "rewrite_in_progress",
                "Whether the file is being rewritten (1 for yes).",
                info["aof_rewrite_in_progress"],
            ),
            ("last_rewrite_ok", "Whether the last rewrite succeeded (1 for yes).", int(rewritten)),
        ):
            sheet.gauge(f"{prefix}_{name}", text, float(value))
        slow = float(info.get("aof_delayed_fsync", 0))
        sheet.counter(f"{prefix}_delayed_fsync_total", "Slow fsyncs that delayed replies.", slow)
        sheet.histogram(f"{prefix}_fsync_seconds", "Duration of fsyncs.", self._disk.syncs)
