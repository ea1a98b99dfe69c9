"""Ways to end jobs: WAITJOB, and the common part of CANCEL and ACKJOB with a result."""

from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.commands.arguments import check_ids
from disque_trio.node.core.jobs.job import ACKED
from disque_trio.node.core.lifecycle.job_waits import AT_ONCE, MOST_IDS
from disque_trio.node.core.node import LEAVING, Node
from disque_trio.protocol.trailer import ACKED as ENDED_ACKED
from disque_trio.protocol.trailer import Ending
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX, parse_timeout

MOST_RESULT: Final = 1_000_000  # bytes; it has to fit into a packet of 1 MiB


def waitjob(node: Node, client: Client, args: list[bytes]) -> None:
    """WAITJOB ms id ...: wait until all the jobs have ended; returns how each of them did."""
    timeout = parse_timeout(args[1])
    ids = args[2:]
    if len(ids) > MOST_IDS:
        raise CommandError(f"ERR WAITJOB takes {MOST_IDS} ids at most")
    check_ids(ids)
    if len(ids) > AT_ONCE and not (node.in_group or node.peers.leaving):
        node.begin_wait(client, ids, timeout)
        node.job_waits.begin_later(client, ids)
        return
    wait = node.job_waits.look(ids, client)
    if wait.left == 0 or node.in_group:
        client.out.append(wait.reply(client.resp))
    elif node.peers.leaving:
        client.out.append(LEAVING)
    else:
        node.begin_wait(client, ids, timeout)
        node.job_waits.begin(client, wait)


def has_result(args: list[bytes]) -> bool:
    """Whether the arguments of ACKJOB end with a result; ids begin with D-. Raises
    ``CommandError`` if there are several results, or the result is malformed."""
    count = len(args)
    if count < 3 or not (_is_result(args[count - 2]) or _is_result(args[count - 1])):
        return False
    for i in range(1, count - 2):
        if _is_result(args[i]):
            raise CommandError(SYNTAX)
    if count == 3 or not _is_result(args[count - 2]):
        raise CommandError(SYNTAX)
    return True


def _is_result(word: bytes) -> bool:
    return len(word) == 6 and word.lower() == b"result"


def ack_ending(result: bytes) -> Ending:
    """The ending of jobs that are acknowledged with ``result``. Raises ``CommandError``."""
    if len(result) > MOST_RESULT:
        raise CommandError(f"ERR RESULT has more than {MOST_RESULT} bytes")
    return Ending(ENDED_ACKED, result)


def end_jobs(ending: Ending, node: Node, ids: list[bytes]) -> int:
    """End the jobs ``ids`` as ``ending`` says; return how many this node held that had not ended
    before."""
    ended = 0
    check_ids(ids)  # first, so that nothing is done if one is malformed
    for id in ids:
        job = node.store.jobs.get(id)
        if job is None:
            node.ack_gc.remember_ack(id, ending)
        elif job.state <= ACKED and node.ack_gc.end(job, ending, schema.BY_CLIENT):
            ended += 1
    return ended
