"""Jobs of tasks (``disque_trio.tasks``) for the outbox."""

from typing import Any

from disque_trio.tasks import Bound
from disque_trio.tasks.traces import current


def job_of(bound: Bound[Any]) -> dict[str, Any]:
    """The arguments of ``add`` for a task. What its options say of keys is left out: the key is
    that of the row."""
    step = bound.step
    options = {name: value for name, value in step.options.items() if name != "unique_for"}
    return {"queue": step.queue, "body": step.body, "headers": step.pairs(current()), **options}
