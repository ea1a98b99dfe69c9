"""Handlers for jobs and for calls. The answer to a call goes to the queue named in its request."""

import sys
import time
from collections.abc import Awaitable, Callable

from disque_trio.client.jobs import HeldJob, Jobs
from disque_trio.client.messages import ERROR, OK, Request, read_request
from disque_trio.client.supply import Supply
from disque_trio.respclient.consumer import run_handlers
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.errors import ReplyError
from disque_trio.respclient.log import library_log
from disque_trio.respclient.values import Name
from disque_trio.tracebacks import traceback_of

_log = library_log("disque.client")

Handler = Callable[[HeldJob], Awaitable[Name | None]]


async def handle(
    supply: Supply,
    in_flight: InFlight,
    handler: Callable[[HeldJob], Awaitable[object]],
    concurrency: int,
) -> None:
    """Run ``handler`` on each job of ``supply``; see ``Client.work``.

    Raises:
        DisqueError: no job could be taken.
    """
    loops = [Jobs(in_flight, supply.take) for _ in range(concurrency)]
    try:
        failure = await run_handlers(loops, handler, _failed)
    finally:
        supply.pause()
    if failure is not None:
        raise failure


async def _failed(job: HeldJob) -> None:
    attempt = 1 + job.nacks + job.additional_deliveries
    _log.error("job failed", job=job.id, queue=job.queue, attempt=attempt, **_error())
    _trace_failure(job)
    await job.nack()


def _error() -> dict[str, str]:
    """The exception being handled, as fields of a line of the log."""
    error = sys.exception()
    return {} if error is None else {"exception": traceback_of(error)}


def _trace_failure(job: HeldJob) -> None:
    """Report the exception being handled to the job's span, if there is one."""
    error = sys.exception()
    if job.processing is not None and error is not None:
        job.processing.failed(error)


async def serve_one(handler: Handler, job: HeldJob) -> None:
    """Answer the request ``job`` with what ``handler`` returns or raises.

    A request that nobody waits for any more is dropped.
    """
    request = read_request(job)
    if request.deadline is not None and request.deadline < time.time():
        return
    status = OK
    try:
        body = await handler(job)
        if body is not None and not isinstance(body, str | bytes):
            raise TypeError(f"a handler returns bytes, str or None, not {type(body).__name__}")
    except Exception as error:
        _log.error("call failed", job=job.id, queue=job.queue, **_error())
        _trace_failure(job)
        status = ERROR
        body = f"{type(error).__name__}: {error}".removesuffix(": ")
    if request.reply_to is not None:
        await _answer(job, request, body or b"", status)


async def _answer(job: HeldJob, request: Request, body: Name, status: bytes) -> None:
    try:
        await job.ack_behind(request.answer(body, status, time.time()))
    except ReplyError as error:
        _log.warning("call not answered", job=job.id, queue=job.queue, error=str(error))
