"""Chains and groups: jobs that are made of jobs."""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from disque_trio.client import Client
from disque_trio.job_options import check_names
from disque_trio.tasks.core import Core, Later
from disque_trio.tasks.handle import Handles
from disque_trio.tasks.members import GROUP, TYPE, Members
from disque_trio.tasks.messages import RETRY, Step, pack
from disque_trio.tasks.template import Bound, adder, checked, following, step_of

R = TypeVar("R")
S = TypeVar("S")

_INHERITED = ("priority", "ttl", "retry", "replicate")
"""Options that a group inherits."""


class WorkflowOptions(TypedDict, total=False):
    """Options of a group.

    Keys:
        queue: the queue of the group itself, whose workers look after it; by default that of its
            first member.
        delay: seconds before its members are added.
        unique: a key: while there is a group with this key in this queue, no other is added. False:
            no key, not even that of a group which a task adds.
        unique_for: seconds to keep the key; by default as long as the group lives.
        skip_failed: whether the group goes on with the results of those members that succeeded,
            although others failed.
        on_complete: a job to add when all members have ended, however they did.
        on_death: a job to add when the first member has failed for good.
    """

    queue: str
    delay: float
    unique: str | Literal[False]
    unique_for: float
    skip_failed: bool
    on_complete: Bound[Any]
    on_death: Bound[Any]


def chain(steps: Sequence[Bound[Any]]) -> Bound[Any]:
    """Return a job that is followed by others, each of which gets the result of the one before as
    its first argument: ``chain([a.bind(1), b.bind(), c.bind()])`` is the same as ``a.bind(1) |
    b.bind() | c.bind()``.

    Raises:
        TypeError: a step is not bound, or does not take a result.
        ValueError: there are no steps.
    """
    if not steps:
        raise ValueError("a chain needs steps")
    first, *others = steps
    # All at once: one by one would copy the steps again and again.
    return checked(first).followed([one for step in others for one in following(step).chain])


def group(members: Sequence[Bound[R]], **options: Unpack[WorkflowOptions]) -> Bound[list[R]]:
    """Return a job that runs others, and whose result is the list of their results. In a chain,
    each member gets the result of the step before as its first argument.

    Raises:
        TypeError: a member is not bound, or there is no such option.
        ValueError: there are no members.
    """
    return _group(members, checked(members[0]).first if members else None, options)


def group_before(
    members: Sequence[Bound[Any]], then: Bound[S], options: WorkflowOptions
) -> Bound[S]:
    """Return a group that is followed by ``then``, whose queue and options it has. Raises as
    ``group``, and TypeError if members lack arguments or ``then`` does not take a result."""
    last = following(then)
    for member in members:
        step_of(member)
    return _group(members, last, {"queue": last.queue, **options}).then(then)


def _group(
    members: Sequence[Bound[Any]], like: Step | None, options: WorkflowOptions
) -> Bound[list[Any]]:
    """Return a group that inherits options from ``like``."""
    check_names(options, WorkflowOptions.__annotations__)
    if not members or like is None:
        raise ValueError("a group needs members")
    bound = [checked(member) for member in members]
    core, first = bound[0].core, bound[0].first
    inherited: dict[str, Any] = {
        name: value for name, value in like.options.items() if name in _INHERITED
    }
    complete, death = options.get("on_complete"), options.get("on_death")
    body = Members(
        tuple(pack(one.first) for one in bound),
        inherited.get("retry", RETRY),
        inherited.get("replicate"),
        Members.decode(first.body).content_type if first.task == GROUP else first.content_type,
        options.get("skip_failed", False),
        None if complete is None else following(complete),
        None if death is None else following(death),
    )
    for name in ("delay", "unique_for"):
        if name in options:
            inherited[name] = options[name]
    unique = options.get("unique")
    return Bound(
        core,
        Step(GROUP, options.get("queue", first.queue), TYPE, body.encode(), inherited),
        lacks=next((one.lacks for one in bound if one.lacks), ""),
        refuses=next((one.refuses for one in bound if one.refuses), ""),
        key=None if unique is None else f"group {unique}" if unique else "",
    )


def add_all(core: Core, members: Sequence[Bound[R]]) -> Handles[R]:
    """Add jobs one by one."""
    add = [adder(core, step_of(member), member.key) for member in members]

    async def run(client: Client) -> list[str]:
        return [await one(client) for one in add]

    return Handles(core, Later(core, run, f"adding {len(add)} jobs"))
