"""The servers to compare: how each is started, and what it guarantees at each level."""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, get_args

from benchmarks.amqp import RabbitClient
from benchmarks.clients import Client, DialectClient
from benchmarks.nats import NatsClient
from disque_trio.version import VERSION
from tools.bench.dialects import Beanstalk, Dialect, Disque, RedisList, RedisStream
from tools.bench.servers import DISQUE_COMMAND, HOST, Recipe, said
from tools.ports import free_port

Level = Literal["none", "everysec", "always"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)

# When minor versions came out, since distributions have old ones.
YEARS = {
    "rabbitmq-server": {
        "3.10": 2022,
        "3.12": 2023,
        "3.13": 2024,
        "4.0": 2024,
        "4.1": 2025,
        "4.2": 2025,
    },
    "nats-server": {"2.9": 2022, "2.10": 2023, "2.11": 2025, "2.12": 2025, "2.15": 2026},
    "redis-server": {"7.0": 2022, "7.2": 2023, "7.4": 2024, "8.0": 2025},
    "beanstalkd": {"1.12": 2020, "1.13": 2023},
}


class Subject(ABC):
    """A server. ``key`` names it in options, ``title`` in tables."""

    key: str
    title: str
    package: str = ""
    """Its Debian package."""
    programs: Sequence[str] = ()

    def missing(self) -> str | None:
        """How to make it run here; None if it can."""
        if all(map(shutil.which, self.programs)):
            return None
        return f"{self.title} is left out: not installed (apt-get install {self.package})"

    def lacks(self, level: Level) -> str | None:
        """Why it has no equivalent of this level; None if it has."""
        return None

    def differs(self, level: Level) -> str:
        """How its guarantee differs from the level's: "stronger", "weaker" or ""."""
        return ""

    @abstractmethod
    def version(self) -> str:
        """The installed version."""

    @abstractmethod
    def recipe(self, directory: Path, level: Level) -> Recipe:
        """How to start it on a free port, with its files in this directory."""

    @abstractmethod
    def client(self, size: int, level: Level) -> Client:
        """Its client, for jobs with bodies of ``size`` bytes."""


class DialectSubject(Subject):
    """A server that is started with one command, and sends one reply per request.

    Args:
        command: returns the command that starts it, from a port, a directory and a level.
        dialect: returns its dialect, from the size of a body.
        version: returns the installed version.
        package: its package, with a program of the same name; "" if it is always there.
    """

    def __init__(
        self,
        key: str,
        title: str,
        package: str,
        version: Callable[[], str],
        command: Callable[[int, Path, Level], Sequence[str]],
        dialect: Callable[[int], Dialect],
    ) -> None:
        self.key = key
        self.title = title
        self.package = package
        self.programs = (package,) if package else ()
        self._version = version
        self._command = command
        self._dialect = dialect

    def version(self) -> str:
        return self._version()

    def recipe(self, directory: Path, level: Level) -> Recipe:
        port = free_port()
        return Recipe(self._command(port, directory, level), port)

    def client(self, size: int, level: Level) -> Client:
        return DialectClient(self._dialect(size))


def _disque(server: Sequence[str], port: int, directory: Path, level: Level) -> Sequence[str]:
    options = ["--bind", HOST, "--port", str(port), "--dir", str(directory)]
    options += ["--maxmemory", "8gb", "--loglevel", "warning", *_append_only(level)]
    return (*server, *options)


def _redis(port: int, directory: Path, level: Level) -> Sequence[str]:
    options = ["--bind", HOST, "--port", str(port), "--dir", str(directory), "--save", ""]
    return ("redis-server", *options, *_append_only(level))


def _beanstalkd(port: int, directory: Path, level: Level) -> Sequence[str]:
    """With a write-ahead log, except at the level none."""
    log: dict[Level, Sequence[str]] = {
        "none": (),
        "everysec": ("-b", str(directory), "-f", "1000"),
        "always": ("-b", str(directory), "-f", "0"),
    }
    return ("beanstalkd", "-l", HOST, "-p", str(port), *log[level])


def _append_only(level: Level) -> list[str]:
    if level == "none":
        return ["--appendonly", "no"]
    return ["--appendonly", "yes", "--appendfsync", level]


class RabbitSubject(Subject):
    """RabbitMQ with a classic queue, which syncs before it confirms, or does not use the disk; or
    with the kind of queue that ``arguments`` name."""

    package = "rabbitmq-server"
    programs = ("erl", "epmd")

    # The one on the PATH is Debian's wrapper, which switches to its own user and directories.
    SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

    def __init__(
        self, key: str = "rabbitmq", title: str = "RabbitMQ", **arguments: str | int
    ) -> None:
        self.key = key
        self.title = title
        self._arguments = {f"x-{name.replace('_', '-')}": arguments[name] for name in arguments}

    def missing(self) -> str | None:
        if not self.SCRIPT.exists():
            return f"{self.title} is left out: not installed (apt-get install {self.package})"
        return super().missing()

    def differs(self, level: Level) -> str:
        return "stronger" if level == "everysec" else ""

    def version(self) -> str:
        found = re.search(r"rabbitmq_server-([\d.]+)", str(self.SCRIPT.resolve()))
        return found[1] if found else "?"

    def recipe(self, directory: Path, level: Level) -> Recipe:
        ports = {free_port() for _ in range(8)}
        port, names, peers = (str(ports.pop()) for _ in range(3))
        (directory / "plugins").write_text("[].\n")
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = {HOST}:{port}\n"
            "log.console = true\nlog.console.level = error\nlog.file = false\n"
            "disk_free_limit.absolute = 50MB\n"
        )
        environment = {
            "HOME": str(directory),
            "ERL_CRASH_DUMP": str(directory / "crash"),
            "ERL_EPMD_PORT": names,
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"bench-{port}@localhost",
            "RABBITMQ_DIST_PORT": peers,
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "env"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            # Make the script exec the program instead of waiting for it.
            "RABBITMQ_ALLOW_INPUT": "1",
        }
        return Recipe(
            command=(str(self.SCRIPT), "-noinput", "-start_epmd", "false"),
            port=int(port),
            environment=environment,
            before=[("epmd", "-port", names, "-address", HOST)],
        )

    def client(self, size: int, level: Level) -> Client:
        return RabbitClient(size, level != "none", self._arguments)


class NatsSubject(Subject):
    """NATS JetStream: in memory, or in files that are synced as far as the version supports."""

    key = "nats"
    title = "NATS JetStream"
    package = "nats-server"
    programs = ("nats-server",)
    SYNCS_SINCE = (2, 10)

    def version(self) -> str:
        return said(("nats-server", "--version"), r"\bv(\d\S*)")

    def _syncs(self) -> bool:
        """Whether the sync interval is configurable."""
        numbers = tuple(map(int, re.findall(r"\d+", self.version())[:2]))
        return numbers >= self.SYNCS_SINCE

    def lacks(self, level: Level) -> str | None:
        if level == "always" and not self._syncs():
            return f"{self.title} {self.version()} cannot sync every write (2.10 can)"
        return None

    def differs(self, level: Level) -> str:
        return "weaker" if level == "everysec" and not self._syncs() else ""

    def recipe(self, directory: Path, level: Level) -> Recipe:
        port = free_port()
        config = directory / "nats.conf"
        sync = {"everysec": "sync_interval: 1s", "always": "sync_interval: always"}
        storage = f'store_dir: "{directory}", max_mem: 4G, max_file: 50G'
        if self._syncs() and level in sync:
            storage += f", {sync[level]}"
        config.write_text(f"listen: {HOST}:{port}\njetstream {{ {storage} }}\n")
        return Recipe(("nats-server", "-c", str(config)), port)

    def client(self, size: int, level: Level) -> Client:
        return NatsClient(size, files=level != "none")


def all_subjects(command: Sequence[str] = DISQUE_COMMAND) -> list[Subject]:
    """All subjects, first our node, which ``command`` starts."""
    ours = partial(_disque, command)
    redis_version = partial(said, ("redis-server", "--version"), r"\bv=(\S+)")
    redis = ("redis-server", redis_version, _redis)
    version = partial(said, ("beanstalkd", "-v"), r"beanstalkd (\S+)")
    kept = partial(RedisStream, kept=True)
    return [
        DialectSubject("disque", "disque-trio", "", lambda: VERSION, ours, Disque),
        DialectSubject("beanstalkd", "beanstalkd", "beanstalkd", version, _beanstalkd, Beanstalk),
        DialectSubject("list", "Redis list", *redis, RedisList),
        # With entries deleted when they are done, and kept.
        DialectSubject("streams", "Redis stream", *redis, RedisStream),
        DialectSubject("streams-kept", "Redis stream, entries kept", *redis, kept),
        RabbitSubject(),
        NatsSubject(),
    ]


def dated(package: str, version: str) -> str:
    """A version with the year in which it came out, if that is known."""
    minor = re.match(r"\d+\.\d+", version)
    year = YEARS.get(package, {}).get(minor[0]) if minor else None
    return f"{version} (of {year})" if year else version
