"""Encodes Python values as command arguments."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict, Unpack, cast
from uuid import uuid4

from disque_trio.job_options import (
    AddOptions,
    Headers,
    JobOptions,
    KeyOptions,
    check_key,
    encode,
    encode_key,
    seconds,
)
from disque_trio.resp.command import Argument
from disque_trio.respclient.values import Name

Pattern: TypeAlias = bool | Literal["nodead"]
"""Whether names are patterns; ``nodead``: which queues of dead letters do not match."""

KEPT = 60.0
"""Seconds to keep a key beyond the time for which its ADDJOB is repeated."""

LONGEST_REPEATED = 86_400.0
"""The most seconds, without ``KEPT``, to keep a key, even if its ADDJOB is repeated for longer, or
forever."""


def kept_for(repeated: float) -> float:
    """Return how long to keep the key of an ADDJOB that is repeated for ``repeated`` (both s)."""
    return min(repeated, LONGEST_REPEATED) + KEPT


def milliseconds(seconds: float) -> int:
    """Convert seconds to the milliseconds of a timeout: at least 1, since 0 means forever."""
    return max(1, math.ceil(seconds * 1000))


def options(**values: Argument | None) -> list[Argument]:
    """Return names and values of those options that are not None."""
    return [part for name, value in values.items() if value is not None for part in (name, value)]


def new_key() -> str:
    """Generate a key that no other job has."""
    return uuid4().hex


def addjob(
    queue: Name,
    body: Name,
    timeout: float | None = None,
    *,
    headers: Headers | None = None,
    key: Name | None = None,
    kept: float | None = None,
    async_: bool = False,
    **options: Unpack[AddOptions],
) -> list[Argument]:
    """Return the arguments of ADDJOB; see ``Client.add``. ``kept``: seconds to keep ``key``."""
    if timeout is not None and timeout <= 0:
        raise ValueError("the timeout must be positive; None waits forever")
    command: list[Argument] = ["ADDJOB", queue, body]
    command.append(0 if timeout is None else milliseconds(timeout))
    of_key: KeyOptions = {
        "unique_until": options.pop("unique_until", None),
        "replace": options.pop("replace", None),
    }
    command += encode(cast(JobOptions, options))
    if key is not None:
        command += encode_key(key, kept, of_key)
    else:
        check_key(of_key, False, False)
        if kept is not None:
            command += ["FOR", math.ceil(kept)]
    if async_:
        command.append("ASYNC")
    if pairs := pairs_of(headers):
        command += ["HEADERS", len(pairs), *[text for pair in pairs for text in pair]]
    return command


def cron(name: Name, times: str, tz: str | None, catchup: bool) -> list[Argument]:
    """Return the arguments of CRON SET up to the queue; see ``Schedules.set``."""
    command: list[Argument] = ["SET", name, times, *options(TZ=tz)]
    return [*command, "CATCHUP"] if catchup else command


def nack(ids: Sequence[str], delay: float | None, reason: Name | None) -> list[Argument]:
    """Return the arguments of NACK; see ``Client.nack``."""
    wait = None if delay is None else seconds(delay)
    return ["NACK", *ids, *options(DELAY=wait, REASON=reason)]


def working(id: str, progress: tuple[float, Name] | None = None) -> list[Argument]:
    """Return the arguments of WORKING; see ``Client.working``."""
    if progress is None:
        return ["WORKING", id]
    fraction, text = progress
    return ["WORKING", id, "PROGRESS", f"{fraction:.4g}", text]


def dead(ids: Sequence[str], reason: Name | None) -> list[Argument]:
    """Return the arguments of the NACK that turns jobs into dead letters."""
    return ["NACK", *ids, "DEAD", *options(REASON=reason)]


def ackjob(ids: Sequence[str], result: Name | None) -> list[Argument]:
    """Return the arguments of ACKJOB; see ``Client.ack``."""
    return ["ACKJOB", *ids, *options(RESULT=result)]


class JobFilters(TypedDict, total=False):
    """What jobs must be for ``Client.jscan``; None: anything.

    Keys:
        count: about how many jobs each step looks at.
        queue, states, group: the queue of the jobs, the states they may be in (see STATE of JSCAN),
            their group.
        min_age, max_age: seconds since the job was added.
        min_returns: the least number of times that the job was queued again.
        headers: names and values that the job must have.
    """

    count: int | None
    queue: Name | None
    states: Sequence[str]
    min_age: int | None
    max_age: int | None
    min_returns: int | None
    group: Name | None
    headers: Headers | None


def jscan(filters: JobFilters) -> list[Argument]:
    """Return the options of JSCAN.

    Raises:
        TypeError: there is no such filter.
    """
    if unknown := filters.keys() - JobFilters.__annotations__:
        raise TypeError(f"jscan has no filter {sorted(unknown)[0]!r}")
    command = options(
        COUNT=filters.get("count"),
        QUEUE=filters.get("queue"),
        MINAGE=filters.get("min_age"),
        MAXAGE=filters.get("max_age"),
        MINRETURNS=filters.get("min_returns"),
        GROUP=filters.get("group"),
    )
    for state in filters.get("states", ()):
        command += ["STATE", state]
    for name, value in pairs_of(filters.get("headers")):
        command += ["HEADER", name, value]
    return command


def pairs_of(headers: Headers | None) -> list[tuple[Name, Name]]:
    """Return headers as a list of names and values."""
    if headers is None:
        return []
    return list(headers.items() if isinstance(headers, Mapping) else headers)
