"""What a worker does with a job: it runs the task and settles the job."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from disque_trio.client import Client, DisqueError, ReplyError, tracing
from disque_trio.job_past import NOTHING, Past, with_trace
from disque_trio.respclient.concurrency import library
from disque_trio.respclient.foreign import in_async, in_thread
from disque_trio.respclient.log import library_log
from disque_trio.tasks import groups, traces
from disque_trio.tasks.calling import CallerApart, CallerHere, Quit, call
from disque_trio.tasks.core import Core
from disque_trio.tasks.current import CurrentJob, running
from disque_trio.tasks.definition import DEFAULT_BACKOFF, Backoff, Definition
from disque_trio.tasks.depends import needs_of
from disque_trio.tasks.ending import Ended, Ending, Failed, Held, JobCancelled, Kind
from disque_trio.tasks.errors import BadJob, BucketFailed, MembersFailed, Retry
from disque_trio.tasks.hooks import Failure, Running, around
from disque_trio.tasks.looking import store
from disque_trio.tasks.members import GROUP, as_told, behind
from disque_trio.tasks.messages import (
    DAY,
    ERROR_TYPE,
    PART,
    STORED_TYPE,
    TASK,
    Opened,
    Result,
    Step,
    decode_arguments,
    describe,
    reason_of,
    result_of,
    split_error,
)
from disque_trio.tasks.retrying import of_job, pause_of
from disque_trio.tasks.serializers import Serializer
from disque_trio.tasks.settling import PASSING, Log, Settling

T = TypeVar("T")

_UNREADABLE: Final = Opened(b"")
"""Stands for a job that cannot be read."""

MORE_CRASHES = 10
"""How many deliveries beyond its retries a job may have without any NACK, since nobody was there to
say what became of its workers, before it is refused."""


UNKNOWN_RETRIES = 20
"""How often a job whose task nobody knows is tried again: with pauses of up to a minute, for a
quarter of an hour. In a rolling deploy, a worker with newer code takes it meanwhile."""

_MOST_TOLD = 100
"""How many names of tasks the log gets."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run of a job ended.

    Attributes:
        kind: see ``Kind``. If the job is not settled yet, how it ends once it is.
        task: the name of the task; empty if the job does not name one.
        seconds: how long it took.
        error: what went wrong, such as ``ValueError: no such address``; empty if nothing did.
        failed: of a run that failed, what more there is to say of that.
    """

    kind: Kind
    task: str
    seconds: float
    error: str = ""
    failed: "FailedRun | None" = None

    @property
    def trace(self) -> str:
        """The traceback of the task's exception; empty if it raised none, or an expected one."""
        return "" if self.failed is None else self.failed.trace


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that failed.

    Attributes:
        attempt: the number of the attempt. Runs that ended with their worker are not counted.
        most: how many attempts there may be; None: that is not known.
        next_in: the seconds until the next one; None if there will be none.
        trace: see ``Failed``.
        is_expected: whether nobody has to look at it: the task has asked to be tried again, or a
            worker that knows it may take the job.
    """

    attempt: int
    most: int | None
    next_in: float | None
    trace: str
    is_expected: bool


@dataclass(frozen=True, slots=True)
class _Given:
    """What a job brings: its headers, what is in its body, and what it has been through."""

    headers: Mapping[str, str]
    opened: Opened
    past: Past = NOTHING


class Execution:
    """Runs the jobs of an app.

    Args:
        core: the core of the app.
        caller: calls the functions.
        settling: settles the jobs; None: each is settled at once.
        apart: runs tasks with ``process=True`` and those of suspects, each in a process of its own;
            None: they run as the others.
        log: where to say that a task is unknown; None: structlog's.
    """

    def __init__(
        self,
        core: Core,
        caller: CallerHere,
        settling: Settling | None = None,
        apart: CallerApart | None = None,
        log: Log | None = None,
    ) -> None:
        self._core = core
        self._caller = caller
        self._apart = apart
        self._settling = settling
        self._log: Log = log or library_log("disque.tasks")
        self._unknown: set[str] = set()

    async def run(self, job: Held) -> Outcome:
        """Run the task of a job, and settle the job; see ``Runner.run``."""
        began = time.monotonic()
        headers = _texts(job)
        task = headers.get(TASK, "")
        if self._settling is None:
            return await self._process(job, headers, began)
        if await self._settling.again(job):
            return Outcome("repeated", task, time.monotonic() - began)
        with self._settling.running(job):
            return await self._process(job, headers, began)

    async def _process(self, job: Held, headers: Mapping[str, str], began: float) -> Outcome:
        task = headers.get(TASK, "")
        definition = self._core.tasks.get(task)
        ended = Ended("done")
        failed: FailedRun | None = None
        if task and (processing := tracing.current()) is not None:
            processing.describe("task", task)
        given = _Given(headers, _UNREADABLE)
        try:
            opened = _opened(job)
            if task == GROUP:
                given = _Given(headers, opened)
                ended = await self._collect(job, given)
            else:
                past = Past.read(await job.last_reason()) if job.nacks else NOTHING
                given = _Given(headers, opened, past)
                definition = self._known(task, definition, headers)
                ended = await self._run(job, definition, given)
        except JobCancelled:
            job.drop()
            ended = Ended("cancelled")
        except Failed as failure:
            ending = self._failed(job, definition, given, failure)
            failed = _failed_run(job, definition, given.past, failure, ending.delay)
            if self._core.hooks.events and task != GROUP:
                await self._tell_failure(job, definition, headers, failure, ending.delay)
            ended = await self._settle(job, ending)
        return Outcome(ended.kind, task, time.monotonic() - began, ended.error, failed)

    async def _settle(self, job: Held, ending: Ending) -> Ended:
        if self._settling is not None:
            return await self._settling.settle(job, ending)
        try:
            return await ending.send(job)
        except DisqueError as problem:
            job.release()  # otherwise its loop would acknowledge it
            return Ended("lost", ending.ended.error or describe(problem))

    async def _collect(self, job: Held, given: _Given) -> Ended:
        """Process a job that is a group. Raises Failed."""
        try:
            found = await groups.Collection(self._core, job, given.opened.body).visit()
            if found is None:
                return Ended("postponed")
            serializer = self._core.serializers.of(found.content_type)
            result = Result(members=found.members)
            done = self._done(None, given, serializer, found.values, result, found.id)
        except MembersFailed as error:
            raise Failed(str(error), final=True, members=error) from None
        except BadJob as error:
            raise Failed(str(error), final=True) from None
        except DisqueError as error:
            # Most NACKs of a group were no failures, so its backoff would begin with a minute.
            raise Failed(describe(error), delay=groups.pause_after(job.nacks)) from None
        except Exception as error:
            raise Failed(describe(error)) from None

        async def send(job: Held) -> Ended:
            ended = await done.send(job)
            if ended.kind == "done" and found.parts:
                await self._with_client(lambda client: client.ack(*found.parts))
            return ended

        return await self._settle(job, replace(done, send=send))

    def _known(
        self, task: str, definition: Definition | None, headers: Mapping[str, str]
    ) -> Definition:
        """Return the definition for a job. Raises Failed."""
        if definition is None:
            if not task:
                raise Failed("unknown task: the job names none", final=True)
            self._tell_unknown(task)
            # Perhaps a worker with newer code knows it, or this one does after its restart.
            raise Failed(f"unknown task: {task!r}", unknown=True)
        try:
            return of_job(definition, headers)
        except BadJob as error:
            raise Failed(str(error), final=True) from None

    async def _tell(self, event: str, *said: object) -> None:
        """Call the hooks for an event. What they raise is logged."""
        for hook in self._core.hooks.called(event):
            try:
                await self._caller.call(hook, said, {})
            except Exception as error:
                raised = error.__cause__ if isinstance(error, Quit) else error
                name = getattr(hook.function, "__qualname__", repr(hook.function))
                text = describe(raised or error)
                self._log.warning("hook failed", event_name=event, hook=name, error=text)

    async def _tell_failure(
        self,
        job: Held,
        definition: Definition | None,
        headers: Mapping[str, str],
        failure: Failed,
        delay: float | None,
    ) -> None:
        current = _current(job, definition, headers)
        said = Failure(failure.error, failure.raised, delay)
        with running(current):
            await self._tell("failure", current, said)
            if delay is None:
                await self._tell("death", current, said)

    async def shutdown(self) -> None:
        """Call the hooks for the end of a process."""
        await self._tell("shutdown")

    def _tell_unknown(self, task: str) -> None:
        """Say, once, that jobs of this task come although the program has no such task."""
        if task not in self._unknown and len(self._unknown) < _MOST_TOLD:
            self._unknown.add(task)
            text = "unknown task: its jobs are tried again for a quarter of an hour"
            self._log.warning(text, task=task, known=sorted(self._core.tasks)[:_MOST_TOLD])

    async def _run(self, job: Held, definition: Definition, given: _Given) -> Ended:
        """Run a task; acknowledge the job. Raises Failed."""
        headers, past = given.headers, given.past
        if past.is_guilty or (past.said and job.nacks - past.returned > definition.retries):
            raise Failed(past.said, final=True)
        crashes = job.additional_deliveries
        if crashes > definition.retries + MORE_CRASHES:
            raise Failed(f"{crashes} workers took it, and none finished it", final=True)
        try:
            serializer = self._core.serializer_of(definition, headers)
        except BadJob as error:
            raise Failed(str(error), final=True) from None
        blocks = getattr(serializer, "blocks", False) and in_async()
        body = given.opened.body
        current = _current(job, definition, headers)
        hooks = self._core.hooks
        apart = self._apart if definition.process or past.is_suspect else None
        args, kwargs = ([], {}) if apart else await _arguments(serializer, body, blocks)
        with running(current):
            if hooks.events:
                await self._tell("start", current)
            if apart is not None:
                value = await apart.run(job, current, definition, body, alone=past.is_suspect)
            else:
                value = await self._call(job, current, definition, args, kwargs)
            if hooks.events:
                await self._tell("success", current, value)
            try:
                done = partial(self._done, definition, given, serializer, value, Result(), job.id)
                ending = await in_thread(done) if blocks else done()
            except Exception as error:  # from a serializer
                final = not isinstance(error, BucketFailed)
                raise Failed(describe(error), raised=error, final=final) from None
            return await self._settle(job, ending)

    async def _call(
        self,
        job: Held,
        current: CurrentJob,
        definition: Definition,
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call the function of a task here. Raises Failed, JobCancelled."""
        called, hooks = definition, self._core.hooks
        if hooks.runs or needs_of(definition.function):
            run = Running(current, args, kwargs)
            called = around(hooks, definition, run, self._caller.wait)
        calling = call(self._caller, called, args, kwargs)
        # A function in a thread goes on: it can ask whether its job is lost.
        if called.is_async and in_async():
            return await _unless_cancelled(job, calling)
        return await calling

    def _done(
        self,
        definition: Definition | None,
        given: _Given,
        serializer: Serializer,
        value: Any,
        empty: Result,
        id: str,
    ) -> Ending:
        """Return what is left to do for a job that has ended with ``value``: add the step after it,
        or a part of its group, and acknowledge it with its result.

        The key of each added job follows from the id of this job, so that nothing is added twice if
        this is done again. Raises BadJob, TypeError, ValueError.

        Args:
            definition: the task; None: it is a group.
            empty: the result without its value.
            id: the id from which keys are made.
        """
        part, opened = given.headers.get(PART), given.opened
        trace = traces.current()
        step: Step | None = None
        result = empty
        if opened.then:
            next, *rest = opened.then
            step = behind(self._core, next, value)
            error = next.on_error or opened.on_error
            step = replace(step, then=tuple(rest), on_error=error)
        else:
            name = "a group" if definition is None else definition.name
            result = result_of(serializer, value, empty, name, self._core.stores(definition))

        async def follow(job: Held) -> Result:
            result = await add(job)
            if not self._core.stores(definition):
                return result
            await self._store(job, definition, result)
            return result if result.next is not None else replace(empty, content_type=STORED_TYPE)

        async def add(job: Held) -> Result:
            if step is not None:
                key = f"then {id}"
                next = await self._with_client(
                    lambda client: step.add(client, trace, key=key, kept=DAY, part=part)
                )
                return replace(empty, next=next)
            if part is not None:
                await self._with_client(lambda client: groups.add_part(client, part, result, ""))
            return result

        async def send(job: Held) -> Ended:
            try:
                left = await follow(job)
            except PASSING:
                raise
            except Exception as error:
                refused = isinstance(error, DisqueError)
                text = f"the next step was not added: {describe(error)}"
                failure = Failed(text if refused else describe(error), final=not refused)
                return await self._failed(job, definition, given, failure).send(job)
            await job.ack(left.encode())
            return Ended("done")

        return Ending(Ended("done"), send, len(step.body if step is not None else result.data))

    def _failed(
        self, job: Held, definition: Definition | None, given: _Given, failure: Failed
    ) -> Ending:
        """Return what is left to do for a job that failed: it is given back or refused."""
        past, final, delay = given.past, failure.final, failure.delay
        if failure.unknown:
            past, final = past.postponed(failure.error), final or job.nacks >= UNKNOWN_RETRIES
        failures = job.nacks - given.past.returned
        if failure.crashed:
            past = past.crashed(failure.error, alone=True)
            final, delay = past.is_guilty, past.pause
        # A group has no options of its own, and those of a task that cannot run here do not count.
        options = None if failure.unknown else definition
        backoff: Backoff = (1.0, 60.0) if options is None else options.backoff
        allowed = options is None or failures < options.retries or failure.crashed
        if not final and allowed:
            wrong = ""
            if delay is None:
                times = job.nacks if options is None else failures
                delay, wrong = pause_of(backoff, times, failure.raised or failure)
            error = f"{failure.error} ({wrong})" if wrong else failure.error
            again = past.reason(with_trace(error, failure.trace))
            retried = Ended("runaway" if failure.runaway else "retried", error)

            async def give_back(job: Held) -> Ended:
                await job.nack(delay=delay, reason=again)
                return retried

            return Ending(retried, give_back, len(again), delay)
        reason = reason_of(failure.error)
        dead = Ended("runaway" if failure.runaway else "dead", failure.error)
        part = given.headers.get(PART)
        left = Result(ERROR_TYPE, reason)
        reason = reason_of(with_trace(failure.error, failure.trace))
        trace = traces.current()
        task = given.headers.get(TASK, "")

        async def refuse(job: Held) -> Ended:
            if (told := self._told(job, task, given.opened.on_error, failure)) is not None:
                await self._with_client(
                    lambda client: told.add(client, trace, key=f"error {job.id}", kept=DAY)
                )
            if self._core.stores(definition):
                await self._store(job, definition, left)
            if part is not None:
                await self._with_client(lambda client: groups.add_part(client, part, left, job.id))
            try:
                await job.dead(reason=reason)
            except ReplyError as error:
                if error.code != "NODEAD":
                    raise
                # Its queue has no dead letters. At least whoever waits for the job learns why.
                await job.ack(left.encode())
            return dead

        return Ending(dead, refuse, len(reason))

    def _told(self, job: Held, task: str, step: Step | None, failure: Failed) -> Step | None:
        """Return the job that is told about a failure, if there is to be one."""
        if step is None:
            return None
        name, text = split_error(failure.error)
        about: dict[str, Any] = {
            "id": job.id,
            "task": task,
            "queue": job.queue,
            "type": name,
            "text": text,
        }
        if failure.members is not None:
            about |= as_told(failure.members.failed, failure.members.total)
        return behind(self._core, step, about)

    async def _store(self, job: Held, definition: Definition | None, result: Result) -> None:
        copies = None if definition is None else definition.options.get("replicate")
        await self._with_client(lambda client: store(client, job.id, result, copies))

    async def _with_client(self, function: Callable[[Client], Awaitable[T]]) -> T:
        return await self._core.link.run(function)


def _opened(job: Held) -> Opened:
    """Read a job. Raises Failed."""
    try:
        return Opened.of(job.body, job.header_pairs)
    except BadJob as error:
        raise Failed(str(error), final=True) from None


def _current(job: Held, definition: Definition | None, headers: Mapping[str, str]) -> CurrentJob:
    return CurrentJob(
        job.id,
        job.queue,
        headers.get(TASK, ""),
        1 + job.nacks + job.additional_deliveries,
        0 if definition is None else definition.retries,
        headers,
        job,
        DEFAULT_BACKOFF if definition is None else definition.backoff,
    )


def _failed_run(
    job: Held, definition: Definition | None, past: Past, failure: Failed, next_in: float | None
) -> FailedRun:
    most = None if definition is None or failure.unknown else definition.retries + 1
    expected = failure.unknown or isinstance(failure.raised, Retry)
    return FailedRun(
        1 + job.nacks - past.returned,
        most,
        next_in,
        failure.trace,
        expected and next_in is not None,
    )


async def _arguments(
    serializer: Serializer, body: bytes, blocks: bool
) -> tuple[list[Any], dict[str, Any]]:
    """Read the arguments of a job; in a thread if the serializer ``blocks``. Raises Failed."""
    decode = partial(arguments_of, serializer, body)
    return await in_thread(decode) if blocks else decode()


def arguments_of(serializer: Serializer, body: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Read the arguments of a job. Raises Failed."""
    try:
        return decode_arguments(serializer, body)
    except BadJob as error:
        raise Failed(str(error), final=True) from None
    except BucketFailed as error:
        raise Failed(describe(error), raised=error) from None


async def _unless_cancelled(job: Held, calling: Awaitable[T]) -> T:
    """Await ``calling``, and return its result. Raises JobCancelled if the job was cancelled
    before."""
    with library().CancelScope() as scope:
        job.when_cancelled(scope.cancel)
        return await calling
    raise JobCancelled


def _texts(job: Held) -> dict[str, str]:
    """Return the first header of each name, without values that are not UTF-8."""
    texts: dict[str, str] = {}
    for name, value in job.header_pairs:
        try:
            texts.setdefault(name, value.decode())
        except UnicodeDecodeError:
            continue
    return texts
