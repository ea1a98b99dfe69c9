"""The configuration of a Disque node: ``Settings`` with the node's table.

Other programs have a subclass of ``Settings`` with a table of their own.
"""

from __future__ import annotations

from typing import ClassVar

from disque_trio.config.memory_limit import MemoryLimit
from disque_trio.config.params import Table
from disque_trio.config.settings import Settings
from disque_trio.config.table import TABLE
from disque_trio.config.types import OutputBufferLimit


class Config(Settings):
    """Every parameter of a node as an attribute; see the table for units and meaning."""

    table: ClassVar[Table] = TABLE

    bind: tuple[str, ...]
    port: int
    tcp_backlog: int
    unixsocket: str
    unixsocketperm: int
    timeout: int
    tcp_keepalive: int
    maxclients: int
    maxclients_per_ip: int
    dir: str
    daemonize: bool
    processes: int
    pidfile: str
    loglevel: str
    logfile: str
    log_format: str
    syslog_enabled: bool
    syslog_ident: str
    syslog_facility: str
    requirepass: str
    aclfile: str
    user: tuple[tuple[str, ...], ...]
    acllog_max_len: int
    auth_failures_per_minute: int
    protected_mode: bool
    enable_protected_configs: str
    enable_debug_command: str
    rename_commands: dict[str, str]
    maxmemory: int
    paging: bool
    paging_above: int
    page_dir: str
    maxmemory_policy: str
    result_ttl: int
    default_replicate: int
    maxmemory_samples: int
    queue_max_idle_time: int
    maxmemory_clients: MemoryLimit
    client_output_buffer_limit: OutputBufferLimit
    client_query_buffer_limit: int
    proto_max_bulk_len: int
    proto_inline_max_size: int
    databases: int
    appendonly: bool
    appendfilename: str
    appendfsync: str
    no_appendfsync_on_rewrite: bool
    auto_aof_rewrite_percentage: int
    auto_aof_rewrite_min_size: int
    aof_rewrite_incremental_fsync: bool
    aof_load_truncated: bool
    aof_scrub_hours: int
    aof_enqueue_jobs_once: bool
    requeue_at_start: bool
    cluster_config_file: str
    cluster_node_timeout: int
    cluster_failure_domain: str
    cluster_extensions: str
    cluster_announce_ip: str
    cluster_announce_port: int
    cluster_announce_tls_port: int
    cluster_link_sendbuf_limit: int
    maxmemory_bus: MemoryLimit
    cluster_secret: tuple[str, ...]
    cluster_identity: str
    cluster_encrypt: bool
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
    tls_cluster: bool
    event_log: bool
    event_log_dir: str
    event_log_segment_size: int
    event_log_segment_seconds: int
    event_log_compress: bool
    event_log_keep_hours: int
    event_log_max_size: int
    slowlog_log_slower_than: int
    slowlog_max_len: int
    latency_monitor_threshold: int
    watchdog_period: int
    metrics_port: int
    metrics_bind: tuple[str, ...]
    metrics_max_queues: int
    hz: int
    max_commands_per_turn: int
    activerehashing: bool

    @property
    def known_port(self) -> int:
        """The port by which others know this node: ``port`` or, if there is none, ``tls-port``; 0:
        it has no TCP port."""
        return self.port or self.tls_port
