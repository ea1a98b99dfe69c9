"""The backend: enqueues tasks, and finds out what became of them."""

import threading
import time
from datetime import datetime
from typing import Any, Final

from django.core import checks
from django.utils import timezone

from disque_integrations.django import records
from disque_integrations.django.framework import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from disque_integrations.django.lookup import unfinished
from disque_integrations.django.options import BackendOptions
from disque_integrations.express import ADD_TIMEOUT, Express, add_once
from disque_trio.client import kept as results
from disque_trio.client.client import Client as AsyncClient
from disque_trio.client.sync import Client
from disque_trio.client.sync.client import connect_to
from disque_trio.client.urls import Cluster
from disque_trio.respclient.errors import BadIdError

LEVELS: Final = 8
"""The number of job priorities. -100 to 100 are spread over them evenly; 0 is level 3."""

_links: Final[dict[tuple[Cluster, float], "SharedClient"]] = {}
_opening: Final = threading.Lock()


class SharedClient:
    """The connections to a cluster, shared by all threads of the process, since Django makes a
    backend for each thread.

    Attributes:
        client: a connected client.
        express: the short way to its node.

    Raises:
        ConnectionLost, AuthError: as for ``connect``.
    """

    def __init__(self, cluster: Cluster, retry_for: float) -> None:
        self.client = connect_to(cluster, retry_for)
        self.express = Express(lambda: self.client, cluster.login, ADD_TIMEOUT)

    @staticmethod
    def of(options: BackendOptions) -> "SharedClient":
        """Return the link for these options."""
        key = (options.cluster(), options.retry_for)
        with _opening:
            if key not in _links:
                _links[key] = SharedClient(*key)
            return _links[key]

    def close(self) -> None:
        """Disconnect."""
        self.express.close()
        self.client.close()


def level(priority: int) -> int:
    """Return the priority of the job (0 to 7) for a task with ``priority`` (-100 to 100)."""
    return (priority + 100) * LEVELS // 201


class DisqueBackend(BaseTaskBackend):
    """Runs tasks as jobs. A task's id is that of its job.

    Args:
        alias: the name of the backend in TASKS.
        params: its settings in TASKS; ``OPTIONS`` are those of ``BackendOptions``.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._link: SharedClient | None = None

    @property
    def settings(self) -> BackendOptions:
        """The options. Raises ValueError if they are invalid, which ``manage.py check`` reports."""
        return BackendOptions.read(self.options)

    @property
    def client(self) -> Client:
        """The client for commands, connected at first use. Raises what ``SharedClient`` raises."""
        return self._linked().client

    def _linked(self) -> SharedClient:
        if self._link is None:
            self._link = SharedClient.of(self.settings)
        return self._link

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Add a task. It exists when this returns, whatever becomes of a transaction.

        Raises:
            InvalidTask: this backend cannot run the task.
            TypeError, ValueError: the arguments cannot be converted to JSON.
            DisqueError: no node could be reached in time, or the nodes refused the task.
        """
        self.validate_task(task)
        settings = self.settings
        now = timezone.now()
        args, kwargs = normalize_json(args), normalize_json(kwargs)
        at = None if task.run_after is None else _instant(task.run_after)
        wait = 0 if at is None else max(0, int(at - time.time()) + 1)
        link = self._linked()
        id = add_once(
            link.express,
            link.client,
            settings.retry_for,
            settings.queue(task.queue_name),
            records.body(task, args, kwargs, now),
            at=at,
            ttl=settings.task_ttl + wait,
            retry=settings.retry,
            replicate=settings.replicate,
            priority=level(task.priority),
        )
        result: TaskResult = TaskResult(
            task=task,
            id=id,
            status=TaskResultStatus.READY,
            enqueued_at=now,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return what became of a task.

        Raises:
            TaskResultDoesNotExist: there was no such task, it ended too long ago, or it is only
                known to nodes that cannot be reached.
            DisqueError: no node could be reached in time.
        """
        settings = self.settings
        queue, cluster = settings.results(result_id), settings.cluster()

        async def find(client: AsyncClient) -> tuple[bytes, bool] | None:
            """Return its record, and whether it is running."""
            kept = await results.peek(client, queue)
            if kept is None:
                try:
                    found = await unfinished(client, cluster, result_id)
                except BadIdError:
                    return None
                if found is not None:
                    return found
                # It has ended; another node may have its result.
                kept = await results.read(client, queue, 0)
            return None if kept is None else (kept, False)

        found = self.client.run(find)
        if found is None:
            raise TaskResultDoesNotExist(result_id)
        text, running = found
        try:
            record = records.read(text)
            result = records.result(self.alias, result_id, record, settings.modules)
        except (ImportError, ValueError) as error:
            raise TaskResultDoesNotExist(f"{result_id}: {error}") from error
        if running:
            records.change(result, status=TaskResultStatus.RUNNING)
        return result

    def check(self, **_: Any) -> list[checks.CheckMessage]:
        """Check that the options are valid."""
        try:
            BackendOptions.read(self.options)
        except (TypeError, ValueError) as error:
            text = f"OPTIONS of the task backend {self.alias!r}: {error}"
            return [checks.Error(text, id="disque.E001")]
        return []


def _instant(moment: datetime) -> float:
    """Convert a time to seconds since the epoch. Without USE_TZ, times are in TIME_ZONE."""
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment)
    return moment.timestamp()
