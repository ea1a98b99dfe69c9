"""Tasks without nodes, for tests: each job runs where it is added."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import trio

from disque_trio.client import Client, Job, ReplyError
from disque_trio.client.job import Letter
from disque_trio.client.jobs import checked_progress
from disque_trio.client.nodes import Hello
from disque_trio.client.replies import Outcome, Record
from disque_trio.client.requests import pairs_of
from disque_trio.job_options import MAX_HEADERS_SIZE, Until
from disque_trio.respclient.delivery import Source
from disque_trio.respclient.foreign import in_async
from disque_trio.respclient.values import Name
from disque_trio.tasks.calling import Backend, InLoop, Quit
from disque_trio.tasks.core import Core
from disque_trio.tasks.definition import Definition
from disque_trio.tasks.errors import BadJob
from disque_trio.tasks.execution import Execution
from disque_trio.tasks.hooks import needs_loop
from disque_trio.tasks.looking import letter_id
from disque_trio.tasks.messages import (
    CONTENT_TYPE,
    TASK,
    Opened,
    Pair,
    decode_arguments,
)

T = TypeVar("T")

_MOST_VISITS = 100
"""How often a group may look for its members, which have already run by then."""

_following: "ContextVar[list[_Record] | None]" = ContextVar("disque_following", default=None)
"""Jobs that the settling of a job adds. They run after it, since a job within a job within a job
would need a large stack. None while a task runs: what it adds runs at once."""


@dataclass(slots=True)
class Added:
    """A job that was added in a test.

    Attributes:
        id, queue, task: the job's id, queue and task.
        args, kwargs: the arguments, serialized and deserialized again.
        headers: the headers, by name.
        options: the options of ADDJOB, named as in ``Client.add``, such as ``delay``.
        attempts: how often the job was run.
        progress: how far it was, as it said with ``CurrentJob.progress``.
        delays: the pauses between attempts, in seconds.
        state: the state, as WAITJOB reports it.
        error: what went wrong in the end; empty if nothing did.
        trace: the traceback of the last exception that the task raised.
    """

    id: str
    queue: str
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    headers: dict[str, str]
    options: dict[str, Any]
    attempts: int = 0
    progress: list[tuple[float, str]] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    state: str = "pending"
    error: str = ""
    trace: str = ""


@dataclass(slots=True)
class Jobs:
    """The jobs that were added in a test.

    Attributes:
        added: the jobs, in order, including groups and their members.
    """

    added: list[Added] = field(default_factory=list)

    def of(self, task: str) -> list[Added]:
        """Return the jobs of the task with this name, or with this last part of the name."""
        return [one for one in self.added if one.task == task or one.task.endswith(f".{task}")]


class _Record:
    """A job of a test, as its runner sees it.

    Args:
        shown: what the test sees of the job.
        body, header_pairs: the job's body and headers.
    """

    letter: Letter | None = None
    lost = False
    terminate = False
    additional_deliveries = 0

    def __init__(self, shown: Added, body: bytes, header_pairs: tuple[Pair, ...]) -> None:
        self.shown = shown
        self.body = body
        self.header_pairs = header_pairs
        self.nacks = 0
        self.goes_on = False
        self.started = False
        self.result: bytes | None = None

    @property
    def id(self) -> str:
        return self.shown.id

    @property
    def queue(self) -> str:
        return self.shown.queue

    async def last_reason(self) -> str:
        return ""

    async def ack(self, result: Name | None = None) -> None:
        self.shown.state = "acked"
        self.result = result.encode() if isinstance(result, str) else result

    async def nack(self, *, delay: float | None = None, reason: Name | None = None) -> None:
        self.nacks += 1
        self.shown.delays.append(delay or 0)

    async def dead(self, *, reason: Name | None = None) -> None:
        self.shown.state = "dead"

    async def update(self, *, body: Name) -> None:
        self.body = _data(body)

    def progress(self, fraction: float, text: str = "") -> None:
        self.shown.progress.append(checked_progress(fraction, text))

    def when_cancelled(self, call: Callable[[], object]) -> None: ...

    def drop(self) -> None: ...

    def detach(self, source: Source) -> None: ...

    def release(self) -> None:
        self.shown.state = "gone"

    def end(self) -> None: ...


class _Key(NamedTuple):
    """A key that a job has, or had.

    Attributes:
        stays: it is kept although the job has ended.
        until_start: until the job has started.
    """

    record: _Record
    stays: bool
    until_start: bool

    def is_taken(self) -> bool:
        """Whether the job has it now."""
        if self.stays:
            return True
        over = self.until_start and self.record.started
        return self.record.shown.state == "pending" and not over


class _InPlace:
    """Calls functions right here. Tests that are not async run without a loop, so that what their
    tasks add is added by a thread, as in a worker."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._in_loop = InLoop()

    async def call(
        self, definition: Definition, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        call = partial(self._in_loop.call, definition, args, kwargs)
        token = _following.set(None)
        try:
            if in_async():
                return await call()
            if not (definition.is_async or needs_loop(definition)):
                return definition.function(*args, **kwargs)
            return trio.run(call) if self._backend == "trio" else asyncio.run(call())
        except SystemExit as error:
            raise Quit from error
        except Quit as error:
            if isinstance(error.__cause__, KeyboardInterrupt):
                raise error.__cause__ from None  # Ctrl-C is meant for the tests
            raise
        finally:
            _following.reset(token)

    def wait(self, function: Callable[[], Any]) -> Any:
        return self._in_loop.wait(function)


class _Nodes:
    """Stands in for a client, with the methods that an app uses. Nothing in it waits."""

    def __init__(self, core: Core, jobs: Jobs, run: bool, backend: Backend) -> None:
        self._core = core
        self._jobs = jobs
        self._run = run
        self._execution = Execution(core, _InPlace(backend))
        self._records: dict[str, _Record] = {}
        self._keys: dict[tuple[str, Name], _Key] = {}
        self.schedules = self

    async def add(
        self,
        queue: str,
        body: bytes,
        *,
        headers: Any = None,
        unique: Name | None = None,
        unique_for: float | None = None,
        unique_until: Until | None = None,
        replace: bool = False,
        **options: Any,
    ) -> str:
        """Add a job; run it if it belongs to a task."""
        id = f"D-00000000-{len(self._records):024}-05a1"
        waiting: _Record | None = None
        known = None if unique is None else self._keys.get((queue, unique))
        if known is not None and known.is_taken():
            if not replace:
                return known.record.id
            if known.record.started:
                text = "The job that has the key was delivered, and keeps it"
                raise ReplyError("DELIVERED", text)
            waiting = known.record
            id = waiting.id
        pairs = tuple((str(name), _data(value)) for name, value in pairs_of(headers))
        if (
            size := sum(len(name.encode()) + len(value) for name, value in pairs)
        ) > MAX_HEADERS_SIZE:
            text = f"HEADERS are longer than {MAX_HEADERS_SIZE} bytes in total ({size})"
            raise ReplyError("ERR", text)
        texts = {name: value.decode("utf-8", "replace") for name, value in reversed(pairs)}
        args, kwargs = self._arguments(texts, body, pairs)
        shown = Added(id, queue, texts.get(TASK, ""), args, kwargs, texts, options)
        if waiting is not None:
            self._jobs.added = [one for one in self._jobs.added if one.id != id] + [shown]
            waiting.shown, waiting.body, waiting.header_pairs = shown, body, pairs
            return id
        record = self._records[id] = _Record(shown, body, pairs)
        if unique is not None:
            starts = replace or unique_until == "start"
            self._keys[queue, unique] = _Key(record, unique_for is not None, starts)
        if shown.task:
            self._jobs.added.append(shown)
            if self._run:
                following = _following.get()
                if following is None:
                    await self._finish(record)
                else:
                    following.append(record)
        return id

    def _arguments(
        self, headers: dict[str, str], body: bytes, pairs: tuple[Pair, ...]
    ) -> tuple[list[Any], dict[str, Any]]:
        try:
            arguments = Opened.of(body, pairs).body
            return decode_arguments(self._core.serializers.of(headers[CONTENT_TYPE]), arguments)
        except (BadJob, KeyError):
            return [], {}  # a group, or a part of one

    async def _finish(self, record: _Record) -> None:
        """Run a job, and those that follow it, until all have ended."""
        left = [(record, _MOST_VISITS)]
        while left:
            record, visits = left.pop()
            record.started = True
            shown = record.shown
            following: list[_Record] = []
            token = _following.set(following)
            try:
                outcome = await self._execution.run(record)
            finally:
                _following.reset(token)
            shown.attempts += outcome.kind != "postponed"
            shown.error, shown.trace = outcome.error, outcome.trace
            if shown.state == "pending" and visits > 1:
                left.append((record, visits - 1))
            left += [(one, _MOST_VISITS) for one in reversed(following)]

    async def add_many(
        self, queue: str, bodies: Sequence[bytes], *, unique: Any = None, **options: Any
    ) -> list[str]:
        """Add jobs."""
        keys = unique or [None] * len(bodies)
        return [
            await self.add(queue, body, unique=key, **options)
            for body, key in zip(bodies, keys, strict=True)
        ]

    async def wait(self, ids: str | Sequence[str], _: float | None = None) -> list[Outcome]:
        """Return how jobs have ended."""
        outcomes = []
        for id in [ids] if isinstance(ids, str) else ids:
            record = self._records.get(id)
            state = "gone" if record is None else record.shown.state
            outcomes.append(Outcome(id, state, None if record is None else record.result))
        return outcomes

    async def show(self, id: str) -> Record | None:
        """Return the job or the dead letter with this id."""
        if (one := self._records.get(id)) is not None and one.shown.state == "pending":
            pairs = [text for name, value in one.header_pairs for text in (name, value.decode())]
            said = one.shown.progress[-1:]
            about = {"progress": str(said[0][0]), "progress-text": said[0][1]} if said else {}
            return {"id": id, "body": one.body, "headers": pairs, **about}
        for record in self._records.values():
            if record.shown.state == "dead" and letter_id(record.id) == id:
                return {"dead-why": "refused", "dead-reason": record.shown.error}
        return None

    async def qpeek(self, queue: str, _: int) -> list[Job]:
        """Return pending jobs that belong to no task."""
        return await self.get(queue)

    async def hello(self) -> Hello:
        """There are no nodes."""
        return Hello(1, "", ())

    async def get(self, queue: str, **_: Any) -> list[Job]:
        """Return pending jobs that belong to no task."""
        return [
            Job(one.id, queue, one.body, header_pairs=one.header_pairs)
            for one in self._records.values()
            if one.queue == queue and one.shown.state == "pending" and not one.shown.task
        ]

    async def ack(self, *ids: str) -> None:
        """Acknowledge jobs."""
        for id in ids:
            self._records[id].shown.state = "acked"

    async def cancel(self, id: str, *, terminate: bool = False) -> None:
        """Cancel a job, unless it has ended."""
        if (record := self._records.get(id)) is not None and record.shown.state == "pending":
            record.shown.state = "cancelled"

    async def policy(self, queue: str) -> None:
        """No policy applies."""

    async def nack(self, *ids: str, **_: Any) -> None:
        """Do nothing: the jobs remain as they are."""

    async def set_policy(self, queue: str, **options: Any) -> None:
        """Do nothing: there are no policies."""

    async def all(self) -> list[Any]:
        """Return no schedules."""
        return []

    async def set(self, *_: Any, **options: Any) -> None:
        """Do nothing: there are no schedules."""


def _data(value: Name) -> bytes:
    return value.encode() if isinstance(value, str) else value


class _Link:
    """Runs functions with the stand-in for a client."""

    def __init__(self, nodes: _Nodes) -> None:
        self._client = cast(Client, nodes)

    async def run(self, function: Callable[[Client], Awaitable[T]]) -> T:
        return await function(self._client)

    def run_sync(self, function: Callable[[Client], Awaitable[T]]) -> T:
        # Nothing in it waits, so no loop is needed.
        steps = function(self._client).__await__()
        try:
            next(steps)
        except StopIteration as stop:
            value: T = stop.value
            return value
        raise RuntimeError("this needs an event loop, which a test that is not async lacks")


@contextmanager
def testing(core: Core, run: bool, backend: Backend) -> Iterator[Jobs]:
    """See ``Disque.testing``."""
    jobs = Jobs()
    with core.using(_Link(_Nodes(core, jobs, run, backend))):
        yield jobs
