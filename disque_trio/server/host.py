"""The process as the commands see it: clients, settings, INFO, the end.

Owns what any program around a state machine can do, and what the node of a cluster can beyond that.
"""

import hmac
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from socket import socket

from disque_trio.commands.info import Fields, human
from disque_trio.config import Config, ConfigError, Settings, rewrite
from disque_trio.core.client import Client
from disque_trio.core.host import Host
from disque_trio.eventlog.recorder import EventLog
from disque_trio.server.clock import Clock
from disque_trio.server.cluster import Cluster
from disque_trio.server.engine import Engine
from disque_trio.server.persistence import Persistence
from disque_trio.server.restart import replace_process
from disque_trio.server.siblings import OneOfSeveral
from disque_trio.server.stats import Stats
from disque_trio.server.systemd import Notifier
from disque_trio.version import VERSION

_PAGE = resource.getpagesize()


class ProcessHost(Host):
    """What commands can do beyond the state machine, in any program.

    ``engine``, ``apply``, ``stop`` and the like are set once the program is put together.

    Attributes:
        product: what it is called, in INFO.
        port: the TCP port that clients connect to, 0 without one.
        apply: called with the names of the settings that changed.
        stop: called when a client asked for the end.
    """

    product = "disque"

    def __init__(self, config: Settings, clock: Clock, stats: Stats, run_id: str) -> None:
        self.engine: Engine
        self.apply: Callable[[list[str]], None]
        self.stop: Callable[[], None]
        self.persistence: Persistence
        self.port = 0
        self._settings = config
        self._clock = clock
        self._stats = stats
        self._run_id = run_id
        self._started = time.monotonic()

    def clients(self) -> list[Client]:
        return [connection.client for connection in self.engine.by_id.values()]

    def address(self, client: Client) -> str:
        connection = self.engine.by_id.get(client.id)
        return connection.address if connection else "?:0"

    def describe(self, client: Client) -> str:
        return self.engine.by_id[client.id].describe(self._clock.now())

    def close(self, client: Client) -> None:
        connection = self.engine.by_id.get(client.id)
        if connection is not None:
            self.engine.close_soon(connection)

    def pause(self, milliseconds: int) -> None:
        if milliseconds:
            self.engine.paused_until = self._clock.now() + milliseconds
        else:
            self.engine.resume()

    def check_password(self, password: bytes) -> bool | None:
        expected = self.engine.config.requirepass.encode("utf-8", "surrogateescape")
        if not expected:
            return None
        return hmac.compare_digest(password, expected)

    def time_us(self) -> int | None:
        return time.time_ns() // 1000

    def config_get(self, patterns: list[bytes]) -> list[tuple[bytes, bytes]]:
        return self._settings.config_get(patterns)

    def config_set(self, pairs: list[tuple[bytes, bytes]]) -> str | None:
        for name, value in pairs:
            if name.lower() == b"dir":
                problem = self.move_problem(os.fsdecode(value))
                if problem:
                    return (
                        f"ERR Invalid argument '{value.decode('utf-8', 'surrogateescape')}' for "
                        f"CONFIG SET 'dir' - {problem}"
                    )
        try:
            changed = self._settings.config_set(pairs)
        except ConfigError as failure:
            return str(failure)
        self.apply(changed)
        return None

    def move_problem(self, directory: str) -> str:
        """Why the process cannot go on in another directory, or empty."""
        if self.persistence.active:
            # The file that is written to would stay behind, and be missed at the next start.
            return "the append-only file is in the present one"
        return ""

    def config_rewrite(self) -> str | None:
        try:
            self.write_settings()
        except ConfigError as problem:
            text = str(problem)
            return text if text.startswith("ERR ") else f"ERR Rewriting config file: {text}"
        except OSError as problem:
            return f"ERR Rewriting config file: {problem.strerror}"
        return None

    def write_settings(self) -> None:
        """Write the settings back to their file. Raises ConfigError, OSError."""
        rewrite(self._settings)

    def reset_stats(self) -> None:
        self._stats.reset()

    def shutdown(self, rewrite_aof: bool) -> str | None:
        if rewrite_aof:
            problem = self.persistence.dump_now()
            if problem:
                return "ERR Errors trying to SHUTDOWN. Check logs."
        # From here on nothing may happen to a job that the file does not know.
        self.engine.halted = True
        self.stop()
        return None

    def rewrite_aof(self) -> str | None:
        return self.persistence.want_rewrite()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def info(self) -> dict[str, Fields]:
        engine = self.engine
        connections = engine.by_id.values()
        uptime = int(time.monotonic() - self._started)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        rss = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
        used = engine.node.memory.used
        return {
            "server": {
                f"{self.product}_version": VERSION,
                f"{self.product}_git_sha1": "00000000",
                f"{self.product}_git_dirty": 0,
                f"{self.product}_build_id": 0,
                "os": f"{platform.system()} {platform.release()} {platform.machine()}",
                "arch_bits": 64 if sys.maxsize > 2**32 else 32,
                "multiplexing_api": "epoll",
                "gcc_version": "0.0.0",
                "python_version": platform.python_version(),
                "process_id": os.getpid(),
                "run_id": self._run_id,
                "tcp_port": self.port,
                "uptime_in_seconds": uptime,
                "uptime_in_days": uptime // 86_400,
                "hz": engine.config.hz,
                "executable": sys.argv[0],
                "config_file": self._settings.file or "",
            },
            "clients": {
                "connected_clients": len(engine.by_id),
                "client_longest_output_list": max((len(c.unsent) for c in connections), default=0),
                "client_biggest_input_buf": max((c.parser.pending for c in connections), default=0),
                "maxclients": engine.config.maxclients,
            },
            "memory": {
                "used_memory_rss": rss,
                "used_memory_rss_human": human(rss),
                "mem_fragmentation_ratio": f"{rss / used:.2f}" if used else "0.00",
                "mem_allocator": "python",
            },
            "persistence": self.persistence.info(),
            "stats": self._stats.fields(),
            "cpu": {
                "used_cpu_sys": f"{usage.ru_stime:.2f}",
                "used_cpu_user": f"{usage.ru_utime:.2f}",
                "used_cpu_sys_children": f"{children.ru_stime:.2f}",
                "used_cpu_user_children": f"{children.ru_utime:.2f}",
            },
        }


class ServerHost(ProcessHost):
    """What the commands of a node can do.

    Attributes:
        notifier: tells systemd how the node is.
        activated: listening sockets that are not the node's own; a new process cannot open them.
        check_restart: why a new process could not go on for this one, or None.
        go_on_anew: called when it is to.
        one_of_several: which of the processes of a server this is, if it has several.
    """

    def __init__(self, config: Config, clock: Clock, stats: Stats, run_id: str) -> None:
        super().__init__(config, clock, stats, run_id)
        self._config = config
        self.check_restart: Callable[[], str | None]
        self.go_on_anew: Callable[[], None]
        self.cluster: Cluster
        self.event_log: EventLog
        self.port = config.port
        self.one_of_several: OneOfSeveral | None = None
        self.notifier = Notifier()
        self.activated: Sequence[socket] = ()

    def move_problem(self, directory: str) -> str:
        return super().move_problem(directory) or self.cluster.move_problem(directory) or ""

    def write_settings(self) -> None:
        if self.one_of_several is None:
            super().write_settings()
        else:
            rewrite(self.one_of_several.shared(self._config))

    def restart(self) -> str | None:
        problem = self.check_restart()
        if problem is not None:
            return f"ERR RESTART is not possible: {problem}"
        if self.persistence.dump_now():
            return "ERR Errors trying to RESTART. Check logs."
        self.engine.halted = True
        self.go_on_anew()
        return None

    def crash(self, restart: bool, delay: int) -> None:
        if restart:
            self.cluster.save_changes()
            time.sleep(delay / 1000)
            # The node's own sockets close on exec; the new process binds them again.
            replace_process(self.notifier, self.activated)
        os.kill(os.getpid(), signal.SIGSEGV)

    def info(self) -> dict[str, Fields]:
        sections = super().info()
        sections["clients"]["cluster_connections"] = self.cluster.bus.links
        sections["persistence"] |= self.event_log.info()
        return sections
