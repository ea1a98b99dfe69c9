"""The command table: defines each command once, with its documentation."""

from typing import Final

from disque_trio import job_options, policy_options
from disque_trio.node.commands import (
    addjob,
    breakdown,
    cluster,
    consume,
    cron,
    dead_letters,
    endings,
    jobs,
    keys,
    policies,
    queues,
    scan,
    topics,
    updatejob,
    workers,
)
from disque_trio.node.commands.accesses import (
    dead,
    known,
    matching,
    moved,
    paused,
    scheduled,
    taken,
    topic,
)
from disque_trio.node.core.node import Node
from disque_trio.respserver.access import ADD, ALL, GLOB, KNOW, TAKE
from disque_trio.respserver.command import Command
from disque_trio.respserver.commands import diagnostics, server
from disque_trio.respserver.commands.arguments import parse_integer, parse_size
from disque_trio.respserver.commands.common import common_commands
from disque_trio.respserver.commands.groups import group_commands


def build_table() -> dict[bytes, Command[Node]]:
    """Return a new command table, with names in lower case. Its counters belong to one node."""
    commands: list[Command[Node]] = [*_commands(), *common_commands(), *group_commands()]
    return {command.name.encode(): command for command in commands}


_ADDJOB: Final = (
    f"queue job ms-timeout {job_options.SYNTAX} [ASYNC] "
    "[HEADERS count name value [name value ...]] "
    "[UNIQUE key [FOR seconds] [UNTIL START|END] [REPLACE] [ANYWAY]] "
    "[LETTER from why attempts id reason]"
)
_GETJOB: Final = (
    "[NOHANG] [TIMEOUT ms-timeout] [COUNT count] [WITHCOUNTERS] [WITHHEADERS] [PATTERN] "
    "FROM queue [queue ...]"
)
_CONSUME: Final = (
    "queue [queue ...] CREDIT count [WITHCOUNTERS] [WITHHEADERS] [WITHCANCELS] "
    "[ONLOSS requeue|soon|retry] [PATTERN] [NODEAD] | STOP"
)
_QSCAN: Final = (
    "[cursor] [COUNT count] [BUSYLOOP] [MINLEN length] [MAXLEN length] [IMPORTRATE rate] "
    "[MAXIDLE seconds] [DIED seconds] [MATCH pattern]"
)
_JSCAN: Final = (
    "[cursor] [COUNT count] [BUSYLOOP] [QUEUE queue [QUEUE queue ...]] "
    "[STATE state [STATE state ...]] [MINAGE seconds] [MAXAGE seconds] [MINRETURNS count] "
    "[GROUP name] [HEADER name value [HEADER name value ...]] [TAKEN] [FEWCOPIES] [BODY text] "
    "[FIRST count] "
    "[REPLY all|id|counts] [CLIENT] [MAXBODY bytes]"
)
_CRON: Final = (
    "SET name times [TZ zone] [CATCHUP] queue job [option ...] | LIST | GET name | DEL name "
    "| PAUSE name | RESUME name | RUN name"
)
_IDS: Final = "id [id ...]"
_WORKER: Final = "REPORT field value [field value ...] | LIST | STOP client-id [HANDBACK]"
_REDRIVE: Final = "queue [TO queue] [COUNT count] [MATCH id [id ...]]"
_NACK: Final = "id [id ...] [DELAY seconds] [REASON text] [DEAD]"


def _commands() -> list[Command[Node]]:
    return [
        # ---- jobs
        Command("addjob", -4, "write denyoom fast", addjob.addjob, _ADDJOB,
                "Add a job to a queue; returns its id.", "jobs",
                needs={"queue": ADD}),
        Command("getjob", -2, "write fast @blocking", jobs.getjob, _GETJOB,
                "Take jobs from queues, waiting for one if there is none.", "jobs",
                needs={"queue": TAKE}, repeats=True),
        Command("consume", -2, "write fast", consume.consume, _CONSUME,
                "Get jobs of queues pushed, up to a number of unacknowledged ones.", "jobs",
                needs={"queue": TAKE}, values=consume.CONSUME),
        Command("credit", 2, "write fast", consume.credit, "count",
                "Change how many pushed jobs may be unacknowledged.", "jobs"),
        Command("ackjob", -1, "write fast", jobs.ackjob, f"{_IDS} [RESULT result]",
                "Acknowledge jobs, so that they are never delivered again.", "jobs",
                needs={"id": taken}),
        Command("fastack", -1, "write fast", jobs.fastack, _IDS,
                "Like ACKJOB, with fewer messages between nodes and a weaker guarantee.", "jobs",
                needs={"id": taken}),
        Command("cancel", -2, "write fast", jobs.cancel, f"{_IDS} [TERMINATE]",
                "Cancel jobs, so that they are no longer delivered.", "jobs",
                needs={"id": taken}),
        Command("updatejob", -4, "write denyoom", updatejob.updatejob,
                "id [BODY job] [DELAY seconds] [TTL seconds] [RETRY seconds] [QUEUE queue]",
                "Change a job that is not delivered.", "jobs", needs={"id": taken, "QUEUE": moved}),
        Command("waitjob", -3, "readonly @blocking", endings.waitjob, f"ms-timeout {_IDS}",
                "Wait until jobs have ended; returns how, with their results.", "jobs",
                needs={"id": known}),
        Command("nack", -1, "write denyoom fast", dead_letters.nack, _NACK,
                "Hand back unprocessed jobs: they are queued again, or given up.", "jobs",
                needs={"id": taken}, values=dead_letters.NACK),
        Command("copyjob", -3, "write", jobs.copyjob, f"ms-timeout {_IDS}",
                "Make the copies that jobs lack, on other nodes; returns how many jobs have all.",
                "jobs", needs={"id": taken}),
        Command("working", -2, "write fast", jobs.working, "id [PROGRESS fraction text]",
                "Postpone the next delivery of a job by its retry time.", "jobs",
                needs={"id": taken}),
        Command("enqueue", -1, "write denyoom fast", jobs.enqueue, _IDS,
                "Queue jobs that are not queued.", "jobs", needs={"id": taken}),
        Command("promote", -1, "write denyoom fast", jobs.promote, _IDS,
                "Queue delayed or paused jobs now.", "jobs", needs={"id": taken}),
        Command("dequeue", -1, "write fast", jobs.dequeue, _IDS,
                "Take jobs out of their queue; they come back after their retry time.", "jobs",
                needs={"id": taken}),
        Command("deljob", -1, "write fast @dangerous", jobs.deljob, f"[BCAST] [FORCE] {_IDS}",
                "Delete jobs on this node.", "jobs", needs={"id": taken}, repeats=True),
        Command("show", -2, "readonly fast", jobs.show, "id [CLIENT] [MAXBODY bytes]",
                "Show all fields of a job.", "jobs", needs={"id": taken},
                values={"MAXBODY": parse_size},
                wrong="ERR wrong number of arguments for 'show' command"),
        Command("jscan", -1, "readonly", scan.jscan, _JSCAN,
                "Walk over the jobs of this node.", "jobs",
                needs={"QUEUE": TAKE | ALL}, values=scan.JSCAN, repeats=True,
                wrong=scan.BAD_OPTION),
        Command("loadjob", 2, "write @dangerous", jobs.loadjob, "serialized-job",
                "The record type of append-only files.", "jobs"),
        Command("redrive", -2, "write denyoom", dead_letters.redrive, _REDRIVE,
                "Send dead letters back to where they came from.", "jobs",
                needs={"queue": TAKE, "TO": ADD | ALL}, values=dead_letters.REDRIVE),
        # ---- queues
        Command("qlen", 2, "readonly fast", queues.qlen, "queue",
                "Return how many jobs are queued.", "queues", needs={"queue": KNOW}),
        Command("qpeek", -3, "readonly", queues.qpeek, "queue count [MAXBODY bytes]",
                "Look at the first jobs of a queue (negative count: the last).", "queues",
                needs={"queue": TAKE}, values={"count": parse_integer},
                wrong="ERR wrong number of arguments for 'qpeek' command"),
        Command("qowner", -2, "readonly fast", cluster.qowner, "queue [queue ...]",
                "Return the node that is best for each queue now.", "queues",
                needs={"queue": KNOW}),
        Command("qpurge", 2, "write fast @dangerous", queues.qpurge, "queue",
                "Cancel all queued jobs, on all nodes.", "queues", needs={"queue": TAKE}),
        Command("qmove", -3, "write denyoom", queues.qmove, "from to [COUNT count]",
                "Move queued jobs to another queue, on all nodes.", "queues",
                needs={"from": TAKE, "to": ADD}),
        Command("qstat", -2, "readonly fast", queues.qstat, "queue [FULL]",
                "Show the state and the counters of a queue.", "queues", needs={"queue": KNOW}),
        Command("qtop", -4, "readonly", breakdown.qtop,
                "queue BY group|task|user|client [COUNT count]",
                "Count the jobs of a queue by group, task, user or client; the largest first.",
                "queues", needs={"queue": TAKE}, values=breakdown.QTOP),
        Command("qscan", -1, "readonly", scan.qscan, _QSCAN,
                "Walk over the queues of this node.", "queues",
                needs={"MATCH": matching}, values=scan.QSCAN, repeats=True,
                wrong=scan.BAD_OPTION),
        Command("pause", -3, "readonly fast @write", queues.pause,
                "queue option [option ...]  (in, out, all, none, state, bcast)",
                "Stop a queue from taking or giving jobs.", "queues", needs={"queue": paused}),
        Command("qset", -4, "write fast", policies.qset, f"queue {policy_options.SYNTAX}",
                "Set options of the policy of a queue, or of those that match a pattern.",
                "queues", needs={"queue": TAKE | ADD | GLOB, "DEAD": dead}, repeats=True),
        Command("qget", -1, "readonly fast", policies.qget, "[queue]",
                "The policy that applies to a queue, or all policies.", "queues",
                needs={"queue": KNOW | ALL}),
        Command("qkeys", -1, "readonly", keys.qkeys, "[queue [cursor] [COUNT count]]",
                "List the queues with the most keys (ADDJOB UNIQUE), or the keys of one.",
                "queues", needs={"queue": KNOW | ALL}),
        Command("qdelkey", -3, "write @dangerous", keys.qdelkey, "queue key [key ...]",
                "Free keys whose jobs have ended, on all nodes.", "queues",
                needs={"queue": TAKE | ADD}),
        Command("cron", -2, "write fast", cron.cron, _CRON,
                "Show and change schedules: jobs that are added repeatedly.", "queues",
                needs={"name": scheduled},
                parts={"list get": "read queues", "set del pause resume run": "write queues"}),
        Command("qdel", 2, "write fast", policies.qdel, "queue",
                "Delete the policy of exactly this name.", "queues",
                needs={"queue": TAKE | ADD | GLOB}),
        Command("bind", 3, "write fast", topics.bind, "topic queue",
                "Let a queue get a copy of each job that is added to a topic.", "queues",
                needs={"topic": topic, "queue": ADD}),
        Command("unbind", 3, "write fast", topics.unbind, "topic queue",
                "Undo BIND.", "queues", needs={"topic": topic, "queue": ADD}),
        Command("bindings", -1, "readonly", topics.bindings, "[QUEUE queue] [MATCH topic] [FULL]",
                "List which topics are bound to which queues.", "queues",
                needs={"QUEUE": KNOW | ALL}, values=topics.BINDINGS),
        # ---- connection
        Command("hello", -1, "readonly skip_monitor fast", cluster.hello,
                "[2|3 [AUTH username password] [SETNAME name]]",
                "List the nodes of the cluster; with a version, Redis's handshake.", "connection",
                unauthenticated=True),
        # ---- workers
        Command("worker", -2, "readonly fast", workers.worker, _WORKER,
                "Report what a worker process does, list what they reported, ask one to stop.",
                "connection",
                parts={"report": "connection fast", "list": "admin dangerous",
                       "stop": "admin dangerous"}),
        # ---- server
        Command("debug", -2, "admin", diagnostics.debug,
                "FLUSHALL | SLEEP seconds | ERROR text | SEGFAULT | OOM | ASSERT | RESTART [ms] "
                "| CRASH-AND-RECOVER [ms]",
                "For tests.", "server",
                parts={"flushall sleep error segfault oom assert restart crash-and-recover":
                           "admin dangerous"}),
        Command("restart", 1, "admin readonly", server.restart, "",
                "Replace the process with a new one; jobs and queues stay.", "server"),
        Command("cluster", -2, "admin readonly", cluster.cluster,
                "NODES | PROCESSES | INFO | MYID | LEAVING [yes|no] | HANDOVER | RESET [SOFT|HARD] "
                "| SAVECONFIG | FORGET id | MEET host port [KEY key] | MYKEY | KEYS "
                "| EXPEL key-or-id | READMIT key",
                "Show and change the cluster.", "cluster",
                parts={"nodes processes info myid mykey keys": "",
                       "leaving handover reset saveconfig forget meet expel readmit":
                       "admin dangerous"}),
        # ---- names from the first release
        Command("getjobs", -2, "write fast @blocking", jobs.getjob, _GETJOB,
                "Another name of GETJOB.", "jobs", alias_of="getjob", needs={"queue": TAKE},
                repeats=True),
        Command("queue", -1, "write denyoom fast", jobs.enqueue, _IDS,
                "Another name of ENQUEUE.", "jobs", alias_of="enqueue", needs={"id": taken}),
        Command("scanjobs", -1, "readonly", scan.jscan, _JSCAN,
                "Another name of JSCAN.", "jobs", alias_of="jscan",
                needs={"QUEUE": TAKE | ALL}, values=scan.JSCAN, repeats=True,
                wrong=scan.BAD_OPTION),
        Command("scanqueues", -1, "readonly", scan.qscan, _QSCAN,
                "Another name of QSCAN.", "queues", alias_of="qscan",
                needs={"MATCH": matching}, values=scan.QSCAN, repeats=True,
                wrong=scan.BAD_OPTION),
    ]  # fmt: skip
