"""A job as a function gets it, and what becomes of one."""

import json
from typing import NamedTuple

MAX_REASON = 4096  # bytes that NACK takes
MAX_DELAY = 2**31 - 1  # s


class Job(NamedTuple):
    """A job.

    Attributes:
        id: of it. queue: its name. body: as it was added.
        nacks, additional_deliveries: how often it was handed back, and came again by itself.
        headers: names and values, in their order; a name may come several times.
    """

    id: str
    queue: str
    body: bytes
    nacks: int = 0
    additional_deliveries: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()

    def text(self) -> str:
        """The body, which is UTF-8. Raises UnicodeDecodeError: it is not."""
        return self.body.decode()

    def json(self) -> object:
        """The body, which is JSON. Raises ValueError: it is not."""
        return json.loads(self.body)


class Failed(Exception):
    """Raised by a function for a job, or given in the place of its result: it could not be done.

    Args:
        reason: goes with the job to its dead letters.
        delay: seconds until it comes again; None: as ``process`` says.
        dead: it shall not come again, but become a dead letter now.

    Raises:
        ValueError: there is no such delay.
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
        """What an exception says."""
        if isinstance(problem, Failed):
            return problem
        return cls(f"{type(problem).__name__}: {problem}".removesuffix(": "))

    def text(self) -> bytes:
        """The reason as NACK takes it."""
        return self.reason.encode(errors="replace")[:MAX_REASON]


class Outcome(NamedTuple):
    """What came of a job: a body for its result (None: there is none), or why it failed."""

    job: Job
    result: bytes | str | None = None
    failed: Failed | None = None


def body_of(value: object) -> bytes | str | None:
    """The body of a result: bytes and text are that, None is none, all else becomes JSON.

    Raises:
        TypeError, ValueError: it cannot.
    """
    if value is None or isinstance(value, bytes | str):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)


def _plain(value: object) -> object:
    """Of numpy's and pandas' values what JSON has."""
    for name in ("tolist", "isoformat"):
        convert = getattr(value, name, None)
        if convert is not None:
            return convert()
    raise TypeError(f"a result may not have a {type(value).__name__} in it")
