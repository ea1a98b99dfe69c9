"""Tasks and their results as JSON: the body of a job, and the record of a task that has ended."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from disque_integrations.django.framework import (
    Task,
    TaskError,
    TaskResult,
    TaskResultStatus,
)
from disque_integrations.django.known import KnownError, find_task

Record = dict[str, Any]


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def body(task: Task, args: Any, kwargs: Any, enqueued_at: datetime) -> str:
    """Encode a task as the body of its job."""
    return json.dumps(
        {
            "task": task.module_path,
            "args": args,
            "kwargs": kwargs,
            "queue": task.queue_name,
            "priority": task.priority,
            "run_after": _text(task.run_after),
            "enqueued_at": _text(enqueued_at),
        }
    )


def ended(job: Record, result: TaskResult) -> str:
    """Encode the record of a task that has ended. ``job`` is its decoded body."""
    successful = result.status == TaskResultStatus.SUCCESSFUL
    return json.dumps(
        job
        | {
            "status": str(result.status.value),
            "started_at": _text(result.started_at),
            "last_attempted_at": _text(result.last_attempted_at),
            "finished_at": _text(result.finished_at),
            "errors": [[error.exception_class_path, error.traceback] for error in result.errors],
            "worker_ids": result.worker_ids,
            "return_value": result.return_value if successful else None,
        }
    )


def read(text: bytes) -> Record:
    """Decode a body, or the record of a task that has ended.

    Raises:
        ValueError: it is neither.
    """
    record = json.loads(text)
    if not isinstance(record, dict) or not isinstance(record.get("task"), str):
        raise ValueError("the job is not a Django task")
    return record


def result(backend: str, id: str, record: Record, modules: Sequence[str]) -> TaskResult:
    """Make a task result from a body or a record. modules: as in ``find_task``.

    Raises:
        ImportError, ValueError: this program has no such task.
    """
    task = find_task(record["task"], modules).using(
        priority=record["priority"],
        queue_name=record["queue"],
        run_after=_moment(record["run_after"]),
        backend=backend,
    )
    made: TaskResult = TaskResult(
        task=task,
        id=id,
        status=TaskResultStatus(record.get("status", TaskResultStatus.READY)),
        enqueued_at=_moment(record["enqueued_at"]),
        started_at=_moment(record.get("started_at")),
        finished_at=_moment(record.get("finished_at")),
        last_attempted_at=_moment(record.get("last_attempted_at")),
        args=record["args"],
        kwargs=record["kwargs"],
        backend=backend,
        errors=[
            KnownError(exception_class_path=path, traceback=text)
            for path, text in record.get("errors", [])
        ],
        worker_ids=record.get("worker_ids", []),
    )
    change(made, _return_value=record.get("return_value"))
    return made


def change(result: TaskResult, **values: object) -> None:
    """Set attributes of a result, although it is frozen."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def failed(record: Record, error: TaskError, at: datetime) -> str:
    """Encode the record of a task that could not be run."""
    return json.dumps(
        record
        | {
            "status": str(TaskResultStatus.FAILED.value),
            "finished_at": _text(at),
            "errors": [[error.exception_class_path, error.traceback]],
        }
    )
