"""The table of parameters of a Disque node, each declared once.

Has names, types, defaults, what CONFIG SET accepts and the help texts. Loading, CONFIG GET, SET and
REWRITE, the checks and docs/configuration.md are all derived from it. Names, defaults and what can
be SET are Disque's; the help says which parameters Disque does not have.
"""

from __future__ import annotations

from functools import partial

from disque_trio.config.memory_limit import MemoryOrPercent
from disque_trio.config.params import Param, make_table
from disque_trio.config.types import (
    LONG_MAX,
    Addresses,
    Choice,
    Ciphers,
    CipherSuites,
    Directory,
    FileMode,
    FileName,
    Includes,
    Int,
    IpAddress,
    KeepAlive,
    Memory,
    OutputLimit,
    Renames,
    Secrets,
    Text,
    TlsProtocols,
    UserLines,
    YesNo,
)

NETWORK = "Network"
GENERAL = "General"
SECURITY = "Security"
LIMITS = "Limits and memory"
AOF = "Append only file"
CLUSTER = "Cluster"
TLS = "TLS"
EVENTS = "Event log"
OBSERVE = "Slow log and latency"
METRICS = "Metrics"
ADVANCED = "Advanced"

SECTIONS = {
    NETWORK: "Where the node listens, and how it treats connections.",
    GENERAL: "The process: where it works and where it logs.",
    SECURITY: "Who may use the node, and with which commands.",
    LIMITS: "What the node and a single client may hold.",
    AOF: ("Jobs on disk: docs/durability.md says what each appendfsync promises."),
    CLUSTER: (
        "Several nodes together. They talk over the cluster bus, which is on the port for clients "
        "plus 10000, on the same addresses. A node that is in no cluster listens there as well, so "
        "that others can meet it. With `port 0`, the bus is on `tls-port` plus 10000; with "
        "neither, there is no bus."
    ),
    TLS: (
        "Encryption for clients and the cluster bus, with the same certificates: "
        "docs/certificates.md shows how to make and how to change them. As in Redis 7; not in "
        "Disque."
    ),
    EVENTS: "What happened to which job, as JSON lines in files: docs/eventlog.md. Not in Disque.",
    OBSERVE: "What the node remembers about slow commands and stalls.",
    METRICS: "Figures for Prometheus: docs/monitoring.md. Not in Disque.",
    ADVANCED: "Timing and tuning that hardly anyone needs to change.",
}

_NO_EFFECT = " Accepted so that files of other versions load; it has no effect."

KB = 1024
MAX_BULK = 512 * 1024**2

_network = partial(Param, section=NETWORK)
_general = partial(Param, section=GENERAL)
_security = partial(Param, section=SECURITY)
_limits = partial(Param, section=LIMITS)
_aof = partial(Param, section=AOF)
_cluster = partial(Param, section=CLUSTER)
_tls = partial(Param, section=TLS)
_events = partial(Param, section=EVENTS)
_observe = partial(Param, section=OBSERVE)
_metrics = partial(Param, section=METRICS)
_advanced = partial(Param, section=ADVANCED)

TABLE = make_table(
    [
        _network(
            "bind",
            Addresses(16),
            "",
            "Addresses to listen on. Without any, the node listens on all of them, IPv6 and IPv4; "
            "see `protected-mode` for what that means without a password. The cluster bus listens "
            "on the same addresses, and connects to other nodes from the matching one.",
        ),
        _network(
            "port",
            Int(0, 55535),
            "7711",
            "TCP port for clients; 0: no TCP port. The cluster bus uses this port plus 10000, "
            "hence the upper bound.",
        ),
        _network(
            "tcp-backlog",
            Int(1),
            "511",
            "Connections that may wait to be accepted. The kernel limits it to "
            "`net.core.somaxconn`.",
        ),
        _network(
            "unixsocket",
            Text("a path, or an empty text for no unix socket"),
            "",
            "Path of a unix socket to listen on as well; empty for none.",
        ),
        _network(
            "unixsocketperm",
            FileMode(),
            "0",
            "Permissions of the unix socket in octal, such as 770; 0 leaves them to the umask.",
        ),
        _network(
            "timeout",
            Int(0),
            "0",
            "Close a client that has been idle for this long; 0: never. Clients blocked in GETJOB "
            "are not idle.",
            unit="seconds",
            settable=True,
        ),
        _network(
            "tcp-keepalive",
            KeepAlive(),
            "no",
            "Probe silent connections, so that dead peers are found: yes (every 300 seconds), no, "
            "or the seconds between probes.",
            unit="seconds",
            settable=True,
        ),
        _network(
            "maxclients",
            Int(1),
            "10000",
            "Clients connected at the same time; further ones get an error and are closed.",
            settable=True,
        ),
        _network(
            "maxclients-per-ip",
            Int(0),
            "0",
            "Clients connected at the same time from one IP address; further ones get an error "
            "and are closed. For an IPv6 address, the first 64 bits count. Clients on the unix "
            "socket are not limited; 0: no limit. Not in Disque.",
            settable=True,
        ),
        _general(
            "dir",
            Directory(),
            ".",
            "Working directory; files are written there. The default is the directory in which "
            "the node is started. CONFIG GET shows the absolute path, and REWRITE always writes "
            "it.",
            settable=True,
            protected=True,
            always_rewritten=True,
        ),
        _general(
            "daemonize",
            YesNo(),
            "no",
            "Detach from the terminal and run in the background. The command returns once the node "
            "serves clients, or cannot start. Leave it at no under systemd or in a container.",
        ),
        _general(
            "processes",
            Int(1, 64),
            "1",
            "Number of processes, each a node of one cluster, to use that many cores. All accept "
            "clients at `port` and `tls-port`. The first one has `port` and `dir` for its own; "
            "each further one has the next port, and a directory 1, 2 ... in `dir`; all other "
            "settings apply to each. docs/operations.md has more. Not in Disque.",
        ),
        _general(
            "pidfile",
            Text("a path"),
            "/var/run/disque.pid",
            "Where a node with `daemonize yes` writes its process id.",
        ),
        _general(
            "loglevel",
            Choice("debug", "verbose", "notice", "warning"),
            "notice",
            "The least important messages to log.",
            settable=True,
        ),
        _general(
            "logfile",
            Text("a path, or an empty text for the standard output"),
            "",
            "File to append the log to; empty: standard output.",
        ),
        _general(
            "log-format",
            Choice("auto", "console", "json"),
            "auto",
            "Format of log lines: auto is console on a terminal and json otherwise. Not in Disque.",
        ),
        _general(
            "syslog-enabled",
            YesNo(),
            "no",
            "Also log to syslog.",
            file_only=True,
        ),
        _general(
            "syslog-ident",
            Text(),
            "disque",
            "The name of this node in syslog.",
            file_only=True,
        ),
        _general(
            "syslog-facility",
            Choice("user", *(f"local{number}" for number in range(8))),
            "local0",
            "The syslog facility.",
        ),
        _general(
            "include",
            Includes(),
            "",
            "Another file to read, relative to this one. In disque.conf it is read in place, so "
            "later lines override it; in YAML, included files are read first, and the file's own "
            "settings override them.",
            file_only=True,
        ),
        _security(
            "requirepass",
            Text("text of at most 512 bytes", 512),
            "",
            "Password that clients give with AUTH; empty: none is needed.",
            settable=True,
            secret=True,
        ),
        _security(
            "aclfile",
            Text("a path, or an empty text for no file"),
            "",
            "File with users, each in a line like `user alice on >password ~mail.* +@all`; "
            "relative to `dir`. It has to exist and be valid, or the node does not start. ACL "
            "LOAD reads it again, ACL SAVE writes it. Empty: users are in `user` settings. As in "
            "Redis; not in Disque.",
            immutable=True,
        ),
        _security(
            "user",
            UserLines(),
            "",
            "A user and its rules, as in ACL SETUSER: in disque.conf one line per user, in YAML a "
            "list of lines, or a mapping of names to rules. Not together with `aclfile`. CONFIG "
            "REWRITE writes the current users. As in Redis; not in Disque.",
            file_only=True,
            secret=True,
        ),
        _security(
            "acllog-max-len",
            Int(0),
            "128",
            "Entries that ACL LOG keeps. As in Redis; not in Disque.",
            settable=True,
        ),
        _security(
            "auth-failures-per-minute",
            Int(0),
            "10",
            "Wrong passwords that may be tried from one IP address (or one /64 network of IPv6) "
            "per minute; after that, clients have to wait, and are told so (TRYAGAIN). The same "
            "wrong password again costs nothing. Clients on the unix socket are not limited; 0: "
            "no limit. Not in Disque.",
            settable=True,
        ),
        _security(
            "protected-mode",
            YesNo(),
            "yes",
            "Without a password and without `bind`, serve only clients on this machine. Without "
            "`bind`, `tls-cluster`, `cluster-identity` and `cluster-secret`, accept only nodes on "
            "this machine into the cluster, password or not: the bus asks for none. To admit "
            "others, name addresses with `bind`, or use `cluster-secret`, `cluster-identity` or "
            "`tls-cluster`. Not in Disque.",
            settable=True,
        ),
        _security(
            "enable-protected-configs",
            Choice("no", "yes", "local"),
            "no",
            "Who may CONFIG SET `dir` and `event-log-dir`, and so write files anywhere, and the "
            "TLS files to other paths: nobody (no), every client (yes), or clients on this "
            "machine, over loopback or the unix socket (local). As in Redis 7; not in Disque.",
            immutable=True,
        ),
        _security(
            "enable-debug-command",
            Choice("no", "yes", "local"),
            "no",
            "Who may use DEBUG, which can stop or crash the node and remove all jobs: nobody "
            "(no), every client (yes), or clients on this machine (local). As in Redis 7; Disque "
            "allows every client.",
            immutable=True,
        ),
        _security(
            "rename-command",
            Renames(),
            "",
            "Give a command another name, or remove it with an empty one. In disque.conf one line "
            "per command, in YAML a mapping.",
            file_only=True,
            attribute="rename_commands",
        ),
        _limits(
            "maxmemory",
            Memory(),
            "1gb",
            "Memory for jobs and queues; 0: no limit. Above 75% of it, new jobs go to other nodes; "
            "without one that can take them, jobs that can be spared are evicted, and if that is "
            "not enough, new ones are refused (NOREPL). Above 95%, this happens whether there are "
            "other nodes or not (OOM).",
            unit="bytes",
            settable=True,
        ),
        _limits(
            "paging",
            YesNo(),
            "yes",
            "Let the middle of long queues lie on disk while memory is short, and read it back "
            "before it is needed. Has no effect without `appendonly yes` and `maxmemory`; "
            "docs/sizing.md has more. Not in Disque.",
            settable=True,
            needs=("appendonly", "maxmemory"),
        ),
        _limits(
            "paging-above",
            Int(1, 74),
            "50",
            "With `paging`: the share of `maxmemory`, in percent, above which jobs go to disk. Not "
            "in Disque.",
            unit="percent",
            settable=True,
        ),
        _limits(
            "page-dir",
            FileName(),
            "pages",
            "With `paging`: the directory in `dir` for jobs on disk. Its files are only used by "
            "the process that wrote them, and removed at the next start. Not in Disque.",
            file_only=True,
        ),
        _limits(
            "maxmemory-policy",
            Choice("acks", "noeviction"),
            "acks",
            "What may be evicted when memory runs short: acknowledged jobs and delivered jobs "
            "with RETRY 0 (acks), or nothing (noeviction).",
            settable=True,
        ),
        _limits(
            "default-replicate",
            Int(1, 65535),
            "2",
            "How many nodes hold a job whose ADDJOB, and the policy of whose queue, do not say so: "
            "this many, or all nodes of a smaller cluster. With 2, the loss of a node loses no "
            "job, and producers of a cluster of three go on with two nodes. C Disque has 3.",
            settable=True,
        ),
        _limits(
            "result-ttl",
            Int(0),
            "60",
            "How long the results of jobs (ACKJOB with RESULT) are kept for WAITJOB, by each node "
            "that held the job. They may take a tenth of maxmemory, or 64 MiB if that is not set; "
            "then the oldest are dropped. 0 keeps none: only clients that are already waiting get "
            "a result. Not in Disque.",
            unit="seconds",
            settable=True,
        ),
        _limits(
            "maxmemory-samples",
            Int(1),
            "5",
            "Accepted so that files of the C server load; it has no effect: eviction here knows "
            "what may go and needs no samples.",
            settable=True,
        ),
        _limits(
            "queue-max-idle-time",
            Int(1),
            "300",
            "How long an empty, unused queue is kept, with the counters of QSTAT. At most 10 "
            "seconds when 75% of `maxmemory` are used, 2 at 95%. A paused queue stays. Not in "
            "Disque, which has 300 built in.",
            unit="seconds",
            settable=True,
        ),
        _limits(
            "maxmemory-clients",
            MemoryOrPercent(),
            "100%",
            "What all clients together may make the node hold besides jobs: requests that are not "
            "complete or not served yet, and replies that are not read. Above that, the clients "
            "that hold the most are disconnected, unless they said CLIENT NO-EVICT ON. A "
            "percentage is of `maxmemory`, or of 32mb if `maxmemory` is less; 100% admits any job "
            "that fits into it. 0: no limit. Not in Disque; Redis has 0 by default.",
            unit="bytes",
            settable=True,
        ),
        _limits(
            "client-output-buffer-limit",
            OutputLimit(),
            "normal 0 0 0",
            "Close a client that does not read its replies: at once beyond the hard limit, or "
            "after that many seconds beyond the soft limit. 0 switches a limit off.",
            settable=True,
        ),
        _limits(
            "client-query-buffer-limit",
            Memory(KB),
            "1gb",
            "Input of one client that the node holds before it closes the connection. Not in "
            "Disque, which has 1gb built in.",
            unit="bytes",
            settable=True,
        ),
        _limits(
            "proto-max-bulk-len",
            Memory(KB, MAX_BULK),
            "512mb",
            "The longest single argument, and so the largest job. Not in Disque, which has 512mb "
            "built in.",
            unit="bytes",
            settable=True,
        ),
        _limits(
            "proto-inline-max-size",
            Memory(KB),
            "64kb",
            "The longest inline command. Not in Disque, which has 64kb built in.",
            unit="bytes",
            settable=True,
        ),
        _limits(
            "databases",
            Int(1),
            "16",
            "There is only database 0." + _NO_EFFECT,
        ),
        _aof(
            "appendonly",
            YesNo(),
            "no",
            "Log jobs to a file, so that they survive a restart. The files in config/ say yes.",
            settable=True,
        ),
        _aof(
            "appendfilename",
            FileName(),
            "disque.aof",
            "Name of the file in `dir`.",
            file_only=True,
        ),
        _aof(
            "appendfsync",
            Choice("everysec", "always", "no"),
            "everysec",
            "When written jobs are forced to disk: every second, before each reply (always), or "
            "when the kernel chooses (no).",
            settable=True,
        ),
        _aof(
            "no-appendfsync-on-rewrite",
            YesNo(),
            "no",
            "Accepted so that files of the C server load; it has no effect.",
        ),
        _aof(
            "auto-aof-rewrite-percentage",
            Int(0),
            "100",
            "Compact the file when it has grown by this much; 0: never.",
            unit="percent",
            settable=True,
        ),
        _aof(
            "auto-aof-rewrite-min-size",
            Memory(),
            "64mb",
            "Do not compact a smaller file.",
            unit="bytes",
            settable=True,
        ),
        _aof(
            "aof-rewrite-incremental-fsync",
            YesNo(),
            "yes",
            "Accepted so that files of the C server load; it has no effect.",
            settable=True,
        ),
        _aof(
            "aof-load-truncated",
            YesNo(),
            "yes",
            "Start even if the end of the file is cut off.",
            settable=True,
        ),
        _aof(
            "aof-scrub-hours",
            Int(0, 8760),
            "24",
            "Read all of the file once in this time, a bit every minute, and compare it with its "
            "checksums; 0: never. If it is damaged, it is made again from memory.",
            unit="hours",
            settable=True,
        ),
        _aof(
            "aof-enqueue-jobs-once",
            YesNo(),
            "no",
            "Put jobs back into their queues at the next start, once; loads the file even if "
            "appendonly is no. The node sets it back to no.",
            settable=True,
        ),
        _aof(
            "requeue-at-start",
            YesNo(),
            "yes",
            "After a start, queue what no client had at once, as the file `appendfilename` plus "
            ".progress says. With no, all jobs wait for their retry time, as on a C node, unless "
            "the start is a RESTART.",
            settable=True,
        ),
        _cluster(
            "cluster-config-file",
            FileName(),
            "nodes.conf",
            "File in `dir` in which the node remembers its own id and the other nodes. Nobody "
            "else may use it: a second node with the same file does not start. Policies of "
            "queues, schedules, bindings and pauses on all nodes are kept in files of the same "
            "name plus .policies, .schedules, .bindings and .pauses.",
            file_only=True,
        ),
        _cluster(
            "cluster-node-timeout",
            Int(1, LONG_MAX),
            "15000",
            "A node that does not answer for this long is considered failing.",
            unit="milliseconds",
            settable=True,
        ),
        _cluster(
            "cluster-failure-domain",
            Choice("auto", "node", "host"),
            "auto",
            "What may fail as a unit: node places the copies of a job on different nodes, host on "
            "nodes with different IP addresses, so that REPLICATE counts hosts. auto is host if "
            "`processes` is more than 1, otherwise node. All nodes of a cluster should agree on "
            "it. Not in Disque.",
            settable=True,
        ),
        _cluster(
            "cluster-extensions",
            Choice("auto", "yes", "no"),
            "auto",
            "Whether jobs may have what C Disque has no fields for: headers, keys, the origin of "
            "a dead letter. Files and other nodes get it in a trailer after the body, which C "
            "nodes carry but do not remove. auto: if all nodes of the cluster know trailers. With "
            "no, this node does not even announce that it knows them. Not in Disque.",
            settable=True,
        ),
        _cluster(
            "cluster-announce-ip",
            IpAddress(),
            "",
            "The address under which others reach this node, if its connections come from another "
            "one (NAT, containers); empty lets them see for themselves. Not in Disque.",
            settable=True,
        ),
        _cluster(
            "cluster-announce-port",
            Int(0, 55535),
            "0",
            "The port for clients to announce to other nodes, if it is not `port`; 0: `port`, or "
            "`tls-port` with `port 0`. Others expect the bus on this port plus 10000. Not in "
            "Disque.",
            settable=True,
        ),
        _cluster(
            "cluster-announce-tls-port",
            Int(0, 65535),
            "0",
            "The port for clients with TLS to announce to other nodes, if it is not `tls-port`; 0: "
            "`tls-port`. HELLO lists it for clients that speak TLS. As in Redis 7; not in Disque.",
            settable=True,
        ),
        _cluster(
            "cluster-link-sendbuf-limit",
            Memory(),
            "256mb",
            "What may wait to be sent to one other node before the connection is dropped, with "
            "what waits; 0: no limit. A single larger job is still sent. Not in Disque.",
            unit="bytes",
            settable=True,
        ),
        _cluster(
            "maxmemory-bus",
            MemoryOrPercent(),
            "100%",
            "What incomplete packets of other nodes may take together. Beyond it, the connections "
            "that hold the most are closed, to be opened again; a packet that is larger by "
            "itself, such as one with a very large job, is skipped. A percentage is of "
            "`maxmemory`, or of 32mb if `maxmemory` is less; 0: no limit; less than 4 MB counts as "
            "4 MB. Not in Disque.",
            unit="bytes",
            settable=True,
        ),
        _cluster(
            "cluster-secret",
            Secrets(),
            "",
            "A secret that all nodes of the cluster have, and nobody else: packets from anyone "
            "else are then ignored. It encrypts nothing. All nodes have to agree on it; a node "
            "without one is refused. With two, the node shows that it knows the first, and "
            "accepts nodes that know either, so that it can be changed node by node: "
            "docs/cluster.md. CONFIG GET does not show it. Not in Disque.",
            settable=True,
            secret=True,
            masked=True,
        ),
        _cluster(
            "cluster-identity",
            Choice("no", "optional", "yes"),
            "no",
            "Whether nodes have to show who they are, each by a key of its own, which is pinned "
            "when nodes meet: docs/cluster.md. yes: nodes that do not are refused. optional: they "
            "are taken as they are, to change a cluster node by node; this protects from nobody. "
            "Needs the extra `identity` (the package cryptography). C nodes cannot join such a "
            "cluster. Not in Disque.",
        ),
        _cluster(
            "cluster-encrypt",
            YesNo(),
            "no",
            "Encrypt new connections to nodes that show who they are (`cluster-identity`), without "
            "certificates. It is enough if one of the two nodes wants it. Not in Disque.",
            settable=True,
        ),
        _tls(
            "tls-port",
            Int(0, 65535),
            "0",
            "TCP port for clients that speak TLS; 0: none. With `port 0` it is the only one, and "
            "the cluster bus uses it plus 10000, so it is 55535 at most.",
        ),
        _tls(
            "tls-cert-file",
            Text("a path, or an empty text for no certificate"),
            "",
            "The certificate of this server (PEM), followed by those between it and the "
            "authority. CONFIG SET and SIGHUP read it and the other files again, for new "
            "connections; existing ones continue as they began. Every client may SET it to the "
            "same path; `enable-protected-configs` says who may SET it to another one. The key "
            "has to match: to change both paths, SET them in one command.",
            settable=True,
            protected=True,
            reread=True,
        ),
        _tls(
            "tls-key-file",
            Text("a path, or an empty text for no key"),
            "",
            "The private key of the certificate (PEM).",
            settable=True,
            protected=True,
            reread=True,
        ),
        _tls(
            "tls-key-file-pass",
            Text("text of at most 1024 bytes", 1024),
            "",
            "The password of the private key; empty if it is not encrypted.",
            settable=True,
            secret=True,
            protected=True,
        ),
        _tls(
            "tls-ca-cert-file",
            Text("a path, or an empty text for no authority"),
            "",
            "Certificates (PEM) of the authorities that sign those of clients, with "
            "`tls-auth-clients`, and those of nodes, with `tls-cluster`: then everybody with such "
            "a certificate can join the cluster, so it should be an authority of your own.",
            settable=True,
            protected=True,
            reread=True,
        ),
        _tls(
            "tls-ca-cert-dir",
            Text("a path, or an empty text for none"),
            "",
            "Directory with certificates of authorities, each in a file named after its hash "
            "(`openssl rehash`).",
            settable=True,
            protected=True,
            reread=True,
        ),
        _tls(
            "tls-auth-clients",
            Choice("yes", "no", "optional"),
            "yes",
            "Whether clients that speak TLS have to show a certificate signed by one of the "
            "authorities: all of them (yes), none of them (no), or only those that show one at "
            "all (optional).",
            settable=True,
        ),
        _tls(
            "tls-protocols",
            TlsProtocols(),
            "",
            'Versions of TLS: "TLSv1.2 TLSv1.3", or one of them. Empty for both. Unlike in Redis, '
            "older ones are not available.",
            settable=True,
        ),
        _tls(
            "tls-ciphers",
            Ciphers(),
            "",
            "Ciphers for TLS 1.2; empty: those that Python considers good.",
            settable=True,
        ),
        _tls(
            "tls-ciphersuites",
            CipherSuites(),
            "",
            "Cipher suites for TLS 1.3; empty: those of OpenSSL. Others are only possible if "
            "Python's ssl module can choose them, from 3.15 on. Before, they are refused, but "
            "OpenSSL's own configuration file (OPENSSL_CONF) can choose.",
            settable=True,
        ),
        _tls(
            "tls-prefer-server-ciphers",
            YesNo(),
            "no",
            "Use the first cipher of the server that the client has, instead of the reverse.",
            settable=True,
        ),
        _tls(
            "tls-session-caching",
            YesNo(),
            "yes",
            "Let returning clients resume what they agreed on before, which is faster. They keep "
            "it themselves (tickets), so there is no cache size to set.",
            settable=True,
        ),
        _tls(
            "tls-cluster",
            YesNo(),
            "no",
            "Encrypt the cluster bus. Both sides have to show a certificate of an authority in "
            "`tls-ca-cert-file` or `tls-ca-cert-dir`, so all nodes of a cluster have to agree on "
            "this. Without it, and without `cluster-secret`, anyone who reaches the bus counts as "
            "a node.",
        ),
        _events(
            "event-log",
            YesNo(),
            "no",
            "Write an event log.",
            settable=True,
        ),
        _events(
            "event-log-dir",
            Text("a path"),
            "events",
            "Directory of the files, relative to `dir`; created if missing. Nodes may share it.",
            settable=True,
            protected=True,
        ),
        _events(
            "event-log-segment-size",
            Memory(KB),
            "64mb",
            "Close a file and begin another one when it reaches this size.",
            unit="bytes",
            settable=True,
        ),
        _events(
            "event-log-segment-seconds",
            Int(0),
            "300",
            "Close a file when it is this old; 0: never. Readers of the log see closed files.",
            unit="seconds",
            settable=True,
        ),
        _events(
            "event-log-compress",
            YesNo(),
            "no",
            "Compress files with gzip when they are closed.",
            settable=True,
        ),
        _events(
            "event-log-keep-hours",
            Int(0),
            "0",
            "Remove closed files of this node when they are older; 0: never.",
            unit="hours",
            settable=True,
        ),
        _events(
            "event-log-max-size",
            Memory(),
            "0",
            "Remove the oldest closed files of this node when all together are larger; 0: no "
            "limit.",
            unit="bytes",
            settable=True,
        ),
        _observe(
            "slowlog-log-slower-than",
            Int(-1, LONG_MAX),
            "10000",
            "Remember commands that ran longer than this; 0: all, -1: none.",
            unit="microseconds",
            settable=True,
        ),
        _observe(
            "slowlog-max-len",
            Int(0),
            "128",
            "Commands that the slow log holds.",
            settable=True,
        ),
        _observe(
            "latency-monitor-threshold",
            Int(0, LONG_MAX),
            "0",
            "Sample events that took at least this long, for LATENCY; 0 switches it off.",
            unit="milliseconds",
            settable=True,
        ),
        _observe(
            "watchdog-period",
            Int(0),
            "0",
            "The software watchdog of the C program." + _NO_EFFECT,
            unit="milliseconds",
            settable=True,
        ),
        _metrics(
            "metrics-port",
            Int(0, 65535),
            "0",
            "TCP port for Prometheus, which gets the figures of the node from `/metrics`; 0: "
            "none. Needs the extra `metrics`. Of several `processes`, any answers there, with the "
            "figures of all.",
        ),
        _metrics(
            "metrics-bind",
            Addresses(16),
            "127.0.0.1",
            "Addresses for `metrics-port`. Anyone who reaches them can read the names of queues, "
            "and all figures: there is no password. Without any: all addresses of the machine.",
        ),
        _metrics(
            "metrics-max-queues",
            Int(0),
            "1000",
            "Queues whose figures are shown by name: the first ones that the node sees. The "
            "others are added up.",
            settable=True,
        ),
        _advanced(
            "hz",
            Int(1, 500),
            "10",
            "How often per second background work runs: idle clients and queues, statistics.",
            settable=True,
        ),
        _advanced(
            "max-commands-per-turn",
            Int(1),
            "64",
            "Pipelined commands of one client that run before the other clients have their turn. "
            "Not in Disque.",
            settable=True,
        ),
        _advanced(
            "activerehashing",
            YesNo(),
            "yes",
            "Rehashing of the C program's tables in the background." + _NO_EFFECT,
            settable=True,
        ),
    ]
)
