"""What becomes of a job that a worker has: its task is run, and the job settled."""

import random
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from disque_trio.client import Client, DisqueError, ReplyError, tracing
from disque_trio.client.jobs import Letter
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
- ``retried``: it failed, and comes again.
- ``dead``: it failed for good, or nobody here can do it.
- ``postponed``: it has to wait for other jobs, and comes again; no task has run.
- ``runaway``: a function goes on after its timeout, in a thread, which cannot be stopped, or as it
  blocks the loop of asyncio or takes no notice of its cancellation. The job is settled, as
  ``retried`` or ``dead``; the process should end.
- ``lost``: the job could not be settled, as no node was reached; it comes again where it has not
  ended.
"""

MORE_CRASHES = 10
"""So many more times than it has retries a job may be given back without a failure, since workers
died of it or stopped, before it is refused."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run of a job ended.

    Attributes:
        kind: see ``Kind``.
        task: name of the task; empty if the job does not say.
        seconds: that it took.
        error: what went wrong, as ``ValueError: no such address``; empty: nothing.
        trace: the traceback of what the task raised; empty: it raised nothing unexpected.
    """

    kind: Kind
    task: str
    seconds: float
    error: str = ""
    trace: str = ""


class Held(Protocol):
    """What a ``HeldJob`` is to its execution."""

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
        error: how. trace: where. delay: until it is tried again, s; None: as its task says.
        final: it is not tried again. runaway: a thread goes on.
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
        core: of the app.
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
            job.release()  # or its loop would acknowledge it
        return Outcome(kind, task, time.monotonic() - began, error, trace)

    async def _collect(self, job: Held) -> Kind:
        """Look after a group. Raises _Failed."""
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
            raise _Failed(f"{crashes} workers had it, and none came to an end", final=True)
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
                    raise _Failed(f"what follows was not added: {describe(error)}") from None
                except Exception as error:  # of a serializer
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
            # As a text: to make one with all variables takes some a second of the loop.
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
        """Add what comes after a job that is done; returns what it leaves. Whatever is added has a
        key that follows from the job's id, so that it is the same when the job comes again."""
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
        # Groups have none: they are tried until they expire.
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
            # Its queue has no dead letters: then at least who waits for it gets to know.
            await job.ack(left.encode())
        return "runaway" if failure.runaway else "dead"

    async def _with_client(self, function: Callable[[Client], Awaitable[T]]) -> T:
        return await self._core.link.run(function)


def pause(backoff: tuple[float, float], failures: int) -> float:
    """Seconds until a job is tried again that failed so often before."""
    shortest, longest = backoff
    wait = min(longest, shortest * 2.0 ** min(failures, 60))
    return min(longest, wait * random.uniform(0.75, 1.25))


def _texts(job: Held) -> dict[str, str]:
    """The headers of a job, the first of each name; those that are not UTF-8 are left out."""
    texts: dict[str, str] = {}
    for name, value in job.header_pairs:
        try:
            texts.setdefault(name, value.decode())
        except UnicodeDecodeError:
            continue
    return texts
