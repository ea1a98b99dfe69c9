"""Job commands: GETJOB, the acknowledgements, and commands that move single jobs."""

from collections.abc import Callable
from functools import partial
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.health import deeds
from disque_trio.node.commands.arguments import (
    BAD_ID,
    MAX_QUEUES,
    check_ids,
    check_patterns,
    find_job,
    find_jobs,
    parse_count,
)
from disque_trio.node.commands.endings import ack_ending, end_jobs, has_result
from disque_trio.node.commands.reach import Reach, may_end_others
from disque_trio.node.core.copies.few_copies import MOST_IDS
from disque_trio.node.core.jobs.job import (
    ACKED,
    ACTIVE,
    FLAG_PAUSED,
    QUEUED,
    STATE_NAMES,
    Job,
    first_due,
    is_delivered,
)
from disque_trio.node.core.node import LEAVING, Node
from disque_trio.node.core.queues.entries import (
    ONE,
    TAKEN_AT_ONCE,
    WITH_COUNTERS,
    WITH_HEADERS,
    describe_priority,
    describe_trailer,
    job_entry,
    job_entry_with,
    size_of,
)
from disque_trio.node.core.queues.limits import ASKING_TIME
from disque_trio.protocol.serialjob import is_job_id
from disque_trio.protocol.trailer import CANCELLED, TERMINATE, Ending
from disque_trio.resp.reply import Value, encode, integer, null, null_array
from disque_trio.respserver.batches import Batch, Sliced
from disque_trio.respserver.client import PIECE, Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, parse_timeout
from disque_trio.respserver.words import Found

MOST_TAKEN: Final = 4 << 20  # bytes of bodies for one GETJOB, plus what is taken at once

MOST_PROGRESS: Final = 200  # bytes of the text with which a worker says how far it is

_CANCELLED: Final = "CANCELLED Job was cancelled, it will not be delivered again."


def getjob(node: Node, client: Client, args: list[bytes]) -> None:
    """GETJOB."""
    timeout = 0
    count = 1
    nohang = False
    by_patterns = False
    details = 0
    last = len(args) - 1
    i = 1
    while True:
        if i >= last:  # FROM and a name have to follow
            raise CommandError(SYNTAX)
        word = args[i]
        i += 1
        # Most clients write capitals; to make them of each word takes a twentieth of a GETJOB.
        option = word if word in (b"FROM", b"NOHANG", b"TIMEOUT", b"COUNT") else word.upper()
        if option == b"FROM":
            break
        if option == b"NOHANG":
            nohang = True
        elif option == b"TIMEOUT":
            timeout = parse_timeout(args[i])
            i += 1
        elif option == b"COUNT":
            count = parse_count(args[i])
            i += 1
        elif option == b"PATTERN":
            by_patterns = True
        else:
            details |= _detail(option)
    names = args[i:]
    if len(names) > MAX_QUEUES and not by_patterns:
        raise CommandError(f"ERR a client may ask for jobs of at most {MAX_QUEUES} queues")
    if by_patterns:
        check_patterns(node, names, names)
    if count == 1 and not by_patterns:  # nearly always, like the shortcut below
        jobs = node.deliveries.take(names, 1)
    else:
        jobs = _take(node, names, by_patterns, count)
    if jobs and len(jobs) < count and (_may_be_more(node, jobs) or _wait_for_disk(node, names)):
        taking = _Taking(node, client, args, names, by_patterns, count, details)
        taking.add(jobs)
        node.batches.begin(taking)
        return
    if len(jobs) == 1 and not details:
        job = jobs[0]
        client.out.append(job_entry(job, node.queues.by_name[job.queue], ONE))
    elif jobs:
        client.out.append(b"*%d\r\n" % len(jobs))
        _tell(node, jobs, details, client.out)
    elif by_patterns:
        _wait_by_patterns(node, client, names, -1 if nohang else timeout, details)
    else:
        _wait(node, client, names, nohang, timeout, details)


def _detail(option: bytes) -> int:
    """The details of each job that ``option`` asks for."""
    if option == b"WITHCOUNTERS":
        return WITH_COUNTERS
    if option == b"WITHHEADERS":
        return WITH_HEADERS
    raise CommandError(SYNTAX)


def _wait(
    node: Node, client: Client, names: list[bytes], nohang: bool, timeout: int, details: int
) -> None:
    """Let ``client`` wait for jobs of the queues ``names``, unless it does not want to, and ask
    other nodes for theirs."""
    if nohang and (node.in_group or not node.limits.is_asking(names)):
        client.out.append(null_array(client.resp))
    elif node.peers.leaving:
        client.out.append(LEAVING)
    elif node.in_group:
        client.out.append(null_array(client.resp))
    else:
        node.deliveries.wait(client, names, ASKING_TIME if nohang else timeout, details)
    if node.peers.size > 1:
        for name in names:
            queue = node.queues.by_name.get(name)
            if queue is None:
                node.federation.poll(name)
            elif not queue.deliverable() or queue.paused:  # otherwise a limit holds its jobs back
                node.federation.need_jobs(queue)


def _take(node: Node, names: list[bytes], by_patterns: bool, count: int) -> list[Job]:
    """Deliver up to ``count`` jobs of the queues ``names``, as many as fit into a slice."""
    most = min(count, node.batches.size)
    if by_patterns:
        return node.deliveries.interests.take(names, most)
    return node.deliveries.take(names, most)


def _may_be_more(node: Node, jobs: list[Job]) -> bool:
    """Whether ``jobs`` are so many, or so large, that taking more was put off."""
    return len(jobs) >= node.batches.size or size_of(jobs) >= TAKEN_AT_ONCE


def _wait_for_disk(node: Node, names: list[bytes]) -> bool:
    """Whether the next job of one of the queues ``names`` lies on disk."""
    if not node.holding:
        return False
    queues = node.queues.by_name
    return any(name in queues and queues[name].next_on_disk() is not None for name in names)


def _tell(node: Node, jobs: list[Job], details: int, out: list[bytes]) -> None:
    """Append to ``out`` what the reply of GETJOB says about each of ``jobs``."""
    queues = node.queues.by_name
    for job in jobs:
        if details:
            out.append(job_entry_with(job, queues[job.queue], details, node.store.trailers))
        else:
            out.append(job_entry(job, queues[job.queue]))


class _Taking(Sliced):
    """The pending reply of a GETJOB for many jobs, or for large ones.

    It ends before they take more than ``MOST_TAKEN`` bytes, or than the client may have unread:
    COUNT is only how many it takes at most.

    If the file cannot take a record, the client gets none of them: after a crash those whose
    records are missing would be delivered again. It is as with few jobs: those with a RETRY come
    back after that time.
    """

    __slots__ = (
        "_by_patterns",
        "_count",
        "_details",
        "_entries",
        "_made",
        "_most",
        "_names",
        "_node",
        "_size",
        "_taken",
    )

    def __init__(
        self,
        node: Node,
        client: Client,
        args: list[bytes],
        names: list[bytes],
        by_patterns: bool,
        count: int,
        details: int,
    ) -> None:
        super().__init__(client, node.command_of(args))
        self.ready.append(b"")  # becomes the head
        self._entries: list[bytes] = []  # those that are not in a piece yet
        self._made = 0  # bytes that they have
        self._node = node
        self._names = names
        self._by_patterns = by_patterns
        self._count = count
        self._details = details
        self._size = 0
        self._taken = 0
        self._most = min(MOST_TAKEN, node.host.most_replies(client) // 2 or MOST_TAKEN)

    @property
    def left(self) -> int:
        return 1 + self._taken

    def add(self, jobs: list[Job]) -> None:
        """Tell about ``jobs``, which were taken."""
        entries = self._entries
        told = len(entries)
        _tell(self._node, jobs, self._details, entries)
        self._made += sum(map(len, entries[told:]))
        if self._made >= PIECE:
            self._end_piece()
        self._taken += len(jobs)
        self._size += size_of(jobs)
        if self._size >= self._most or not (
            _may_be_more(self._node, jobs) or _wait_for_disk(self._node, self._names)
        ):
            self._end()

    def _end_piece(self) -> None:
        self.ready.append(b"".join(self._entries))
        self._entries.clear()
        self._made = 0

    def _end(self) -> None:
        self._end_piece()
        self.ready[0] = b"*%d\r\n" % self._taken
        self.reply = b""

    def step(self, size: int) -> None:
        left = self._count - self._taken
        if left and not self.client.close:
            jobs = _take(self._node, self._names, self._by_patterns, left)
            self.rests = not jobs
            self.add(jobs)
        else:
            self._end()


def _wait_by_patterns(
    node: Node, client: Client, patterns: list[bytes], timeout: int, details: int
) -> None:
    """Make ``client`` wait for jobs of queues that match ``patterns``, for ``timeout`` ms (0:
    forever; negative: only until it is known that there are none)."""
    interests = node.deliveries.interests
    if node.in_group:
        client.out.append(null_array(client.resp))
    elif timeout >= 0:
        if node.peers.leaving:
            client.out.append(LEAVING)
        else:
            interests.wait(client, patterns, timeout, details, False)
    elif interests.is_undecided(patterns):
        interests.wait(client, patterns, 0, details, True)
    elif interests.is_asking(patterns):
        interests.wait(client, patterns, ASKING_TIME, details, False)
    else:
        interests.tell(patterns)
        client.out.append(null_array(client.resp))


def ackjob(node: Node, client: Client, args: list[bytes]) -> None:
    """ACKJOB id ...: acknowledge jobs; returns how many this node newly acknowledged."""
    if len(args) == 2:  # nearly always; this shortcut saves a tenth
        id = args[1]
        if not is_job_id(id):
            raise CommandError(BAD_ID)
        job = node.store.jobs.get(id)
        if job is not None:
            client.out.append(b":1\r\n" if node.ack_gc.acknowledge(job) else b":0\r\n")
        elif _ack_on_disk(node, id):
            client.out.append(b":1\r\n")
        else:
            if client.unrestricted or may_end_others(node, client, args):
                node.ack_gc.remember_ack(id)
            client.out.append(b":0\r\n")
    elif has_result(args):
        work = partial(end_jobs, ack_ending(args[-1]))
        answer_count(node, client, args[:-2], work)
    else:
        answer_count(node, client, args, _ack, False)


def cancel(node: Node, client: Client, args: list[bytes]) -> None:
    """CANCEL id ...: end jobs so that they are no longer delivered; returns how many of them this
    node held and did not know to have ended. TERMINATE: tell workers to end their tasks."""
    how = b""
    if len(args) > 2 and args[-1].lower() == TERMINATE:
        how = TERMINATE
        args = args[:-1]
    answer_count(node, client, args, partial(end_jobs, Ending(CANCELLED, how)))
    if len(args) > deeds.MANY_CANCELLED:
        node.host.did(client, deeds.JOBS_CANCELLED, jobs=len(args) - 1)


def answer_count(
    node: Node,
    client: Client,
    args: list[bytes],
    work: Callable[[Node, list[bytes]], int],
    on_jobs: bool = True,
) -> None:
    """Run ``work`` on those of the ids ``args[1:]`` that ``client`` can reach, at once, or in
    slices if there are many. The reply is the sum of what it returns. ``on_jobs``: it needs the
    jobs themselves, in memory."""
    check = check_ids
    if not client.unrestricted:
        reach = Reach(node, client, args)
        check = reach.check
        work = partial(reach.within, work)
    if len(args) - 1 > node.batches.size:
        batch = Batch(client, node.command_of(args), args, 1, check, partial(work, node))
        if on_jobs:
            batch.are_here = node.put_off.are_here
        elif node.notes.noting:
            batch.are_here = node.put_off.can_be_noted
        node.batches.begin(batch)
    else:
        client.out.append(integer(work(node, args[1:])))


def _ack_on_disk(node: Node, id: bytes) -> bool:
    """Acknowledge the job ``id`` if it is on disk; return whether it was."""
    if node.paging.end(id, True, reason=schema.BY_CLIENT):
        return True
    job = node.paging.ending(id)
    return job is not None and node.ack_gc.acknowledge(job)


def _ack(node: Node, ids: list[bytes]) -> int:
    """Acknowledge the jobs ``ids``; return how many were not acknowledged before."""
    acked = 0
    jobs = find_jobs(node, ids)
    if len(jobs) != len(ids):
        for id in ids:
            if node.store.jobs.get(id) is None:
                if _ack_on_disk(node, id):
                    acked += 1
                else:
                    node.ack_gc.remember_ack(id)
    for job in jobs:
        # A repeated id may have ended its job already.
        if job.state <= ACKED and node.ack_gc.acknowledge(job):
            acked += 1
    return acked


def fastack(node: Node, client: Client, args: list[bytes]) -> None:
    """FASTACK id ...: delete jobs here and, as far as possible, on all other nodes."""
    answer_count(node, client, args, partial(_delete, True, True, True), False)


def deljob(node: Node, client: Client, args: list[bytes]) -> None:
    """DELJOB: delete jobs here. The options are those of the first release: BCAST also deletes at
    known holders, and with FORCE everywhere if a job is not known here."""
    words = node.read(args)
    work = partial(_delete, words.has("BCAST"), words.has("FORCE"), False)
    answer_count(node, client, [args[0], *words.all("id")], work, False)


def _delete(tell_holders: bool, tell_all: bool, counted: bool, node: Node, ids: list[bytes]) -> int:
    """Delete the jobs ``ids``; return how many this node held. ``counted``: as acknowledged."""
    check_ids(ids)
    why = schema.BY_FASTACK if counted else schema.BY_COMMAND
    deleted = 0
    for id in ids:
        job = node.store.jobs.get(id)
        if job is None and not node.paging.end(id, counted, schema.DELETED, why):
            job = node.paging.ending(id)
        elif job is None:
            deleted += 1
            continue
        if job is not None:
            deleted += 1
            if counted and job.state != ACKED:
                node.store.count_acked(job)
                node.store.outcomes.acked(job)
            if node.notes.noting:
                node.notes.note(schema.DELETED, job, why)
            if tell_holders:
                node.replicas.tell_deleted(id, job)
            node.store.delete(job)
        elif tell_all:
            if node.notes.noting:
                unknown = Job(id, b"", None, 0, 0, 0, 0, 0, 0)
                node.notes.note(schema.DELETED, unknown, why)
            node.replicas.tell_deleted(id, None)
    return deleted


def enqueue(node: Node, client: Client, args: list[bytes]) -> None:
    """ENQUEUE id ...: put jobs back into their queues; returns how many were."""
    answer_count(node, client, args, _enqueue)


def _enqueue(node: Node, ids: list[bytes]) -> int:
    """Queue those of ``ids`` that are not queued; return how many were."""
    queued = 0
    for job in find_jobs(node, ids):
        if job.state == ACTIVE and node.requeue.enqueue(job, False, schema.BY_ENQUEUE):
            queued += 1
    return queued


def promote(node: Node, client: Client, args: list[bytes]) -> None:
    """PROMOTE id ...: queue delayed or paused jobs now; returns how many were."""
    answer_count(node, client, args, _promote)


def _promote(node: Node, ids: list[bytes]) -> int:
    """Queue those of ``ids`` that are delayed or paused; return how many were."""
    queued = 0
    for job in find_jobs(node, ids):
        # A holder cannot otherwise tell a delayed job from one that a worker has.
        delayed = job.delay and first_due(job) > node.now
        if (
            job.state == ACTIVE
            and (job.flags & FLAG_PAUSED or (delayed and not is_delivered(job)))
            and node.requeue.enqueue(job, False, schema.BY_ENQUEUE)
        ):
            queued += 1
    return queued


def dequeue(node: Node, client: Client, args: list[bytes]) -> None:
    """DEQUEUE id ...: take jobs out of their queues; returns how many were."""
    answer_count(node, client, args, _dequeue)


def _dequeue(node: Node, ids: list[bytes]) -> int:
    taken = 0
    for job in find_jobs(node, ids):
        if job.state == QUEUED:
            node.store.dequeue(job)
            if job.delivered is not None:
                node.replicas.places.leaves(job, node.now)
            node.progress.note(job)
            if node.notes.noting:
                node.notes.note(schema.DEQUEUED, job, schema.BY_COMMAND)
            taken += 1
    return taken


def working(node: Node, client: Client, args: list[bytes]) -> None:
    """WORKING id: postpone the next delivery by the retry time; returns that time in s. PROGRESS:
    how far the worker is, for SHOW."""
    progress = _progress_of(args) if len(args) > 2 else b""
    job = find_job(node, args[1])
    if job is None:
        if node.store.outcomes.is_cancelled(args[1]):
            raise CommandError(_CANCELLED)
        raise CommandError("NOJOB Job not known in the context of this node.")
    if job.state == ACKED:
        outcome = node.store.outcomes.of_held(job)
        if outcome is not None and outcome.kind == CANCELLED:
            raise CommandError(_CANCELLED)
        raise CommandError("ACKED Job already acknowledged, there is nothing to postpone.")
    created = job.ctime // 1_000_000
    if node.now - created > (job.etime * 1000 - created) // 2:
        raise CommandError(
            "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone "
            "the next delivery."
        )
    node.consumers.keep(job)
    client.out.append(integer(node.requeue.work_on(job, progress)))


def _progress_of(args: list[bytes]) -> bytes:
    """Read PROGRESS as ``Taking`` has it. WORKING comes often, so it is read without the syntax."""
    if len(args) != 5 or args[2].lower() != b"progress":
        raise CommandError(SYNTAX)
    text = args[4]
    if len(text) > MOST_PROGRESS:
        raise CommandError(f"ERR the text of PROGRESS has {MOST_PROGRESS} bytes at most")
    try:
        fraction = float(args[3])
    except ValueError:
        fraction = -1.0
    if not 0 <= fraction <= 1:
        raise CommandError("ERR PROGRESS must be a number from 0 to 1")
    return b"%b %b" % (f"{fraction:.4g}".encode(), text)


def show(node: Node, client: Client, args: list[bytes]) -> None:
    """SHOW: all fields of a job. CLIENT: also which client has it, and for how long. MAXBODY: only
    this much of the body, and its size."""
    words = node.read(args)
    job = find_job(node, args[1])
    if job is None:
        client.out.append(null(client.resp))
        return
    client.out.append(encode(describe(node, job, *wanted_fields(words)), client.resp))


def wanted_fields(words: Found) -> tuple[int | None, bool]:
    """What the options of SHOW and JSCAN want ``describe`` to tell of a job: how many bytes of the
    body, all if None; and which client has it."""
    return words.number("MAXBODY", 0) if words.has("MAXBODY") else None, words.has("CLIENT")


def describe(node: Node, job: Job, limit: int | None, with_client: bool) -> list[Value]:
    """Return all fields of ``job`` for SHOW and JSCAN REPLY all, as alternating names and values.

    Those that C Disque does not have come last, and only if set. limit, with_client: see
    ``wanted_fields``.
    """
    now = node.now
    holders: list[Value] = [node.id] if job.delivered is None else list(job.delivered)
    confirmed: list[Value] = list(job.confirmed or [])
    waits: Value = max(job.qtime - now, 0) if job.qtime else None
    awake = node.store.awake_of(job)
    wakes: Value = max(awake - now, 0) if awake else None
    state = job.state if job.state < ACKED else ACKED  # gone: since JSCAN found it
    fields: list[Value] = [
        b"id", job.id,
        b"queue", job.queue,
        b"state", STATE_NAMES[state],
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
        b"body", job.body and job.body[:limit],
    ]  # fmt: skip
    fields += describe_priority(job)
    trailer = node.store.trailers.of(job)
    if trailer is not None:
        fields += describe_trailer(trailer)
    taking = job.taking
    if taking is not None and taking.progress and is_delivered(job):
        fraction, _, text = taking.progress.partition(b" ")
        fields += [b"progress", fraction, b"progress-text", text]
    if limit is not None:
        fields += [b"body-size", len(job.body or b"")]
    if with_client and taking is not None and is_delivered(job):
        fields += [b"client", taking.client, b"client-since", max(node.now - taking.last_seen, 0)]
    return fields


def copyjob(node: Node, client: Client, args: list[bytes]) -> None:
    """COPYJOB ms id ...: make the copies that the jobs lack; returns how many of them have all."""
    timeout = parse_timeout(args[1])
    ids = args[2:]
    if len(ids) > MOST_IDS:
        raise CommandError(f"ERR COPYJOB takes {MOST_IDS} ids at most")
    check_ids(ids)
    node.few_copies.begin(client, ids, timeout)


def loadjob(node: Node, client: Client, args: list[bytes]) -> None:
    """LOADJOB, the record type of append-only files."""
    raise CommandError("ERR LOADJOB is a special command only processed from AOF")
