"""Arguments that several commands share."""

from typing import Final
from zlib import crc32

from disque_trio.core.command import CommandError
from disque_trio.core.job import Job, is_job_id
from disque_trio.core.node import Node
from disque_trio.core.registry import SHARD_SHIFT
from disque_trio.protocol.ints import parse_int

SYNTAX: Final = "ERR syntax error"
BAD_ID: Final = "BADID Invalid Job ID format."


def wrong_arity(name: str) -> CommandError:
    """The error for a number of arguments that only the handler can judge."""
    return CommandError(f"ERR wrong number of arguments for '{name}' command")


def parse_timeout(text: bytes) -> int:
    """A time-out in ms, 0: for ever."""
    value = parse_int(text)
    if value is None:
        raise CommandError("ERR timeout is not an integer or out of range")
    if value < 0:
        raise CommandError("ERR timeout is negative")
    return value


def parse_integer(text: bytes) -> int:
    """A signed 64-bit integer."""
    value = parse_int(text)
    if value is None:
        raise CommandError("ERR value is not an integer or out of range")
    return value


def find_jobs(node: Node, ids: list[bytes], start: int) -> list[Job]:
    """The jobs of ``ids[start:]`` that this node holds; all ids are checked before."""
    if start:
        ids = ids[start:]
    for id in ids:
        if not is_job_id(id):
            raise CommandError(BAD_ID)
    shards = node.jobs.shards
    found: list[Job] = []
    for id in ids:
        job = shards[crc32(id) >> SHARD_SHIFT].get(id)
        if job is not None:
            found.append(job)
    return found


def find_job(node: Node, id: bytes) -> Job | None:
    """The job ``id`` if this node holds it."""
    if not is_job_id(id):
        raise CommandError(BAD_ID)
    return node.jobs.get(id)
