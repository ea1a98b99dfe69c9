"""What a worker does with a job: it runs the task and settles the job."""

import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from disque_trio.client import Client, DisqueError, ReplyError, tracing
from disque_trio.client.jobs import Letter
from disque_trio.respclient.randomness import RANDOM
from disque_trio.respclient.values import Name
from disque_trio.tasks import groups, traces
from disque_trio.tasks.calling import Caller, Quit, Runaway, TimedOut
from disque_trio.tasks.core import Core
from disque_trio.tasks.current import CurrentJob, running
from disque_trio.tasks.definition import Definition
from disque_trio.tasks.errors import BadJob, Reject, Retry
from disque_trio.tasks.messages import (
    CONTENT_TYPE,
    DAY,
    ERROR_TYPE,
    PART,
    TASK,
    Result,
    Step,
    behind,
    decode_arguments,
    describe,
    reason_of,
    result_of,
    steps_of,
)
from disque_trio.tasks.serializers import Serializer

T = TypeVar("T")

Kind: TypeAlias = Literal["done", "retried", "dead", "postponed", "runaway", "lost"]
"""How a run ended.

- ``done``: the task returned, and the job is acknowledged.
- ``retried``: the task failed, and the job will be delivered again.
- ``dead``: the task failed for good, or this program cannot process the job.
- ``postponed``: the job waits for other jobs, and will be delivered again; no task has run.
- ``runaway``: a function goes on after its timeout and cannot be stopped, since it runs in a
  thread, blocks the asyncio loop or ignores its cancellation. The job is settled as ``retried``
  or ``dead``; the process should end.
- ``lost``: the job could not be settled, since no node was reached. It will be delivered again
  unless it has ended.
"""

MORE_CRASHES = 10
"""How many deliveries beyond its retries a job may have without a failure, because workers crashed
or stopped, before it is refused."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run of a job ended.

    Attributes:
        kind: see ``Kind``.
        task: the name of the task; empty if the job does not name one.
        seconds: how long it took.
        error: what went wrong, such as ``ValueError: no such address``; empty if nothing did.
        trace: the traceback of the task's exception; empty if it raised none, or an expected one.
    """

    kind: Kind
    task: str
    seconds: float
    error: str = ""
    trace: str = ""


class Held(Protocol):
    """The methods of ``HeldJob`` that its execution uses."""

    @property
    def id(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def nacks(self) -> int: ...
    @property
    def additional_deliveries(self) -> int: ...
    @property
    def header_pairs(self) -> tuple[tuple[str, bytes], ...]: ...
    @property
    def letter(self) -> Letter | None: ...
    @property
    def lost(self) -> bool: ...

    async def ack(self, result: Name | None = None) -> None: ...
    async def nack(self, *, delay: float | None = None, reason: Name | None = None) -> None: ...
    async def dead(self, *, reason: Name | None = None) -> None: ...
    def release(self) -> None: ...


class _Failed(Exception):
    """A run failed.

    Attributes:
        error: what went wrong.
        trace: the traceback.
        delay: seconds until the next attempt; None: according to the task's ``backoff``.
        final: whether not to try again.
        runaway: whether the function goes on.
    """

    def __init__(
        self,
        error: str,
        *,
        trace: str = "",
        delay: float | None = None,
        final: bool = False,
        runaway: bool = False,
    ) -> None:
        super().__init__(error)
        self.error = error
        self.trace = trace
        self.delay = delay
        self.final = final
        self.runaway = runaway


class Execution:
    """Runs the jobs of an app.

    Args:
        core: the core of the app.
        caller: calls the functions.
    """

    def __init__(self, core: Core, caller: Caller) -> None:
        self._core = core
        self._caller = caller

    async def run(self, job: Held) -> Outcome:
        """Run the task of a job, and settle the job; see ``Runner.run``."""
        began = time.monotonic()
        headers = _texts(job)
        task = headers.get(TASK, "")
        definition = self._core.tasks.get(task)
        kind: Kind = "done"
        error = trace = ""
        if task and (processing := tracing.current()) is not None:
            processing.describe("task", task)
        try:
            try:
                if task == groups.GROUP:
                    kind = await self._collect(job)
                else:
                    definition = self._known(task, definition)
                    await self._run(job, definition, headers)
            except _Failed as failure:
                error, trace = failure.error, failure.trace
                with self._caller.shielded():
                    kind = await self._fail(job, definition, failure)
        except DisqueError as problem:
            kind, error = "lost", error or describe(problem)
            job.release()  # otherwise its loop would acknowledge it
        return Outcome(kind, task, time.monotonic() - began, error, trace)

    async def _collect(self, job: Held) -> Kind:
        """Process a job that is a group. Raises _Failed."""
        try:
            is_done = await groups.Collection(self._core, job).visit()
        except BadJob as error:
            raise _Failed(str(error), final=True) from None
        except Exception as error:
            raise _Failed(describe(error)) from None
        return "done" if is_done else "postponed"

    def _known(self, task: str, definition: Definition | None) -> Definition:
        if definition is None:
            name = repr(task) if task else "the job names none"
            raise _Failed(f"unknown task: {name}", final=True)
        return definition

    async def _run(self, job: Held, definition: Definition, headers: Mapping[str, str]) -> None:
        """Run a task; acknowledge the job. Raises _Failed, DisqueError."""
        crashes = job.additional_deliveries
        if crashes > definition.retries + MORE_CRASHES:
            raise _Failed(f"{crashes} workers took it, and none finished it", final=True)
        try:
            serializer = definition.serializer
            if CONTENT_TYPE in headers:
                serializer = self._core.serializers.of(headers[CONTENT_TYPE])
            args, kwargs = decode_arguments(serializer, job.body)
            then = steps_of(job.header_pairs)
        except BadJob as error:
            raise _Failed(str(error), final=True) from None
        attempt = 1 + job.nacks + job.additional_deliveries
        current = CurrentJob(
            job.id, job.queue, definition.name, attempt, definition.retries, headers, job
        )
        with running(current):
            value = await self._call(job, definition, args, kwargs)
            with self._caller.shielded():
                try:
                    result = await self._follow(job, headers, serializer, value, then)
                except DisqueError as error:
                    raise _Failed(f"the next step was not added: {describe(error)}") from None
                except Exception as error:  # from a serializer
                    raise _Failed(describe(error), final=True) from None
                await job.ack(result.encode())

    async def _call(
        self, job: Held, definition: Definition, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call the function. Raises _Failed."""
        try:
            return await self._caller.call(definition, args, kwargs)
        except Retry as error:
            raise _Failed(f"Retry: {error}".removesuffix(": "), delay=error.delay) from None
        except Reject as error:
            raise _Failed(f"Reject: {error}".removesuffix(": "), final=True) from None
        except (TimedOut, Runaway) as error:
            runaway = isinstance(error, Runaway)
            raise _Failed(f"TimeoutError: {error}", runaway=runaway) from None
        except Exception as error:
            raised = error.__cause__ if isinstance(error, Quit) else error
            assert raised is not None
            if (processing := tracing.current()) is not None:
                processing.failed(raised)
            # Format it here: the logger's form, with all variables, would block the loop too long.
            trace = "".join(traceback.format_exception(raised))
            raise _Failed(describe(raised), trace=trace) from None

    async def _follow(
        self,
        job: Held,
        headers: Mapping[str, str],
        serializer: Serializer,
        value: Any,
        then: tuple[Step, ...],
    ) -> Result:
        """Add the steps after a job that is done, and return its result.

        The key of each added job follows from the id of this job, so that nothing is added twice if
        this job is delivered again.
        """
        part = headers.get(PART)
        trace = traces.current()
        if then:
            next, *rest = then
            step = behind(next, self._core.serializers.of(next.content_type), value, tuple(rest))
            key = f"then {job.id}"
            id = await self._with_client(
                lambda client: step.add(client, trace, key=key, kept=DAY, part=part)
            )
            return Result(next=id)
        result = result_of(serializer, value)
        if part is not None:
            await self._with_client(lambda client: groups.add_part(client, part, result, ""))
        return result

    async def _fail(self, job: Held, definition: Definition | None, failure: _Failed) -> Kind:
        """Settle a job that failed. Raises DisqueError."""
        reason = reason_of(failure.error)
        # A group has no definition: it is tried until it expires.
        backoff = (1.0, 60.0) if definition is None else definition.backoff
        if not failure.final and (definition is None or job.nacks < definition.retries):
            delay = pause(backoff, job.nacks) if failure.delay is None else failure.delay
            await job.nack(delay=delay, reason=reason)
            return "runaway" if failure.runaway else "retried"
        part = _texts(job).get(PART)
        left = Result(ERROR_TYPE, reason)
        if part is not None:
            await self._with_client(lambda client: groups.add_part(client, part, left, job.id))
        try:
            await job.dead(reason=reason)
        except ReplyError as error:
            if error.code != "NODEAD":
                raise
            # Its queue has no dead letters. At least whoever waits for the job learns the reason.
            await job.ack(left.encode())
        return "runaway" if failure.runaway else "dead"

    async def _with_client(self, function: Callable[[Client], Awaitable[T]]) -> T:
        return await self._core.link.run(function)


def pause(backoff: tuple[float, float], failures: int) -> float:
    """Return the seconds until the next attempt, after ``failures`` earlier failures."""
    shortest, longest = backoff
    wait = min(longest, shortest * 2.0 ** min(failures, 60))
    return min(longest, wait * RANDOM.uniform(0.75, 1.25))


def _texts(job: Held) -> dict[str, str]:
    """Return the first header of each name, without values that are not UTF-8."""
    texts: dict[str, str] = {}
    for name, value in job.header_pairs:
        try:
            texts.setdefault(name, value.decode())
        except UnicodeDecodeError:
            continue
    return texts
