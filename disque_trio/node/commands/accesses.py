"""The queues that requests access whose words are not names of queues (see ``respserver.access``).

A job id is about the queue that this node knows the job to be in; ``reach`` deals with other ids,
and with very many.
"""

from disque_trio.node.commands.reach import queue_of
from disque_trio.node.core.node import Node
from disque_trio.node.core.shared.makers import topic_access
from disque_trio.node.core.shared.schedule_words import read_schedule
from disque_trio.node.core.shared.versions import SharedError
from disque_trio.respserver.access import ADD, EVERY, FOUND, KNOW, PATTERN, TAKE, Access
from disque_trio.respserver.words import Found


def taken(node: Node, words: Found) -> list[Access]:
    """The queues of those of the jobs that this node has."""
    ids = words.all("id")
    return [] if len(ids) > node.batches.size else _queues_of(node, ids, TAKE)


def known(node: Node, words: Found) -> list[Access]:
    """The same for WAITJOB: a user who adds a job may wait for its end."""
    return _queues_of(node, words.all("id"), KNOW)


def _queues_of(node: Node, ids: list[bytes], need: int) -> list[Access]:
    queues = dict.fromkeys([queue_of(node, id) for id in ids])
    return [(name, need | FOUND) for name in queues if name is not None]


def moved(node: Node, words: Found) -> list[Access]:
    """UPDATEJOB: as if the job was added, to its queue or another one."""
    new = words.all("QUEUE")
    if new:
        return [(name, ADD) for name in new]
    return [(name, ADD | FOUND) for name, _ in taken(node, words)]


def matching(node: Node, words: Found) -> list[Access]:
    """QSCAN: the queues that match the last pattern."""
    if words.problem:
        return []
    return [(words.text("MATCH") if words.has("MATCH") else EVERY, KNOW | PATTERN)]


def paused(node: Node, words: Found) -> list[Access]:
    """PAUSE: a pause concerns users who take as well as users who add."""
    name = words.args[1]
    if all(option.lower() == b"state" for option in words.args[2:]):
        return [(name, KNOW)]
    return [(name, TAKE), (name, ADD)]


def dead(node: Node, words: Found) -> list[Access]:
    """QSET DEAD: jobs are added to the dead-letter queue."""
    return [(name, ADD) for name in words.all("DEAD") if name]


def topic(node: Node, words: Found) -> list[Access]:
    """BIND and UNBIND: jobs of the topic are read."""
    return [topic_access(words.text("topic"))]


def scheduled(node: Node, words: Found) -> list[Access]:
    """CRON: a user who may add to the queue may schedule that, and change other users' schedules
    for it."""
    args = words.args
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
