"""The outbox as a Django app: ``"disque_trio.outbox.django"`` in ``INSTALLED_APPS``.

``add`` in ``transaction.atomic()`` writes a row, ``manage.py disque_outbox`` forwards it. See
docs/outbox.md.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from disque_trio.client.requests import Headers
from disque_trio.outbox.rows import columns
from disque_trio.outbox.tasks import job_of
from disque_trio.respclient.values import Name
from disque_trio.tasks import Bound

__all__ = ["add", "add_task"]


def add(
    queue: Name,
    body: Name,
    *,
    delay: float | None = None,
    at: datetime | float | None = None,
    retry: int | None = None,
    ttl: int | None = None,
    maxlen: int | None = None,
    priority: int | None = None,
    group: Name | None = None,
    headers: Headers | None = None,
    replicate: int | None = None,
    using: str | None = None,
) -> UUID:
    """Add a job when the transaction commits, and only then; at once outside of one. The arguments
    are those of ``Client.add``; ``delay`` counts from now on, ``ttl`` from when it is forwarded.

    Args:
        using: the alias of the database; by default that to which the router writes the rows.

    Returns:
        The key of the row, and of UNIQUE.

    Raises:
        ValueError: no node would take such a job.
    """
    # Models can be imported only when all apps are loaded, this one too.
    from disque_trio.outbox.django.models import write

    values = columns(
        queue,
        body,
        delay=delay,
        at=at,
        retry=retry,
        ttl=ttl,
        maxlen=maxlen,
        priority=priority,
        group=group,
        headers=headers,
        replicate=replicate,
    )
    write(values, using)
    return values["key"]


def add_task(bound: Bound[Any], *, using: str | None = None) -> UUID:
    """Add a job of a task when the transaction commits: ``add_task(send_mail.bind("ann"))``. Like
    ``add``; what the task says of ``unique`` does not hold here."""
    return add(**job_of(bound), using=using)
