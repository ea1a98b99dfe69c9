"""NACK and REDRIVE: jobs that could not be processed, and their way back."""

from functools import partial
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.commands.arguments import (
    BAD_DELAY,
    at_least,
    check_ids,
    find_jobs,
    parse_seconds,
)
from disque_trio.node.commands.jobs import answer_count
from disque_trio.node.core.jobs.job import ACTIVE, UINT32_MAX
from disque_trio.node.core.node import Node
from disque_trio.node.core.rpc.questions import REDRIVE
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.trailer import BY_WORKER
from disque_trio.resp.ints import INT64_MAX, parse_int
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX

MAX_REASON: Final = 4096  # bytes
MAX_MATCHES: Final = 1000


class NackOptions:
    """The options after the IDs of a NACK.

    Attributes:
        delay: ms; -1: not given.
        reason: text; empty: not given.
        dead: give the jobs up.

    Raises:
        CommandError: it is wrong.
    """

    def __init__(self, args: list[bytes]) -> None:
        self.delay = -1
        self.reason = b""
        self.dead = False
        given: set[bytes] = set()
        i = 0
        while i < len(args):
            option = args[i].lower()
            if option in given:
                raise CommandError(SYNTAX)
            given.add(option)
            i += 1
            if option == b"dead":
                self.dead = True
                continue
            if i == len(args):
                raise CommandError(SYNTAX)
            if option == b"delay":
                self.delay = parse_seconds(args[i], BAD_DELAY)
                if self.delay > UINT32_MAX * 1000:
                    raise CommandError("ERR DELAY is too large")
            elif option == b"reason":
                self.reason = args[i]
                if len(self.reason) > MAX_REASON:
                    raise CommandError(f"ERR REASON may have at most {MAX_REASON} bytes")
            else:
                raise CommandError(SYNTAX)
            i += 1
        if self.dead and self.delay >= 0:
            raise CommandError("ERR DEAD and DELAY cannot be combined")


def nack(node: Node, client: Client, args: list[bytes]) -> None:
    """NACK id [id ...] [DELAY seconds] [REASON text] [DEAD]: queue jobs again that could not be
    processed, at once or after a pause, or give them up as dead letters."""
    end = end_of_nacked(args)
    options = NackOptions(args[end:])
    answer_count(node, client, args[:end], 1, partial(_nack, options))


def end_of_nacked(args: list[bytes]) -> int:
    """The index at which the ids of a NACK end."""
    for i in range(2, len(args)):
        # Nearly all are ids, which are longer.
        if len(args[i]) <= 6 and args[i].lower() in (b"delay", b"reason", b"dead"):
            return i
    return len(args)


def _nack(options: NackOptions, node: Node, ids: list[bytes]) -> int:
    """Hand the jobs ``ids`` back; return how many of them had been delivered."""
    jobs = [job for job in find_jobs(node, ids) if job.state == ACTIVE]
    if options.dead:
        for job in jobs:
            if not node.dead_letters.goes_to(job.queue):
                raise CommandError("NODEAD The queue has no dead-letter queue: see QSET")
    handed_back = 0
    for job in jobs:
        if job.state != ACTIVE:
            continue  # an id that was repeated
        if node.notes.noting:
            node.notes.note(schema.NACKED, job)
        if options.dead:
            node.dead_letters.bury(job, BY_WORKER, options.reason)
            handed_back += 1
        elif node.requeue.hand_back(job, options.delay, options.reason):
            handed_back += 1
    return handed_back


class RedriveOptions:
    """The options after the queue of a REDRIVE.

    Attributes:
        to: the queue to send all to; empty: back where they came from.
        most: how many may go.
        ids: of the letters; empty: all.

    Raises:
        CommandError: it is wrong.
    """

    def __init__(self, args: list[bytes]) -> None:
        self.to = b""
        self.most = INT64_MAX
        self.ids: list[bytes] = []
        given: set[bytes] = set()
        i = 2
        while i < len(args):
            option = args[i].lower()
            if option in given or i + 1 == len(args):
                raise CommandError(SYNTAX)
            given.add(option)
            i += 1
            if option == b"to":
                self.to = args[i]
                if not self.to or self.to == args[1]:
                    raise CommandError("ERR TO must be another queue")
            elif option == b"count":
                problem = "ERR COUNT must be a number greater than zero"
                self.most = at_least(1, parse_int(args[i]), problem)
            elif option == b"match":
                self.ids = args[i:]
                if len(self.ids) > MAX_MATCHES:
                    raise CommandError(f"ERR MATCH takes up to {MAX_MATCHES} ids")
                check_ids(self.ids)
                i = len(args)
            else:
                raise CommandError(SYNTAX)
            i += 1
        if len(args[1]) + len(self.to) > MAX_NAME_IN_FIELDS:
            raise CommandError(
                f"ERR the names of the queues have more than {MAX_NAME_IN_FIELDS} bytes"
            )


def redrive(node: Node, client: Client, args: list[bytes]) -> None:
    """REDRIVE queue [TO queue] [COUNT n] [MATCH id [id ...]]: send dead letters back, on all
    reachable nodes; return how many were sent."""
    options = RedriveOptions(args)
    if options.to:
        node.budgets.admit_moved(client.user, args[1], 1)
    node.sweeps.begin(client, REDRIVE, [args[1], options.to, *options.ids], options.most)
