"""A worker: one process of a server that has several, with its own number and settings.

Owns the environment variable by which the ``supervisor`` tells a worker its number, and the rules
for what differs between workers: ports, directory, unix socket, log file. The first one has what is
configured, so a server that had one process keeps its jobs, its id and its port.
"""

import hashlib
import socket
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from disque_trio.config import Config
from disque_trio.process.addresses import MAX_PORT, is_loopback, plain_ip

VARIABLE = "DISQUE_PROCESS"
SERVER_VARIABLE = "DISQUE_SERVER"  # a name that only the processes of the server know
_ONCE = "once"
_ANYWHERE = ("", "0.0.0.0", "::", "*")
PORTS = (
    "port",
    "tls-port",
    "cluster-announce-port",
    "cluster-announce-tls-port",
)
TLS_FILES = ("tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-ca-cert-dir")
# Settings that differ. Setting one changes a single process, and is not written to the file.
OWN = (
    *PORTS,
    "dir",
    "unixsocket",
    "logfile",
    "daemonize",
    *TLS_FILES,
    "aclfile",
)


class WorkerError(ValueError):
    """The settings cannot be combined with several processes; the text says why."""


def announce(number: int, once: bool) -> str:
    """The value of ``VARIABLE`` for process ``number``. ``once``: put jobs back into their queues
    at this start, whatever the file says by the time the process reads it."""
    return f"{number} {_ONCE}" if once else str(number)


def take_worker(environ: MutableMapping[str, str]) -> "Worker | None":
    """Return which process this is; None: the only one.

    Remove from ``environ`` what is meant for this start alone; the rest stays for a process that
    replaces this one.
    """
    words = environ.get(VARIABLE, "").split()
    if not words or not words[0].isdigit():
        return None
    environ[VARIABLE] = words[0]
    return Worker(int(words[0]), _ONCE in words[1:], environ.get(SERVER_VARIABLE, ""))


def check_workers(config: Config) -> None:
    """Raise ``WorkerError`` if the settings leave no room for all processes."""
    last = config.known_port + config.processes - 1
    if not config.known_port:
        raise WorkerError("processes: they talk over the cluster bus, so they need a port")
    if max(last, config.cluster_announce_port + config.processes - 1) > MAX_PORT:
        raise WorkerError(f"processes: the last one would have a port above {MAX_PORT}")
    if max(config.tls_port, config.cluster_announce_tls_port) + config.processes > 65_535:
        raise WorkerError("processes: one would have a tls-port above 65535")
    further = config.tls_port - config.port
    if config.port and config.tls_port and -config.processes <= further < config.processes:
        raise WorkerError(
            f"processes: {config.processes} ports from port {config.port} on, and "
            f"{config.processes + 1} from tls-port {config.tls_port} on, overlap"
        )


class Worker:
    """The settings of worker ``number``, counted from 0.

    Args:
        once: put jobs back into their queues at this start.
        server: a name that only the processes of the server know.
    """

    def __init__(self, number: int, once: bool = False, server: str = "") -> None:
        self.number = number
        self.server = server
        self._once = once
        self._configured: dict[str, Any] = {}

    def announced(self, count: int) -> bytes:
        """What it announces to other nodes (see ``bus.sender_process``), if there are ``count``
        processes; empty without a name of the server."""
        if not self.server:
            return b""
        name = hashlib.blake2b(self.server.encode(), digest_size=8).digest()
        return name + bytes((self.number, count))

    def settings(self, configured: Config) -> Config:
        """The settings of this worker."""
        self._configured = {name: configured.get(name) for name in OWN}
        values = configured.values() | self._differing(configured)
        return Config(values, file=configured.file, started_in=configured.started_in)

    def _differing(self, configured: Config) -> dict[str, Any]:
        """The settings that this worker does not share with the others."""
        differing: dict[str, Any] = {"daemonize": False}
        if self._once:
            differing["aof-enqueue-jobs-once"] = True
            self._once = False  # not when the settings are read again
        number = self.number
        if not number:
            return differing
        directory = configured.dir
        differing["dir"] = str(Path(directory, str(number)))
        for name in PORTS:
            if configured.get(name):
                differing[name] = configured.get(name) + number
        for name in ("unixsocket", "logfile"):
            path = configured.get(name)
            if path:
                where = Path(directory, path)
                differing[name] = str(where.with_name(f"{where.stem}-{number}{where.suffix}"))
        for name in (*TLS_FILES, "aclfile"):
            if configured.get(name):
                differing[name] = str(Path(directory, configured.get(name)))
        return differing

    def shared(self, running: Config) -> Config:
        """The settings as they are for all processes, to be written to the file."""
        values = running.values() | self._configured
        return Config(values, file=running.file, started_in=running.started_in)

    def other_workers(self, own: Config) -> list[list[tuple[str, int]]]:
        """Return the addresses of the other processes, given the settings of this one.

        For each: the address at which to meet it, then the one that it announces.
        """
        ip = meeting_ip(own)
        first = own.known_port - self.number
        announced = own.cluster_announce_port - self.number if own.cluster_announce_port else first
        return [
            [(ip, first + n), (own.cluster_announce_ip or ip, announced + n)]
            for n in range(own.processes)
            if n != self.number
        ]


def meeting_ip(config: Config) -> str:
    """The address at which the processes meet, and which other nodes hear of: one that other
    machines can use, if there is one and they may."""
    named = [ip for ip in map(_resolved, config.bind) if ip]
    beyond = [ip for ip in named if not is_loopback(ip)]
    if beyond or (named and len(named) == len(config.bind)):
        return beyond[0] if beyond else named[0]
    if config.protected_mode and not config.tls_cluster:
        return "127.0.0.1"  # the bus accepts no others
    return _outward() or "127.0.0.1"


def _resolved(name: str) -> str:
    """The IP address of a ``bind``; empty if it stands for all, or for none."""
    if name in _ANYWHERE:
        return ""
    try:
        return plain_ip(str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]))
    except OSError:
        return ""


def _outward() -> str:
    """The source address of connections to other machines; empty without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return ""
        return str(probe.getsockname()[0])
