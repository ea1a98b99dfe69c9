"""The jobs of a call: the request and its answer.

docs/client.md describes their headers, for clients in other languages.
"""

import math
from dataclasses import dataclass
from typing import Final

from disque_trio.client.job import Job
from disque_trio.client.jobs import HeldJob
from disque_trio.client.requests import addjob, pairs_of
from disque_trio.job_options import Headers
from disque_trio.resp.command import Argument
from disque_trio.respclient.values import Name, as_text

REPLY_TO: Final = "reply-to"
CORRELATION_ID: Final = "correlation-id"
DEADLINE: Final = "deadline"
STATUS: Final = "status"

OK: Final = b"ok"
ERROR: Final = b"error"


def request(
    queue: Name,
    body: Name,
    headers: Headers | None,
    replicate: int,
    limit: float,
    now: float,
    reply_to: str,
    id: str,
) -> list[Argument]:
    """Return the ADDJOB for the request ``id``.

    Args:
        limit: seconds until nobody waits for the answer any more.
        now: the current time in seconds since the epoch.
        reply_to: the queue for the answer.
    """
    pairs = [*pairs_of(headers), (REPLY_TO, reply_to), (CORRELATION_ID, id)]
    return addjob(
        *(queue, body, limit),
        replicate=replicate,
        # So that another server gets the request in time if its server's node dies.
        retry=max(1, math.ceil(limit / 4)),
        # WORKING is refused once half of the TTL is over.
        ttl=math.ceil(2 * limit) + 1,
        headers=[*pairs, (DEADLINE, str(round((now + limit) * 1000)))],
    )


@dataclass(frozen=True, slots=True)
class Request:
    """What a server needs to know about a request.

    Attributes:
        reply_to: the queue for the answer; None if no answer is wanted.
        id: the correlation id, to be repeated in the answer.
        deadline: when the caller stops waiting, in seconds since the epoch; None: never.
    """

    reply_to: bytes | None
    id: bytes
    deadline: float | None

    def answer(self, body: Name, status: bytes, now: float) -> list[Argument]:
        """Return the ADDJOB for the answer, at ``now``. ``reply_to`` must not be None."""
        assert self.reply_to is not None
        left = 60.0 if self.deadline is None else self.deadline - now
        ttl = max(1, math.ceil(left)) + 1
        return addjob(
            *(self.reply_to, body, ttl),
            replicate=1,
            retry=max(1, ttl // 4),
            ttl=ttl,
            headers={CORRELATION_ID: self.id, STATUS: status},
        )


def read_request(job: HeldJob) -> Request:
    """Read the request in ``job``."""
    headers = job.headers
    deadline = headers.get(DEADLINE, b"")
    return Request(
        headers.get(REPLY_TO),
        headers.get(CORRELATION_ID, b""),
        int(deadline) / 1000 if deadline.isdigit() else None,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the request ``id``. If ``failed``, ``body`` is the text of the exception."""

    id: str
    body: bytes
    failed: bool


def read_answer(job: Job) -> Answer:
    """Read the answer in ``job``."""
    headers = job.headers
    return Answer(
        as_text(headers.get(CORRELATION_ID, b"")), job.body, headers.get(STATUS, OK) != OK
    )
