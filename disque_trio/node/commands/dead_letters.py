"""NACK and REDRIVE: jobs that could not be processed, and their way back."""

from functools import partial
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.health import deeds
from disque_trio.node.commands.add_options import MAX_REASON
from disque_trio.node.commands.arguments import (
    BAD_DELAY,
    check_ids,
    find_jobs,
    parse_count,
    parse_seconds,
)
from disque_trio.node.commands.jobs import answer_count
from disque_trio.node.core.jobs.job import ACTIVE, UINT32_MAX
from disque_trio.node.core.node import Node
from disque_trio.node.core.rpc.calls import REDRIVE as REDRIVE_ALL
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.trailer import BY_WORKER
from disque_trio.resp.ints import INT64_MAX
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.words import SYNTAX

MAX_MATCHES: Final = 1000
_TO_ITSELF: Final = "ERR TO must be another queue"


def _delay(word: bytes) -> int:
    delay = parse_seconds(word, BAD_DELAY)
    if delay > UINT32_MAX * 1000:
        raise CommandError("ERR DELAY is too large")
    return delay


def _reason(word: bytes) -> int:
    if len(word) > MAX_REASON:
        raise CommandError(f"ERR REASON may have at most {MAX_REASON} bytes")
    return 0


NACK: Final = {"DELAY": _delay, "REASON": _reason}
_OPTIONS: Final = (b"delay", b"reason", b"dead")


def nack(node: Node, client: Client, args: list[bytes]) -> None:
    """NACK: queue jobs again that could not be processed, at once or after a pause, or give them up
    as dead letters."""
    end = _end_of_ids(args)
    delay, reason, dead = _options_of_nack(args, end)
    if dead and delay >= 0:
        raise CommandError("ERR DEAD and DELAY cannot be combined")
    answer_count(node, client, args[:end], partial(_nack, dead, delay, reason))


def _end_of_ids(args: list[bytes]) -> int:
    """The index at which the ids of a NACK end."""
    for i in range(2, len(args)):
        if len(args[i]) <= 6 and args[i].lower() in _OPTIONS:  # ids are longer
            return i
    return len(args)


def _options_of_nack(args: list[bytes], at: int) -> tuple[int, bytes, bool]:
    """DELAY (ms; -1: not given), REASON and DEAD from ``args[at]`` on. NACK comes as often as jobs
    fail, so they are read without the syntax."""
    delay, reason, dead = -1, b"", False
    given: list[bytes] = []
    while at < len(args):
        option = args[at].lower()
        if option in given or option not in _OPTIONS:
            raise CommandError(SYNTAX)
        given.append(option)
        at += 1
        if option == b"dead":
            dead = True
            continue
        if at == len(args):
            raise CommandError(SYNTAX)
        if option == b"delay":
            delay = _delay(args[at])
        else:
            reason = args[at]
            _reason(reason)
        at += 1
    return delay, reason, dead


def _nack(dead: bool, delay: int, reason: bytes, node: Node, ids: list[bytes]) -> int:
    """Hand the jobs ``ids`` back; return how many of them had been delivered. ``delay``: ms; -1:
    not given."""
    jobs = [job for job in find_jobs(node, ids) if job.state == ACTIVE]
    if dead:
        for job in jobs:
            if not node.dead_letters.goes_to(job.queue):
                raise CommandError("NODEAD The queue has no dead-letter queue: see QSET")
    handed_back = 0
    for job in jobs:
        if job.state != ACTIVE:
            continue  # an id that was repeated
        if node.notes.noting:
            node.notes.note(schema.NACKED, job)
        if dead:
            node.dead_letters.bury(job, BY_WORKER, reason)
            handed_back += 1
        elif node.requeue.hand_back(job, delay, reason):
            handed_back += 1
    return handed_back


def _to(word: bytes) -> int:
    if not word:
        raise CommandError(_TO_ITSELF)
    return 0


REDRIVE: Final = {"TO": _to, "COUNT": parse_count}


def redrive(node: Node, client: Client, args: list[bytes]) -> None:
    """REDRIVE: send dead letters back, on all reachable nodes; return how many were sent."""
    words = node.read(args)
    to, ids = words.text("TO"), words.all("MATCH")
    if to == args[1] and words.has("TO"):
        raise CommandError(_TO_ITSELF)
    if len(ids) > MAX_MATCHES:
        raise CommandError(f"ERR MATCH takes up to {MAX_MATCHES} ids")
    check_ids(ids)
    if len(args[1]) + len(to) > MAX_NAME_IN_FIELDS:
        raise CommandError(f"ERR the names of the queues have more than {MAX_NAME_IN_FIELDS} bytes")
    if to:
        node.budgets.admit_moved(client.user, args[1], 1)
    node.scatter_gather.begin(
        client, REDRIVE_ALL, [args[1], to, *ids], words.number("COUNT", INT64_MAX)
    )
    node.host.did(client, deeds.LETTERS_REDRIVEN, args[1], len(ids))
