"""The life of a job: ADDJOB, GETJOB, the acknowledges, and what moves single jobs."""

from typing import Final

from disque_trio.commands.parse import SYNTAX, find_job, find_jobs, parse_timeout
from disque_trio.core.client import Client
from disque_trio.core.command import CommandError
from disque_trio.core.job import ACKED, ACTIVE, QUEUED, STATE_NAMES, UINT16_MAX, Job
from disque_trio.core.node import LEAVING, Node, job_entry
from disque_trio.core.queue import PAUSED_IN
from disque_trio.protocol.bus import MAX_JOB
from disque_trio.protocol.ints import parse_int
from disque_trio.protocol.reply import Value, encode, integer, null, null_array

DEFAULT_TTL: Final = 86_400
DEFAULT_RETRY: Final = 300
DEFAULT_REPLICATE: Final = 3

_TOO_FEW: Final = "NOREPL Not enough reachable nodes for the requested replication level"


def addjob(node: Node, client: Client, args: list[bytes]) -> None:
    """ADDJOB queue body ms-timeout [REPLICATE n] [DELAY s] [RETRY s] [TTL s] [MAXLEN n] [ASYNC].

    The checks come in the order in which the C server makes them.
    """
    repl = 0
    delay = 0
    retry = -1
    ttl = DEFAULT_TTL
    maxlen = 0
    wait = True
    last = len(args) - 1
    i = 4
    while i <= last:
        option = args[i].lower()
        i += 1
        if option == b"async":
            wait = False
            continue
        if i > last:
            raise CommandError(SYNTAX)
        value = parse_int(args[i])
        i += 1
        if option == b"replicate":
            if value is None or not 0 < value <= UINT16_MAX:
                raise CommandError("ERR REPLICATE must be between 1 and 65535")
            repl = value
        elif option == b"ttl":
            if value is None or value <= 0:
                raise CommandError("ERR TTL must be a number > 0")
            ttl = value
        elif option == b"retry":
            if value is None or value < 0:
                raise CommandError("ERR RETRY time must be a non negative number")
            retry = value
        elif option == b"delay":
            if value is None or value < 0:
                raise CommandError("ERR DELAY time must be a non negative number")
            delay = value
        elif option == b"maxlen":
            if value is None or value <= 0:
                raise CommandError("ERR MAXLEN must be a positive number")
            maxlen = value
        else:
            raise CommandError(SYNTAX)
    timeout = 0 if args[3] == b"0" else parse_timeout(args[3])
    if repl == 0:
        peers = node.peers
        size = peers.places() if peers.by_host else peers.size
        repl = size if size < DEFAULT_REPLICATE else DEFAULT_REPLICATE
    if retry == 0 and repl > 1:
        raise CommandError(
            "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
        )
    if retry < 0:
        retry = DEFAULT_RETRY if ttl >= 10 * DEFAULT_RETRY else ttl // 10 or 1
    if delay >= ttl:
        raise CommandError(
            "ERR The specified DELAY is greater than TTL. Job refused since would never "
            "be delivered"
        )
    external = node.leaving or node.memory.used > node.memory.external_above
    if external and not node.leaving and not node.peers.reachable:
        # Nobody else could take it: what may go makes room.
        node.evict(node.memory.external_above)
        external = node.memory.used > node.memory.external_above
    if repl > 1 or external:
        if len(args[1]) + len(args[2]) > MAX_JOB:
            raise CommandError("ERR the job is too large to be sent to other nodes")
        _check_reachable(node, repl, external)
    name = args[1]
    queue = node.queues.get(name)
    if queue is not None:
        if maxlen and queue.length >= maxlen:
            raise CommandError("MAXLEN Queue is already longer than the specified MAXLEN count")
        if queue.paused & PAUSED_IN:
            raise CommandError("PAUSED Queue paused in input, try later")
        name = queue.name
    job = node.make_job(name, args[2], repl, delay, retry, ttl)
    if repl == 1 and not external:
        node.place(job)
    elif wait or external:
        # ASYNC or not: an id must not be for a job that nobody holds.
        node.add_sync(client, job, external, timeout)
        return
    else:
        node.add_async(job)
    client.out.append(b"+" + job.id + b"\r\n")


def _check_reachable(node: Node, repl: int, external: bool) -> None:
    others = repl if external else repl - 1
    reachable = node.peers.room(external)
    if others <= reachable:
        return
    if external and others - 1 == reachable:
        reason = "I'm leaving the cluster" if node.leaving else "I'm out of memory"
        raise CommandError(
            f"{_TOO_FEW}, since I'm unable to hold a copy of the message for the following "
            f"reason: {reason}"
        )
    raise CommandError(_TOO_FEW)


def getjob(node: Node, client: Client, args: list[bytes]) -> None:
    """GETJOB [NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] FROM queue [queue ...]."""
    timeout = 0
    count = 1
    nohang = False
    withcounters = False
    last = len(args) - 1
    i = 1
    while True:
        if i >= last:  # FROM and a name have to come
            raise CommandError(SYNTAX)
        option = args[i].lower()
        i += 1
        if option == b"from":
            break
        if option == b"nohang":
            nohang = True
        elif option == b"withcounters":
            withcounters = True
        elif option == b"timeout":
            timeout = parse_timeout(args[i])
            i += 1
        elif option == b"count":
            value = parse_int(args[i])
            if value is None or value <= 0:
                raise CommandError("ERR COUNT must be a number greater than zero")
            count = value
            i += 1
        else:
            raise CommandError(SYNTAX)
    names = args[i:]
    jobs = node.get_jobs(names, count)
    if jobs:
        queues = node.queues
        client.out.append(b"*%d\r\n" % len(jobs))
        for job in jobs:
            client.out.append(job_entry(job, queues[job.queue], withcounters))
    elif nohang:
        client.out.append(null_array(client.resp))
    elif node.leaving:
        client.out.append(LEAVING)
    else:
        node.block(client, names, timeout, withcounters)
    if not jobs and node.peers.size > 1:
        for name in names:
            node.need_jobs(node.queues[name])


def ackjob(node: Node, client: Client, args: list[bytes]) -> None:
    """ACKJOB id ...: these were processed; answers how many were known and news."""
    acked = 0
    jobs = find_jobs(node, args, 1)
    if len(jobs) != len(args) - 1:
        for id in args[1:]:
            if node.jobs.get(id) is None:
                node.remember_ack(id)
    for job in jobs:
        if job.state <= ACKED and node.acknowledge(job):
            acked += 1
    client.out.append(integer(acked))


def fastack(node: Node, client: Client, args: list[bytes]) -> None:
    """FASTACK id ...: delete here and, as well as may be, everywhere."""
    client.out.append(integer(_delete(node, args[1:], True, True, True)))


def deljob(node: Node, client: Client, args: list[bytes]) -> None:
    """DELJOB [BCAST] [FORCE] id ...: delete here. The options are those of the first release:
    BCAST also deletes at the known holders, with FORCE everywhere when it is not known here."""
    broadcast = force = False
    start = 1
    while start < len(args):
        option = args[start].lower()
        if option == b"bcast":
            broadcast = True
        elif option == b"force":
            force = True
        else:
            break
        start += 1
    client.out.append(integer(_delete(node, args[start:], broadcast, force)))


def _delete(
    node: Node, ids: list[bytes], tell_holders: bool, tell_all: bool, counted: bool = False
) -> int:
    find_jobs(node, ids, 0)
    deleted = 0
    for id in ids:
        job = node.jobs.get(id)
        if job is not None:
            deleted += 1
            if counted and job.state != ACKED:
                node.total_acked += 1
            if node.eventing:
                node.note("deleted", job, "fastack" if counted else "command")
            if tell_holders:
                node.tell_deleted(id, job)
            node.delete(job)
        elif tell_all:
            if node.eventing:
                unknown = Job(id, b"", None, 0, 0, 0, 0, 0, 0)
                node.note("deleted", unknown, "fastack" if counted else "command")
            node.tell_deleted(id, None)
    return deleted


def enqueue(node: Node, client: Client, args: list[bytes]) -> None:
    """ENQUEUE id ...: put back into the queue; answers how many went."""
    client.out.append(integer(_enqueue(node, args, False)))


def nack(node: Node, client: Client, args: list[bytes]) -> None:
    """NACK id ...: as ENQUEUE, and counted as not processed."""
    client.out.append(integer(_enqueue(node, args, True)))


def _enqueue(node: Node, args: list[bytes], nack: bool) -> int:
    queued = 0
    for job in find_jobs(node, args, 1):
        if job.state != ACTIVE:
            continue
        if nack and node.eventing:
            node.note("nacked", job)
        if node.enqueue(job, nack, "nack" if nack else "enqueue"):
            queued += 1
    return queued


def dequeue(node: Node, client: Client, args: list[bytes]) -> None:
    """DEQUEUE id ...: take out of the queue; answers how many went."""
    taken = 0
    for job in find_jobs(node, args, 1):
        if job.state == QUEUED:
            node.dequeue(job)
            if node.eventing:
                node.note("dequeued", job, "command")
            taken += 1
    client.out.append(integer(taken))


def working(node: Node, client: Client, args: list[bytes]) -> None:
    """WORKING id: postpone the next delivery by the retry time, which is the answer in s."""
    job = find_job(node, args[1])
    if job is None:
        raise CommandError("NOJOB Job not known in the context of this node.")
    if job.state == ACKED:
        raise CommandError("ACKED Job already acknowledged, there is nothing to postpone.")
    created = job.ctime // 1_000_000
    if node.now - created > (job.etime * 1000 - created) // 2:
        raise CommandError(
            "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone "
            "the next delivery."
        )
    client.out.append(integer(node.work_on(job)))


def show(node: Node, client: Client, args: list[bytes]) -> None:
    """SHOW id: all fields of a job."""
    job = find_job(node, args[1])
    if job is None:
        client.out.append(null(client.resp))
    else:
        client.out.append(encode(describe(node, job), client.resp))


def describe(node: Node, job: Job) -> Value:
    """All fields of ``job`` as SHOW and JSCAN REPLY all give them: names and values in turn."""
    now = node.now
    holders: list[Value] = [node.id] if job.delivered is None else list(job.delivered)
    confirmed: list[Value] = list(job.confirmed or [])
    waits: Value = max(job.qtime - now, 0) if job.qtime else None
    wakes: Value = max(job.awake - now, 0) if job.awake else None
    return [
        b"id", job.id,
        b"queue", job.queue,
        b"state", STATE_NAMES[job.state],
        b"repl", job.repl,
        b"ttl", max(job.etime - now // 1000, 0),
        b"ctime", job.ctime,
        b"delay", job.delay,
        b"retry", job.retry,
        b"nacks", job.nacks,
        b"additional-deliveries", job.deliveries,
        b"nodes-delivered", holders,
        b"nodes-confirmed", confirmed,
        b"next-requeue-within", waits,
        b"next-awake-within", wakes,
        b"body", job.body,
    ]  # fmt: skip


def loadjob(node: Node, client: Client, args: list[bytes]) -> None:
    """LOADJOB is what append-only files consist of."""
    raise CommandError("ERR LOADJOB is a special command only processed from AOF")
