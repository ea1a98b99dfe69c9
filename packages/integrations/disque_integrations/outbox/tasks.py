"""Jobs of tasks (``disque_trio.tasks``) for the outbox."""

from typing import Any

from disque_trio.tasks import Bound
from disque_trio.tasks.traces import current


def job_of(bound: Bound[Any]) -> dict[str, Any]:
    """Return the arguments of ``columns`` for a task, with its key if it is unique.

    Raises TypeError if arguments are missing.
    """
    step = bound.step
    options = {name: value for name, value in step.job_options().items() if name != "unique_for"}
    if bound.key:
        options |= {"unique": bound.key, "unique_for": step.options.get("unique_for")}
    body, headers = step.job(current())
    return {"queue": step.queue, "body": body, "headers": headers, **options}
