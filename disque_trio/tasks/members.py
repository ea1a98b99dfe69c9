"""The body of a group: its members, and what belongs to all of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from disque_trio.job_options import stored
from disque_trio.tasks.core import Core
from disque_trio.tasks.errors import BadJob
from disque_trio.tasks.messages import (
    Pair,
    Result,
    Step,
    as_json,
    decode_arguments,
    encode_arguments,
    joined,
    pack,
    split,
    unpack,
)

PREFIX: Final = "disque."
"""The prefix of names of internal tasks."""

GROUP: Final = "disque.group"
TYPE: Final = "application/x-disque-group"

_MEMBER: Final = "member"
_GIVEN: Final = "given"
_COMPLETE: Final = "complete"
_DEATH: Final = "death"


@dataclass(frozen=True, slots=True)
class Members:
    """What the body of a group says.

    Attributes:
        packed: the members, packed, each with the steps that follow it.
        retry, replicate: options of the jobs with their results.
        content_type: the format of the list of their results.
        skip_failed: whether the group goes on with those that succeeded.
        on_complete: what to add when all members have ended.
        on_death: what to add when the first member fails for good.
        given: the result of the job before the group, the first argument of each member.
        ids: the ids of the members, if they were added: each that of the last step known so far.
        failed: the numbers of those that are known to have failed, from 0.
    """

    packed: tuple[bytes, ...]
    retry: int
    replicate: int | None
    content_type: str
    skip_failed: bool = False
    on_complete: Step | None = None
    on_death: Step | None = None
    given: Result | None = None
    ids: tuple[str, ...] = ()
    failed: frozenset[int] = frozenset()

    def encode(self) -> bytes:
        """Return the body."""
        head = {
            "ids": self.ids,
            "failed": sorted(self.failed),
            "retry": self.retry,
            "replicate": self.replicate,
            "type": self.content_type,
            "skip": self.skip_failed,
        }
        pairs: list[Pair] = [(_MEMBER, one) for one in self.packed]
        if self.on_complete is not None:
            pairs.append((_COMPLETE, pack(self.on_complete)))
        if self.on_death is not None:
            pairs.append((_DEATH, pack(self.on_death)))
        if self.given is not None:
            pairs.append((_GIVEN, self.given.encode()))
        return b"%b\n%b" % (as_json(head), joined(pairs))

    @staticmethod
    def decode(body: bytes) -> "Members":
        """Read a body made by ``encode``. Raises BadJob."""
        head, _, data = body.partition(b"\n")
        pairs = split(data)
        others = dict(pair for pair in pairs if pair[0] != _MEMBER)
        try:
            said = json.loads(head)
            return Members(
                tuple(value for name, value in pairs if name == _MEMBER),
                said["retry"],
                said["replicate"],
                said["type"],
                said["skip"],
                _unpacked(others.get(_COMPLETE)),
                _unpacked(others.get(_DEATH)),
                Result.decode(others[_GIVEN]) if _GIVEN in others else None,
                tuple(said["ids"]),
                frozenset(said["failed"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BadJob(f"bad group: {error!r}") from None

    def steps(self, core: Core) -> Sequence[Step]:
        """Return the jobs of the members. Raises BadJob, TypeError or ValueError."""
        steps = [unpack(one) for one in self.packed]
        if self.given is None:
            return [grouped(core, step) for step in steps]
        value = core.serializers.of(self.given.content_type).loads(self.given.data)
        return [behind(core, step, value) for step in steps]


def as_told(failed: Mapping[int, str], total: int) -> dict[str, Any]:
    """Describe how many members a group has, and why some failed, for a job that is told."""
    return {"total": total, "failed": {str(number): why for number, why in failed.items()}}


def _unpacked(data: bytes | None) -> Step | None:
    return None if data is None else unpack(data)


def behind(core: Core, step: Step, value: Any) -> Step:
    """Return ``step`` with ``value`` as an additional first argument; if it is a group, that of
    each of its members. Raises BadJob, TypeError or ValueError."""
    if step.task == GROUP:
        members = Members.decode(step.body)
        data = core.serializers.of(members.content_type).dumps(value)
        given = Result(members.content_type, data)
        return replace(step, body=replace(members, given=given).encode())
    serializer = core.serializers.of(step.content_type)
    args, kwargs = decode_arguments(serializer, step.body)
    return grouped(core, replace(step, body=encode_arguments(serializer, [value, *args], kwargs)))


def grouped(core: Core, step: Step) -> Step:
    """Return ``step``, which has all its arguments, with the group that its task makes from them,
    unless the program has given it one."""
    definition = core.tasks.get(step.task)
    if definition is None or definition.group_by is None or "group" in step.options:
        return step
    args, kwargs = decode_arguments(core.serializers.of(step.content_type), step.body)
    group = definition.group(tuple(args), kwargs)
    return replace(step, options={**step.options, **stored({"group": group})})
