"""Decodes replies into the values that the client returns.

All functions raise ``ProtocolError`` if a reply has an unexpected shape.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from disque_trio.client.errors import AddManyError
from disque_trio.client.job import Job, Letter
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.values import elements, integer, pairs, text, unexpected

Record: TypeAlias = dict[str, int | str | bytes | list[str] | list[int] | None]
"""The fields of SHOW or QSTAT by name; only ``body`` is bytes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended, as WAITJOB reports it.

    Attributes:
        id: the id of the job.
        state: ``acked``, ``dead``, ``expired``, ``cancelled``, ``gone`` (nothing is known of the
            job) or ``pending`` (it has not ended).
        result: the result that its worker left; None if there is none.
    """

    id: str
    state: str
    result: bytes | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule by which jobs are added. Moments are in milliseconds since the epoch.

    Attributes:
        name: the name of the schedule.
        times, tz: when jobs are added, and the time zone of these times.
        queue: the queue of the jobs.
        body: the body of the jobs; None in a list of schedules.
        options: the options of ADDJOB.
        catchup: whether the last missed job is made up for.
        paused: whether the schedule is paused, and adds no jobs.
        done_until: all times up to this moment are done.
        next: when the next job is added; None: never.
        problem: why the last job could not be added; empty if it was added.
        user: with whose rights jobs are added; empty: nobody's rights limit it.
        runs: the last jobs that the node added: when, and the id (empty: none), the latest first.
        after_next: when jobs are added after ``next``, as far as the node tells.
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
    user: str = ""
    runs: tuple[tuple[int, str], ...] = ()
    after_next: tuple[int, ...] = ()


def record(reply: Reply) -> Record | None:
    """Decode a flat array of names and values; null becomes None."""
    if reply is None:
        return None
    fields: Record = {}
    for name, value in pairs(reply):
        if isinstance(value, list):
            fields[name] = _elements(value)
        elif isinstance(value, bytes):
            fields[name] = value if name == "body" else text(value)
        elif value is None or isinstance(value, int):
            fields[name] = value
        else:
            unexpected(value)
    return fields


def _elements(values: list[Reply]) -> list[str] | list[int]:
    """Decode an array of texts or of numbers."""
    if values and isinstance(values[0], int):
        return [integer(value) for value in values]
    return [text(value) for value in values]


def ids(answers: Iterable[Reply]) -> list[str]:
    """Return the ids in the replies to several ADDJOBs. Raises AddManyError if any is an error."""
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
    """Decode the array of topics and queues that BINDINGS returns."""
    found = [elements(entry, 2) for entry in elements(reply)]
    return [(text(topic), text(queue)) for topic, queue in found]


def jobs(reply: Reply) -> list[Job]:
    """Decode the array of jobs that GETJOB or QPEEK returns; null becomes an empty list."""
    return [] if reply is None else [job(entry) for entry in elements(reply)]


def job(entry: Reply) -> Job:
    """Decode one job of such an array."""
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
    """Return a string reply as bytes."""
    return reply if isinstance(reply, bytes) else unexpected(reply)


def outcomes(reply: Reply) -> list[Outcome]:
    """Decode the array of [id, state, result] that WAITJOB returns."""
    found = []
    for entry in elements(reply):
        id, state, result = elements(entry, 3)
        found.append(Outcome(text(id), text(state), None if result is None else _data(result)))
    return found


def schedule(reply: Reply) -> Schedule | None:
    """Decode the names and values that CRON GET returns; null becomes None."""
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
        text(fields.get("user", b"")),
        _runs(elements(fields.get("runs", []))),
        tuple(integer(tick) for tick in elements(fields.get("after-next", []))),
    )


def _runs(told: list[Reply]) -> tuple[tuple[int, str], ...]:
    ticks, ids = told[::2], told[1::2]
    return tuple((integer(tick), text(id)) for tick, id in zip(ticks, ids, strict=False))


def page(reply: Reply) -> tuple[bytes, list[Reply]]:
    """Decode one step of a scan: the next cursor and the elements."""
    cursor, found = elements(reply, 2)
    if not isinstance(cursor, bytes):
        unexpected(reply)
    return cursor, elements(found)


def info(reply: Reply) -> dict[str, str]:
    """Decode the ``name:value`` lines of INFO, without the section titles."""
    fields = {}
    for line in text(reply).splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            fields[name] = value
    return fields
