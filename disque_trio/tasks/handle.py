"""Handles of jobs that were added, and their results."""

import time
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, Literal, Self, TypeAlias, TypeVar, overload

from disque_trio.client import Client
from disque_trio.client.replies import Outcome
from disque_trio.respclient.foreign import in_async
from disque_trio.tasks.core import Core, Later
from disque_trio.tasks.errors import ResultGone, TaskFailed
from disque_trio.tasks.looking import (
    AT_ONCE,
    MOST_IDS,
    TaskProgress,
    WorkflowStatus,
    last,
    progress,
    status,
    stored,
    why,
)
from disque_trio.tasks.messages import ERROR_TYPE, STORED_TYPE, Result, split_error
from disque_trio.tasks.serializers import Serializers
from disque_trio.tasks.waiting import why_pending

R = TypeVar("R")

State: TypeAlias = Literal["pending", "done", "failed", "expired", "cancelled", "gone"]
"""The state of a job: ``pending`` until it has ended; ``gone`` if nothing is known of it."""

_STATES: dict[str, State] = {
    "acked": "done",
    "dead": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
    "gone": "gone",
    "pending": "pending",
}


_KEPT: Final = 'nodes keep results for a minute (result-ttl); results="store" keeps them for a day'


class Handle(Generic[R]):
    """A job that was added. In a task of Trio or asyncio, awaiting the handle adds the job:
    ``handle = await send_mail.add("a@b.org")``.

    Tasks await ``result`` and ``state``; threads call ``get`` and ``get_state``. If other jobs
    follow this one (``then``), these return the result and state of the last one.

    Args:
        core: the core of the app.
        adding: the id, or the operation that returns it.
    """

    def __init__(self, core: Core, adding: "Later[str] | str") -> None:
        self._core = core
        self._adding = adding

    def __repr__(self) -> str:
        adding = self._adding
        if isinstance(adding, str):
            return f"<Handle {adding}>"
        return f"<Handle {adding.value}>" if adding.done else "<Handle, not added yet>"

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._added().__await__()

    async def _added(self) -> Self:
        if not isinstance(self._adding, str):
            await self._adding
        return self

    @property
    def id(self) -> str:
        """The id of the job. Raises RuntimeError if the handle has to be awaited first."""
        return self._adding if isinstance(self._adding, str) else self._adding.value

    async def result(self, timeout: float | None = None) -> R:
        """Wait until the job has ended, and return what its task returned.

        Args:
            timeout: seconds to wait; None waits forever.

        Raises:
            TaskFailed: the job failed for good, expired or was cancelled.
            TimeoutError: the job has not ended in time.
            ResultGone: the job ended so long ago that its result is no longer kept.
            ValueError: the result is in a format that the app does not know.
            DisqueError: as for ``Client.wait``; and as for ``add``, if the job was not added yet.
        """
        await self
        return await self._core.link.run(lambda client: self._wait(client, timeout))

    def get(self, timeout: float | None = None) -> R:
        """Like ``result``, for threads. Raises RuntimeError in a task, which it would block."""
        _only_in_threads("result")
        return self._core.link.run_sync(lambda client: self._wait(client, timeout))

    async def state(self) -> State:
        """Return the state of the job. Raises DisqueError."""
        await self
        return await self._core.link.run(self._state)

    def get_state(self) -> State:
        """Like ``state``, for threads. Raises DisqueError, and RuntimeError in a task."""
        _only_in_threads("state")
        return self._core.link.run_sync(self._state)

    def cancel(self, *, terminate: bool = False) -> Later[None]:
        """End the job, so that no worker gets it any more. If its task runs, it is cancelled: a
        worker hears of it at once. Of jobs that follow one another, this ends the current one.

        Blocks in a thread; in a task of Trio or asyncio, await it. Does nothing if the job has
        ended. Raises DisqueError.

        Args:
            terminate: if the task runs in a process of its own (``process=True``), end that
                process. For other tasks this makes no difference.
        """
        return Later(self._core, partial(self._cancel, terminate), "the cancellation")

    async def _cancel(self, terminate: bool, client: Client) -> None:
        await self._added()
        outcome = await last(client, self._core.elsewhere, self.id)
        await client.cancel(outcome.id, terminate=terminate)

    async def status(self) -> WorkflowStatus | None:
        """Return how many members of a group have ended, and which have failed. In a chain, this is
        the group that it is at, or the last one before. None: there is none, or it ended more than
        a minute ago, and results are not stored. Raises DisqueError."""
        await self
        return await self._core.link.run(self._status)

    def get_status(self) -> WorkflowStatus | None:
        """Like ``status``, for threads. Raises DisqueError, and RuntimeError in a task."""
        _only_in_threads("status")
        return self._core.link.run_sync(self._status)

    async def progress(self) -> TaskProgress | None:
        """Return what the task has said with ``CurrentJob.progress``; None: nothing, or it does not
        run. In a chain, this is the task that runs. Raises DisqueError."""
        await self
        return await self._core.link.run(self._progress)

    def get_progress(self) -> TaskProgress | None:
        """Like ``progress``, for threads. Raises DisqueError, and RuntimeError in a task."""
        _only_in_threads("progress")
        return self._core.link.run_sync(self._progress)

    async def _progress(self, client: Client) -> TaskProgress | None:
        return await progress(client, self._core.elsewhere, self.id)

    async def _status(self, client: Client) -> WorkflowStatus | None:
        return await status(client, self._core.elsewhere, self.id, self._core.may_store)

    async def _wait(self, client: Client, seconds: float | None) -> R:
        value: R = await result_of(client, self._core, self.id, seconds)
        return value

    async def _state(self, client: Client) -> State:
        id = self.id
        while True:
            outcome = await last(client, self._core.elsewhere, id)
            result = await _left_by(client, self._core, outcome, AT_ONCE)
            if result is None:
                return _STATES[outcome.state]
            if result.next is None:
                return "failed" if result.content_type == ERROR_TYPE else "done"
            id = result.next


class Handles(Sequence[Handle[R]], Generic[R]):
    """Jobs that were added together, as a sequence of handles. In a task of Trio or asyncio,
    awaiting it adds the jobs.

    Args:
        core: the core of the app.
        adding: the operation that returns the ids.
    """

    def __init__(self, core: Core, adding: Later[list[str]]) -> None:
        self._core = core
        self._adding = adding

    def __repr__(self) -> str:
        adding = self._adding
        return f"<{len(adding.value)} handles>" if adding.done else "<Handles, not added yet>"

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._added().__await__()

    async def _added(self) -> Self:
        await self._adding
        return self

    @overload
    def __getitem__(self, index: int) -> Handle[R]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Handle[R]]: ...
    def __getitem__(self, index: int | slice) -> Handle[R] | list[Handle[R]]:
        ids = self._adding.value
        if isinstance(index, slice):
            return [Handle(self._core, id) for id in ids[index]]
        return Handle(self._core, ids[index])

    def __iter__(self) -> Iterator[Handle[R]]:
        return iter(self[:])

    def __len__(self) -> int:
        return len(self._adding.value)

    async def results(self, timeout: float | None = None) -> list[R]:
        """Return the results of all jobs, in order. Arguments and errors are those of
        ``Handle.result``; if several jobs failed, the first error is raised."""
        await self
        return await self._core.link.run(lambda client: self._wait(client, timeout))

    def get(self, timeout: float | None = None) -> list[R]:
        """Like ``results``, for threads. Raises RuntimeError in a task."""
        _only_in_threads("results")
        return self._core.link.run_sync(lambda client: self._wait(client, timeout))

    async def _wait(self, client: Client, seconds: float | None) -> list[R]:
        until = None if seconds is None else time.monotonic() + seconds
        ids = self._adding.value
        values: list[R] = []
        for first in range(0, len(ids), MOST_IDS):
            # One command for many ids: waiting for each by itself would take a connection each.
            outcomes = await client.wait(ids[first : first + MOST_IDS], _left(until))
            values += [await _value(client, self._core, outcome, until) for outcome in outcomes]
        return values


def _only_in_threads(instead: str) -> None:
    if in_async():
        raise RuntimeError(f"this would block the loop: await the handle's {instead}()")


def _left(until: float | None) -> float | None:
    return None if until is None else max(AT_ONCE, until - time.monotonic())


async def result_of(client: Client, core: Core, id: str, seconds: float | None) -> Any:
    """Return the result of a job, or of the last one that follows it; see ``Handle.result``."""
    until = None if seconds is None else time.monotonic() + seconds
    [outcome] = await client.wait(id, _left(until))
    return await _value(client, core, outcome, until)


async def _value(client: Client, core: Core, outcome: Outcome, until: float | None) -> Any:
    """Return the result that ``outcome`` leads to. Raises the exceptions of ``Handle.result``."""
    while (result := await _left_by(client, core, outcome, _left(until))) is not None:
        if result.next is None:
            if result.content_type == ERROR_TYPE:
                raise TaskFailed(outcome.id, *split_error(result.data.decode("utf-8", "replace")))
            return value_of(result, core.serializers)
        [outcome] = await client.wait(result.next, _left(until))
    id = outcome.id
    if outcome.state == "pending":
        holds_up = await why_pending(client, id)
        text = f"the job {id} did not end in time"
        raise TimeoutError(f"{text}: {holds_up}" if holds_up else text)
    if outcome.state == "acked":
        raise ResultGone(f"the job {id} is done, but its result is no longer kept: {_KEPT}")
    if outcome.state == "gone":
        raise ResultGone(f"nothing is known about the job {id} any more: {_KEPT}")
    if outcome.state == "dead":
        raise TaskFailed(id, *split_error(await why(client, id)))
    raise TaskFailed(id, "", f"the job {'was ' * (outcome.state == 'cancelled')}{outcome.state}")


async def _left_by(
    client: Client, core: Core, outcome: Outcome, seconds: float | None
) -> Result | None:
    """Return the result that a job has left; None: it has not ended well, or its result is gone."""
    if outcome.state == "acked" and outcome.result is not None:
        result = Result.decode(outcome.result)
        if result.content_type != STORED_TYPE:
            return result
    elif outcome.state not in ("acked", "gone") or not core.may_store:
        return None
    return await stored(client, core.elsewhere, outcome.id, seconds)


def value_of(result: Result, serializers: Serializers) -> Any:
    """Decode a result. Raises BadJob if its content type is unknown."""
    if not result.content_type:
        return None
    return serializers.of(result.content_type).loads(result.data)
