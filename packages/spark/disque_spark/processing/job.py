"""A job as ``process`` passes it to a function, and the outcome of the call."""

import json
from typing import NamedTuple

MAX_REASON = 4096  # bytes; NACK takes no more
MAX_DELAY = 2**31 - 1  # s


class Job(NamedTuple):
    """A job.

    Attributes:
        id: the job's id.
        queue: name of its queue.
        body: the body, as it was added.
        nacks: how often workers handed it back.
        additional_deliveries: how often it was delivered again because nobody acknowledged it.
        headers: pairs of name and value, in order; a name may occur several times.
    """

    id: str
    queue: str = ""
    body: bytes = b""
    nacks: int = 0
    additional_deliveries: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()

    def text(self) -> str:
        """The body, decoded as UTF-8. Raises UnicodeDecodeError if it is not."""
        return self.body.decode()

    def json(self) -> object:
        """The body, parsed as JSON. Raises ValueError if it is not."""
        return json.loads(self.body)


class Failed(Exception):
    """Says that a job failed. A function raises it, or returns it in place of the job's result.

    Args:
        reason: recorded in the dead letter, if the job becomes one.
        delay: seconds until the job is delivered again; None: the ``delay`` of ``process``.
        dead: make the job a dead letter now instead of delivering it again.

    Raises:
        ValueError: ``delay`` is out of range.
    """

    def __init__(
        self, reason: str | Exception, delay: float | None = None, dead: bool = False
    ) -> None:
        super().__init__(reason, delay, dead)
        if delay is not None and not 0 <= delay <= MAX_DELAY:
            raise ValueError(f"delay: expected 0 to {MAX_DELAY} s, got {delay}")
        self.reason = str(reason)
        self.delay = delay
        self.dead = dead

    @classmethod
    def of(cls, problem: BaseException) -> "Failed":
        """The failure that an exception stands for."""
        if isinstance(problem, Failed):
            return problem
        return cls(f"{type(problem).__name__}: {problem}".removesuffix(": "))

    def text(self) -> bytes:
        """The reason, in the form that NACK takes."""
        return self.reason.encode(errors="replace")[:MAX_REASON]


class Outcome(NamedTuple):
    """The outcome of a job: the body of its result (None: no result), or why it failed."""

    job: Job
    result: bytes | str | None = None
    failed: Failed | None = None


def body_of(value: object) -> bytes | str | None:
    """The body of a result: bytes and strings as they are, None for no result, all else as JSON.

    Raises:
        TypeError, ValueError: ``value`` cannot be converted to JSON.
    """
    if value is None or isinstance(value, bytes | str):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)


def _plain(value: object) -> object:
    """Convert a value of numpy or pandas to one that JSON has."""
    for name in ("tolist", "isoformat"):
        convert = getattr(value, name, None)
        if convert is not None:
            return convert()
    raise TypeError(f"a result cannot contain a {type(value).__name__}")
