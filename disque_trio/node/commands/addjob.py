"""ADDJOB: why it may be refused, and how many copies the job gets."""

from functools import partial
from typing import Final

from disque_trio.node.commands.add_options import NO_OPTIONS, AddOptions, follow
from disque_trio.node.commands.arguments import PAUSED, check_topic, require_extensions
from disque_trio.node.core.copies.admissions import NOTHING, Admission, Queued
from disque_trio.node.core.copies.shortage import too_few
from disque_trio.node.core.jobs.job import JOB_OVERHEAD, UINT32_MAX, Job, priority_flags
from disque_trio.node.core.jobs.trailers import TRAILER_OVERHEAD
from disque_trio.node.core.jobs.uniques import ENTRY_OVERHEAD
from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.queue import PAUSED_IN
from disque_trio.node.core.unique.quorum import ClaimOptions
from disque_trio.protocol.bus import MAX_JOB, MAX_NAME_IN_FIELDS
from disque_trio.protocol.keyrecord import ADDED
from disque_trio.protocol.trailer import Trailer
from disque_trio.respserver.access import NO_QUEUE
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import parse_timeout
from disque_trio.respserver.commands.info import human

# As in ``job``. Compiled, a constant of another module costs a look-up.
DEFAULT_TTL: Final = 86_400
DEFAULT_RETRY: Final = 300
MAX_TRAILER: Final = 1 << 20  # bytes that the options can add to a trailer

_LEAVING: Final = (
    "NOREPL Not enough reachable nodes for the requested replication level, since I'm unable to "
    "hold a copy of the message for the following reason: I'm leaving the cluster"
)


def addjob(node: Node, client: Client, args: list[bytes]) -> None:
    """ADDJOB queue body ms-timeout [option ...]: add a job; see ``AddOptions``.

    The checks come in the same order as in the C server. The policy of the queue, if there is one,
    provides what the options do not say.
    """
    if args[1][:1] == b"@":
        _add_to_topic(node, client, args)
        return
    options = NO_OPTIONS if len(args) == 4 else AddOptions(args)
    if node.policies.count:
        options = follow(node.policies.of(args[1]), options, node.now)
    delay = 0  # s, rounded up; only the queue of this node knows ms
    if options.delay:
        wait = options.pause(node.now)
        delay = (wait + 999) // 1000
    plain = options.plain
    timeout = 0 if args[3] == b"0" else parse_timeout(args[3])
    if not plain and options.trailer is not None:
        _require(node, client, options.trailer)
    repl = options.repl or node.replicas.usual_copies()
    retry = options.retry
    if retry == 0 and repl > 1:
        raise CommandError(
            "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
        )
    ttl = options.ttl or DEFAULT_TTL + delay
    if retry < 0:
        retry = DEFAULT_RETRY if ttl >= 10 * DEFAULT_RETRY else ttl // 10 or 1
    # The expiry has 32 bits, too.
    if delay and (wait >= ttl * 1000 or node.now // 1000 + delay >= UINT32_MAX):
        what = "AT is after the end of" if options.delay < 0 else "DELAY is greater than"
        raise CommandError(
            f"ERR The specified {what} TTL. Job refused since would never be delivered"
        )
    if node.memory.shares is not None:
        _check_budget(node, client, args, options)
    external = _is_external(node)
    if (
        plain
        and not delay
        and repl == 1
        and not external
        and (queue := node.queues.by_name.get(args[1])) is not None
        and not queue.paused
    ):
        # Nearly always, on a node that is alone; a shortcut.
        job = node.store.make_job(queue.name, args[2], 1, 0, retry, ttl)
        node.replication.place(job)
        client.out.append(b"+%b\r\n" % job.id)
        return
    trailer = options.trailer
    name: bytes | None
    if trailer is not None and trailer.key:
        name = _admit_unique(node, client, args, repl, external, options, trailer)
        if name is None:
            return
    else:
        name = _admit(node, args, repl, external, options, NOTHING)
    job = node.store.make_job(name, args[2], repl, delay, retry, ttl)
    if delay:
        job.qtime = node.now + wait
    job.flags |= priority_flags(options.priority)
    if trailer is not None:
        node.store.trailers.put(job, trailer)
        if trailer.key and _claims(node, client, args, job, trailer, options, external, timeout):
            return
    _place(node, client, args, job, options, external, timeout)


def _place(
    node: Node,
    client: Client,
    args: list[bytes],
    job: Job,
    options: AddOptions,
    external: bool,
    timeout: int,
) -> None:
    """Queue ``job``, and have its copies made. If its queue is bounded, ask the other nodes first
    how much they have in it."""
    repl = job.repl
    bounded = options.maxlen > 0 or options.maxbytes > 0
    if bounded and node.peers.size > 1:
        deadline = node.now + timeout if timeout else 0
        admit = partial(_admit, node, args, repl, external, options)
        node.admissions.begin(Admission(client, job, options.wait, external, deadline, True, admit))
        return
    if repl == 1 and not external:
        node.replication.place(job)
    elif options.wait or external:
        # Even with ASYNC: there must be no id for a job that nobody holds.
        node.replication.add_sync(client, job, external, timeout)
        return
    else:
        node.replication.add_async(job)
    client.out.append(b"+%b\r\n" % job.id)


def _check_budget(node: Node, client: Client, args: list[bytes], options: AddOptions) -> None:
    """Raise ``CommandError`` if the user of ``client`` may not add the job. One whose key another
    job has is not added."""
    trailer = options.trailer
    size = JOB_OVERHEAD + len(args[2])
    keys = 0
    if trailer is not None:
        if trailer.key:
            if node.store.uniques.find(args[1], trailer.key) is not None and not options.replace:
                return
            keys = 1
            size += ENTRY_OVERHEAD + len(args[1]) + 2 * len(trailer.key)
        size += TRAILER_OVERHEAD + sum(map(len, args[4:]))
    node.budgets.admit(client.user, size, keys)


def _add_to_topic(node: Node, client: Client, args: list[bytes]) -> None:
    """ADDJOB @topic ...: add a job to each queue that is bound to a matching topic."""
    check_topic(args[1][1:])
    AddOptions(args)  # if they are wrong, they are wrong for all queues
    parse_timeout(args[3])
    topics = node.topics
    topics.add(client, args, topics.bindings.queues_of(args[1][1:]))


def _admit(
    node: Node, args: list[bytes], repl: int, external: bool, options: AddOptions, elsewhere: Queued
) -> bytes:
    """Return the name of the queue; raises ``CommandError`` if the job cannot be added to it now.
    ``elsewhere``: what other nodes have in it."""
    if repl > 1 or external:
        most = MAX_JOB if options.trailer is None else MAX_JOB - MAX_TRAILER
        if len(args[1]) + len(args[2]) > most:
            raise CommandError("ERR the job is too large to be sent to other nodes")
        _check_reachable(node, repl, external)
    queue = node.queues.by_name.get(args[1])
    if options.maxlen:
        length = elsewhere.length + (0 if queue is None else queue.length)
        if length >= options.maxlen:
            raise CommandError("MAXLEN Queue is already longer than the specified MAXLEN count")
    if options.maxbytes:
        size = elsewhere.size + (0 if queue is None else queue.bytes_queued())
        if size + len(args[2]) > options.maxbytes:
            raise CommandError(
                f"MAXBYTES Queue has {size} bytes, and its policy allows {options.maxbytes}"
            )
    if queue is None:
        return args[1]
    if queue.paused & PAUSED_IN:
        raise CommandError(PAUSED)
    return queue.name


def _admit_unique(
    node: Node,
    client: Client,
    args: list[bytes],
    repl: int,
    external: bool,
    options: AddOptions,
    trailer: Trailer,
) -> bytes | None:
    """The same for a job with the key in ``trailer``, as far as that can be said before other nodes
    are asked. None: another job has the key, and ``client`` has got its id."""
    known = _known(node, args[1], trailer, options.replace)
    if known:
        client.out.append(b"+%b\r\n" % known)
        return None
    if node.peers.size > 1 or _replaces(node, args[1], trailer, options):
        return args[1]
    if node.memory.shares is not None:
        _check_budget(node, client, args, options)  # what had the key is gone
    return _admit(node, args, repl, external, options, NOTHING)


def _admit_claimed(
    node: Node,
    user: User,
    id: bytes,
    args: list[bytes],
    repl: int,
    external: bool,
    options: AddOptions,
    elsewhere: Queued,
) -> bytes:
    """The same for a job that may have its key now. It counts already for ``user``, who was not
    checked if another job had the key."""
    if node.memory.shares is not None and options.trailer is not None:
        entry = node.store.uniques.find(args[1], options.trailer.key)
        node.budgets.admit_claimed(user, entry is not None and entry.id == id)
    return _admit(node, args, repl, external, options, elsewhere)


def _known(node: Node, queue: bytes, trailer: Trailer, replace: bool) -> bytes:
    """The id of the job with the key in ``trailer``, as far as this node can tell; empty: there is
    none, or it is to be replaced."""
    if len(queue) > MAX_NAME_IN_FIELDS:
        raise CommandError(f"ERR UNIQUE takes queue names of up to {MAX_NAME_IN_FIELDS} bytes")
    return node.claims.known(queue, trailer, replace)


def _replaces(node: Node, queue: bytes, trailer: Trailer, options: AddOptions) -> bool:
    """Whether this node knows of a job that is to be replaced."""
    return options.replace and node.store.uniques.find(queue, trailer.key) is not None


def _require(node: Node, client: Client, trailer: Trailer) -> None:
    """Raise ``CommandError`` unless all nodes know what is in ``trailer``, and the user of
    ``client`` may add it."""
    require_extensions(node)
    if trailer.letter is not None and not client.user.may_add(trailer.letter.queue):
        raise CommandError(NO_QUEUE)  # REDRIVE would add it there
    peers = node.peers
    if trailer.key_state and not all(peers.replaces_jobs(id) for id in peers.everyone()):
        raise CommandError(
            "NOEXT A node of the cluster does not know UNTIL START and REPLACE: it is of an "
            "earlier release, or was not heard of yet"
        )


def _claims(
    node: Node,
    client: Client,
    args: list[bytes],
    job: Job,
    trailer: Trailer,
    options: AddOptions,
    external: bool,
    timeout: int,
) -> bool:
    """Claim the key of ``job``. Return whether other nodes have to agree; if so, everything else
    is done once they have."""
    trailer.key_until = node.now + options.kept * 1000 if options.kept else 0
    if node.peers.size == 1 and not _replaces(node, args[1], trailer, options):
        node.store.uniques.hold(job, ADDED)
        return False
    admit = partial(_admit_claimed, node, client.user, job.id, args, job.repl, external, options)
    bounded = options.maxlen > 0 or options.maxbytes > 0
    wishes = ClaimOptions(options.wait, options.anyway, options.replace)
    node.claims.begin(client, job, trailer, external, timeout, bounded, admit, wishes)
    return True


def _is_external(node: Node) -> bool:
    """Whether this node must not hold a new job itself: it is leaving, or short of memory."""
    if node.peers.leaving:
        return True
    memory = node.memory
    if memory.used > memory.external_above and not node.peers.takers():
        # No other node could take it: evict what may go.
        node.store.evict(memory.external_above)
        node.queues.make_room(memory.external_above)
        node.store.uniques.make_room(memory.external_above)
    return memory.used > memory.external_above


def _check_reachable(node: Node, repl: int, external: bool) -> None:
    """Raise ``CommandError`` if too few other nodes can take a copy now."""
    others = repl if external else repl - 1
    reachable = node.peers.room(external)
    if others <= reachable:
        return
    if node.peers.leaving and others - 1 == reachable:
        raise CommandError(_LEAVING)
    if external and not node.peers.leaving and repl - 1 <= node.peers.room(False):
        # C says "I'm out of memory" at the end of a text about nodes.
        used, limit = human(node.memory.used), human(node.memory.limit)
        disk = ""
        if problem := node.paging.pages.problem:
            disk = f", and jobs cannot go to disk ({problem})"
        elif off := node.paging.pages.off:
            disk = f", and no jobs go to disk ({off})"
        raise CommandError(
            f"NOREPL Memory is short: {used} of {limit} (maxmemory) are used{disk}. Above 75% "
            "this node holds no new jobs, and too few other nodes that could take it are "
            "reachable. Acknowledge or delete jobs, raise maxmemory, or add nodes"
        )
    raise CommandError(too_few(node.peers, others, external))
