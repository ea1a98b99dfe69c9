"""How the run of a job ended, and what a node is told about it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from disque_trio.client.job import Letter
from disque_trio.respclient.delivery import Source
from disque_trio.respclient.values import Name
from disque_trio.tasks.errors import MembersFailed

Kind: TypeAlias = Literal[
    "done", "retried", "dead", "postponed", "runaway", "repeated", "cancelled", "lost"
]
"""How a run ended.

- ``done``: the task returned, and the job is acknowledged.
- ``retried``: the task failed, and the job will be delivered again.
- ``dead``: the task failed for good, or this program cannot process the job.
- ``postponed``: the job waits for other jobs, and will be delivered again; no task has run.
- ``runaway``: a function goes on after its timeout and cannot be stopped, since it runs in a
  thread, blocks the asyncio loop or ignores its cancellation. The job is settled as ``retried``
  or ``dead``; the process should end.
- ``repeated``: the job came again although its task runs here, or has ended here and no node knew
  of that yet. It is settled as that run ends; no other task has run.
- ``cancelled``: the job was cancelled, and so was its task, before that had ended.
- ``lost``: a node refused to settle the job. It will be delivered again unless it has ended.

If no node is reached, the job is settled later; see ``Settling``.
"""


class Held(Protocol):
    """The methods of ``HeldJob`` that its execution uses.

    Attributes:
        goes_on: see ``HeldJob``.
    """

    goes_on: bool

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
    @property
    def terminate(self) -> bool: ...

    async def last_reason(self) -> str: ...
    async def ack(self, result: Name | None = None) -> None: ...
    async def nack(self, *, delay: float | None = None, reason: Name | None = None) -> None: ...
    async def dead(self, *, reason: Name | None = None) -> None: ...
    async def update(self, *, body: Name) -> None: ...
    def progress(self, fraction: float, text: str = "") -> None: ...
    def when_cancelled(self, call: Callable[[], object]) -> None: ...
    def drop(self) -> None: ...
    def detach(self, source: Source) -> None: ...
    def release(self) -> None: ...
    def end(self) -> None: ...


class JobCancelled(Exception):
    """The job was cancelled, and its task has ended because of that."""


class Failed(Exception):
    """A run failed.

    Attributes:
        error: what went wrong.
        trace: the traceback, as ``traceback_of`` makes it.
        raised: the exception, for the task's ``backoff``.
        delay: seconds until the next attempt; None: according to the task's ``backoff``.
        final: whether not to try again.
        runaway: whether the function goes on.
        crashed: whether a process that ran nothing else died.
        unknown: whether it is not the task that failed: the worker does not know it, or has no
            process that could run it.
        members: if it is a group: the members that failed, and how many there are.
    """

    def __init__(
        self,
        error: str,
        *,
        trace: str = "",
        raised: BaseException | None = None,
        delay: float | None = None,
        final: bool = False,
        runaway: bool = False,
        crashed: bool = False,
        unknown: bool = False,
        members: MembersFailed | None = None,
    ) -> None:
        super().__init__(error)
        self.error = error
        self.trace = trace
        self.raised = raised
        self.delay = delay
        self.final = final
        self.runaway = runaway
        self.crashed = crashed
        self.unknown = unknown
        self.members = members


@dataclass(frozen=True, slots=True)
class Ended:
    """How the run of a job ended.

    Attributes:
        kind: see ``Kind``.
        error: what went wrong, such as ``ValueError: no such address``; empty if nothing did.
    """

    kind: Kind
    error: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """What is left to do for a job whose task has ended.

    Attributes:
        ended: how it ended, if nodes agree.
        send: adds what follows the job and settles it; may be called again, also with the same job
            as it was delivered again. Returns how it ended; raises DisqueError.
        size: how much memory this takes, in bytes, roughly.
        delay: seconds until the next attempt; None if there will be none.
    """

    ended: Ended
    send: Callable[[Held], Awaitable[Ended]]
    size: int
    delay: float | None = None
