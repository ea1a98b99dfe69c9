"""Gives commands access to the process: clients, settings, INFO, shutdown."""

import os
import platform
import resource
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from disque_trio.config import ConfigError, Settings, rewrite
from disque_trio.health.lines import SECTION, AlarmLine, fields_of, lines_of
from disque_trio.notation.addresses import host_of
from disque_trio.process.logs import Log
from disque_trio.process.sockets import is_local
from disque_trio.process.tls import TlsError
from disque_trio.resp.inline import quote
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.client import Client
from disque_trio.respserver.commands.info import Fields, human
from disque_trio.respserver.daemon import Daemon
from disque_trio.respserver.host import NO_ACL_FILE, Host
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.listeners import known_listeners, tcp_endpoints
from disque_trio.respserver.rights import forget_user, users_changed
from disque_trio.respserver.user_file import UserFile, UserFileError
from disque_trio.version import VERSION

_PAGE = resource.getpagesize()


class Program(Protocol):
    """Interface of the daemon that the host belongs to. The machine needs the host, and the daemon
    needs the machine, so the host exists before the daemon."""

    daemon: Daemon


class ProcessHost(Host):
    """The ``Host`` of any program that runs in its own process.

    Args:
        program: owns the machine; not used before it is complete.
        settings: CONFIG SET changes them.
        run_id: of this process, 40 hex characters.
        port: the TCP port that clients connect to; 0: none.
        product: the name of the program in INFO.
    """

    def __init__(
        self, program: Program, settings: Settings, run_id: str, port: int, product: str
    ) -> None:
        self._program = program
        self._settings = settings
        self._run_id = run_id
        self._port = port
        self._product = product
        self._started = time.monotonic()
        self._user_file = UserFile(settings)

    @property
    def _engine(self) -> Engine:
        return self._program.daemon.engine

    def listens(self, listeners: Sequence[socket.socket]) -> None:
        """Set the sockets on which the process listens for clients."""
        known = known_listeners(listeners, self._engine.config.tls_port)
        self._port = next((port for _, port in tcp_endpoints(known)), 0)

    def clients(self) -> list[Client]:
        return [connection.client for connection in self._engine.clients.by_id.values()]

    def address(self, client: Client) -> str:
        connection = self._engine.clients.by_id.get(client.id)
        return connection.address if connection else "?:0"

    def over_tls(self, client: Client) -> bool:
        connection = self._engine.clients.by_id.get(client.id)
        return connection is not None and connection.tls

    def describe(self, client: Client) -> str:
        return self._engine.clients.by_id[client.id].describe(self._engine.clock.now())

    def close(self, client: Client) -> None:
        connection = self._engine.clients.by_id.get(client.id)
        if connection is not None:
            self._engine.clients.close_soon(connection)

    def held_by(self, user: User) -> int:
        holdings = self._engine.clients.close_queue.by_user.get(user)
        return 0 if holdings is None else holdings.total

    def limit_reached(self, text: str) -> None:
        self._engine.log.warning("a user has reached a limit", refused=text)

    def did(self, client: Client, what: str, about: bytes = b"", jobs: int = 0) -> None:
        user = client.user.name.decode("utf-8", "backslashreplace")
        name = quote(about).decode("ascii", "backslashreplace") if about else ""
        keeper = self._program.daemon.health.deeds
        keeper.done(what, user, self.address(client), name, self._engine.clock.now(), jobs)

    def most_replies(self, client: Client) -> int:
        engine = self._engine
        limits = [engine.config.client_output_buffer_limit.hard]
        if client.user.budget is not None:
            limits.append(client.user.budget.output)
        if not client.no_evict:
            limits.append(engine.clients.close_queue.holdings.limit)
        return min([limit for limit in limits if limit], default=0)

    def pause(self, milliseconds: int) -> None:
        self._engine.pause(milliseconds)

    def ip(self, client: Client) -> str:
        connection = self._engine.clients.by_id.get(client.id)
        if connection is None or connection.unix:
            return ""
        return host_of(connection.address)

    def entropy(self, count: int) -> bytes:
        return os.urandom(count)

    def users_changed(self) -> None:
        self._engine.clients.users_changed()
        self._program.daemon.look()

    # ---- users ------------------------------------------------------------------------------

    def read_users(self) -> None:
        """Use the users that are declared now. Raises ``UserFileError``; then nothing has
        changed."""
        machine = self._engine.node
        gone = machine.users.replace(self._user_file.read(machine.users))
        for user in gone:
            forget_user(machine, user)
        users_changed(machine)

    def reload_users(self, fresh: Settings) -> None:
        """Use the users that are declared now, if they have changed; ``fresh``: the current
        settings. Raises ``UserFileError``; then nothing has changed."""
        if self._user_file.is_new(fresh):
            self.read_users()

    def load_users(self) -> str | None:
        if self._user_file.path is None:
            return NO_ACL_FILE
        try:
            self.read_users()
        except UserFileError as problem:
            return (
                f"ERR {problem}. WARNING: ACL errors detected, no change to the previously active "
                "ACL rules was performed"
            )
        return None

    def save_users(self) -> str | None:
        if self._user_file.path is None:
            return NO_ACL_FILE
        try:
            self._user_file.write(self._engine.node.users)
        except OSError as problem:
            return (
                "ERR There was an error trying to save the ACLs. Please check the server logs for "
                f"more information: {self._user_file.path}: {problem.strerror}"
            )
        return None

    # ---- the rest ---------------------------------------------------------------------------

    def time_us(self) -> int | None:
        return time.time_ns() // 1000

    def config_get(self, patterns: list[bytes]) -> list[tuple[bytes, bytes]]:
        return self._settings.config_get(patterns)

    def _lets(self, setting: str, client: Client) -> bool:
        """Whether ``setting`` (no, yes or local) allows ``client`` to do what it is about."""
        whom = self._settings.get(setting)
        connection = self._engine.clients.by_id.get(client.id)
        if whom != "local" or connection is None:
            return bool(whom == "yes")
        return connection.unix or is_local(host_of(connection.address))

    def may_debug(self, client: Client) -> bool:
        return self._lets("enable-debug-command", client)

    def config_set(
        self, pairs: list[tuple[bytes, bytes]], client: Client | None = None
    ) -> str | None:
        trusted = client is None or self._lets("enable-protected-configs", client)
        try:
            values = self._settings.read_pairs(pairs, trusted)
            if client is not None:  # a file may say so, for when the other one is on again
                self._settings.check_needs(values)
            problem = self.move_problem(values["dir"]) if "dir" in values else ""
            if problem:
                given = {name.lower(): value for name, value in pairs}[b"dir"]
                return (
                    f"ERR Invalid argument '{given.decode('utf-8', 'surrogateescape')}' for "
                    f"CONFIG SET 'dir' - {problem}"
                )
            use_certificates = self._read_certificates(values)
            changed = self._settings.config_set(pairs)
        except ConfigError as failure:
            return str(failure)
        use_certificates()
        self._program.daemon.apply(changed)
        return None

    def _read_certificates(self, values: Mapping[str, Any]) -> Callable[[], None]:
        """Read the certificates, if ``values``, which are to be SET, concern them; return a
        function that starts to use them. Raises ``ConfigError``."""
        about_tls = [name for name in values if name.startswith("tls-")]
        if not about_tls:
            return lambda: None
        daemon = self._program.daemon
        settings: Any = self._settings.with_values(values)
        try:
            # Even if the names are the same: the files may have changed.
            return daemon.read_certificates(settings)
        except TlsError as problem:
            daemon.engine.log.warning(
                "the TLS settings stay as they were",
                refused=" ".join(about_tls),
                reason=str(problem),
            )
            raise ConfigError(
                f"ERR CONFIG SET failed (possibly related to argument '{about_tls[0]}') - "
                "Unable to update TLS configuration. Check server logs."
            ) from problem

    def move_problem(self, directory: str) -> str:
        """Return why the process cannot change to another directory, or empty."""
        if self._program.daemon.persistence.active:
            # The file that is being written would stay behind, and be missing at the next start.
            return "the append-only file is in the current one"
        return ""

    def config_rewrite(self) -> str | None:
        try:
            self._user_file.keep(self._engine.node.users)
            self.write_settings()
        except ConfigError as problem:
            text = str(problem)
            return text if text.startswith("ERR ") else f"ERR Rewriting config file: {text}"
        except OSError as problem:
            return f"ERR Rewriting config file: {problem.strerror}"
        return None

    def write_settings(self) -> None:
        """Write the settings to their file. Raises ``ConfigError``, ``OSError``."""
        rewrite(self._settings)

    def reset_stats(self) -> None:
        self._engine.stats.reset()

    def shutdown(self, rewrite_aof: bool) -> str | None:
        if rewrite_aof:
            problem = self._program.daemon.persistence.dump_now()
            if problem:
                return f"ERR Errors trying to SHUTDOWN. Check logs: {problem}"
        # From here on, nothing may happen to a job without a record in the file.
        self._engine.halt()
        self._program.daemon.stop("a client asked for it")
        return None

    def rewrite_aof(self) -> str | None:
        return self._program.daemon.persistence.rewriting.want()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def uptime(self) -> int:
        """How many seconds ago the process started."""
        return int(time.monotonic() - self._started)

    def info(self) -> dict[str, Fields]:
        engine = self._engine
        connections = engine.clients.by_id.values()
        uptime = self.uptime()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        rss = resident()
        used = engine.node.memory.used
        sections: dict[str, Fields] = {
            "server": {
                f"{self._product}_version": VERSION,
                f"{self._product}_git_sha1": "00000000",
                f"{self._product}_git_dirty": 0,
                f"{self._product}_build_id": 0,
                "os": f"{platform.system()} {platform.release()} {platform.machine()}",
                "arch_bits": 64 if sys.maxsize > 2**32 else 32,
                "multiplexing_api": "epoll",
                "gcc_version": "0.0.0",
                "python_version": platform.python_version(),
                "process_id": os.getpid(),
                "run_id": self._run_id,
                "tcp_port": self._port,
                "uptime_in_seconds": uptime,
                "uptime_in_days": uptime // 86_400,
                "hz": engine.config.hz,
                "executable": sys.argv[0],
                "config_file": self._settings.file or "",
            },
            "clients": {
                "connected_clients": len(engine.clients.by_id),
                "client_longest_output_list": max((len(c.unsent) for c in connections), default=0),
                "client_biggest_input_buf": max((c.parser.pending for c in connections), default=0),
                "maxclients": engine.config.maxclients,
            },
            "memory": {
                "used_memory_rss": rss,
                "used_memory_rss_human": human(rss),
                "mem_fragmentation_ratio": f"{rss / used:.2f}" if used else "0.00",
                "mem_allocator": "python",
                "mem_clients_normal": engine.clients.close_queue.holdings.total,
            },
            "persistence": self._program.daemon.persistence.info(),
            "stats": self._engine.stats.fields(),
            "cpu": {
                "used_cpu_sys": f"{usage.ru_stime:.2f}",
                "used_cpu_user": f"{usage.ru_utime:.2f}",
                "used_cpu_sys_children": f"{children.ru_stime:.2f}",
                "used_cpu_user_children": f"{children.ru_utime:.2f}",
            },
        }
        if engine.config.tls_port:
            sections["server"]["tls_port"] = engine.config.tls_port
            sections["clients"]["tls_clients"] = sum(c.tls for c in connections)
            sections["clients"]["tls_handshakes"] = len(engine.clients.handshakes)
            sections["stats"]["tls_handshakes_failed"] = engine.stats.tls_handshakes_failed
        sections[SECTION] = fields_of(self.alarms())
        return sections

    def alarms(self) -> list[AlarmLine]:
        """What is wrong, for INFO: the worst first."""
        health = self._program.daemon.health
        health.look(self._engine.clock.now())
        return lines_of(health.alarms())


def resident() -> int:
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def reload_users(host: ProcessHost, fresh: Settings, log: Log) -> None:
    """SIGHUP: use the users that are declared now, if they have changed. If that fails, log it and
    keep the current ones. ``fresh``: the current settings."""
    try:
        host.reload_users(fresh)
    except UserFileError as problem:
        log.warning("users not reloaded", reason=str(problem))
