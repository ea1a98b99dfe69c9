"""Decodes replies into the values that the client returns.

All functions raise ``ProtocolError`` on a reply of another shape.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from disque_trio.client.errors import AddManyError
from disque_trio.client.jobs import Job, Letter
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.values import elements, integer, pairs, text, unexpected

Record: TypeAlias = dict[str, int | str | bytes | list[str] | None]
"""Fields of SHOW or QSTAT by name; only ``body`` is bytes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What WAITJOB says of a job.

    Attributes:
        id: of the job.
        state: ``acked``, ``dead``, ``expired``, ``cancelled``, ``gone`` (nothing is known of it) or
            ``pending`` (it has not ended).
        result: what its worker left; None: nothing.
    """

    id: str
    state: str
    result: bytes | None


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of a queue, of a pattern, or of all queues; times in s, None: not set.

    Attributes:
        name: what it was set for.
        attempts: deliveries before a job goes to the dead letters. dead: the queue of these.
        backoff: shortest and longest pause before a job is queued again.
        dead_ttl: how long a dead letter lives.
        ttl, retry, replicate, maxlen: what ADDJOB takes where it is not told.
        maxbytes: of the bodies of queued jobs.
        rate: how many jobs are delivered in a time, as ``50/s``. burst: how many of them at once.
        active: jobs that may be delivered and not acknowledged at once.
        groups: ``fair`` or ``fifo``.
    """

    name: str
    attempts: int | None = None
    dead: str | None = None
    backoff: tuple[float, float] | None = None
    dead_ttl: int | None = None
    ttl: int | None = None
    retry: int | None = None
    replicate: int | None = None
    maxlen: int | None = None
    maxbytes: int | None = None
    rate: str | None = None
    burst: int | None = None
    active: int | None = None
    groups: str | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """Jobs that are added again and again; moments are ms since the epoch.

    Attributes:
        name: of the schedule.
        times, tz: when, and in which time zone.
        queue: of the jobs. body: of them; None in a list of schedules.
        options: of ADDJOB.
        catchup: the last job that was missed is made up. paused: none are added.
        done_until: all up to this moment is done. next: when the next job is added; None: never.
        problem: why the last one was not added; empty: it was.
    """

    name: str
    times: str
    tz: str
    queue: str
    body: bytes | None
    options: tuple[str, ...]
    catchup: bool
    paused: bool
    done_until: int
    next: int | None
    problem: str


def record(reply: Reply) -> Record | None:
    """A flat array of names and values; None for a null."""
    if reply is None:
        return None
    fields: Record = {}
    for name, value in pairs(reply):
        if isinstance(value, list):
            fields[name] = [text(element) for element in value]
        elif isinstance(value, bytes):
            fields[name] = value if name == "body" else text(value)
        elif value is None or isinstance(value, int):
            fields[name] = value
        else:
            unexpected(value)
    return fields


def ids(answers: Iterable[Reply]) -> list[str]:
    """The ids in the answers to several ADDJOBs. Raises AddManyError: there are errors."""
    results: list[str | DisqueError] = []
    found: list[str] = []
    for answer in answers:
        if isinstance(answer, DisqueError):
            results.append(answer)
        else:
            found.append(text(answer))
            results.append(found[-1])
    if len(found) < len(results):
        raise AddManyError(results)
    return found


def bindings(reply: Reply) -> list[tuple[str, str]]:
    """BINDINGS's array of topics and queues."""
    found = [elements(entry, 2) for entry in elements(reply)]
    return [(text(topic), text(queue)) for topic, queue in found]


def jobs(reply: Reply) -> list[Job]:
    """GETJOB's or QPEEK's array of jobs; a null is none."""
    return [] if reply is None else [job(entry) for entry in elements(reply)]


def job(entry: Reply) -> Job:
    """One of these."""
    fields = elements(entry)
    if len(fields) < 3 or not isinstance(fields[2], bytes):
        unexpected(entry)
    details = dict(pairs(fields[3:]))
    letter = None
    if "dead-from" in details:
        letter = Letter(
            text(details["dead-from"]),
            text(details.get("dead-why", b"")),
            integer(details.get("dead-attempts", 0)),
            text(details.get("dead-reason", b"")),
            text(details.get("first-id", b"")),
        )
    return Job(
        text(fields[1]),
        text(fields[0]),
        fields[2],
        integer(details.get("nacks", 0)),
        integer(details.get("additional-deliveries", 0)),
        tuple((name, _data(value)) for name, value in pairs(details.get("headers", []))),
        letter,
        integer(details.get("priority", 0)),
    )


def _data(reply: Reply) -> bytes:
    """A string as bytes."""
    return reply if isinstance(reply, bytes) else unexpected(reply)


def outcomes(reply: Reply) -> list[Outcome]:
    """WAITJOB's array of [id, state, result]."""
    found = []
    for entry in elements(reply):
        id, state, result = elements(entry, 3)
        found.append(Outcome(text(id), text(state), None if result is None else _data(result)))
    return found


def policy(reply: Reply) -> Policy | None:
    """QGET's names and values; None for a null."""
    if reply is None:
        return None
    fields = dict(pairs(reply))

    def number(name: str) -> int | None:
        return integer(fields[name]) if name in fields else None

    pauses = [_number(value) for value in elements(fields.get("backoff", []))]
    return Policy(
        text(fields.get("name")),
        number("attempts"),
        text(fields["dead"]) if "dead" in fields else None,
        (pauses[0], pauses[1]) if len(pauses) == 2 else None,
        number("deadttl"),
        number("ttl"),
        number("retry"),
        number("replicate"),
        number("maxlen"),
        number("maxbytes"),
        text(fields["rate"]) if "rate" in fields else None,
        number("burst"),
        number("active"),
        text(fields["groups"]) if "groups" in fields else None,
    )


def schedule(reply: Reply) -> Schedule | None:
    """CRON GET's names and values; None for a null."""
    if reply is None:
        return None
    fields = dict(pairs(reply))
    next = fields.get("next")
    return Schedule(
        text(fields.get("name")),
        text(fields.get("times")),
        text(fields.get("tz")),
        text(fields.get("queue")),
        _data(fields["job"]) if "job" in fields else None,
        tuple(text(option) for option in elements(fields.get("options"))),
        integer(fields.get("catchup")) > 0,
        integer(fields.get("paused")) > 0,
        integer(fields.get("done-until")),
        None if next is None else integer(next),
        text(fields.get("problem", b"")),
    )


def _number(reply: Reply) -> float:
    """A number, which may have decimals and is a string then."""
    if isinstance(reply, int):
        return reply
    try:
        return float(text(reply))
    except ValueError:
        unexpected(reply)


def page(reply: Reply) -> tuple[bytes, list[Reply]]:
    """The next cursor and the elements of one step of a scan."""
    cursor, found = elements(reply, 2)
    if not isinstance(cursor, bytes):
        unexpected(reply)
    return cursor, elements(found)


def info(reply: Reply) -> dict[str, str]:
    """INFO's lines ``name:value``, the section titles left out."""
    fields = {}
    for line in text(reply).splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            fields[name] = value
    return fields
