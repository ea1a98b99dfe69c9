"""Jobs of tasks (``disque_trio.tasks``) for the outbox."""

from typing import Any

from disque_trio.tasks import Bound
from disque_trio.tasks.traces import current
from disque_trio.tasks.uniqueness import of_addjob


def job_of(bound: Bound[Any]) -> dict[str, Any]:
    """Return the arguments of ``columns`` for a task, with its key if it is unique.

    Raises TypeError if arguments are missing.
    """
    step = bound.step
    options = step.keyless()
    if bound.key:
        options |= {"unique": bound.key, **of_addjob(step.options)}
    body, headers = step.job(current())
    return {"queue": step.queue, "body": body, "headers": headers, **options}
