"""UPDATEJOB: its options, and why it may be refused."""

from disque_trio.node.commands.arguments import (
    BAD_DELAY,
    at_least,
    find_job,
    parse_queue,
    parse_seconds,
    require_extensions,
)
from disque_trio.node.core.changes.contents import Contents
from disque_trio.node.core.changes.updates import DELIVERED_TEXT
from disque_trio.node.core.jobs.job import (
    ACKED,
    JOB_OVERHEAD,
    UINT32_MAX,
    WAIT_REPL,
    Job,
    is_delivered,
)
from disque_trio.node.core.node import Node
from disque_trio.protocol.bus import MAX_JOB
from disque_trio.resp.ints import parse_int
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError


def updatejob(node: Node, client: Client, args: list[bytes]) -> None:
    """UPDATEJOB: change a job that is not delivered."""
    words = node.read(args)
    retry = ttl = delay = -1  # not given
    if words.has("RETRY"):
        value = parse_int(words.text("RETRY"))
        retry = at_least(0, value, "ERR RETRY time must be a non negative number")
    if words.has("TTL"):
        ttl = at_least(1, parse_int(words.text("TTL")), "ERR TTL must be a number > 0")
    if words.has("DELAY"):
        delay = parse_seconds(words.text("DELAY"), BAD_DELAY)
    job = find_job(node, args[1])
    require_extensions(node)
    if job is None or job.state in (WAIT_REPL, ACKED):
        raise CommandError("NOJOB Job not known in the context of this node.")
    if is_delivered(job):
        raise CommandError(DELIVERED_TEXT)
    contents = node.updates.contents(job)
    _set_times(node, job, contents, retry, ttl, delay)
    if words.has("QUEUE"):
        contents.queue = parse_queue(node, words.text("QUEUE"))
    if words.has("BODY"):
        contents.body = words.text("BODY")
    if job.delivered is not None and len(contents.queue) + len(contents.body) > MAX_JOB:
        raise CommandError("ERR the job is too large to be sent to other nodes")
    if node.memory.shares is not None:
        _check_budget(node, client, job, contents)
    node.updates.change(client, job, contents)


def _set_times(node: Node, job: Job, contents: Contents, retry: int, ttl: int, delay: int) -> None:
    """Set RETRY and TTL (s) and DELAY (ms) in ``contents``; -1: not given. Raises ``CommandError``
    if ``job`` cannot have them."""
    if retry >= 0:
        if (retry == 0) != (job.retry == 0):
            raise CommandError(
                "ERR RETRY cannot be changed from or to 0: the job's id says which it is"
            )
        contents.retry = min(retry, UINT32_MAX)
    if ttl >= 0:
        contents.etime = min(node.now // 1000 + ttl, UINT32_MAX)
        if contents.etime > job.etime and _is_unique(node, job):
            # Nodes without a copy, which also decide on the key, rely on the original expiry.
            raise CommandError("ERR TTL cannot be extended for a job with a key of UNIQUE")
    if delay >= 0:
        contents.due = node.now + delay
    if contents.due > node.now and contents.due >= contents.etime * 1000:
        raise CommandError(
            "ERR The specified DELAY is greater than TTL. Job refused since would never "
            "be delivered"
        )


def _check_budget(node: Node, client: Client, job: Job, contents: Contents) -> None:
    """Raise ``CommandError`` if the user of ``client`` may not add what ``job`` grows by, or the
    whole of it to a queue of its own."""
    grows = len(contents.body) - len(job.body or b"")
    if contents.queue != job.queue:
        node.budgets.admit_moved(client.user, job.queue, JOB_OVERHEAD + len(contents.body))
    if grows > 0:
        node.budgets.admit(client.user, grows)


def _is_unique(node: Node, job: Job) -> bool:
    """Whether ``job`` has a key for as long as it lives."""
    trailer = node.store.trailers.of(job)
    return trailer is not None and trailer.has_key and trailer.key_until == 0
