"""Add jobs of several queues, each with options of its own, as one pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from disque_trio.client.adding import add_all
from disque_trio.client.client import Client
from disque_trio.client.errors import AddManyError
from disque_trio.client.replies import ids
from disque_trio.client.requests import addjob
from disque_trio.job_options import AddOptions, Headers
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.values import Name, text


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to add, described by arguments of ``Client.add``.

    Attributes:
        unique: its key.
        own: the program has given it this key, and says how long it is kept: for ``unique_for``
            seconds or, if that is None, as long as the job lives.
    """

    queue: Name
    body: Name
    unique: Name
    own: bool = False
    unique_for: float | None = None
    headers: Headers | None = None
    options: AddOptions = field(default_factory=AddOptions)


async def add_each(
    client: Client,
    jobs: Sequence[NewJob],
    *,
    timeout: float,
    unique_for: float,
) -> list[str | DisqueError]:
    """Add the jobs in order, as one pipeline. All have keys, so they are safe to repeat.

    Args:
        timeout: seconds to wait for the copies of each job.
        unique_for: seconds to keep the keys that the program has not given.

    Returns:
        For each job its id or the error. For a job of a topic: the ids of all jobs that were added,
        separated by spaces.
    """
    commands = [
        addjob(
            *(job.queue, job.body, timeout),
            headers=job.headers,
            key=job.unique,
            kept=job.unique_for if job.own else unique_for,
            **job.options,
        )
        for job in jobs
    ]
    return [_result(reply) for reply in await add_all(client._router, commands, repeat=True)]


def _result(reply: Reply) -> str | DisqueError:
    if isinstance(reply, DisqueError):
        return reply
    if not isinstance(reply, list):
        return text(reply)
    try:
        return " ".join(ids(reply))
    except AddManyError as error:
        return next(result for result in error.results if isinstance(result, DisqueError))
