"""The vocabulary of the event log: kinds of events, their reasons, and the record of an event.

The node's core records events with these names, ``lines`` converts the records to JSON, and the
audit in ``disque_spark`` reads that. A test compares docs/eventlog.md with it. Imports nothing
from this package, so that all of them can import it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

# ---- kinds ------------------------------------------------------------------------------------

Kind: TypeAlias = Literal[
    "added",
    "replicated",
    "copied",
    "queued",
    "delivered",
    "working",
    "nacked",
    "acked",
    "dequeued",
    "exported",
    "imported",
    "expired",
    "evicted",
    "deleted",
    "dead",
    "cancelled",
    "updated",
    "paused",
]
ADDED: Final[Kind] = "added"
REPLICATED: Final[Kind] = "replicated"
COPIED: Final[Kind] = "copied"
QUEUED: Final[Kind] = "queued"
DELIVERED: Final[Kind] = "delivered"
WORKING: Final[Kind] = "working"
NACKED: Final[Kind] = "nacked"
ACKED: Final[Kind] = "acked"
DEQUEUED: Final[Kind] = "dequeued"
EXPORTED: Final[Kind] = "exported"
IMPORTED: Final[Kind] = "imported"
EXPIRED: Final[Kind] = "expired"
EVICTED: Final[Kind] = "evicted"
DELETED: Final[Kind] = "deleted"
DEAD: Final[Kind] = "dead"
CANCELLED: Final[Kind] = "cancelled"
UPDATED: Final[Kind] = "updated"
PAUSED: Final[Kind] = "paused"

# Kinds of lines about the log itself, without a job.
LogKind: TypeAlias = Literal["dropped", "segment", "started", "stopped"]
DROPPED: Final[LogKind] = "dropped"  # events before this line are missing
SEGMENT: Final[LogKind] = "segment"  # a file begins, or the nodes of the cluster are others now
STARTED: Final[LogKind] = "started"  # the node records events from now on
STOPPED: Final[LogKind] = "stopped"  # the log is complete up to here, except for dropped events
LOG_KINDS: Final[Sequence[LogKind]] = (DROPPED, SEGMENT, STARTED, STOPPED)

# Why a log stops.
StopReason: TypeAlias = Literal["shutdown", "restart", "switched-off"]
SHUTDOWN: Final[StopReason] = "shutdown"  # the node ends
RESTART: Final[StopReason] = "restart"  # another process takes its place
SWITCHED_OFF: Final[StopReason] = "switched-off"  # the node goes on without a log
STOP_REASONS: Final[Sequence[StopReason]] = (SHUTDOWN, RESTART, SWITCHED_OFF)

# The kind of line about a queue whose policy a client has set or deleted.
PolicyKind: TypeAlias = Literal["policy"]
POLICY: Final[PolicyKind] = "policy"

# Kinds of lines about the ticks of schedules.
TickKind: TypeAlias = Literal["ticked", "missed"]
TICKED: Final[TickKind] = "ticked"  # the job was added, by this node or another one
MISSED: Final[TickKind] = "missed"  # nobody added one in time, as far as this node knows

# ---- reasons ----------------------------------------------------------------------------------

Reason: TypeAlias = Literal[
    "",  # the kind has no reasons
    "add",
    "delay",
    "retry",
    "nack",
    "enqueue",
    "import",
    "client",
    "peer",
    "command",
    "fastack",
    "collected",
    "given-up",
    "attempts",
    "expired",
    "refused",
    "death",
    "redrive",
    "disconnect",
    "queue",
    "down",
]
NO_REASON: Final[Reason] = ""
BY_ADD: Final[Reason] = "add"
BY_DELAY: Final[Reason] = "delay"
BY_RETRY: Final[Reason] = "retry"
BY_NACK: Final[Reason] = "nack"
BY_ENQUEUE: Final[Reason] = "enqueue"
BY_IMPORT: Final[Reason] = "import"
BY_CLIENT: Final[Reason] = "client"
BY_PEER: Final[Reason] = "peer"
BY_COMMAND: Final[Reason] = "command"
BY_FASTACK: Final[Reason] = "fastack"
BY_COLLECTION: Final[Reason] = "collected"
BY_GIVING_UP: Final[Reason] = "given-up"
BY_ATTEMPTS: Final[Reason] = "attempts"
BY_EXPIRY: Final[Reason] = "expired"
BY_REFUSAL: Final[Reason] = "refused"
BY_DEATH: Final[Reason] = "death"
BY_REDRIVE: Final[Reason] = "redrive"
BY_DISCONNECT: Final[Reason] = "disconnect"
BY_QUEUE: Final[Reason] = "queue"
BY_ABSENCE: Final[Reason] = "down"

# The reasons of each kind. The tables of an audit store positions in these tuples, so add new ones
# at the end.
REASONS: Final[Mapping[Kind, tuple[Reason, ...]]] = {
    ADDED: (),
    REPLICATED: (),
    COPIED: (),
    QUEUED: (
        BY_ADD,
        BY_DELAY,
        BY_RETRY,
        BY_NACK,
        BY_ENQUEUE,
        BY_IMPORT,
        BY_DEATH,
        BY_REDRIVE,
        BY_DISCONNECT,
    ),
    DELIVERED: (),
    WORKING: (),
    NACKED: (),
    ACKED: (BY_CLIENT, BY_PEER, BY_REDRIVE),
    DEQUEUED: (BY_COMMAND, BY_PEER),
    EXPORTED: (),
    IMPORTED: (),
    EXPIRED: (),
    EVICTED: (),
    DELETED: (BY_COMMAND, BY_FASTACK, BY_PEER, BY_COLLECTION, BY_GIVING_UP),
    DEAD: (BY_ATTEMPTS, BY_EXPIRY, BY_REFUSAL, BY_PEER),
    CANCELLED: (BY_CLIENT, BY_PEER),
    UPDATED: (BY_CLIENT, BY_PEER),
    PAUSED: (BY_NACK, BY_RETRY, BY_CLIENT, BY_QUEUE),
}

TICK_REASONS: Final[Mapping[TickKind, tuple[Reason, ...]]] = {
    TICKED: (),
    MISSED: (BY_ABSENCE, BY_REFUSAL),
}

# ---- the record -------------------------------------------------------------------------------

# The fields of an event of a job: time in ms since the epoch, kind, queue (bytes), reason, id of
# the peer (bytes), and the job's numbers of NACKs and additional deliveries.
FIELDS: Final = ("time", "event", "queue", "reason", "peer", "nacks", "deliveries")
# Further fields if the job is new to the node, or was changed: bytes of the body, copies wanted,
# copies, retry, time to live and delay in s, and the ctime in ns.
NEW_JOB_FIELDS: Final = ("size", "repl", "copies", "retry", "ttl", "delay", "ctime")
# After those, if the job has a priority or a group: its priority, and its group (bytes).
RARE_FIELDS: Final = ("priority", "group")
# After all those, if the job pauses: until when, in ms since the epoch.
PAUSE_FIELDS: Final = ("until",)
# After all those, if the job was moved: the queue in which it was (bytes).
MOVE_FIELDS: Final = ("origin",)
# The fields of a tick: schedule and queue are bytes; the moment, and until when all ticks were
# missed, are ms since the epoch (-1: only this one); the id of the job is bytes.
TICK_FIELDS: Final = ("time", "event", "schedule", "tick", "queue", "reason", "until", "id")
# The fields of a policy: the queue or pattern (bytes), the words of the command without it, and the
# client.
POLICY_FIELDS: Final = ("time", "event", "queue", "what", "client")
# What the first line of a file says about the node: the id of its run (hex), since when it runs and
# since when it writes its log without a stop (ms since the epoch), and the ids of all nodes of its
# cluster.
NODE_FACTS: Final = ("run", "up", "since", "nodes")
# The keys of a line, in order.
KEYS: Final = (
    *("time", "node", "event", "id", "queue", "reason", "client", "peer", "nacks", "deliveries"),
    *("size", "repl", "copies", "retry", "ttl", "delay", "priority", "group", "until"),
    *("origin", "ctime", "schedule", "tick", "what"),
)

# An event that happens to many jobs in a row is recorded once. So a list of events has three types:
# - str: the client on whose behalf all that follows happens; empty: nobody's, as at the beginning;
# - tuple: what happens: FIELDS, plus NEW_JOB_FIELDS if the jobs are new, plus RARE_FIELDS if they
#   have one of these. Fields that do not apply are empty or -1, and those after the reason may be
#   left out. The ctime is that of the first job; that of each further job is higher by one. An
#   "added" with a reason stands for two events: the job was also queued, for that reason;
# - bytes: the id of a job to which it happens.
# A tuple of two or three elements has no job: time, one of LOG_KINDS, and the number of events
# ("dropped"), the reason ("stopped"), or the ids of the nodes with spaces between them ("segment").
# One with a kind of TICK_REASONS has TICK_FIELDS, one of POLICY has POLICY_FIELDS, and no ids
# follow it.
Event: TypeAlias = "str | tuple[int | str | bytes, ...] | bytes"
