"""The table of conditions: all that can be wrong with a node, its cluster or its queues.

Everything that tells of health reads this table: INFO alarms, the log, the metrics, ``disque
check``, the console, and the alerts and the page of documentation that ``make docs`` writes.
"""

from typing import Final, NamedTuple

CRITICAL: Final = "critical"
WARNING: Final = "warning"
SEVERITIES: Final = (CRITICAL, WARNING)  # the worst first

NODE: Final = "node"  # a condition of a node, which it keeps itself
QUEUE: Final = (
    "queue"  # one of a queue in the whole cluster, which whoever sees all nodes works out
)

SHORT_PART: Final = 10  # a disk is short if less than one part in this many of it is free ...
SHORT_MOST: Final = 10 << 30  # ... and less than this, in bytes
SLOW_SYNC: Final = 5.0  # s that an fsync may take
CLOCK_OFF: Final = 1_000  # ms by which the clocks of two nodes may differ
CERTIFICATE_DAYS: Final = 14  # before its end, from which on a certificate is a condition
DROPPED_FOR: Final = 600_000  # ms after the last event was dropped
NO_WORKER_AFTER: Final = 300  # s without a delivery from a queue with jobs
WAITS_TOO_LONG: Final = 600  # s for which the oldest job of a queue may wait
DEAD_WITHIN: Final = 600  # s in which a queue has got a dead letter


class Condition(NamedTuple):
    """Something that can be wrong.

    Attributes:
        kind: its name for programs.
        severity: CRITICAL or WARNING.
        title: what is wrong, in a few words that can begin a sentence.
        cause: what it means, and what follows from it.
        cure: what to do.
        alert: the name of the alert. lasts: for how long it has to hold before that fires, as
            Prometheus writes it; empty: it fires at once.
        patience: ms for which it has to hold before it counts.
        servers: the programs that can have it: the prefixes of their metrics.
        about: what the condition names, if there may be several of a kind.
        said: the part that finds it writes it to the log itself.
        scope: NODE or QUEUE.
        expr: of the alert; empty: made from the metric ``alarm``.
        summary: of the alert; empty: made from ``title``.
    """

    kind: str
    severity: str
    title: str
    cause: str
    cure: str
    alert: str
    lasts: str = ""
    patience: int = 0
    servers: tuple[str, ...] = ("disque",)
    about: str = ""
    said: bool = False
    scope: str = NODE
    expr: str = ""
    summary: str = ""


_ANY: Final = ("disque", "bananaq")

_NO_WORKER: Final = """\
sum by (job, queue) (disque_queue_jobs{state="queued"}) > 0
unless on (job, queue) sum by (job, queue) (increase(disque_jobs_delivered_total[2m])) > 0
unless on (job, queue) max by (job, queue) (disque_queue_paused{direction="out"}) == 1
unless on (job, queue)
  sum by (job, queue) (disque_queue_jobs{state="dead"})
    >= sum by (job, queue) (disque_queue_jobs{state="queued"})"""
_WAITS: Final = f"""\
max by (job, queue) (disque_queue_oldest_job_age_seconds) > {WAITS_TOO_LONG}
unless on (job, queue) max by (job, queue) (disque_queue_paused{{direction="out"}}) == 1
unless on (job, queue) sum by (job, queue) (disque_queue_jobs{{state="dead"}}) > 0"""
_DEAD: Final = """\
sum by (job, queue) (increase(disque_jobs_dead_total[10m])) > 0
or sum by (job, queue) (
  disque_jobs_dead_total unless disque_jobs_dead_total offset 10m
    and on (job, instance) (up offset 10m == 1)
) > 0"""

_ALL: Final = (
    Condition(
        "file-write",
        CRITICAL,
        "the append-only file cannot be written",
        "Commands that add jobs are answered with -MISCONF, and other nodes place no copies here. "
        "While not too much waits for the file, work on the jobs that there are goes on.",
        "Free disk space, repair the disk, or give the file back to the user that the node runs "
        "as. The node tries again every second and recovers by itself.",
        "DisqueAofFailing",
        "30s",
        servers=_ANY,
    ),
    Condition(
        "disk-full",
        CRITICAL,
        "the disk of the append-only file is full",
        "Only the space that the node has reserved is left: it takes no more jobs (-MISCONF), and "
        "goes on with those that it has.",
        "Free disk space; the node tries again every second. Jobs that are acknowledged make a "
        "rewrite of the file smaller (BGREWRITEAOF).",
        "DisqueDiskFull",
        "30s",
        servers=_ANY,
    ),
    Condition(
        "disk-short",
        WARNING,
        "little of a disk is free",
        f"Less than one part in {SHORT_PART}, and less than {SHORT_MOST >> 30} GiB, of the disk "
        "with the append-only file, or with the jobs of queues that are longer than memory, is "
        "free. When it is full, the node takes no more jobs.",
        "Free space, take jobs faster than they are added, or let other nodes take some. A rewrite "
        "of the file needs space for a second one.",
        "DisqueDiskShort",
        "5m",
        servers=_ANY,
        about="directory",
    ),
    Condition(
        "disk-slow",
        WARNING,
        "an fsync of the append-only file takes long",
        f"It has been running for more than {SLOW_SYNC:.0f} seconds. What has happened since "
        "would be lost if the machine failed now.",
        "Find out what else writes to this disk. With `appendfsync everysec` clients wait less "
        "([durability.md](durability.md)).",
        "DisqueAofBehind",
        "1m",
        servers=_ANY,
    ),
    Condition(
        "rewrite",
        WARNING,
        "the append-only file cannot be rewritten",
        "The last rewrite failed, so the file grows until the disk is full.",
        "The reason is in INFO alarms and in the log. Is there space for a second file? The node "
        "tries again, later each time; BGREWRITEAOF does it now.",
        "DisqueAofRewriteFailing",
        "15m",
        servers=_ANY,
    ),
    Condition(
        "checksums",
        WARNING,
        "the checksums of the append-only file cannot be written or compared",
        "New damage to the file would not be found.",
        "Free disk space, or repair the disk. The node tries again every 10 seconds.",
        "DisqueAofChecksums",
        "15m",
        servers=_ANY,
    ),
    Condition(
        "damaged",
        WARNING,
        "the append-only file was damaged",
        "It did not match its checksums, at the start or later, and was made again. This stays "
        "until the process starts again.",
        "The log says what was damaged; [durability.md](durability.md#checksums) says what the "
        "node does. Check the disk and the memory of the machine.",
        "DisqueAofDamaged",
        servers=_ANY,
    ),
    Condition(
        "own-file",
        WARNING,
        "a small file of the node cannot be written",
        "What it has learned since, such as policies, schedules, or which nodes there are, would "
        "be lost at a restart.",
        "Free disk space, or let the node write to its directory. It tries again every second.",
        "DisqueFileFailing",
        "1m",
        about="file",
    ),
    Condition(
        "pages-write",
        CRITICAL,
        "jobs cannot go to disk",
        "The jobs of queues that are longer than memory stay in memory. When that is full, the "
        "node takes no more jobs.",
        "Free disk space, or repair the disk (`page-dir`). The node tries again every second.",
        "DisquePagingFailing",
        "1m",
    ),
    Condition(
        "pages-lost",
        CRITICAL,
        "jobs that lay on disk are lost",
        "They could be read neither from their files nor from the append-only file. This stays "
        "until the process starts again.",
        "The log names the files. Check the disk and the memory of the machine.",
        "DisquePagingLost",
    ),
    Condition(
        "memory-short",
        WARNING,
        "memory is short",
        "Jobs take more than 75% of `maxmemory`: other nodes hold the new ones.",
        "Take jobs faster than they are added, raise `maxmemory` (CONFIG SET, on each node), or "
        "let queues be longer than memory (`paging`).",
        "DisqueMemoryShort",
        "5m",
    ),
    Condition(
        "memory-refuses",
        CRITICAL,
        "memory is short, and too few nodes take jobs",
        "Jobs take more than 75% of `maxmemory`, here or on other nodes, and fewer nodes can hold "
        "new ones than these have copies: ADDJOB is answered with -NOREPL.",
        "As above, at once. Producers that try again lose nothing.",
        "DisqueMemoryRefuses",
        "1m",
    ),
    Condition(
        "memory-full",
        CRITICAL,
        "memory is full",
        "More than 95% of `maxmemory` is taken: commands that add something are answered with "
        "-OOM.",
        "As above, at once. Producers that try again lose nothing.",
        "DisqueMemoryFull",
        "1m",
        servers=_ANY,
    ),
    Condition(
        "loading",
        WARNING,
        "the append-only file is being loaded",
        "Until that is done, clients get -LOADING, and other nodes no answers.",
        "Wait. If it takes long at every start, have the file rewritten (BGREWRITEAOF).",
        "DisqueLoading",
        "10m",
        patience=10_000,
        servers=_ANY,
    ),
    Condition(
        "not-queued",
        WARNING,
        "loaded jobs are not queued yet",
        "The start could not know whether a worker has them, so they come into their queues only "
        "when their RETRY has passed. Workers do not get them before.",
        "Wait, or, if no worker can have them, put them into their queues with ENQUEUE. A stop by "
        "SIGTERM, SHUTDOWN or RESTART leaves none of them "
        "([durability.md](durability.md#what-a-start-knows)).",
        "DisqueJobsNotQueued",
        "5m",
        patience=5_000,
    ),
    Condition(
        "peer-lost",
        CRITICAL,
        "a node does not answer",
        "That node, the network or its process is down. Jobs that had a copy there have one fewer; "
        "what only that node holds has to wait for it.",
        "Look whether it runs (its log, `systemctl status`), and whether the bus, at the client "
        "port plus 10000, can be reached. If it is gone for good, `CLUSTER FORGET`: then jobs that "
        "it had are queued by others when their RETRY has passed "
        "([cluster.md](cluster.md#when-a-node-is-lost)).",
        "DisqueNodeFailing",
        "2m",
        about="node",
    ),
    Condition(
        "copies-short",
        WARNING,
        "jobs have too few copies",
        "Nodes that held copies of them have left the cluster, or are about to: if another one is "
        "lost, so are jobs. Each job is counted on one of its nodes, after a node has left and "
        "then every minute.",
        "`disque copies --make` ([lost-node.md](lost-node.md)). Jobs that ask for more copies than "
        "there are nodes need more nodes.",
        "DisqueCopiesShort",
        "5m",
    ),
    Condition(
        "peer-unlinked",
        WARNING,
        "there is no connection to a node that others reach",
        "The node is well as far as is known, but connections to it fail.",
        "Look for firewall rules in one direction, another `cluster-secret`, certificates, and in "
        "the log.",
        "DisqueLinksDown",
        "5m",
        patience=30_000,
        about="node",
    ),
    Condition(
        "split",
        CRITICAL,
        "this node reaches no more than half of its cluster",
        "The cluster may be split: both sides serve, as far as they have the nodes for copies, and "
        "take unique jobs only if most nodes agree.",
        "Repair the network. When the nodes reach each other again, they find together by "
        "themselves. Nodes that are gone for good have to be forgotten (`CLUSTER FORGET`).",
        "DisqueSplit",
        "1m",
    ),
    Condition(
        "clock",
        WARNING,
        "the clock differs from that of another node",
        "By more than a second. Schedules, delays and times to live that this node computes are "
        "off by as much, and the order of events in the logs is wrong.",
        "Have the machines keep their clocks right (chrony, systemd-timesyncd). Which one is off, "
        "the nodes cannot know: the one that differs from most others.",
        "DisqueClockOff",
        "1m",
        about="node",
    ),
    Condition(
        "certificate-ends",
        WARNING,
        "the certificate ends soon",
        f"In less than {CERTIFICATE_DAYS} days. Then clients and nodes refuse this one.",
        "Replace the files, then `systemctl reload disque`, or CONFIG SET with the same paths "
        "([certificates.md](certificates.md)).",
        "DisqueCertificateEnds",
        servers=_ANY,
        about="file",
    ),
    Condition(
        "certificate-expired",
        CRITICAL,
        "the certificate is not valid",
        "It has expired, or is not valid yet: clients and nodes refuse this one.",
        "As above, at once; or the clock is wrong.",
        "DisqueCertificateExpired",
        servers=_ANY,
        about="file",
    ),
    Condition(
        "event-log",
        WARNING,
        "the event log loses events",
        "It cannot be written, or the disk was too slow in the last 10 minutes, and events were "
        "dropped. An audit of that time has gaps.",
        "Free space, or use a faster disk ([eventlog.md](eventlog.md)).",
        "DisqueEventLogDropped",
    ),
    Condition(
        "open-door",
        WARNING,
        "strangers can connect",
        "Clients, the cluster bus or the metrics can be reached from other machines without a "
        "password, a certificate or a secret, as far as the node sees: it cannot see a firewall.",
        "Set what INFO alarms names, or let a firewall admit only those who should connect "
        "([operations.md](operations.md#security)).",
        "DisqueOpenToStrangers",
        "5m",
        servers=_ANY,
        about="door",
        said=True,
    ),
    Condition(
        "process-down",
        CRITICAL,
        "a process of the node does not answer",
        "One of several `processes` has ended, starts, or hangs. The others serve; jobs that only "
        "this one holds have to wait.",
        "Look at its log: it may end again at each start. The supervisor starts it again.",
        "DisqueProcessDown",
        "1m",
        patience=10_000,
        about="process",
        expr="disque_process_up == 0",
        summary="Process {{ $labels.process }} of {{ $labels.instance }} does not answer",
    ),
    Condition(
        "no-worker",
        CRITICAL,
        "jobs wait, and no worker takes them",
        "Jobs are queued, and no node has delivered one for 5 minutes. Paused queues, and queues "
        "that hold only dead letters, do not count.",
        "Start workers. If they run: do they serve this queue (`CLIENT LIST`, "
        "`disque_worker_connected_processes`)? All slots may be busy with jobs that take longer: "
        "then add some, or give the alert a longer `for`.",
        "DisqueNoWorker",
        "5m",
        scope=QUEUE,
        about="queue",
        expr=_NO_WORKER,
        summary="No worker takes the {{ $value }} jobs of queue {{ $labels.queue }}",
    ),
    Condition(
        "waits-long",
        WARNING,
        "jobs wait long",
        "The oldest queued job is older than 10 minutes. Its age counts from when it was added: a "
        "queue with jobs that are delayed on purpose needs another limit.",
        "More workers, or find out why these are slow (`disque_job_processing_seconds`).",
        "DisqueJobsWaitTooLong",
        "5m",
        scope=QUEUE,
        about="queue",
        expr=_WAITS,
        summary="Jobs in queue {{ $labels.queue }} have been waiting for {{ $value | "
        "humanizeDuration }}",
    ),
    Condition(
        "dead-letters",
        WARNING,
        "jobs become dead letters",
        "In the last 10 minutes, jobs ran out of attempts, or a worker gave up.",
        "`GETJOB WITHCOUNTERS FROM` the dead letter queue shows why (dead-why, dead-reason); fix "
        "it, then `REDRIVE` ([jobs.md](jobs.md#dead-letters)).",
        "DisqueDeadLetters",
        scope=QUEUE,
        about="queue",
        expr=_DEAD,
        summary="{{ $value | humanize }} jobs of queue {{ $labels.queue }} have become dead "
        "letters",
    ),
)

CONDITIONS: Final = {condition.kind: condition for condition in _ALL}
"""All conditions, by kind: those of nodes, then those of queues."""
