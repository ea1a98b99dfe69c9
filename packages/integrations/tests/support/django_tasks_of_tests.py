"""Tasks of the tests' Django project. They are separate from its settings, because they can only be
created after those are read."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from disque_integrations.django.framework import TaskContext
from packages.integrations.tests.support.task_story import record
from tests.support.harness import wait_until

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def work(name: str) -> None:
    """Run until a file is there, if UNTIL names one, or else for a moment; and record it."""
    record(os.environ["RUNS"], "begin", name)
    if until := os.environ.get("UNTIL"):
        wait_until(Path(until).exists)
    else:
        time.sleep(float(os.environ.get("SECONDS", "0.01")))
    record(os.environ["RUNS"], "end", name)


@task
def add(a: int, b: int) -> int:
    return a + b


@task
async def shout(text: str) -> str:
    return text.upper()


@task
def fail(text: str) -> None:
    raise LookupError(text)


@task(queue_name="mail", priority=50)
def note(text: str) -> None:
    record(os.environ["RUNS"], "end", text)


@task
def strange() -> object:
    return object()


@task(takes_context=True)
def attempt(context: TaskContext, more: int) -> list[Any]:
    return [context.attempt + more, context.task_result.id]


@task
def query() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT 41 + 1")
        [value] = cursor.fetchone()
    return int(value)


@task
def poison() -> None:
    """Kill the process once others have begun."""
    record(os.environ["RUNS"], "begin", "poison")
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
