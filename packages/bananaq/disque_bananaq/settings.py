"""The configuration of bananaq: its parameters and their values.

Owns the table. A parameter that the node also has is the node's row, with other words if the node's
speak of jobs; so code shared by both finds the same attributes. ``options`` reads the values from
command line, environment and file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from disque_bananaq.types import (
    REDIS_PORT,
    KeyPrefix,
    ListenAddress,
    RedisAddresses,
)
from disque_trio.config import TABLE as NODE
from disque_trio.config import OutputBufferLimit, Param, Settings
from disque_trio.config.memory_limit import MemoryLimit
from disque_trio.config.params import Table, make_table
from disque_trio.config.types import Choice, Int, Text, YesNo
from disque_trio.notation.addresses import Address

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
    TLS: "Encryption of client connections, as in Redis 7.",
    GENERAL: "The process: where it works and where it logs.",
    EVENTS: "Where events are kept, and which commands there are for them.",
    AOF: "Events on disk, with `store embedded`. A Redis has its own settings for that.",
    REDIS: "The Redis that keeps the events, with `store redis`.",
    SECURITY: "Who may use bananaq.",
    LIMITS: "What bananaq and a single client may hold.",
    OBSERVE: "What bananaq remembers about slow commands and stalls.",
    METRICS: "Metrics for Prometheus: docs/monitoring.md.",
    ADVANCED: "Timing and tuning that hardly anyone needs to change.",
}


def _same(name: str, section: str, help: str = "", default: str | None = None) -> Param:
    """Return the node's parameter, for a section of this table."""
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
            "Where clients connect. Without a host, on all addresses of the machine, IPv6 and "
            "IPv4; see `protected-mode` for what that means without a password.",
        ),
        _same("tcp-backlog", NETWORK),
        _same("unixsocket", NETWORK),
        _same("unixsocketperm", NETWORK),
        _same(
            "timeout",
            NETWORK,
            "Close a client that has been idle for this long; 0: never. Clients that wait in "
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
            "Certificates (PEM) of the authorities that sign client certificates, with "
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
                "Working directory, where files are written. The default is the directory in which "
                "bananaq is started.",
            ),
            settable=False,
            protected=False,
            always_rewritten=False,
        ),
        _same("pidfile", GENERAL, "File for the process id, removed on exit; empty for none.", ""),
        _general(
            "log-level",
            Choice("debug", "info", "warn", "error", "fatal"),
            "info",
            "The least important messages to log. There are no levels above warn: error and fatal "
            "are treated as warn.",
            settable=True,
        ),
        _same("logfile", GENERAL),
        _same("log-format", GENERAL),
        _events(
            "store",
            Choice("embedded", "redis"),
            "embedded",
            "What keeps the events: bananaq itself (embedded), or a Redis that other bananaqs may "
            "use at the same time (redis). `redis-addr` and `redis-cluster` imply redis, unless "
            "`store` is given at the same level or at one that overrides it (file, environment, "
            "command line).",
        ),
        _events(
            "bg-qadd-pool-size",
            Int(1),
            "128",
            "QADD NOBLOCK is refused when ten times as many of them are waiting to be stored.",
            settable=True,
        ),
        _events(
            "okq-compat",
            YesNo(),
            "yes",
            "Also accept the commands of okq: QLPUSH, QRPUSH, QRPOP, QLPEEK, QRPEEK, QREGISTER, "
            "and QACK and QNOTIFY with its arguments.",
        ),
        _events(
            "okq-group",
            Text("the name of a group", 512),
            "okq",
            "The consumer group used by the commands of okq.",
        ),
        _events(
            "okq-expire",
            Int(1),
            "604800",
            "How long events added by QLPUSH or QRPUSH exist.",
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
            "When to force written data to disk: every second, before each reply, or when the "
            "kernel chooses.",
        ),
        _same("auto-aof-rewrite-percentage", AOF),
        _same("auto-aof-rewrite-min-size", AOF),
        _same("aof-load-truncated", AOF),
        _same("aof-scrub-hours", AOF),
        _redis(
            "redis-addr",
            RedisAddresses(),
            f"127.0.0.1:{REDIS_PORT}",
            "Where the Redis is. One node of a cluster is enough; if there are several, the first "
            "is asked. With `redis-service`: where its sentinels are.",
        ),
        _redis("redis-cluster", YesNo(), "no", "The Redis is a Redis Cluster."),
        _redis(
            "redis-password",
            Text("text of at most 512 bytes", 512),
            "",
            "Password of the Redis; empty for none.",
            secret=True,
        ),
        _redis(
            "redis-username",
            Text("text of at most 512 bytes", 512),
            "",
            "User of the Redis that the password belongs to; empty for the default user.",
        ),
        _redis("redis-tls", YesNo(), "no", "Connect to the Redis, and to sentinels, with TLS."),
        _redis(
            "redis-tls-ca-cert-file",
            Text("a file", 4096),
            "",
            "Certificates (PEM) of the authorities to trust; empty for those of the system.",
        ),
        _redis(
            "redis-tls-cert-file",
            Text("a file", 4096),
            "",
            "Our certificate (PEM), for a Redis that requires one; empty for none.",
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
            "The certificate of a Redis must name the host that is connected to.",
        ),
        _redis(
            "redis-service",
            Text("the name of a service", 512),
            "",
            "Name of the Redis, as its sentinels know it. `redis-addr` are then the sentinels, "
            "which say where the primary is, also after a failover. Empty: no sentinels.",
        ),
        _redis(
            "redis-sentinel-username",
            Text("text of at most 512 bytes", 512),
            "",
            "User for the sentinels; empty for the default user.",
        ),
        replace(
            _redis(
                "redis-sentinel-password",
                Text("text of at most 512 bytes", 512),
                "",
                "Password for the sentinels; empty for none.",
            ),
            secret=True,
        ),
        _redis(
            "redis-db",
            Int(0),
            "0",
            "Number of the database. A cluster only has 0.",
        ),
        _redis(
            "redis-prefix",
            KeyPrefix(),
            "bananaq",
            "Prefix of the names of all keys. bananaqs with the same prefix share their events.",
        ),
        _redis("redis-pool-size", Int(1), "10", "Connections to each Redis for events."),
        _redis(
            "redis-timeout",
            Int(1, 3600),
            "5",
            "Give up on a Redis that has not replied for this long: clients that wait for it get "
            "an error, and what they asked for may have happened.",
            unit="seconds",
        ),
        _same("requirepass", SECURITY),
        _same(
            "aclfile",
            SECURITY,
            "File with users, each in a line like `user alice on >password ~mail.* +@all`; "
            "relative to `dir`. If it is missing or invalid, bananaq does not start. ACL LOAD "
            "reads it again, ACL SAVE writes it. Empty: users are in `user` settings.",
        ),
        _same(
            "user",
            SECURITY,
            "A user and its rules, in the form of ACL SETUSER: a list of lines, or a mapping of "
            "names to rules. Not together with `aclfile`. CONFIG REWRITE writes the existing "
            "users.",
        ),
        _same("acllog-max-len", SECURITY, "Entries that ACL LOG keeps. As in Redis."),
        _same(
            "auth-failures-per-minute",
            SECURITY,
            "How many wrong passwords may be tried from one IP address (or one /64 network of "
            "IPv6) in a minute. Clients that try more must wait, and get the error TRYAGAIN. The "
            "same wrong password again does not count. Clients on the Unix socket are not limited; "
            "0 sets no limit.",
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
            "Who may CONFIG SET the settings that name files, which are those of TLS: nobody (no), "
            "every client (yes), or clients on this machine, over loopback or the Unix socket "
            "(local). As in Redis 7.",
        ),
        _same(
            "enable-debug-command",
            SECURITY,
            "Who may use DEBUG. As in Redis 7, but without effect, since there is no DEBUG here.",
        ),
        _same(
            "maxmemory",
            LIMITS,
            "Memory for events and groups, with `store embedded`; 0 sets no limit. When it is "
            "reached, QADD is refused, and everything else continues.",
        ),
        _same(
            "maxmemory-clients",
            LIMITS,
            "How much memory all clients together may use besides events: for requests that are "
            "incomplete or not served yet, and for replies that are not read. Beyond it, those "
            "that use most are disconnected, except after CLIENT NO-EVICT ON. A percentage is "
            "of `maxmemory`, or of 32mb if `maxmemory` is less; 0 sets no limit.",
        ),
        _same("client-output-buffer-limit", LIMITS),
        _same(
            "client-query-buffer-limit",
            LIMITS,
            "The most input of one client that is held before its connection is closed.",
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
            "TCP port for Prometheus, which finds the metrics of bananaq at `/metrics` there; 0 "
            "for none. Needs the extra `metrics`.",
        ),
        _same("metrics-bind", METRICS),
        _same(
            "metrics-max-queues",
            METRICS,
            "How many queues have their metrics shown by name, with at most ten times as many "
            "groups: the first ones that bananaq sees. The others are added up.",
        ),
        _same(
            "hz",
            ADVANCED,
            "How many times per second background work runs: idle clients, statistics.",
        ),
        _same("max-commands-per-turn", ADVANCED),
    ]
)

_NODE_LEVELS = {"debug": "debug", "info": "notice"}


class BananaSettings(Settings):
    """Every parameter of bananaq as an attribute; see the table for units and meaning.

    Attributes:
        below: for parameters overridden by the command line or the environment, the values from
            the file and the defaults, which CONFIG REWRITE writes. CONFIG SET of a parameter
            removes it.
        warnings: warnings about the options, one per line.
    """

    table: ClassVar[Table] = TABLE
    only_yaml = True

    listen_addr: Address
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
    aof_scrub_hours: int
    redis_addr: tuple[Address, ...]
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

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        file: str | None = None,
        started_in: str = "",
    ) -> None:
        super().__init__(values, file=file, started_in=started_in)
        self.below: dict[str, Any] = {}
        self.warnings: list[str] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} file={self.file!r}>"  # no passwords

    @property
    def bind(self) -> tuple[str, ...]:
        """The addresses to listen on; empty for all. Named as in the node's settings."""
        return (self.listen_addr.host,) if self.listen_addr.host else ()

    @property
    def port(self) -> int:
        """The TCP port; 0 for none. Named as in the node's settings."""
        return self.listen_addr.port

    @property
    def tls_cluster(self) -> bool:
        """False, since there are no other nodes. Named as in the node's settings."""
        return False

    @property
    def loglevel(self) -> str:
        """``log_level`` in the node's terms: debug, notice or warning."""
        return _NODE_LEVELS.get(self.log_level, "warning")

    def config_set(self, pairs: Sequence[tuple[bytes, bytes]]) -> list[str]:
        """Like ``Settings.config_set``. From then on, the new value counts as if from the file."""
        changed = super().config_set(pairs)
        for name, _ in pairs:
            self.below.pop(name.decode().lower(), None)
        return changed

    def written(self) -> BananaSettings:
        """Return what CONFIG REWRITE writes: these settings without overrides of the file."""
        return BananaSettings({**self.values(), **self.below}, file=self.file)
