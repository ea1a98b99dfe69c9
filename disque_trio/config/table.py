"""THE table: every parameter of a Disque node, once.

Owns names, types, defaults, what CONFIG SET takes and the help texts. Loading, CONFIG GET, SET and
REWRITE, the checks and docs/configuration.md all follow from it. Names, defaults and what can be
SET are Disque's; the parameters that Disque does not have say so in their help.
"""

from __future__ import annotations

from disque_trio.config.params import Param, make_table
from disque_trio.config.types import (
    LONG_MAX,
    Addresses,
    Choice,
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
    Text,
    YesNo,
)

NETWORK = "Network"
GENERAL = "General"
SECURITY = "Security"
LIMITS = "Limits and memory"
AOF = "Append only file"
CLUSTER = "Cluster"
EVENTS = "Event log"
OBSERVE = "Slow log and latency"
ADVANCED = "Advanced"

SECTIONS = {
    NETWORK: "Where the node listens, and how it treats connections.",
    GENERAL: "The process: where it works and where it logs.",
    SECURITY: "Who may use the node, and with which commands.",
    LIMITS: "What the node and a single client may hold.",
    AOF: ("Jobs on disk: docs/durability.md says what each appendfsync promises."),
    CLUSTER: (
        "Several nodes together. They talk over the cluster bus: the port of the clients plus "
        "10000, on the same addresses. A node that is in no cluster listens there as well, so "
        "that others can meet it; with `port 0` there is no bus."
    ),
    EVENTS: "What happened to which job, as JSON lines in files: docs/eventlog.md. Not in Disque.",
    OBSERVE: "What the node remembers about slow commands and stalls.",
    ADVANCED: "Timing and tuning that hardly anyone needs to change.",
}

_NO_EFFECT = " Accepted so that files of other versions load; it has no effect."

KB = 1024
MAX_BULK = 512 * 1024**2


TABLE = make_table(
    [
        Param(
            "bind",
            Addresses(16),
            "",
            NETWORK,
            "Addresses to listen on. Without any the node listens on all of them, IPv6 and IPv4; "
            "see `protected-mode` for what that means without a password. The cluster bus listens "
            "on the same addresses, and connects to other nodes from the one that fits them.",
        ),
        Param(
            "port",
            Int(0, 55535),
            "7711",
            NETWORK,
            "TCP port for clients; 0 listens on no TCP port. The cluster bus takes this port plus "
            "10000, hence the upper bound.",
        ),
        Param(
            "tcp-backlog",
            Int(1),
            "511",
            NETWORK,
            "Connections that may wait to be accepted. The kernel cuts it to `net.core.somaxconn`.",
        ),
        Param(
            "unixsocket",
            Text("a path, or an empty text for no unix socket"),
            "",
            NETWORK,
            "Path of a unix socket to listen on as well; empty for none.",
        ),
        Param(
            "unixsocketperm",
            FileMode(),
            "0",
            NETWORK,
            "Permissions of the unix socket in octal, such as 770; 0 leaves them to the umask.",
        ),
        Param(
            "timeout",
            Int(0),
            "0",
            NETWORK,
            "Close a client that has been idle for this long; 0 never does. Clients blocked in "
            "GETJOB are not idle.",
            unit="seconds",
            settable=True,
        ),
        Param(
            "tcp-keepalive",
            KeepAlive(),
            "no",
            NETWORK,
            "Probe silent connections, so that dead peers are found: yes (every 300 seconds), no, "
            "or the seconds between probes.",
            unit="seconds",
            settable=True,
        ),
        Param(
            "maxclients",
            Int(1),
            "10000",
            NETWORK,
            "Clients connected at the same time; one more gets an error and is closed.",
            settable=True,
        ),
        Param(
            "dir",
            Directory(),
            ".",
            GENERAL,
            "Working directory; files are written there. The default is the directory the node "
            "is started in. CONFIG GET shows the absolute path and REWRITE always writes it.",
            settable=True,
            always_rewritten=True,
        ),
        Param(
            "daemonize",
            YesNo(),
            "no",
            GENERAL,
            "Detach from the terminal and run in the background. Leave it at no under systemd or "
            "in a container.",
        ),
        Param(
            "processes",
            Int(1, 64),
            "1",
            GENERAL,
            "How many processes serve, each a node of one cluster, to use as many cores. The first "
            "one has `port` and `dir`, the next ones the ports behind it and the directories 1, 2 "
            "... in `dir`; every other setting holds for each. docs/operations.md tells more. "
            "Not in Disque.",
        ),
        Param(
            "pidfile",
            Text("a path"),
            "/var/run/disque.pid",
            GENERAL,
            "Where a node with `daemonize yes` writes its process id.",
        ),
        Param(
            "loglevel",
            Choice("debug", "verbose", "notice", "warning"),
            "notice",
            GENERAL,
            "The least important messages to log.",
            settable=True,
        ),
        Param(
            "logfile",
            Text("a path, or an empty text for the standard output"),
            "",
            GENERAL,
            "File to append the log to; empty logs to the standard output.",
        ),
        Param(
            "log-format",
            Choice("auto", "console", "json"),
            "auto",
            GENERAL,
            "How log lines look: auto is console on a terminal and json otherwise. Not in Disque.",
        ),
        Param(
            "syslog-enabled",
            YesNo(),
            "no",
            GENERAL,
            "Also log to syslog.",
            file_only=True,
        ),
        Param(
            "syslog-ident",
            Text(),
            "disque",
            GENERAL,
            "The name syslog shows for this node.",
            file_only=True,
        ),
        Param(
            "syslog-facility",
            Choice("user", *(f"local{number}" for number in range(8))),
            "local0",
            GENERAL,
            "The syslog facility.",
        ),
        Param(
            "include",
            Includes(),
            "",
            GENERAL,
            "Another file to read, relative to this one. In disque.conf it is read in place, so "
            "later lines override it; in YAML included files are read first and the file's own "
            "settings override them.",
            file_only=True,
        ),
        Param(
            "requirepass",
            Text("text of at most 512 bytes", 512),
            "",
            SECURITY,
            "Password that clients give with AUTH; empty asks for none.",
            settable=True,
        ),
        Param(
            "protected-mode",
            YesNo(),
            "yes",
            SECURITY,
            "Without a password and without `bind`, serve only clients on this machine. Without "
            "`bind` and without `tls-cluster`, take only nodes on this machine into the cluster, "
            "password or not: the bus asks for none. To let others in name addresses with `bind`, "
            "or use `tls-cluster`. Not in Disque.",
            settable=True,
        ),
        Param(
            "rename-command",
            Renames(),
            "",
            SECURITY,
            "Give a command another name, or take it away with an empty one. In disque.conf one "
            "line each, in YAML a mapping.",
            file_only=True,
            attribute="rename_commands",
        ),
        Param(
            "maxmemory",
            Memory(),
            "1gb",
            LIMITS,
            "Memory for jobs and queues; 0 sets no limit. Eviction and refusals begin below it: "
            "from 95% on jobs that can be spared are evicted, and when there are none new "
            "ones are refused.",
            unit="bytes",
            settable=True,
        ),
        Param(
            "maxmemory-policy",
            Choice("acks", "noeviction"),
            "acks",
            LIMITS,
            "What may be evicted when memory runs short: acknowledged jobs and delivered jobs "
            "with RETRY 0 (acks), or nothing (noeviction).",
            settable=True,
        ),
        Param(
            "maxmemory-samples",
            Int(1),
            "5",
            LIMITS,
            "Accepted for files of the C server and without effect: eviction here knows what may "
            "go and needs no samples.",
            settable=True,
        ),
        Param(
            "client-output-buffer-limit",
            OutputLimit(),
            "normal 0 0 0",
            LIMITS,
            "Close a client that does not read its replies: at once beyond the hard limit, or "
            "after being beyond the soft limit for so many seconds. 0 switches a limit off.",
            settable=True,
        ),
        Param(
            "client-query-buffer-limit",
            Memory(KB),
            "1gb",
            LIMITS,
            "Input of one client that the node holds before it closes the connection. "
            "Not in Disque, which has 1gb built in.",
            unit="bytes",
            settable=True,
        ),
        Param(
            "proto-max-bulk-len",
            Memory(KB, MAX_BULK),
            "512mb",
            LIMITS,
            "The longest single argument, and so the largest job. Not in Disque, which has 512mb "
            "built in.",
            unit="bytes",
            settable=True,
        ),
        Param(
            "proto-inline-max-size",
            Memory(KB),
            "64kb",
            LIMITS,
            "The longest inline command. Not in Disque, which has 64kb built in.",
            unit="bytes",
            settable=True,
        ),
        Param(
            "databases",
            Int(1),
            "16",
            LIMITS,
            "There is only database 0." + _NO_EFFECT,
        ),
        Param(
            "appendonly",
            YesNo(),
            "no",
            AOF,
            "Log jobs to a file, so that they survive a restart.",
            settable=True,
        ),
        Param(
            "appendfilename",
            FileName(),
            "disque.aof",
            AOF,
            "Name of the file in `dir`.",
            file_only=True,
        ),
        Param(
            "appendfsync",
            Choice("everysec", "always", "no"),
            "everysec",
            AOF,
            "When written jobs are forced to the disk: every second, before each reply, or when "
            "the kernel likes.",
            settable=True,
        ),
        Param(
            "no-appendfsync-on-rewrite",
            YesNo(),
            "no",
            AOF,
            "Accepted for files of the C server and without effect.",
        ),
        Param(
            "auto-aof-rewrite-percentage",
            Int(0),
            "100",
            AOF,
            "Compact the file when it has grown by this much; 0 never does.",
            unit="percent",
            settable=True,
        ),
        Param(
            "auto-aof-rewrite-min-size",
            Memory(),
            "64mb",
            AOF,
            "Do not compact a smaller file.",
            unit="bytes",
            settable=True,
        ),
        Param(
            "aof-rewrite-incremental-fsync",
            YesNo(),
            "yes",
            AOF,
            "Accepted for files of the C server and without effect.",
            settable=True,
        ),
        Param(
            "aof-load-truncated",
            YesNo(),
            "yes",
            AOF,
            "Start although the end of the file is cut off.",
            settable=True,
        ),
        Param(
            "aof-enqueue-jobs-once",
            YesNo(),
            "no",
            AOF,
            "Put jobs back into their queues at the next start, once; loads the file "
            "even if appendonly is no. The node sets it back to no.",
            settable=True,
        ),
        Param(
            "cluster-config-file",
            FileName(),
            "nodes.conf",
            CLUSTER,
            "File in `dir` in which the node remembers its own id and the other nodes. Nobody "
            "else may use it: a second node that names the same file does not start.",
            file_only=True,
        ),
        Param(
            "cluster-node-timeout",
            Int(1, LONG_MAX),
            "15000",
            CLUSTER,
            "A node that does not answer for this long is held to be failing.",
            unit="milliseconds",
            settable=True,
        ),
        Param(
            "cluster-failure-domain",
            Choice("auto", "node", "host"),
            "auto",
            CLUSTER,
            "What fails at once: node places the copies of a job on different nodes, host on nodes "
            "with different IP addresses, so that REPLICATE counts hosts. auto is host where "
            "`processes` is more than 1, else node. All nodes of a cluster should agree on it. "
            "Not in Disque.",
            settable=True,
        ),
        Param(
            "cluster-announce-ip",
            IpAddress(),
            "",
            CLUSTER,
            "The address under which others reach this node, where it is not the one that its "
            "connections come from (NAT, containers); empty lets them see for themselves. "
            "Not in Disque.",
            settable=True,
        ),
        Param(
            "cluster-announce-port",
            Int(0, 55535),
            "0",
            CLUSTER,
            "The port for clients that others are told, where it is not `port`; 0 tells `port`. "
            "Others expect the bus at this plus 10000. Not in Disque.",
            settable=True,
        ),
        Param(
            "cluster-link-sendbuf-limit",
            Memory(),
            "256mb",
            CLUSTER,
            "What may wait to be sent to one other node before the connection to it is dropped, "
            "with what waits; 0 sets no limit. A single larger job is sent all the same. "
            "Not in Disque.",
            unit="bytes",
            settable=True,
        ),
        Param(
            "tls-cluster",
            YesNo(),
            "no",
            CLUSTER,
            "Encrypt the cluster bus. Both sides have to show a certificate of the authority in "
            "`tls-ca-cert-file`, so all nodes of a cluster have to agree on this. Without it "
            "whoever reaches the bus is taken for a node. Not in Disque.",
        ),
        Param(
            "tls-cert-file",
            Text("a path, or an empty text for no certificate"),
            "",
            CLUSTER,
            "The node's certificate (PEM), for both directions. It and the next two are read "
            "again at SIGHUP. Not in Disque.",
        ),
        Param(
            "tls-key-file",
            Text("a path, or an empty text for no key"),
            "",
            CLUSTER,
            "The private key of the certificate (PEM, not encrypted). Not in Disque.",
        ),
        Param(
            "tls-ca-cert-file",
            Text("a path, or an empty text for no authority"),
            "",
            CLUSTER,
            "Certificates (PEM) of the authority that signs those of all nodes. Whoever has one "
            "of its certificates can join the cluster, so it should be one of your own. "
            "Not in Disque.",
        ),
        Param(
            "event-log",
            YesNo(),
            "no",
            EVENTS,
            "Write an event log.",
            settable=True,
        ),
        Param(
            "event-log-dir",
            Text("a path"),
            "events",
            EVENTS,
            "Directory of the files, relative to `dir`; made if there is none. Nodes may share it.",
            settable=True,
        ),
        Param(
            "event-log-segment-size",
            Memory(KB),
            "64mb",
            EVENTS,
            "Close a file, and begin another one, when it has this size.",
            unit="bytes",
            settable=True,
        ),
        Param(
            "event-log-segment-seconds",
            Int(0),
            "300",
            EVENTS,
            "Close a file when it is so old; 0 never does. Readers of the log see closed files.",
            unit="seconds",
            settable=True,
        ),
        Param(
            "event-log-compress",
            YesNo(),
            "no",
            EVENTS,
            "Compress files with gzip when they are closed.",
            settable=True,
        ),
        Param(
            "event-log-keep-hours",
            Int(0),
            "0",
            EVENTS,
            "Remove closed files of this node that are older; 0 never does.",
            unit="hours",
            settable=True,
        ),
        Param(
            "event-log-max-size",
            Memory(),
            "0",
            EVENTS,
            "Remove the oldest closed files of this node when all of them are larger than this "
            "together; 0 sets no limit.",
            unit="bytes",
            settable=True,
        ),
        Param(
            "slowlog-log-slower-than",
            Int(-1, LONG_MAX),
            "10000",
            OBSERVE,
            "Remember commands that ran longer than this; 0 remembers all, -1 none.",
            unit="microseconds",
            settable=True,
        ),
        Param(
            "slowlog-max-len",
            Int(0),
            "128",
            OBSERVE,
            "Commands the slow log holds.",
            settable=True,
        ),
        Param(
            "latency-monitor-threshold",
            Int(0, LONG_MAX),
            "0",
            OBSERVE,
            "Sample events that took at least this long for LATENCY; 0 switches it off.",
            unit="milliseconds",
            settable=True,
        ),
        Param(
            "watchdog-period",
            Int(0),
            "0",
            OBSERVE,
            "The software watchdog of the C program." + _NO_EFFECT,
            unit="milliseconds",
            settable=True,
        ),
        Param(
            "hz",
            Int(1, 500),
            "10",
            ADVANCED,
            "How often a second background work runs: idle clients and queues, statistics.",
            settable=True,
        ),
        Param(
            "max-commands-per-turn",
            Int(1),
            "64",
            ADVANCED,
            "Pipelined commands of one client that run before the other clients have their turn. "
            "Not in Disque.",
            settable=True,
        ),
        Param(
            "activerehashing",
            YesNo(),
            "yes",
            ADVANCED,
            "Rehashing of the C program's tables in the background." + _NO_EFFECT,
            settable=True,
        ),
    ]
)
