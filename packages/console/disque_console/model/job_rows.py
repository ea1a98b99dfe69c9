"""What a row of a list tells of a job: what it is, how often it was tried, and what went wrong."""

import json
import re
from dataclasses import dataclass
from typing import Final

from disque_trio.client import Policy
from disque_trio.client.shown import ShownJob
from disque_trio.job_past import Past, split_trace
from disque_trio.overview.names import shown

READ: Final = 400
"""Bytes of each body that a page of jobs asks for."""
_TITLE: Final = 80  # characters
_ARGUMENTS: Final = 160
_ERROR: Final = 200
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class JobRow:
    """A row.

    Attributes:
        title: the task, or the first words of the body.
        arguments: of the task, shortened; empty: it has none, or it is no task.
        tried: how often the job was delivered. allowed: how often it may be; None: without limit,
            or unknown.
        error: the first line of the last error; empty: none is known.
    """

    title: str
    arguments: str
    tried: int
    allowed: int | None
    error: str

    @property
    def attempt(self) -> str:
        """How often it was tried, in words; empty: not yet."""
        if not self.tried:
            return ""
        return f"{self.tried} of {self.allowed}" if self.allowed else str(self.tried)


def row_of(job: ShownJob, policy: Policy | None) -> JobRow:
    """The row of a job of a queue with ``policy``."""
    headers = dict(job.header_pairs)
    task = headers.get("task", "")
    text = words_of(job.body, _TITLE if not task else _ARGUMENTS)
    letter = job.letter
    past = Past.read(job.last_reason)
    if letter is not None:
        tried, allowed, error = letter.attempts, None, Past.read(letter.reason).said
    else:
        tried = job.nacks + job.additional_deliveries - past.returned + bool(job.client)
        allowed, error = _allowed(headers, policy), past.said
    first_line = split_trace(error)[0].partition("\n")[0]
    return JobRow(
        shown(task) or text or "(empty)",
        _arguments(job, text) if task else "",
        max(tried, 0),
        allowed,
        _cut(shown(first_line), _ERROR),
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure of a job.

    Attributes:
        error: what went wrong. trace: the end of the worker's traceback; empty: it sent none.
        stops: how often workers gave the job back because they stopped or died. crashes: how often
            because they died.
    """

    error: str
    trace: str
    stops: int
    crashes: int


def failure_of(job: ShownJob) -> Failure | None:
    """The last failure of a job; None: none is known."""
    letter = job.letter
    reason = job.last_reason if letter is None else letter.reason
    if not reason:
        return None
    past = Past.read(reason)
    error, trace = split_trace(past.said)
    return Failure(error, trace, past.returned, past.crashes)


def _allowed(headers: dict[str, str], policy: Policy | None) -> int | None:
    """How often a job may be delivered."""
    retries = headers.get("task-retries", "")
    if retries.isdecimal() and len(retries) < 10:
        return int(retries) + 1
    return (policy.attempts or None) if policy is not None else None


def words_of(body: bytes, most: int) -> str:
    """The first words of a body, up to ``most`` characters; what is not text, in hexadecimal."""
    head = body[: 4 * most]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3 or not error.start:
            return f"bytes {head[:16].hex(' ')}" + ("…" if len(body) > 16 else "")
        text = head[: error.start].decode()
    return _cut(shown(_SPACE.sub(" ", text).strip()), most)


def _arguments(job: ShownJob, text: str) -> str:
    """The arguments of a task."""
    try:
        found = json.loads(job.body)
        args, kwargs = found["args"], found["kwargs"]
        words = [json.dumps(value, ensure_ascii=False) for value in args]
        words += [
            f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in kwargs.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Cut off, or in another format.
        return text
    return _cut(shown(", ".join(words)), _ARGUMENTS)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
