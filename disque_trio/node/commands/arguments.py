"""Parses and checks arguments that several commands have."""

from typing import Final

from disque_trio.glob import pattern_problem
from disque_trio.node.core.delivery.interests import MAX_INTERESTS
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.queue import PAUSED_IN
from disque_trio.node.core.shared.bindings import topic_problem
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.serialjob import is_job_id
from disque_trio.resp.ints import parse_int, parse_ms
from disque_trio.respserver.command import CommandError

BAD_ID: Final = "BADID Invalid Job ID format."
PAUSED: Final = "PAUSED Queue paused in input, try later"
MAX_QUEUES: Final = 1_000  # per client
MAX_PATTERNS: Final = 1_000  # per client
BAD_DELAY: Final = "ERR DELAY time must be a non negative number"


def require_extensions(node: Node) -> None:
    """Raise ``CommandError`` unless jobs may have trailers: all members of the cluster have to know
    them."""
    if not node.peers.extended:
        raise CommandError(
            "NOEXT A node of the cluster does not know extensions, or cluster-extensions is no"
        )


def check_topic(topic: bytes) -> None:
    """Raise ``CommandError`` unless ``topic``, without the @, is valid."""
    problem = topic_problem(topic)
    if problem:
        raise CommandError(f"ERR {problem}")


def check_patterns(node: Node, patterns: list[bytes], wanted: list[bytes]) -> None:
    """Raise ``CommandError`` unless clients can use ``patterns``; ``wanted``: what they want by
    these."""
    if len(patterns) > MAX_PATTERNS:
        raise CommandError(f"ERR a client may have at most {MAX_PATTERNS} patterns")
    for pattern in patterns:
        if problem := pattern_problem(pattern):
            raise CommandError(f"ERR {problem}")
    if not node.deliveries.interests.make_room(wanted):
        raise CommandError(f"ERR clients use {MAX_INTERESTS} patterns already, the maximum")


def check_ids(ids: list[bytes]) -> None:
    """Raise ``CommandError`` unless all ``ids`` look like job ids."""
    for id in ids:
        if not is_job_id(id):
            raise CommandError(BAD_ID)


def find_jobs(node: Node, ids: list[bytes]) -> list[Job]:
    """Return those of the jobs ``ids`` that this node holds.

    Raises:
        CommandError: an ID is malformed.
    """
    jobs = node.store.jobs
    found: list[Job] = []
    for id in ids:
        if not is_job_id(id):
            raise CommandError(BAD_ID)
        job = jobs.get(id)
        if job is not None:
            found.append(job)
    return found


def find_job(node: Node, id: bytes) -> Job | None:
    """The job ``id``, if this node holds it; raises ``CommandError`` if the id is malformed."""
    if not is_job_id(id):
        raise CommandError(BAD_ID)
    return node.store.jobs.get(id)


def at_least(least: int, value: int | None, error: str) -> int:
    """Return ``value``. Raises ``CommandError`` with the text ``error`` if it is below ``least``,
    or None, as for text that is not a number."""
    if value is None or value < least:
        raise CommandError(error)
    return value


def parse_count(word: bytes) -> int:
    """Parse COUNT."""
    return at_least(1, parse_int(word), "ERR COUNT must be a number greater than zero")


def parse_queue(node: Node, name: bytes) -> bytes:
    """Return the name of a queue to which a job is to be moved. Raises ``CommandError`` unless it
    takes jobs."""
    if len(name) > MAX_NAME_IN_FIELDS:
        raise CommandError(f"ERR the name of the queue has more than {MAX_NAME_IN_FIELDS} bytes")
    queue = node.queues.by_name.get(name)
    if queue is not None and queue.paused & PAUSED_IN:
        raise CommandError(PAUSED)
    return name


def parse_seconds(text: bytes, error: str) -> int:
    """Convert a time in seconds, with or without decimals, to ms. Raises ``CommandError`` with the
    text ``error`` if it is invalid or negative."""
    return at_least(0, parse_ms(text), error)
