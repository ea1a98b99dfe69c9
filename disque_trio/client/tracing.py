"""What a client tells whoever traces it: that jobs are sent, received and processed.

No library is known here. ``disque_trio.otel`` sets ``tracer``; while nobody does, nothing is told.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeAlias, TypeVar

from disque_trio.resp.command import Argument
from disque_trio.respclient.addresses import Address
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import NoExtError, ReplyError
from disque_trio.respclient.values import Name

R = TypeVar("R")

Pairs: TypeAlias = Sequence[tuple[Name, Name]]
"""Headers of a job: names and values."""


class Received(Protocol):
    """What is read of a job that was delivered."""

    @property
    def id(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def nacks(self) -> int: ...
    @property
    def additional_deliveries(self) -> int: ...
    @property
    def header_pairs(self) -> tuple[tuple[str, bytes], ...]: ...


class Sending(Protocol):
    """Jobs that are being added.

    Attributes:
        more: for each job the headers that it gets besides its own.
    """

    more: Sequence[Pairs]

    def answered(self, replies: Sequence[Reply]) -> None:
        """Say what the node has answered, errors included."""


class Processing(Protocol):
    """A job that is being processed."""

    def activate(self) -> None:
        """Let what this task or thread does from now on belong to the job."""

    def leave(self) -> None:
        """Undo ``activate``, where this is the same task or thread."""

    def describe(self, name: str, value: str | int) -> None:
        """Say more of the job: ``task``, for example."""

    def failed(self, error: BaseException) -> None:
        """Say that its handler has raised an exception."""

    def end(self, outcome: str, reason: Name | None = None) -> None:
        """Say what became of it: ``ack``, ``nack``, ``dead``, ``requeue``, ``release``, ``lost``;
        and why. Leaves it, too. Does nothing the second time."""


class Tracer(Protocol):
    """Whoever traces clients."""

    def sending(
        self, queues: Sequence[Name], headers: Sequence[Pairs], address: Address | None, batch: bool
    ) -> AbstractContextManager[Sending]:
        """Jobs are being added, one for each of ``queues`` and ``headers``.

        Args:
            address: of the node. batch: the program adds several by one call.
        """

    def creating(self, queue: Name, headers: Pairs) -> Pairs:
        """A job was made that is added later. Returns the headers that it gets besides its own."""

    def received(
        self,
        queues: Sequence[Name],
        jobs: Sequence[Received],
        address: Address | None,
        began: int,
        error: BaseException | None = None,
    ) -> None:
        """The program has got jobs for which it has asked at ``began`` (ns since the epoch), or an
        error."""

    def processing(self, job: Received, address: Address) -> Processing:
        """This task has got a job to process, and ``activate`` was done."""

    def current(self) -> Processing | None:
        """The job that this task or thread is processing."""

    def carried(self, function: Callable[[], Awaitable[R]]) -> Callable[[], Awaitable[R]]:
        """``function``, to be called in another task or thread as if it were called here."""


tracer: Tracer | None = None
"""Looked at with each operation; None: nobody traces."""


def use(new: Tracer | None) -> None:
    """Set ``tracer``."""
    global tracer
    tracer = new


_unseen: ContextVar[bool] = ContextVar("disque_unseen", default=False)


@contextmanager
def unseen() -> Iterator[None]:
    """Trace nothing that this task does within the block: jobs that only we know of."""
    token = _unseen.set(True)
    try:
        yield
    finally:
        _unseen.reset(token)


def seeing() -> Tracer | None:
    """``tracer``, unless this is within ``unseen``."""
    return None if tracer is None or _unseen.get() else tracer


def carried(function: Callable[[], Awaitable[R]]) -> Callable[[], Awaitable[R]]:
    """``function``, to be called in another task or thread, where it belongs to the trace of this
    one."""
    return function if tracer is None else tracer.carried(function)


def current() -> Processing | None:
    """The job that this task or thread is processing, if it is traced."""
    return None if tracer is None else tracer.current()


async def send(
    tracer: Tracer,
    run: Callable[[list[list[Argument]]], Awaitable[list[Reply]]],
    commands: Sequence[list[Argument]],
    address: Address | None,
    *,
    batch: bool = False,
) -> list[Reply]:
    """Send ADDJOBs, and tell ``tracer``.

    A node that knows no headers gets jobs without, where these have none of their own.

    Args:
        run: sends commands and returns the replies, errors among them.
        commands: as ``requests.addjob`` makes them.
        address: of the node.
    """
    queues = [_name(command[1]) for command in commands]
    headers = [headers_of(command) for command in commands]
    with tracer.sending(queues, headers, address, batch) as sending:
        replies = await run(
            [
                with_headers(command, len(own), more)
                for command, own, more in zip(commands, headers, sending.more, strict=True)
            ]
        )
        plain = [
            n
            for n, reply in enumerate(replies)
            if sending.more[n] and not headers[n] and _knows_no_headers(reply)
        ]
        if plain:
            answers = await run([commands[n] for n in plain])
            for n, reply in zip(plain, answers, strict=True):
                replies[n] = reply
        sending.answered(replies)
    return replies


def _name(argument: Argument) -> Name:
    """An argument that is a name."""
    if isinstance(argument, str | bytes):
        return argument
    return str(argument) if isinstance(argument, int) else bytes(argument)


def headers_of(command: list[Argument]) -> Pairs:
    """The headers in an ADDJOB; they are the last of its arguments."""
    at = 4
    while at < len(command):
        if command[at] == "HEADERS":
            texts = [_name(text) for text in command[at + 2 :]]
            return list(zip(texts[::2], texts[1::2], strict=True))
        at += 1 if command[at] == "ASYNC" else 2
    return []


def with_headers(command: list[Argument], had: int, more: Pairs) -> list[Argument]:
    """An ADDJOB with ``more`` headers; it has ``had`` of them at its end."""
    if not more:
        return command
    new: list[Argument] = [text for pair in more for text in pair]
    if not had:
        return [*command, "HEADERS", len(more), *new]
    end = len(command) - 2 * had
    return [*command[: end - 1], had + len(more), *command[end:], *new]


def _knows_no_headers(reply: Reply) -> bool:
    if isinstance(reply, NoExtError):
        return True
    return isinstance(reply, ReplyError) and reply.code == "ERR" and "syntax" in str(reply).lower()
