"""Parses arguments that several commands take, and checks what they need."""

from typing import Final

from disque_trio.node.core.bindings import topic_problem
from disque_trio.node.core.interest import pattern_problem
from disque_trio.node.core.interests import MAX_INTERESTS
from disque_trio.node.core.job import Job
from disque_trio.node.core.node import Node
from disque_trio.node.core.queue import PAUSED_IN
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from disque_trio.protocol.serialjob import is_job_id
from disque_trio.resp.ints import parse_int
from disque_trio.respserver.command import CommandError

BAD_ID: Final = "BADID Invalid Job ID format."
PAUSED: Final = "PAUSED Queue paused in input, try later"
MAX_PATTERNS: Final = 1_000  # of a client
BAD_DELAY: Final = "ERR DELAY time must be a non negative number"


def require_extensions(node: Node) -> None:
    """Raise CommandError unless jobs may have trailers: a node that does not know them is a
    member."""
    if not node.peers.extended:
        raise CommandError(
            "NOEXT A node of the cluster does not know extensions, or cluster-extensions is no"
        )


def check_topic(topic: bytes) -> None:
    """Raise CommandError unless ``topic``, without the @, is one."""
    problem = topic_problem(topic)
    if problem:
        raise CommandError(f"ERR {problem}")


def check_patterns(node: Node, patterns: list[bytes]) -> None:
    """Raise CommandError unless clients can want jobs by ``patterns``."""
    if len(patterns) > MAX_PATTERNS:
        raise CommandError(f"ERR a client may have {MAX_PATTERNS} patterns")
    for pattern in patterns:
        if problem := pattern_problem(pattern):
            raise CommandError(f"ERR {problem}")
    if not node.deliveries.interests.make_room(patterns):
        raise CommandError(f"ERR clients use {MAX_INTERESTS} patterns already, which is the most")


def check_ids(ids: list[bytes]) -> None:
    """Raise CommandError unless all ``ids`` look like ids of jobs."""
    for id in ids:
        if not is_job_id(id):
            raise CommandError(BAD_ID)


def find_jobs(node: Node, ids: list[bytes]) -> list[Job]:
    """Those of the jobs ``ids`` that this node holds; raises CommandError for a malformed id."""
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
    """The job ``id`` if this node holds it."""
    if not is_job_id(id):
        raise CommandError(BAD_ID)
    return node.store.jobs.get(id)


def at_least(least: int, value: int | None, error: str) -> int:
    """``value``. Raises CommandError with the text ``error`` if it is None, which is what no number
    is parsed to, or below ``least``."""
    if value is None or value < least:
        raise CommandError(error)
    return value


def parse_queue(node: Node, name: bytes) -> bytes:
    """The name of a queue that a job is to be moved to. Raises CommandError unless it takes
    jobs."""
    if len(name) > MAX_NAME_IN_FIELDS:
        raise CommandError(f"ERR the name of the queue has more than {MAX_NAME_IN_FIELDS} bytes")
    queue = node.queues.by_name.get(name)
    if queue is not None and queue.paused & PAUSED_IN:
        raise CommandError(PAUSED)
    return name


def parse_seconds(text: bytes, error: str) -> int:
    """The ms of a time in seconds, with decimals or without. Raises CommandError with the text
    ``error`` if it is none, or negative."""
    decimals = b""
    seconds = parse_int(text)
    if seconds is not None and seconds >= 0:
        return seconds * 1000  # nearly always
    if seconds is None:
        whole, _, decimals = text.partition(b".")
        if whole.isdigit() and decimals.isdigit():
            seconds = parse_int(whole)
    if seconds is None or seconds < 0:
        raise CommandError(error)
    return seconds * 1000 + (int(decimals[:4].ljust(4, b"0")) + 5) // 10
