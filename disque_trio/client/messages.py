"""The jobs of a call: the request, and its answer. Their headers are described in docs/client.md,
for clients in other languages."""

import math
from dataclasses import dataclass
from typing import Final

from disque_trio.client.jobs import HeldJob, Job
from disque_trio.client.requests import Headers, addjob, pairs_of
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
    """The ADDJOB of the request ``id``, which is to be answered to the queue ``reply_to`` within
    ``limit`` seconds; ``now`` in s since the epoch."""
    pairs = [*pairs_of(headers), (REPLY_TO, reply_to), (CORRELATION_ID, id)]
    return addjob(
        *(queue, body, limit, replicate),
        # So that a request is served by another one in time, when the node of its server dies.
        retry=max(1, math.ceil(limit / 4)),
        # WORKING is refused when half of it is over.
        ttl=math.ceil(2 * limit) + 1,
        headers=[*pairs, (DEADLINE, str(round((now + limit) * 1000)))],
    )


@dataclass(frozen=True, slots=True)
class Request:
    """What a server has to know of a request.

    Attributes:
        reply_to: the queue for the answer; None: no answer is wanted.
        id: for the answer.
        deadline: when nobody waits for it any more, s since the epoch; None: never.
    """

    reply_to: bytes | None
    id: bytes
    deadline: float | None

    def answer(self, body: Name, status: bytes, now: float) -> list[Argument]:
        """The ADDJOB of its answer, at ``now``; there is a ``reply_to``."""
        assert self.reply_to is not None
        left = 60.0 if self.deadline is None else self.deadline - now
        ttl = max(1, math.ceil(left)) + 1
        return addjob(
            *(self.reply_to, body, ttl, 1),
            retry=max(1, ttl // 4),
            ttl=ttl,
            headers={CORRELATION_ID: self.id, STATUS: status},
        )


def read_request(job: HeldJob) -> Request:
    """The request that ``job`` is."""
    headers = job.headers
    deadline = headers.get(DEADLINE, b"")
    return Request(
        headers.get(REPLY_TO),
        headers.get(CORRELATION_ID, b""),
        int(deadline) / 1000 if deadline.isdigit() else None,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the request ``id``; ``failed``: the handler has raised what ``body`` says."""

    id: str
    body: bytes
    failed: bool


def read_answer(job: Job) -> Answer:
    """The answer that ``job`` is."""
    headers = job.headers
    return Answer(
        as_text(headers.get(CORRELATION_ID, b"")), job.body, headers.get(STATUS, OK) != OK
    )
