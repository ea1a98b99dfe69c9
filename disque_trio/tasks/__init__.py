"""Tasks: functions that run as jobs, for programs with threads, asyncio or Trio.

Start with ``Disque``; see docs/tasks.md.
"""

from disque_trio.tasks.app import Disque
from disque_trio.tasks.composing import WorkflowOptions, chain, group
from disque_trio.tasks.current import CurrentJob, current_job
from disque_trio.tasks.depends import Depends, injected
from disque_trio.tasks.errors import BucketFailed, Reject, ResultGone, Retry, TaskFailed
from disque_trio.tasks.handle import Handle, Handles, State
from disque_trio.tasks.hooks import Adding, Failure, Hooks, Running
from disque_trio.tasks.looking import TaskProgress, WorkflowStatus
from disque_trio.tasks.serializers import Serializer
from disque_trio.tasks.template import AsyncTask, Bound, Options, Task, TaskOptions, Template
from disque_trio.tasks.testing import Added, Jobs
from disque_trio.tasks.traces import traceparent
from disque_trio.tasks.wrapping import Bucket, Encrypted, Files, Stored

__all__ = [
    "Added",
    "Adding",
    "AsyncTask",
    "Bound",
    "Bucket",
    "BucketFailed",
    "CurrentJob",
    "Depends",
    "Disque",
    "Encrypted",
    "Failure",
    "Files",
    "Handle",
    "Handles",
    "Hooks",
    "Jobs",
    "Options",
    "Reject",
    "ResultGone",
    "Retry",
    "Running",
    "Serializer",
    "State",
    "Stored",
    "Task",
    "TaskFailed",
    "TaskOptions",
    "TaskProgress",
    "Template",
    "WorkflowOptions",
    "WorkflowStatus",
    "chain",
    "current_job",
    "group",
    "injected",
    "traceparent",
]
