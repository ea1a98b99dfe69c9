"""The worker: runs tasks in threads, for ``manage.py disque_worker``."""

import os
import signal
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import trio
from django.db import close_old_connections
from django.utils import timezone
from django.utils.crypto import get_random_string

from disque_integrations.alone import Alone, Died, NotAloneError, ProcessDied
from disque_integrations.crashes import past_of, runs_alone
from disque_integrations.django import records
from disque_integrations.django.backend import DisqueBackend
from disque_integrations.django.framework import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from disque_trio.client import kept as results
from disque_trio.client import tracing
from disque_trio.client.client import Client
from disque_trio.client.connecting import connect_to
from disque_trio.client.job import Job
from disque_trio.client.jobs import HeldJob
from disque_trio.job_past import Past
from disque_trio.respclient.errors import DisqueError, ReplyError
from disque_trio.respclient.log import library_log
from disque_trio.tracebacks import traceback_of

CONNECT_SECONDS = 10.0
UNKNOWN = "unknown"
"""Stands for the worker of an earlier attempt, about which nothing else is known."""

T = TypeVar("T")

_log = library_log("disque.django")


class Worker:
    """Runs the tasks of some queues.

    Args:
        backend: the backend of the tasks.
        queues: the names of the queues, preferred ones first.
        concurrency: how many tasks to run at a time.
    """

    def __init__(self, backend: DisqueBackend, queues: Sequence[str], concurrency: int) -> None:
        self.id = f"{socket.gethostname()[:30]}-{os.getpid()}-{get_random_string(8)}"
        self._backend = backend
        self._settings = backend.settings
        self._queues = [self._settings.queue(name) for name in queues]
        self._concurrency = concurrency
        self._threads = trio.CapacityLimiter(concurrency)
        self._alone = Alone("disque_integrations.django.solo")
        self._taking = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken | None = None

    def stop(self) -> None:
        """Take no more tasks, and let ``run`` return when running tasks have ended. May be called
        from other threads."""
        if self._token is None:
            self._taking.cancel()
        else:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._taking.cancel)

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT; then take no more tasks, and finish those that are running.
        A second signal ends the process, and other workers get its tasks at once.

        Raises:
            ConnectionLost, AuthError: there is no node at the start, or it refuses the password.
            ValueError: a certificate file cannot be used.
        """
        self._token = trio.lowlevel.current_trio_token()
        cluster = self._settings.cluster().named_after("django-worker")
        async with connect_to(cluster, CONNECT_SECONDS) as client:
            _log.info("worker started", worker=self.id, node=client.address, queues=self._queues)
        # From now on, wait for nodes as long as it takes, since there may be tasks in hand.
        async with (
            connect_to(cluster, float("inf")) as client,
            trio.open_nursery() as nursery,
        ):
            if threading.current_thread() is threading.main_thread():
                nursery.start_soon(self._heed_signals)
            with self._taking:
                handle = partial(self._handle, client)
                await client.work(handle, *self._queues, concurrency=self._concurrency)
            nursery.cancel_scope.cancel()
        _log.info("worker stopped", worker=self.id)

    async def _heed_signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                if self._taking.cancel_called:
                    os._exit(1)
                _log.info("worker stops once its tasks have ended", worker=self.id)
                self._taking.cancel()

    async def _handle(self, client: Client, job: HeldJob) -> None:
        """Run a task and store its result. The job is acknowledged when this returns."""
        with trio.CancelScope(shield=True):
            past = await past_of(job)
            if past.is_guilty:
                await self._bury(client, job, past.said)
            elif not runs_alone(past) or not await self._run_alone(client, job, past):
                run = partial(self.run_one, job)
                await self._keep(client, job, await self._in_thread(run))

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, limiter=self._threads)

    async def _keep(self, client: Client, job: HeldJob, kept: str | None) -> None:
        """Store the record of a task."""
        if kept is None:
            return
        settings = self._settings
        try:
            queue = settings.results(job.id)
            await results.keep(client, queue, kept, settings.result_ttl, settings.replicate)
        except DisqueError as error:
            # It has run. Running it again would be worse than losing its result.
            _log.error("result not kept", task=job.id, error=str(error))

    async def _run_alone(self, client: Client, job: HeldJob, past: Past) -> bool:
        """Have a task run in a process of its own, and store its result. Returns False if the
        program cannot do that."""
        try:
            _log.info("a task runs in a process of its own", task=job.id)
            said = await self._alone.run(
                backend=self._backend.alias,
                id=job.id,
                queue=job.queue,
                body=b64encode(job.body).decode(),
                nacks=job.nacks,
                additional_deliveries=job.additional_deliveries,
            )
        except NotAloneError as error:
            _log.warning("a task cannot run in a process of its own", error=str(error))
            return False
        if not isinstance(said, Died):
            await self._keep(client, job, said["kept"])
            return True
        _log.warning("a task has killed its process", task=job.id, how=said.how)
        past = past.crashed(said.how, alone=True)
        if past.is_guilty:
            await self._bury(client, job, said.how)
        else:
            await job.nack(delay=past.pause, reason=past.reason())
        return True

    async def _bury(self, client: Client, job: HeldJob, why: str) -> None:
        """Make a dead letter of a task that kills its processes. Its result is that it failed."""
        await self._keep(client, job, await self._in_thread(partial(self._died, job, why)))
        try:
            if await client.policy(job.queue) is None:
                dead = f"{job.queue}.dead"
                await client.set_policy(job.queue, dead=dead, dead_ttl=self._settings.task_ttl)
            await job.dead(reason=why)
        except ReplyError as error:
            _log.warning("no dead letter", task=job.id, error=str(error))
            await job.ack()

    def _died(self, job: HeldJob, why: str) -> str | None:
        """Return the record of a task that kills its processes; None if the job is not a task."""
        try:
            record = records.read(job.body)
        except ValueError:
            return None
        now = timezone.now()
        record["worker_ids"] = [UNKNOWN] * (1 + job.nacks + job.additional_deliveries)
        error = TaskError(
            exception_class_path=f"{ProcessDied.__module__}.{ProcessDied.__qualname__}",
            traceback=why,
        )
        try:
            result = records.result(self._backend.alias, job.id, record, self._settings.modules)
        except Exception:
            return records.failed(record, error, now)  # this program has no such task
        result.errors.append(error)
        records.change(result, status=TaskResultStatus.FAILED, finished_at=now)
        self._finished(result)
        return records.ended(record, result)

    def run_one(self, job: HeldJob | Job) -> str | None:
        """Run a task, in a thread. Return its record, or None if the job is not a task."""
        close_old_connections()
        try:
            record = records.read(job.body)
            earlier = [UNKNOWN] * (job.nacks + job.additional_deliveries)
            record["worker_ids"] = [*earlier, self.id]
            started = timezone.now().isoformat()
            record["started_at"] = record["last_attempted_at"] = started
            record["status"] = TaskResultStatus.RUNNING.value
            modules = self._settings.modules
            try:
                result = records.result(self._backend.alias, job.id, record, modules)
            except Exception as error:
                _log.exception("no such task", task=job.id, name=record["task"])
                return records.failed(record, _error(error), timezone.now())
            if (processing := tracing.current()) is not None:
                processing.describe("task", record["task"])
            self._call(result)
            return records.ended(record, result)
        except Exception:
            _log.exception("not a task, dropped", job=job.id)
            return None
        finally:
            close_old_connections()

    def _call(self, result: TaskResult) -> None:
        """Call the function, and note in ``result`` what happened."""
        sender = type(self._backend)
        try:
            task_started.send(sender=sender, task_result=result)
            context = [TaskContext(task_result=result)] if result.task.takes_context else []
            value = normalize_json(result.task.call(*context, *result.args, **result.kwargs))
            records.change(result, _return_value=value, status=TaskResultStatus.SUCCESSFUL)
            records.change(result, finished_at=timezone.now())
        except BaseException as error:
            if (processing := tracing.current()) is not None:
                processing.failed(error)
            result.errors.append(_error(error))
            records.change(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
            # Inside of the except block, so that logging finds the exception.
            self._finished(result)
        else:
            self._finished(result)

    def _finished(self, result: TaskResult) -> None:
        for receiver, outcome in task_finished.send_robust(
            sender=type(self._backend), task_result=result
        ):
            if isinstance(outcome, Exception):
                _log.error("receiver failed", receiver=str(receiver), error=str(outcome))


def _error(error: BaseException) -> TaskError:
    kind = type(error)
    return TaskError(
        exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
        traceback=traceback_of(error),
    )
