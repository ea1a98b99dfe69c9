"""Queue commands: length, state, inspection and pausing."""

from collections.abc import Iterator
from functools import partial

from disque_trio.health import deeds
from disque_trio.node.commands.arguments import parse_count, parse_queue, require_extensions
from disque_trio.node.core.changes.state_counts import JobStateCounts
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.entries import job_entry
from disque_trio.node.core.queues.queue import PAUSED_IN, PAUSED_OUT, Queue
from disque_trio.node.core.rpc.calls import MOVE, PURGE
from disque_trio.node.core.shared.versions import SharedError
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.serialjob import PAUSE_NAMES
from disque_trio.resp.ints import INT64_MAX
from disque_trio.resp.reply import EMPTY_ARRAY, Value, encode, integer, null_array
from disque_trio.respserver.batches import Reading
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, parse_size


def qlen(node: Node, client: Client, args: list[bytes]) -> None:
    """QLEN queue: the number of queued jobs."""
    queue = node.queues.by_name.get(args[1])
    client.out.append(integer(0 if queue is None else queue.length))


def qpeek(node: Node, client: Client, args: list[bytes]) -> None:
    """QPEEK: the first jobs, or the last for a negative count, without taking them. MAXBODY: only
    this much of each body. Of a queue with groups at most 10,000."""
    words = node.read(args)
    count = words.number("count", 0)
    limit = parse_size(words.text("MAXBODY")) if words.has("MAXBODY") else None
    queue = node.queues.by_name.get(args[1])
    if queue is None or queue.length == 0 or count == 0:
        client.out.append(EMPTY_ARRAY)
        return
    most = min(abs(count), queue.length)
    node.batches.read(_Peek(node, client, args, queue, count < 0, most, limit))


def _first_of(jobs: Iterator[Job | None], most: int) -> Iterator[Job | None]:
    """The first ``most`` of ``jobs``, and None whenever the next one is not there yet."""
    for job in jobs:
        yield job
        if job is not None:
            most -= 1
            if not most:
                return


class _Peek(Reading[Job]):
    """The reply of QPEEK."""

    __slots__ = ("_limit", "_queue")

    def __init__(
        self,
        node: Node,
        client: Client,
        args: list[bytes],
        queue: Queue,
        backwards: bool,
        most: int,
        limit: int | None,
    ) -> None:
        super().__init__(
            client, node.command_of(args), _first_of(node.paging.views.walk(queue, backwards), most)
        )
        self._queue = queue
        self._limit = limit

    def entry(self, item: Job) -> bytes:
        if self._limit is None:
            return job_entry(item, self._queue)
        return encode([self._queue.name, item.id, (item.body or b"")[: self._limit]])


def qstat(node: Node, client: Client, args: list[bytes]) -> None:
    """QSTAT: the fields of a queue, as names and values in turn. FULL: also those that require a
    look at all jobs."""
    full = node.read(args).has("FULL")
    queue = node.queues.by_name.get(args[1])
    if full:
        node.scatter_gather.state_counter.begin(
            client, args[1], partial(_tell_all, node, args[1], client.resp)
        )
    elif queue is None:
        client.out.append(null_array(client.resp))
    else:
        client.out.append(encode(_describe(node, queue), client.resp))


def _tell_all(node: Node, name: bytes, resp: int, tally: JobStateCounts) -> bytes:
    """The reply to QSTAT FULL for the protocol version ``resp``. ``tally``: counts of the jobs of
    the queue ``name``."""
    queue = node.queues.by_name.get(name)
    if queue is None:
        if not (tally.delayed or tally.in_hand or tally.dead or tally.waiting):
            return null_array(resp)
        queue = Queue(name, node.now)  # not made yet, or forgotten: nothing was queued for long
        queue.traffic = node.queues.traffic(name)
    counted: list[Value] = [
        b"jobs-delayed", tally.delayed,
        b"jobs-in-hand", tally.in_hand,
        b"jobs-dead", tally.dead,
        b"jobs-waiting", tally.waiting,
        b"jobs-paged", queue.on_disk(),
    ]  # fmt: skip
    return encode(_describe(node, queue) + counted, resp)


def _describe(node: Node, queue: Queue) -> list[Value]:
    """The fields of C Disque, then ours, and last those of a queue whose deliveries are
    limited."""
    sources: list[Value] = [] if queue.imports is None else list(queue.imports.sources)
    fields: list[Value] = [
        b"name", queue.name,
        b"len", queue.length,
        b"age", max(node.now - queue.ctime, 0) // 1000,
        b"idle", max(node.now - queue.atime, 0) // 1000,
        b"blocked", len(queue.waiters),
        b"import-from", sources,
        b"import-rate", node.federation.import_rate(queue),
        b"jobs-in", queue.jobs_in,
        b"jobs-out", queue.jobs_out,
        b"pause", PAUSE_NAMES[queue.paused],
        b"oldest-job-age", queue.oldest_age(node.now),
        b"jobs-expired", queue.jobs_expired,
        b"jobs-acked", queue.traffic.acked,
        b"filled-ago", max(node.now - queue.filled, 0) if queue.length else 0,
        b"wanted-ago", max(node.now - queue.wanted, 0) if queue.wanted else -1,
        b"died-ago", max(node.now - queue.deaths.last, 0) if queue.deaths is not None else -1,
        b"jobs-died", 0 if queue.deaths is None else queue.deaths.lately(node.now),
        *queue.traffic.describe(node.now),
    ]  # fmt: skip
    return fields + node.limits.describe(queue)


def qpurge(node: Node, client: Client, args: list[bytes]) -> None:
    """QPURGE queue: cancel the queued jobs, on all reachable nodes; returns how many."""
    if len(args[1]) > MAX_NAME_IN_FIELDS:
        raise CommandError(f"ERR the name of the queue has more than {MAX_NAME_IN_FIELDS} bytes")
    node.scatter_gather.begin(client, PURGE, [args[1]], INT64_MAX)
    node.host.did(client, deeds.QUEUE_PURGED, args[1])


def qmove(node: Node, client: Client, args: list[bytes]) -> None:
    """QMOVE: move queued jobs to another queue, on all reachable nodes; returns how many."""
    words = node.read(args)
    most = parse_count(words.text("COUNT")) if words.has("COUNT") else INT64_MAX
    if args[1] == args[2]:
        raise CommandError("ERR the jobs are in this queue already")
    require_extensions(node)
    if len(args[1]) + len(parse_queue(node, args[2])) > MAX_NAME_IN_FIELDS:
        raise CommandError(f"ERR the names of the queues have more than {MAX_NAME_IN_FIELDS} bytes")
    node.budgets.admit_moved(client.user, args[1], 1)
    node.scatter_gather.begin(client, MOVE, [args[1], args[2]], most)
    node.host.did(client, deeds.JOBS_MOVED, b"%b to %b" % (args[1], args[2]))


def _options_of_pause(options: list[bytes]) -> tuple[int, bool, bool]:
    """The bits, whether they are to be set, and whether on all nodes. Raises ``CommandError``."""
    paused = 0
    change = False
    broadcast = False
    for arg in options:
        option = arg.lower()
        if option == b"in":
            paused |= PAUSED_IN
            change = True
        elif option == b"out":
            paused |= PAUSED_OUT
            change = True
        elif option == b"all":
            paused = PAUSED_IN | PAUSED_OUT
            change = True
        elif option == b"none":
            paused = 0
            change = True
        elif option == b"bcast":
            broadcast = True
        elif option != b"state":
            raise CommandError(SYNTAX)
    return paused, change, broadcast


def pause(node: Node, client: Client, args: list[bytes]) -> None:
    """PAUSE. The bits accumulate from left to right; none clears what precedes it; state changes
    nothing."""
    paused, change, broadcast = _options_of_pause(args[2:])
    if not change:
        paused = node.queue_pauses.state(args[1])
    elif not node.may_confirm:
        # A pause would be lost at the next start, while repeating it would seem to help.
        client.out.append(node.misconf)
        return
    if change and paused and not node.queue_pauses.state(args[1]):
        node.budgets.admit_paused(client.user, args[1])
    if broadcast and paused and not node.queue_pauses.known.bits(args[1]):
        node.budgets.admit_policy(client.user)
    if change and not broadcast:
        node.queue_pauses.set_here(args[1], paused)
    reply = b"+%b\r\n" % PAUSE_NAMES[paused]
    if not broadcast:
        client.out.append(reply)
    else:
        try:
            node.queue_pauses.set_everywhere(client, args[1], paused, reply)
        except SharedError as full:
            raise CommandError(f"ERR {full}") from full
    if change:
        node.host.did(client, deeds.PAUSED if paused else deeds.RESUMED, args[1])
