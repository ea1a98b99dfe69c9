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
from disque_trio.job_options import MAX_HEADERS_SIZE
from disque_trio.tasks.errors import BadJob, BucketFailed
from disque_trio.tasks.serializers import Serializer
from disque_trio.tasks.uniqueness import OF_KEYS, of_addjob
from disque_trio.tracebacks import sole

CONTENT_TYPE = "content-type"
TASK = "task"
TRACEPARENT = "traceparent"
THEN = "then"
"""A following step, encoded; if there are several, the next one comes first."""
ON_ERROR = "on-error"
"""The steps to add if this job, or one that follows it, fails for good, packed."""
REST = "then-in-body"
"""How many bytes at the end of the body are the headers ``then`` and ``on-error``, packed, because
they are too long for headers."""
PART = "part"
"""In a member of a group: the queue for its result, its number, and two options of the part's job:
its retry time in seconds and its number of copies (0: the default)."""

RESERVED = frozenset(
    {CONTENT_TYPE, TASK, THEN, ON_ERROR, REST, PART, "task-retries", "task-timeout", "task-backoff"}
)

MOST_FOLLOWING: Final = 32_768
"""The most bytes of following steps in headers."""

DAY = 86_400.0
"""Seconds to keep the key of a following step. The job before it is not delivered again later than
that, unless it lives longer than a day."""

_NAMED: Final = 3  # exceptions of a group in a text

MOST_REASON = 4000
"""The most bytes in a reason; a node accepts 4096."""

MOST_RESULT: Final = 1_000_000
"""The most bytes in a result, as nodes accept it."""
MOST_STORED: Final = 16_000_000
"""The most bytes in a result that is stored."""

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
        on_error: what to add if this job, or one that follows it, fails for good.
    """

    task: str
    queue: str
    content_type: str
    body: bytes
    options: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    then: "tuple[Step, ...]" = ()
    on_error: "Step | None" = None

    @property
    def chain(self) -> "list[Step]":
        """This step by itself, and those that follow."""
        return [replace(self, then=()), *self.then]

    def encode(self) -> bytes:
        """Encode the step as a header or a body, without the steps that follow."""
        head: dict[str, Any] = {
            "task": self.task,
            "queue": self.queue,
            "type": self.content_type,
            # It will have no key of its own, and older workers do not know all of these.
            "options": {name: one for name, one in self.options.items() if name not in OF_KEYS},
            "headers": dict(self.headers),
        }
        error = b""
        if self.on_error is not None:
            error = pack(self.on_error)
            head["on_error"] = len(error)
        return b"%b\n%b%b" % (as_json(head), error, self.body)

    @staticmethod
    def decode(data: bytes) -> "Step":
        """Decode a step made by ``encode``. Raises BadJob."""
        head, _, body = data.partition(b"\n")
        try:
            said = json.loads(head)
            size = said.get("on_error", 0)
            return Step(
                said["task"],
                said["queue"],
                said["type"],
                body[size:],
                said["options"],
                said["headers"],
                on_error=unpack(body[:size]) if size else None,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadJob(f"bad step: {error!r}") from None

    def job_options(self) -> dict[str, Any]:
        """The options with a retry time, of ``RETRY`` unless the program has given one, or a tenth
        of the time to live if that is shorter, as nodes choose it, too."""
        ttl = self.options.get("ttl")
        return {"retry": RETRY if ttl is None else min(RETRY, ttl // 10 or 1), **self.options}

    def keyless(self) -> dict[str, Any]:
        """The same options without those of a key."""
        return {name: one for name, one in self.job_options().items() if name not in OF_KEYS}

    def job(self, traceparent: str | None, part: str | None = None) -> tuple[bytes, list[Pair]]:
        """Return the body and the headers of the job."""
        pairs = [(CONTENT_TYPE, self.content_type.encode()), (TASK, self.task.encode())]
        if traceparent is not None and TRACEPARENT not in self.headers:
            pairs.append((TRACEPARENT, traceparent.encode()))
        if part is not None:
            pairs.append((PART, part.encode()))
        pairs += [(name, value.encode()) for name, value in self.headers.items()]
        following = [(THEN, step.encode()) for step in self.then]
        if self.on_error is not None:
            following.append((ON_ERROR, pack(self.on_error)))
        room = min(MOST_FOLLOWING, MAX_HEADERS_SIZE - _size(pairs)) if following else 0
        if _size(following) <= room:
            return self.body, pairs + following
        rest = joined(following)
        return self.body + rest, [*pairs, (REST, b"%d" % len(rest))]

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

        ``key`` is the job's key, which is kept for ``kept`` seconds; None: as the options say.
        """
        options = self.keyless()
        if key is not None:
            options["unique"] = key
            options |= of_addjob(self.options) if kept is None else {"unique_for": kept}
        body, headers = self.job(traceparent, part)
        return await client.add(self.queue, body, headers=headers, **options)


def _size(pairs: Sequence[Pair]) -> int:
    """Return how many bytes headers have, at most."""
    return sum(4 * len(name) + len(value) for name, value in pairs)


def as_json(value: Any) -> bytes:
    """Encode what JSON can express."""
    return json.dumps(value, separators=(",", ":")).encode()


def joined(pairs: Sequence[Pair]) -> bytes:
    """Encode names and values, as ``split`` reads them."""
    sizes = [[name, len(value)] for name, value in pairs]
    return b"%b\n%b" % (as_json(sizes), b"".join(value for _, value in pairs))


def split(data: bytes) -> list[Pair]:
    """Decode what ``joined`` made. Raises BadJob."""
    head, line, _ = data.partition(b"\n")
    at = len(head) + len(line)
    pairs = []
    try:
        for name, size in json.loads(head):
            pairs.append((name, data[at : at + size]))
            at += size
    except (ValueError, TypeError) as error:
        raise BadJob(f"bad steps: {error!r}") from None
    return pairs


def pack(step: Step) -> bytes:
    """Encode a step with those that follow."""
    return joined([(THEN, one.encode()) for one in step.chain])


def unpack(data: bytes) -> Step:
    """Decode what ``pack`` made. Raises BadJob."""
    chain = [Step.decode(value) for _, value in split(data)]
    if not chain:
        raise BadJob("bad steps: there are none")
    return replace(chain[0], then=tuple(chain[1:]))


@dataclass(frozen=True, slots=True)
class Opened:
    """A job of a task.

    Attributes:
        body: the arguments, encoded.
        then: the steps that follow it.
        on_error: what to add if it fails for good.
    """

    body: bytes
    then: tuple[Step, ...] = ()
    on_error: Step | None = None

    @staticmethod
    def of(body: bytes, pairs: Sequence[Pair]) -> "Opened":
        """Read a job made by ``Step.job``. Raises BadJob."""
        then: list[Step] = []
        error: Step | None = None
        for name, value in pairs:
            if name == THEN:
                then.append(Step.decode(value))
            elif name == ON_ERROR:
                error = unpack(value)
            elif name == REST:
                if not value.isdigit() or not 0 < int(value) <= len(body):
                    raise BadJob(f"bad header: {REST} {value!r}")
                size = int(value)
                return Opened.of(body[:-size], split(body[-size:]))
        return Opened(body, tuple(then), error)


def encode_arguments(
    serializer: Serializer, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bytes:
    """Encode a job's body. Raises TypeError or ValueError if arguments cannot be serialized."""
    return serializer.dumps({"args": list(args), "kwargs": dict(kwargs)})


def decode_arguments(serializer: Serializer, body: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Decode the arguments in a job's body. Raises BadJob, BucketFailed."""
    try:
        said = serializer.loads(body)
    except BucketFailed:
        raise
    except Exception as error:
        raise BadJob(f"bad body: {describe(error)}") from None
    if isinstance(said, dict) and said.keys() <= {"args", "kwargs"}:
        args, kwargs = said.get("args", []), said.get("kwargs", {})
        if isinstance(args, list | tuple) and isinstance(kwargs, dict):
            return list(args), kwargs
    raise BadJob("bad body: expected {'args': [...], 'kwargs': {...}}")


ERROR_TYPE: Final = "error"
"""Used instead of a content type: the job failed, and the value is the error."""
STORED_TYPE: Final = "stored"
"""Used instead of a content type: the result is stored."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result that a job leaves for whoever waits for it.

    Attributes:
        content_type: the format of ``data``; empty: the value is None; ``error``: the job failed.
        data: the encoded value.
        next: the id of the job that continues this one, whose result counts instead; or None.
        members: of a group: how many members it had, and the numbers of those that failed:
            ``60:2,16``; else empty.
    """

    content_type: str = ""
    data: bytes = b""
    next: str | None = None
    members: str = ""

    def encode(self) -> bytes:
        """Encode it for ACKJOB."""
        head = f"{self.content_type} {self.next or ''} {self.members}".rstrip(" ")
        return head.encode() + b"\n" + self.data

    @staticmethod
    def decode(data: bytes) -> "Result":
        """Decode a result made by ``encode``. Anything without a first line is plain text."""
        head, line, value = data.partition(b"\n")
        if not line:
            return Result("text/plain", data)
        content_type, next, members, *_ = [*head.decode("utf-8", "replace").split(" "), "", ""]
        return Result(content_type, value, next or None, members)


def result_of(serializer: Serializer, value: Any, empty: Result, task: str, store: bool) -> Result:
    """Encode a result. Raises BadJob if it cannot be serialized or is too large.

    Args:
        empty: the result without its value.
        task: the name of the task.
        store: whether it is stored.
    """
    if value is None:
        return empty
    try:
        data = serializer.dumps(value)
    except BucketFailed:
        raise
    except Exception as error:
        raise BadJob(
            f"the result of {task} cannot be serialized: {describe(error)}; return what "
            f"{serializer.content_type} can express, or give the task another serializer"
        ) from None
    limit = (MOST_STORED if store else MOST_RESULT) - 200 - len(empty.members)
    if len(data) > limit:
        other = "" if store else f', or keep up to {MOST_STORED:,} with results="store"'
        raise BadJob(
            f"the result of {task} has {len(data):,} bytes, and the limit is {limit:,}; return "
            f"less{other}"
        )
    return replace(empty, content_type=serializer.content_type, data=data)


def describe(error: BaseException) -> str:
    """Format an error: ``ValueError: no such address``; of a group, also what is in it."""
    error = sole(error)
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    if isinstance(error, BaseExceptionGroup):
        inside = [describe(one) for one in error.exceptions[:_NAMED]]
        more = len(error.exceptions) - len(inside)
        text += ": " + "; ".join(inside) + (f" and {more} more" if more else "")
    return text


def reason_of(error: str) -> bytes:
    """Convert a text to a reason for NACK, cutting it if it is too long."""
    return error.encode("utf-8", "replace")[:MOST_REASON].decode("utf-8", "ignore").encode()


def split_error(text: str) -> tuple[str, str]:
    """Split a text made by ``describe`` into the type's name and the text."""
    name, colon, rest = text.partition(": ")
    if name.isidentifier():
        return name, rest if colon else ""
    return "", text
