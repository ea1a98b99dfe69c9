"""What jobs and results of tasks look like on the wire.

The body of a job is its arguments, ``{"args": [...], "kwargs": {...}}`` in the format that the
header ``content-type`` names; ``task`` names the task. A result has a line with its content type
and, where another job goes on, that one's id; then the value.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from disque_trio.client import Client
from disque_trio.tasks.errors import BadJob
from disque_trio.tasks.serializers import Serializer

CONTENT_TYPE = "content-type"
TASK = "task"
TRACEPARENT = "traceparent"
THEN = "then"
"""A step that follows, encoded; there may be several, the next one first."""
PART = "part"
"""Of a member of a group: the queue that wants its result, its number, and of the part's job the
retry time in s and the number of copies, 0: the default."""

RESERVED = frozenset({CONTENT_TYPE, TASK, THEN, PART})

DAY = 86_400.0
"""Seconds for which a step that follows cannot be added again; a job comes again no later, unless
it lives longer than a day."""

MOST_REASON = 4000
"""Bytes of a reason; a node takes 4096."""

MOST_RESULT = 1_000_000
"""Bytes of a result, as a node takes them."""

Pair: TypeAlias = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Step:
    """A job that is to be added.

    Attributes:
        task, queue: where it goes.
        content_type, body: its arguments.
        options: of ADDJOB, by the names of ``Client.add``; JSON can say them.
        headers: of the program.
        then: the steps behind it.
    """

    task: str
    queue: str
    content_type: str
    body: bytes
    options: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    then: "tuple[Step, ...]" = ()

    def encode(self) -> bytes:
        """It as a header or a body, without the steps behind it."""
        head = {
            "task": self.task,
            "queue": self.queue,
            "type": self.content_type,
            "options": dict(self.options),
            "headers": dict(self.headers),
        }
        return json.dumps(head, separators=(",", ":")).encode() + b"\n" + self.body

    @staticmethod
    def decode(data: bytes) -> "Step":
        """The step that ``encode`` made. Raises BadJob."""
        head, _, body = data.partition(b"\n")
        try:
            said = json.loads(head)
            return Step(
                said["task"], said["queue"], said["type"], body, said["options"], said["headers"]
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BadJob(f"bad step: {error!r}") from None

    def pairs(self, traceparent: str | None, part: str | None = None) -> list[Pair]:
        """The headers of the job."""
        pairs = [(CONTENT_TYPE, self.content_type.encode()), (TASK, self.task.encode())]
        if traceparent is not None and TRACEPARENT not in self.headers:
            pairs.append((TRACEPARENT, traceparent.encode()))
        if part is not None:
            pairs.append((PART, part.encode()))
        pairs += [(name, value.encode()) for name, value in self.headers.items()]
        return pairs + [(THEN, step.encode()) for step in self.then]

    async def add(
        self,
        client: Client,
        traceparent: str | None,
        *,
        key: str | None = None,
        kept: float | None = None,
        part: str | None = None,
    ) -> str:
        """Add the job; returns its id. ``key`` and ``kept``: in place of what the options say.
        Raises what ``Client.add`` raises."""
        options = dict(self.options)
        if key is None:
            options.pop("unique_for", None)
        else:
            options |= {"unique": key, "unique_for": kept}
        return await client.add(
            self.queue, self.body, headers=self.pairs(traceparent, part), **options
        )


def steps_of(header_pairs: Sequence[Pair]) -> tuple[Step, ...]:
    """The steps that follow a job. Raises BadJob."""
    return tuple(Step.decode(value) for name, value in header_pairs if name == THEN)


def encode_arguments(
    serializer: Serializer, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bytes:
    """A body. Raises TypeError or ValueError: the arguments cannot be serialized."""
    return serializer.dumps({"args": list(args), "kwargs": dict(kwargs)})


def decode_arguments(serializer: Serializer, body: bytes) -> tuple[list[Any], dict[str, Any]]:
    """The arguments in a body. Raises BadJob."""
    try:
        said = serializer.loads(body)
    except Exception as error:
        raise BadJob(f"bad body: {describe(error)}") from None
    if isinstance(said, dict) and said.keys() <= {"args", "kwargs"}:
        args, kwargs = said.get("args", []), said.get("kwargs", {})
        if isinstance(args, list | tuple) and isinstance(kwargs, dict):
            return list(args), kwargs
    raise BadJob("bad body: arguments are {'args': [...], 'kwargs': {...}}")


def behind(step: Step, serializer: Serializer, result: Any, rest: tuple[Step, ...]) -> Step:
    """``step`` with the result before its own arguments, and the steps behind it. Raises BadJob,
    TypeError or ValueError."""
    args, kwargs = decode_arguments(serializer, step.body)
    return replace(step, body=encode_arguments(serializer, [result, *args], kwargs), then=rest)


ERROR_TYPE = "error"
"""In place of a content type: the job failed, and the value says how."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a job leaves for who waits for it.

    Attributes:
        content_type: of ``data``; empty: the value is None. ``error``: it failed.
        data: the value.
        next: id of the job that goes on, whose result is meant; None: there is none.
    """

    content_type: str = ""
    data: bytes = b""
    next: str | None = None

    def encode(self) -> bytes:
        """It as the result of an ACKJOB."""
        head = self.content_type if self.next is None else f"{self.content_type} {self.next}"
        return head.encode() + b"\n" + self.data

    @staticmethod
    def decode(data: bytes) -> "Result":
        """The result that ``encode`` made; what has no such line is taken as text."""
        head, line, value = data.partition(b"\n")
        if not line:
            return Result("text/plain", data)
        content_type, _, next = head.decode("utf-8", "replace").partition(" ")
        return Result(content_type, value, next or None)


def result_of(serializer: Serializer, value: Any, next: str | None = None) -> Result:
    """The result with a value. Raises BadJob: it cannot be serialized, or is too large."""
    if value is None:
        return Result(next=next)
    try:
        data = serializer.dumps(value)
    except Exception as error:
        raise BadJob(f"the result cannot be serialized: {describe(error)}") from None
    if len(data) > MOST_RESULT - 200:
        raise BadJob(f"the result has {len(data)} bytes, and at most {MOST_RESULT - 200} are kept")
    return Result(serializer.content_type, data, next)


def describe(error: BaseException) -> str:
    """An error as ``ValueError: no such address``."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def reason_of(error: str) -> bytes:
    """A text as a reason of NACK."""
    return error.encode("utf-8", "replace")[:MOST_REASON].decode("utf-8", "ignore").encode()


def split_error(text: str) -> tuple[str, str]:
    """Type name and text of what ``describe`` said."""
    name, colon, rest = text.partition(": ")
    if name.isidentifier():
        return name, rest if colon else ""
    return "", text
