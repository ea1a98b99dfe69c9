"""The policies of queues: options for QSET, and values from QGET."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from disque_trio.job_options import seconds
from disque_trio.policy_options import NUMBER, OPTIONS, SECONDS, PolicyOption
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import Name, elements, integer, pairs, text, unexpected

_BY_NAME: Final = {option.name: option for option in OPTIONS}


class PolicyOptions(TypedDict, total=False):
    """Options of a policy. None leaves an option as it is. To unset one, pass 0; for ``dead`` pass
    an empty name, for ``retry`` -1.

    Keys:
        attempts: how often a job is delivered before it goes to the queue ``dead``.
        dead: the queue for dead letters.
        backoff: the shortest and the longest pause before a job is queued again, in seconds.
        dead_ttl: the time to live of a dead letter, in seconds.
        ttl, retry, replicate, maxlen: defaults for ``add``.
        maxbytes: the limit for the bodies of all queued jobs, in bytes.
        rate: how many jobs are delivered per second, minute or hour: ``50/s``, ``300/m`` or
            ``1000/h``.
        burst: how many of these jobs may be delivered at once after a pause.
        active: how many jobs may be delivered but unacknowledged at any time.
        groups: ``fair`` serves the groups of jobs in turn; ``fifo`` also delivers only one job of a
            group at a time.
        delay: a default for ``add``, in seconds.
        group_active, group_rate, group_burst: as ``active``, ``rate`` and ``burst``, for the jobs
            of each group.
    """

    attempts: int | None
    dead: Name | None
    backoff: tuple[float, float] | None
    dead_ttl: int | None
    ttl: int | None
    retry: int | None
    replicate: int | None
    maxlen: int | None
    maxbytes: int | None
    rate: str | None
    burst: int | None
    active: int | None
    groups: str | None
    delay: float | None
    group_active: int | None
    group_rate: str | None
    group_burst: int | None


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of a queue, of a pattern or of all queues.

    Attributes:
        name: the queue or pattern that the policy was set for.

    The others are those of ``PolicyOptions``; None: not set.
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
    delay: float | None = None
    group_active: int | None = None
    group_rate: str | None = None
    group_burst: int | None = None


def words(options: Mapping[str, Any]) -> list[Argument]:
    """Return the options of QSET. Raises TypeError if one is unknown."""
    found: list[Argument] = []
    for name, value in options.items():
        option = _BY_NAME.get(name)
        if option is None:
            raise TypeError(f"a policy has no option {name!r}; it has {', '.join(_BY_NAME)}")
        if value is None:
            continue
        found.append(option.word)
        if option.kind == SECONDS:
            found += map(seconds, value if option.arity > 1 else (value,))
        else:
            found.append("" if option.unset == -1 and value < 0 else value)
    return found


def policy(reply: Reply) -> Policy | None:
    """Decode the names and values that QGET returns; null becomes None. Options that only newer
    nodes know are left out."""
    if reply is None:
        return None
    fields = dict(pairs(reply))
    values: dict[str, Any] = {
        option.name: _value(option, fields[option.word.lower()])
        for option in OPTIONS
        if option.word.lower() in fields
    }
    return Policy(text(fields.get("name")), **values)


def _value(option: PolicyOption, reply: Reply) -> object:
    if option.kind == NUMBER:
        return integer(reply)
    if option.kind != SECONDS:
        return text(reply)
    if option.arity == 1:
        return _number(reply)
    return tuple(map(_number, elements(reply, option.arity)))


def _number(reply: Reply) -> float:
    """Decode a number, which is a string if it has decimals."""
    if isinstance(reply, int):
        return reply
    try:
        return float(text(reply))
    except ValueError:
        unexpected(reply)
