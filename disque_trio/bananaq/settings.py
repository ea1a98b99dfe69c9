"""The configuration of bananaq: its parameters, and the values they have.

Owns the table. A parameter that the node has as well is the node's row, with other words where the
node's speak of jobs; so the parts that both share find the same attributes. How the values come in,
from command line, environment and file, is in ``options``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from disque_trio.bananaq.types import (
    REDIS_PORT,
    Endpoint,
    KeyPrefix,
    ListenAddress,
    RedisAddresses,
)
from disque_trio.config import TABLE as NODE
from disque_trio.config import OutputBufferLimit, Param, Settings
from disque_trio.config.memory_limit import MemoryLimit
from disque_trio.config.params import Table, make_table
from disque_trio.config.types import Choice, Int, Text, YesNo

NETWORK = "Network"
GENERAL = "General"
EVENTS = "Events"
TLS = "TLS"
AOF = "Append only file"
REDIS = "Redis"
SECURITY = "Security"
LIMITS = "Limits and memory"
OBSERVE = "Slow log and latency"
METRICS = "Metrics"
ADVANCED = "Advanced"

SECTIONS = {
    NETWORK: "Where bananaq listens, and how it treats connections.",
    TLS: "Encryption of what clients say, as in Redis 7.",
    GENERAL: "The process: where it works and where it logs.",
    EVENTS: "Where events are kept, and which commands there are for them.",
    AOF: "Events on disk, with `store embedded`. A Redis has settings of its own for that.",
    REDIS: "The Redis that keeps the events, with `store redis`.",
    SECURITY: "Who may use bananaq.",
    LIMITS: "What bananaq and a single client may hold.",
    OBSERVE: "What bananaq remembers about slow commands and stalls.",
    METRICS: "Figures for Prometheus: docs/monitoring.md.",
    ADVANCED: "Timing and tuning that hardly anyone needs to change.",
}


def _same(name: str, section: str, help: str = "", default: str | None = None) -> Param:
    """The node's parameter, in a section of this table."""
    row = NODE[name]
    return replace(
        row,
        section=section,
        help=help or row.help.replace(" Not in Disque.", ""),
        default=row.default if default is None else default,
    )


_network = partial(Param, section=NETWORK)
_general = partial(Param, section=GENERAL)
_events = partial(Param, section=EVENTS)
_redis = partial(Param, section=REDIS)

TABLE = make_table(
    [
        _network(
            "listen-addr",
            ListenAddress(),
            ":4777",
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
        _same("maxclients-per-ip", NETWORK),
        _same(
            "tls-port",
            TLS,
            "TCP port for clients that speak TLS; 0 for none. It listens on the host "
            "of `listen-addr`, whose port may be 0.",
        ),
        *(
            _same(name, TLS)
            for name in (
                "tls-cert-file",
                "tls-key-file",
                "tls-key-file-pass",
            )
        ),
        _same(
            "tls-ca-cert-file",
            TLS,
            "Certificates (PEM) of the authorities that sign those of clients, with "
            "`tls-auth-clients`.",
        ),
        *(
            _same(name, TLS)
            for name in (
                "tls-ca-cert-dir",
                "tls-auth-clients",
                "tls-protocols",
                "tls-ciphers",
                "tls-ciphersuites",
                "tls-prefer-server-ciphers",
                "tls-session-caching",
            )
        ),
        replace(
            _same(
                "dir",
                GENERAL,
                "Working directory; files are written there. The default is the directory in which "
                "bananaq is started.",
            ),
            settable=False,
            protected=False,
            always_rewritten=False,
        ),
        _same(
            "pidfile", GENERAL, "File for the process id, removed at the end; empty for none.", ""
        ),
        _general(
            "log-level",
            Choice("debug", "info", "warn", "error", "fatal"),
            "info",
            "The least important messages to log. There are no degrees above warn: error and fatal "
            "are taken as warn.",
            settable=True,
        ),
        _same("logfile", GENERAL),
        _same("log-format", GENERAL),
        _events(
            "store",
            Choice("embedded", "redis"),
            "embedded",
            "What keeps the events: bananaq itself (embedded), or a Redis that other bananaqs may "
            "use at the same time (redis). `redis-addr` or `redis-cluster` mean redis where "
            "`store` is not given, or is given in what they override, such as the file when they "
            "are options.",
        ),
        _events(
            "bg-qadd-pool-size",
            Int(1),
            "128",
            "QADD NOBLOCK is refused when ten times as many of them wait to be stored.",
            settable=True,
        ),
        _events(
            "okq-compat",
            YesNo(),
            "yes",
            "Take the commands of okq as well: QLPUSH, QRPUSH, QRPOP, QLPEEK, QRPEEK, QREGISTER, "
            "and QACK and QNOTIFY with its arguments.",
        ),
        _events(
            "okq-group",
            Text("the name of a group", 512),
            "okq",
            "The consumer group that the commands of okq work for.",
        ),
        _events(
            "okq-expire",
            Int(1),
            "604800",
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
        _redis(
            "redis-addr",
            RedisAddresses(),
            f"127.0.0.1:{REDIS_PORT}",
            "Where the Redis is. Of a cluster one node is enough; of several the first is asked. "
            "With `redis-service`: where its sentinels are.",
        ),
        _redis("redis-cluster", YesNo(), "no", "The Redis is a Redis Cluster."),
        _redis(
            "redis-password",
            Text("text of at most 512 bytes", 512),
            "",
            "Password of the Redis; empty gives none.",
            secret=True,
        ),
        _redis(
            "redis-username",
            Text("text of at most 512 bytes", 512),
            "",
            "User of the Redis whose password is given; empty for the default user.",
        ),
        _redis("redis-tls", YesNo(), "no", "Connect to the Redis, and to sentinels, by TLS."),
        _redis(
            "redis-tls-ca-cert-file",
            Text("a file", 4096),
            "",
            "Certificates of the authorities to trust (PEM); empty trusts those of the system.",
        ),
        _redis(
            "redis-tls-cert-file",
            Text("a file", 4096),
            "",
            "Our certificate (PEM), for a Redis that wants one; empty shows none.",
        ),
        _redis(
            "redis-tls-key-file",
            Text("a file", 4096),
            "",
            "The key of our certificate, if it is not in the same file.",
        ),
        _redis(
            "redis-tls-check-hostname",
            YesNo(),
            "yes",
            "The certificate of a Redis has to name the host that is connected to.",
        ),
        _redis(
            "redis-service",
            Text("the name of a service", 512),
            "",
            "Name of the Redis with sentinels: `redis-addr` are these then, and the primary is "
            "where they say, also after a failover. Empty: there are no sentinels.",
        ),
        _redis(
            "redis-sentinel-username",
            Text("text of at most 512 bytes", 512),
            "",
            "User of the sentinels; empty for the default user.",
        ),
        replace(
            _redis(
                "redis-sentinel-password",
                Text("text of at most 512 bytes", 512),
                "",
                "Password of the sentinels; empty gives none.",
            ),
            secret=True,
        ),
        _redis(
            "redis-db",
            Int(0),
            "0",
            "Number of the database. A cluster has only 0.",
        ),
        _redis(
            "redis-prefix",
            KeyPrefix(),
            "bananaq",
            "How the names of all keys begin. bananaqs with the same prefix share their events.",
        ),
        _redis("redis-pool-size", Int(1), "10", "Connections to each Redis for events."),
        _redis(
            "redis-timeout",
            Int(1, 3600),
            "5",
            "A Redis that has not replied for so long is given up: whoever waits for it gets an "
            "error, and what was asked for may have happened.",
            unit="seconds",
        ),
        _same("requirepass", SECURITY),
        _same(
            "aclfile",
            SECURITY,
            "File with users, each in a line like `user alice on >password ~mail.* +@all`; "
            "relative to `dir`. It has to be there and right, or bananaq does not start. ACL LOAD "
            "reads it again, ACL SAVE writes it. Empty: users are in `user` settings.",
        ),
        _same(
            "user",
            SECURITY,
            "A user and its rules, as ACL SETUSER has them: a list of lines, or a mapping of names "
            "to rules. Not together with `aclfile`. CONFIG REWRITE writes the users that there "
            "are.",
        ),
        _same("acllog-max-len", SECURITY, "Entries that ACL LOG keeps. As in Redis."),
        _same(
            "auth-failures-per-minute",
            SECURITY,
            "Wrong passwords that may be tried from one IP address (or one /64 network of IPv6) in "
            "a minute; who tries more has to wait, and is told so (TRYAGAIN). The same wrong "
            "password again costs nothing. Clients on the unix socket are not limited; 0 limits "
            "nobody.",
        ),
        _same(
            "protected-mode",
            SECURITY,
            "Without a password and without a host in `listen-addr`, serve only clients on this "
            "machine.",
        ),
        _same(
            "enable-protected-configs",
            SECURITY,
            "Who may CONFIG SET what names a file, which are those of TLS: nobody (no), every "
            "client (yes), or those on this machine, over loopback or the unix socket (local). As "
            "in Redis 7.",
        ),
        _same(
            "enable-debug-command",
            SECURITY,
            "Who may use DEBUG. As in Redis 7, but without effect: there is no DEBUG here.",
        ),
        _same(
            "maxmemory",
            LIMITS,
            "Memory for events and groups, with `store embedded`; 0 sets no limit. When it is "
            "reached QADD is refused, and everything else goes on.",
        ),
        _same(
            "maxmemory-clients",
            LIMITS,
            "What all clients together may make bananaq hold beside events: requests that are not "
            "complete or not served yet, and replies that are not read. Beyond it those that hold "
            "most are disconnected, unless they said CLIENT NO-EVICT ON. A percentage is one of "
            "`maxmemory`, or of 32mb where that is less; 0 sets no limit.",
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
        _same(
            "metrics-port",
            METRICS,
            "TCP port for Prometheus, which finds the figures of bananaq at `/metrics` there; 0: "
            "there is none. Needs the extra `metrics`.",
        ),
        _same("metrics-bind", METRICS),
        _same(
            "metrics-max-queues",
            METRICS,
            "Queues whose figures are shown by their names, with "
            "at most ten times as many groups: the first ones that bananaq sees. The others are "
            "added up.",
        ),
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
    maxclients_per_ip: int
    tls_port: int
    tls_cert_file: str
    tls_key_file: str
    tls_key_file_pass: str
    tls_ca_cert_file: str
    tls_ca_cert_dir: str
    tls_auth_clients: str
    tls_protocols: tuple[str, ...]
    tls_ciphers: str
    tls_ciphersuites: str
    tls_prefer_server_ciphers: bool
    tls_session_caching: bool
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
    redis_username: str
    redis_tls: bool
    redis_tls_ca_cert_file: str
    redis_tls_cert_file: str
    redis_tls_key_file: str
    redis_tls_check_hostname: bool
    redis_service: str
    redis_sentinel_username: str
    redis_sentinel_password: str
    redis_db: int
    redis_prefix: str
    redis_pool_size: int
    redis_timeout: int
    requirepass: str
    aclfile: str
    user: tuple[tuple[str, ...], ...]
    acllog_max_len: int
    auth_failures_per_minute: int
    protected_mode: bool
    enable_protected_configs: str
    enable_debug_command: str
    maxmemory: int
    maxmemory_clients: MemoryLimit
    client_output_buffer_limit: OutputBufferLimit
    client_query_buffer_limit: int
    proto_max_bulk_len: int
    proto_inline_max_size: int
    slowlog_log_slower_than: int
    slowlog_max_len: int
    latency_monitor_threshold: int
    metrics_port: int
    metrics_bind: tuple[str, ...]
    metrics_max_queues: int
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
    def tls_cluster(self) -> bool:
        """There are no other nodes: the node's name for it."""
        return False

    @property
    def loglevel(self) -> str:
        """``log_level`` in the node's words: debug, notice or warning."""
        return _NODE_LEVELS.get(self.log_level, "warning")

    def config_set(self, pairs: Sequence[tuple[bytes, bytes]]) -> list[str]:
        """As ``Settings.config_set``. What is SET counts from now on as if the file had it."""
        changed = super().config_set(pairs)
        for name, _ in pairs:
            self.below.pop(name.decode().lower(), None)
        return changed

    def written(self) -> BananaSettings:
        """What CONFIG REWRITE has to write: these settings without what overrides the file."""
        return BananaSettings({**self.values(), **self.below}, file=self.file)
