"""The queues that a request accesses, command by command (see ``respserver.access``).

A malformed request is about no queue: the handlers parse it in the same way, and refuse it before
they do anything. A job id is about the queue that this node knows the job to be in; ``reach`` deals
with other ids, and with very many.
"""

from typing import Final

from disque_trio.glob import is_glob
from disque_trio.node.commands.consume import ConsumeOptions, is_stop
from disque_trio.node.commands.dead_letters import RedriveOptions, end_of_nacked
from disque_trio.node.commands.endings import has_result
from disque_trio.node.commands.reach import queue_of
from disque_trio.node.commands.scan import JobScan, QueueScan
from disque_trio.node.core.node import Node
from disque_trio.node.core.shared.makers import topic_access
from disque_trio.node.core.shared.schedule_words import read_schedule
from disque_trio.node.core.shared.versions import SharedError
from disque_trio.respserver.access import ADD, EVERY, FOUND, KNOW, PATTERN, TAKE, Access
from disque_trio.respserver.command import CommandError

_WORDS: Final = 2  # that may be among the ids


def adds(node: Node, args: list[bytes]) -> list[Access]:
    """ADDJOB. A topic is named with its @; whoever binds it decides which queues it has."""
    return [(args[1], ADD)]


def takes(node: Node, args: list[bytes]) -> list[Access]:
    """Commands that read or remove jobs of the queue that follows their name."""
    return [(args[1], TAKE)]


def knows(node: Node, args: list[bytes]) -> list[Access]:
    """Commands that tell more about the queue that follows their name than its jobs do."""
    return [(args[1], KNOW)]


def getjob(node: Node, args: list[bytes]) -> list[Access]:
    """GETJOB: the queues, or the patterns."""
    need = TAKE
    i = 1
    while i < len(args):
        option = args[i].lower()
        i += 1
        if option == b"from":
            return [(name, need) for name in args[i:]]
        if option == b"pattern":
            need = TAKE | PATTERN
        elif option in (b"timeout", b"count"):
            i += 1
    return []


def consume(node: Node, args: list[bytes]) -> list[Access]:
    """CONSUME."""
    try:
        return [] if is_stop(args) else [(name, TAKE) for name in ConsumeOptions(args).names]
    except CommandError:
        return []


def ends(node: Node, args: list[bytes]) -> list[Access]:
    """ACKJOB: the queues of its jobs. Its result may look like an id, but does not count as one."""
    try:
        return _of_jobs(node, args[1:-2] if has_result(args) else args[1:])
    except CommandError:
        return []


def nack(node: Node, args: list[bytes]) -> list[Access]:
    """NACK. Where dead letters go was decided by the user who said QSET."""
    return _of_jobs(node, args[1 : end_of_nacked(args)])


def jobs(node: Node, args: list[bytes]) -> list[Access]:
    """Commands that take ids, and at most some words besides."""
    return _of_jobs(node, args[1:])


def waitjob(node: Node, args: list[bytes]) -> list[Access]:
    """WAITJOB: a user who adds a job may wait for its end."""
    queues = dict.fromkeys([queue_of(node, id) for id in args[2:]])
    return [(name, KNOW | FOUND) for name in queues if name is not None]


def updatejob(node: Node, args: list[bytes]) -> list[Access]:
    """UPDATEJOB: the same as taking the job and adding another one."""
    found = _of_jobs(node, args[1:2])
    new = [args[i + 1] for i in range(2, len(args) - 1, 2) if args[i].lower() == b"queue"]
    if new:
        return found + [(name, ADD) for name in new]
    return found + [(name, ADD | FOUND) for name, _ in found]


def _of_jobs(node: Node, ids: list[bytes]) -> list[Access]:
    """The queues of those of the jobs ``ids`` that this node has."""
    if len(ids) > node.batches.size + _WORDS:
        return []
    queues = dict.fromkeys([queue_of(node, id) for id in ids])
    return [(name, TAKE | FOUND) for name in queues if name is not None]


def jscan(node: Node, args: list[bytes]) -> list[Access]:
    """JSCAN: its queues, or all."""
    try:
        names = JobScan(args).wanted.queues
    except CommandError:
        return []
    return [(name, TAKE) for name in names] or [(EVERY, TAKE | PATTERN)]


def redrive(node: Node, args: list[bytes]) -> list[Access]:
    """REDRIVE: dead letters may have come from any queue, on any node."""
    try:
        to = RedriveOptions(args).to
    except CommandError:
        return []
    return [(args[1], TAKE), (to, ADD) if to else (EVERY, ADD | PATTERN)]


def qmove(node: Node, args: list[bytes]) -> list[Access]:
    """QMOVE."""
    return [(args[1], TAKE), (args[2], ADD)]


def qscan(node: Node, args: list[bytes]) -> list[Access]:
    """QSCAN: the queues that match, or all."""
    try:
        pattern = QueueScan(args).pattern
    except CommandError:
        return []
    return [(EVERY if pattern is None else pattern, KNOW | PATTERN)]


def pause(node: Node, args: list[bytes]) -> list[Access]:
    """PAUSE: a pause concerns users who take as well as users who add."""
    if all(arg.lower() == b"state" for arg in args[2:]):
        return knows(node, args)
    return _rules(args[1], 0)


def qset(node: Node, args: list[bytes]) -> list[Access]:
    """QSET, which causes jobs to be added to the dead-letter queue."""
    found = qdel(node, args)
    at = 2
    while at + 1 < len(args):
        option = args[at].upper()
        if option == b"DEAD" and args[at + 1]:
            found.append((args[at + 1], ADD))
        at += 3 if option == b"BACKOFF" else 2
    return found


def qdel(node: Node, args: list[bytes]) -> list[Access]:
    """QDEL: the policy of a queue, or of a pattern."""
    return _rules(args[1], PATTERN if is_glob(args[1]) else 0)


def _rules(name: bytes, kind: int) -> list[Access]:
    return [(name, TAKE | kind), (name, ADD | kind)]


def qkeys(node: Node, args: list[bytes]) -> list[Access]:
    """QKEYS: the keys of a queue, or of all."""
    return knows(node, args) if len(args) > 1 else [(EVERY, KNOW | PATTERN)]


def qdelkey(node: Node, args: list[bytes]) -> list[Access]:
    """QDELKEY: it concerns users who add, and users who take what then comes twice."""
    return _rules(args[1], 0)


def qget(node: Node, args: list[bytes]) -> list[Access]:
    """QGET: the policy of a queue, or all of them."""
    return knows(node, args) if len(args) > 1 else [(EVERY, KNOW | PATTERN)]


def cron(node: Node, args: list[bytes]) -> list[Access]:
    """CRON: a user who may add to the queue may schedule that, and change other users' schedules
    for it."""
    word = args[1].lower()
    if word == b"list":
        return [(EVERY, KNOW | PATTERN)]
    if len(args) < 3:
        return []
    found: list[Access] = []
    entry = node.ticks.schedules.entries.get(args[2])
    if entry is not None and entry.value is not None:
        found.append((entry.value.queue, (KNOW if word == b"get" else ADD) | FOUND))
    elif entry is not None and entry.strange:  # only newer releases know for which queue it is
        found.append((EVERY, (KNOW if word == b"get" else ADD) | PATTERN | FOUND))
    if word == b"set" and len(args) > 3:
        try:
            found.append((read_schedule(args[2], args[3:]).queue, ADD))
        except SharedError:
            pass  # the handler says what is wrong
    return found


def bind(node: Node, args: list[bytes]) -> list[Access]:
    """BIND and UNBIND: jobs of the topic are read, and added to the queue."""
    return [topic_access(args[1]), (args[2], ADD)]


def bindings(node: Node, args: list[bytes]) -> list[Access]:
    """BINDINGS: those of a queue, or all."""
    at = 1
    while at + 1 < len(args):
        option = args[at].lower()
        if option == b"queue":
            return [(args[at + 1], KNOW)]
        at += 1 if option == b"full" else 2
    return [(EVERY, KNOW | PATTERN)]
