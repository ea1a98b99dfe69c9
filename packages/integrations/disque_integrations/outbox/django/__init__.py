"""The outbox as a Django app: ``"disque_integrations.outbox.django"`` in ``INSTALLED_APPS``.

``add`` in ``transaction.atomic()`` writes a row, ``manage.py disque_outbox`` forwards it. See
docs/outbox.md.
"""

from typing import Any, Unpack
from uuid import UUID

from disque_integrations.outbox.rows import Columns, columns
from disque_integrations.outbox.tasks import job_of
from disque_trio.job_options import Headers, JobOptions
from disque_trio.respclient.values import Name
from disque_trio.tasks import Bound

__all__ = ["add", "add_task"]


def add(
    queue: Name,
    body: Name,
    *,
    headers: Headers | None = None,
    using: str | None = None,
    **options: Unpack[JobOptions],
) -> UUID:
    """Add a job when the transaction commits, and only then; at once outside of a transaction.

    The options are those of ``JobOptions``; ``delay`` counts from now on, ``ttl`` from when the job
    is forwarded.

    Args:
        using: the alias of the database; by default the one to which the router writes the rows.

    Returns:
        The key of the row, which is also the job's UNIQUE key.

    Raises:
        TypeError: there is no such option.
        ValueError: no node would accept such a job.
    """
    return _write(columns(queue, body, headers=headers, **options), using)


def add_task(bound: Bound[Any], *, using: str | None = None) -> UUID:
    """Add a job of a task when the transaction commits: ``add_task(send_mail.bind("ann"))``. Like
    ``add``; the task's ``unique`` applies when the row is forwarded."""
    return _write(columns(**job_of(bound)), using)


def _write(values: Columns, using: str | None) -> UUID:
    # Models can only be imported after all apps are loaded, including this one.
    from disque_integrations.outbox.django.models import write

    write(values, using)
    return values["key"]
