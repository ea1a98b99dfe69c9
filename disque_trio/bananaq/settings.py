"""The configuration of bananaq: its parameters, and the values they have.

Owns the table. A parameter that the node has as well is the node's row, with other words where the
node's speak of jobs; so the parts that both share find the same attributes. How the values come in,
from command line, environment and file, is in `options`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from disque_trio.config import TABLE as NODE
from disque_trio.config import OutputBufferLimit, Param, Settings
from disque_trio.config.errors import BadValue
from disque_trio.config.params import Table, make_table
from disque_trio.config.types import Choice, Int, ParamType, Text, Word, YesNo, parse_integer

NETWORK = "Network"
GENERAL = "General"
EVENTS = "Events"
AOF = "Append only file"
REDIS = "Redis"
SECURITY = "Security"
LIMITS = "Limits and memory"
OBSERVE = "Slow log and latency"
ADVANCED = "Advanced"

SECTIONS = {
    NETWORK: "Where bananaq listens, and how it treats connections.",
    GENERAL: "The process: where it works and where it logs.",
    EVENTS: "Where events are kept, and which commands there are for them.",
    AOF: "Events on disk, with `store embedded`. A Redis has settings of its own for that.",
    REDIS: "The Redis that keeps the events, with `store redis`.",
    SECURITY: "Who may use bananaq.",
    LIMITS: "What bananaq and a single client may hold.",
    OBSERVE: "What bananaq remembers about slow commands and stalls.",
    ADVANCED: "Timing and tuning that hardly anyone needs to change.",
}

REDIS_PORT = 6379


class Endpoint(NamedTuple):
    """A TCP address. host: name or address, without brackets; empty for all of this machine."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(word: str, port: int | None = None) -> Endpoint:
    """Read `host:port`, `[ipv6]:port` or `:port`; without a port it is `port`. Raises BadValue."""
    host, colon, digits = word.rpartition(":")
    if not colon or word.endswith("]"):
        if port is None:
            raise BadValue
        host, digits = word, str(port)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadValue("an IPv6 address needs brackets, as in [::1]:4777")
    if any(character.isspace() or not character.isprintable() for character in word):
        raise BadValue
    return Endpoint(host, parse_integer(digits, 1, 65535))


class ListenAddress(Word[Endpoint]):
    """Where to listen; `Endpoint("", 0)` for no TCP."""

    quoted = True
    expected = "HOST:PORT, :PORT for all addresses, or an empty text for no TCP"

    def parse_word(self, word: str) -> Endpoint:
        return parse_endpoint(word) if word else Endpoint("", 0)

    def show(self, value: Endpoint) -> str:
        return str(value) if value.port else ""


class RedisAddresses(ParamType[tuple[Endpoint, ...]]):
    """One Redis, or some nodes of a cluster."""

    several = True
    listed = True
    expected = "HOST:PORT, or several nodes of a cluster"

    def parse(self, words: Sequence[str]) -> tuple[Endpoint, ...]:
        addresses = [address for word in words for address in word.split(",")]
        if not all(addresses) or not addresses:
            raise BadValue
        found = tuple(parse_endpoint(address, REDIS_PORT) for address in addresses)
        if not all(endpoint.host for endpoint in found):
            raise BadValue
        return found

    def show(self, value: tuple[Endpoint, ...]) -> str:
        return " ".join(self.words(value))

    def words(self, value: tuple[Endpoint, ...]) -> list[str]:
        return [str(endpoint) for endpoint in value]


class KeyPrefix(Text):
    """The beginning of the names of keys. Braces would decide about the slot in a cluster."""

    def __init__(self) -> None:
        super().__init__("text without braces, not empty", 256)

    def parse_word(self, word: str) -> str:
        if not word or "{" in word or "}" in word:
            raise BadValue
        return super().parse_word(word)


def _same(name: str, section: str, help: str = "", default: str | None = None) -> Param:
    """The node's parameter, in a section of this table."""
    row = NODE[name]
    return replace(
        row,
        section=section,
        help=help or row.help.replace(" Not in Disque.", ""),
        default=row.default if default is None else default,
    )


TABLE = make_table(
    [
        Param(
            "listen-addr",
            ListenAddress(),
            ":4777",
            NETWORK,
            "Where clients connect. Without a host on all addresses of the machine, IPv6 and IPv4; "
            "see `protected-mode` for what that means without a password.",
        ),
        _same("tcp-backlog", NETWORK),
        _same("unixsocket", NETWORK),
        _same("unixsocketperm", NETWORK),
        _same(
            "timeout",
            NETWORK,
            "Close a client that has been idle for this long; 0 never does. Clients that wait in "
            "QGET BLOCK or QNOTIFY are not idle.",
        ),
        _same("tcp-keepalive", NETWORK),
        _same("maxclients", NETWORK),
        replace(
            _same(
                "dir",
                GENERAL,
                "Working directory; files are written there. The default is the directory in which "
                "bananaq is started.",
            ),
            settable=False,
            always_rewritten=False,
        ),
        _same(
            "pidfile", GENERAL, "File for the process id, removed at the end; empty for none.", ""
        ),
        Param(
            "log-level",
            Choice("debug", "info", "warn", "error", "fatal"),
            "info",
            GENERAL,
            "The least important messages to log. There are no degrees above warn: error and fatal "
            "are taken as warn.",
            settable=True,
        ),
        _same("logfile", GENERAL),
        _same("log-format", GENERAL),
        Param(
            "store",
            Choice("embedded", "redis"),
            "embedded",
            EVENTS,
            "What keeps the events: bananaq itself (embedded), or a Redis that other bananaqs may "
            "use at the same time (redis; needs `pip install disque-trio[redis]`). `redis-addr` or "
            "`redis-cluster` mean redis where `store` is not given, or is given in what they "
            "override, such as the file when they are options.",
        ),
        Param(
            "bg-qadd-pool-size",
            Int(1),
            "128",
            EVENTS,
            "QADD NOBLOCK is refused when ten times as many of them wait to be stored.",
            settable=True,
        ),
        Param(
            "okq-compat",
            YesNo(),
            "yes",
            EVENTS,
            "Take the commands of okq as well: QLPUSH, QRPUSH, QRPOP, QLPEEK, QRPEEK, QREGISTER, "
            "and QACK and QNOTIFY with its arguments.",
        ),
        Param(
            "okq-group",
            Text("the name of a group", 512),
            "okq",
            EVENTS,
            "The consumer group that the commands of okq work for.",
        ),
        Param(
            "okq-expire",
            Int(1),
            "604800",
            EVENTS,
            "How long an event exists that QLPUSH or QRPUSH added.",
            unit="seconds",
            settable=True,
        ),
        _same(
            "appendonly",
            AOF,
            "Log events to a file, so that they survive a restart.",
            "yes",
        ),
        _same("appendfilename", AOF, default="bananaq.aof"),
        _same(
            "appendfsync",
            AOF,
            "When what was written is forced to the disk: every second, before each reply, or when "
            "the kernel likes.",
        ),
        _same("auto-aof-rewrite-percentage", AOF),
        _same("auto-aof-rewrite-min-size", AOF),
        _same("aof-load-truncated", AOF),
        Param(
            "redis-addr",
            RedisAddresses(),
            f"127.0.0.1:{REDIS_PORT}",
            REDIS,
            "Where the Redis is. Of a cluster one node is enough; of several the first is asked.",
        ),
        Param("redis-cluster", YesNo(), "no", REDIS, "The Redis is a Redis Cluster."),
        Param(
            "redis-password",
            Text("text of at most 512 bytes", 512),
            "",
            REDIS,
            "Password of the Redis; empty gives none.",
        ),
        Param(
            "redis-db",
            Int(0),
            "0",
            REDIS,
            "Number of the database. A cluster has only 0.",
        ),
        Param(
            "redis-prefix",
            KeyPrefix(),
            "bananaq",
            REDIS,
            "How the names of all keys begin. bananaqs with the same prefix share their events.",
        ),
        Param("redis-pool-size", Int(1), "10", REDIS, "Connections to each Redis for events."),
        _same("requirepass", SECURITY),
        _same(
            "protected-mode",
            SECURITY,
            "Without a password and without a host in `listen-addr`, serve only clients on this "
            "machine.",
        ),
        _same(
            "maxmemory",
            LIMITS,
            "Memory for events and groups, with `store embedded`; 0 sets no limit. When it is "
            "reached QADD is refused, and everything else goes on.",
        ),
        _same("client-output-buffer-limit", LIMITS),
        _same(
            "client-query-buffer-limit",
            LIMITS,
            "Input of one client that is held before the connection is closed.",
        ),
        _same(
            "proto-max-bulk-len",
            LIMITS,
            "The longest single argument, and so the largest event.",
        ),
        _same("proto-inline-max-size", LIMITS, "The longest inline command."),
        _same("slowlog-log-slower-than", OBSERVE),
        _same("slowlog-max-len", OBSERVE),
        _same("latency-monitor-threshold", OBSERVE),
        _same("hz", ADVANCED, "How often a second background work runs: idle clients, statistics."),
        _same("max-commands-per-turn", ADVANCED),
    ]
)

_NODE_LEVELS = {"debug": "debug", "info": "notice"}


class BananaSettings(Settings):
    """Every parameter of bananaq as an attribute; see the table for units and meaning.

    Attributes:
        below: of the parameters that the command line or the environment has overridden, the
            values that the file and the defaults give. CONFIG REWRITE writes those. A parameter
            that is SET leaves it.
        warnings: what is strange about the options and yet no error, a line each.
    """

    table: ClassVar[Table] = TABLE

    listen_addr: Endpoint
    tcp_backlog: int
    unixsocket: str
    unixsocketperm: int
    timeout: int
    tcp_keepalive: int
    maxclients: int
    dir: str
    pidfile: str
    log_level: str
    logfile: str
    log_format: str
    store: str
    bg_qadd_pool_size: int
    okq_compat: bool
    okq_group: str
    okq_expire: int
    appendonly: bool
    appendfilename: str
    appendfsync: str
    auto_aof_rewrite_percentage: int
    auto_aof_rewrite_min_size: int
    aof_load_truncated: bool
    redis_addr: tuple[Endpoint, ...]
    redis_cluster: bool
    redis_password: str
    redis_db: int
    redis_prefix: str
    redis_pool_size: int
    requirepass: str
    protected_mode: bool
    maxmemory: int
    client_output_buffer_limit: OutputBufferLimit
    client_query_buffer_limit: int
    proto_max_bulk_len: int
    proto_inline_max_size: int
    slowlog_log_slower_than: int
    slowlog_max_len: int
    latency_monitor_threshold: int
    hz: int
    max_commands_per_turn: int

    def __init__(self, values: Mapping[str, Any] | None = None, *, file: str | None = None) -> None:
        super().__init__(values, file=file)
        self.below: dict[str, Any] = {}
        self.warnings: list[str] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} file={self.file!r}>"  # no passwords

    @property
    def bind(self) -> tuple[str, ...]:
        """The addresses to listen on, none for all: the node's name for it."""
        return (self.listen_addr.host,) if self.listen_addr.host else ()

    @property
    def port(self) -> int:
        """The TCP port, 0 for none: the node's name for it."""
        return self.listen_addr.port

    @property
    def loglevel(self) -> str:
        """`log_level` in the node's words: debug, notice or warning."""
        return _NODE_LEVELS.get(self.log_level, "warning")

    def config_set(self, pairs: Sequence[tuple[bytes, bytes]]) -> list[str]:
        """As `Settings.config_set`. What is SET counts from now on as if the file had it."""
        changed = super().config_set(pairs)
        for name, _ in pairs:
            self.below.pop(name.decode().lower(), None)
        return changed

    def written(self) -> BananaSettings:
        """What CONFIG REWRITE has to write: these settings without what overrides the file."""
        return BananaSettings({**self.values(), **self.below}, file=self.file)
