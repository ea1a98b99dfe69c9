"""The wire format of tasks: jobs and results.

The body of a job is its arguments, ``{"args": [...], "kwargs": {...}}``, in the format named by the
header ``content-type``; the header ``task`` names the task. A result begins with a line that holds
the content type and, if another job continues this one, the id of that job. The value follows.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from disque_trio.client import Client
from disque_trio.tasks.errors import BadJob
from disque_trio.tasks.serializers import Serializer

CONTENT_TYPE = "content-type"
TASK = "task"
TRACEPARENT = "traceparent"
THEN = "then"
"""A following step, encoded; if there are several, the next one comes first."""
PART = "part"
"""In a member of a group: the queue for its result, its number, and two options of the part's job:
its retry time in seconds and its number of copies (0: the default)."""

RESERVED = frozenset({CONTENT_TYPE, TASK, THEN, PART})

DAY = 86_400.0
"""Seconds to keep the key of a following step. The job before it is not delivered again later than
that, unless it lives longer than a day."""

MOST_REASON = 4000
"""The most bytes in a reason; a node accepts 4096."""

MOST_RESULT = 1_000_000
"""The most bytes in a result, as nodes accept it."""

Pair: TypeAlias = tuple[str, bytes]


RETRY: Final = 30
"""Seconds after which the job of a worker that is gone comes again. Ten times less than for other
jobs: a worker says all the time that it is still at work."""


@dataclass(frozen=True, slots=True)
class Step:
    """A job to be added.

    Attributes:
        task, queue: the task, and the queue of the job.
        content_type, body: the arguments.
        options: options of ADDJOB, named as in ``Client.add``; must be JSON serializable.
        headers: the program's own headers.
        then: the steps that follow.
    """

    task: str
    queue: str
    content_type: str
    body: bytes
    options: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    then: "tuple[Step, ...]" = ()

    def encode(self) -> bytes:
        """Encode the step as a header or a body, without the steps that follow."""
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
        """Decode a step made by ``encode``. Raises BadJob."""
        head, _, body = data.partition(b"\n")
        try:
            said = json.loads(head)
            return Step(
                said["task"], said["queue"], said["type"], body, said["options"], said["headers"]
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BadJob(f"bad step: {error!r}") from None

    def job_options(self) -> dict[str, Any]:
        """The options with a retry time, of ``RETRY`` unless the program has given one, or a tenth
        of the time to live if that is shorter, as nodes choose it, too."""
        ttl = self.options.get("ttl")
        return {"retry": RETRY if ttl is None else min(RETRY, ttl // 10 or 1), **self.options}

    def pairs(self, traceparent: str | None, part: str | None = None) -> list[Pair]:
        """Return the headers of the job."""
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
        """Add the job and return its id. Raises the exceptions of ``Client.add``.

        ``key`` and ``kept`` replace the key in the options.
        """
        options = self.job_options()
        if key is None:
            options.pop("unique_for", None)
        else:
            options |= {"unique": key, "unique_for": kept}
        return await client.add(
            self.queue, self.body, headers=self.pairs(traceparent, part), **options
        )


def steps_of(header_pairs: Sequence[Pair]) -> tuple[Step, ...]:
    """Return the steps that follow a job. Raises BadJob."""
    return tuple(Step.decode(value) for name, value in header_pairs if name == THEN)


def encode_arguments(
    serializer: Serializer, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bytes:
    """Encode a job's body. Raises TypeError or ValueError if arguments cannot be serialized."""
    return serializer.dumps({"args": list(args), "kwargs": dict(kwargs)})


def decode_arguments(serializer: Serializer, body: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Decode the arguments in a job's body. Raises BadJob."""
    try:
        said = serializer.loads(body)
    except Exception as error:
        raise BadJob(f"bad body: {describe(error)}") from None
    if isinstance(said, dict) and said.keys() <= {"args", "kwargs"}:
        args, kwargs = said.get("args", []), said.get("kwargs", {})
        if isinstance(args, list | tuple) and isinstance(kwargs, dict):
            return list(args), kwargs
    raise BadJob("bad body: expected {'args': [...], 'kwargs': {...}}")


def behind(step: Step, serializer: Serializer, result: Any, rest: tuple[Step, ...]) -> Step:
    """Return ``step`` with ``result`` as an additional first argument and ``rest`` to follow.

    Raises BadJob, TypeError or ValueError.
    """
    args, kwargs = decode_arguments(serializer, step.body)
    return replace(step, body=encode_arguments(serializer, [result, *args], kwargs), then=rest)


ERROR_TYPE = "error"
"""Used instead of a content type: the job failed, and the value is the error."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result that a job leaves for whoever waits for it.

    Attributes:
        content_type: the format of ``data``; empty: the value is None; ``error``: the job failed.
        data: the encoded value.
        next: the id of the job that continues this one, whose result counts instead; or None.
    """

    content_type: str = ""
    data: bytes = b""
    next: str | None = None

    def encode(self) -> bytes:
        """Encode it for ACKJOB."""
        head = self.content_type if self.next is None else f"{self.content_type} {self.next}"
        return head.encode() + b"\n" + self.data

    @staticmethod
    def decode(data: bytes) -> "Result":
        """Decode a result made by ``encode``. Anything without a first line is plain text."""
        head, line, value = data.partition(b"\n")
        if not line:
            return Result("text/plain", data)
        content_type, _, next = head.decode("utf-8", "replace").partition(" ")
        return Result(content_type, value, next or None)


def result_of(serializer: Serializer, value: Any, next: str | None = None) -> Result:
    """Encode a result. Raises BadJob if it cannot be serialized or is too large."""
    if value is None:
        return Result(next=next)
    try:
        data = serializer.dumps(value)
    except Exception as error:
        raise BadJob(f"the result cannot be serialized: {describe(error)}") from None
    if len(data) > MOST_RESULT - 200:
        raise BadJob(f"the result has {len(data)} bytes; the limit is {MOST_RESULT - 200}")
    return Result(serializer.content_type, data, next)


def describe(error: BaseException) -> str:
    """Format an error: ``ValueError: no such address``."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def reason_of(error: str) -> bytes:
    """Convert a text to a reason for NACK, cutting it if it is too long."""
    return error.encode("utf-8", "replace")[:MOST_REASON].decode("utf-8", "ignore").encode()


def split_error(text: str) -> tuple[str, str]:
    """Split a text made by ``describe`` into the type's name and the text."""
    name, colon, rest = text.partition(": ")
    if name.isidentifier():
        return name, rest if colon else ""
    return "", text
