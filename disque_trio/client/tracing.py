"""How a client tells a tracer that jobs are sent, received and processed.

Knows no tracing library: ``disque_integrations.otel`` sets ``tracer``. Nothing is traced until
then.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeAlias, TypeVar

from disque_trio.notation.addresses import Address
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import NoExtError, ReplyError
from disque_trio.respclient.values import Name

R = TypeVar("R")

Pairs: TypeAlias = Sequence[tuple[Name, Name]]
"""Headers of a job, as names and values."""


class Received(Protocol):
    """The fields of a delivered job that tracers read."""

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
        more: for each job, the headers to add to its own.
    """

    more: Sequence[Pairs]

    def answered(self, replies: Sequence[Reply]) -> None:
        """Note the replies of the node, which may include errors."""


class Processing(Protocol):
    """A job that is being processed."""

    def activate(self) -> None:
        """Make whatever this task or thread does from now on part of this job's trace."""

    def leave(self) -> None:
        """Undo ``activate``, if this is still the same task or thread."""

    def describe(self, name: str, value: str | int) -> None:
        """Set an attribute of the job, such as ``task``."""

    def failed(self, error: BaseException) -> None:
        """Note that the job's handler raised an exception."""

    def end(self, outcome: str, reason: Name | None = None) -> None:
        """Note what became of the job, and leave it. Does nothing the second time.

        Args:
            outcome: ``ack``, ``nack``, ``dead``, ``requeue``, ``release`` or ``lost``.
            reason: why.
        """


class Tracer(Protocol):
    """Traces what clients do."""

    def sending(
        self, queues: Sequence[Name], headers: Sequence[Pairs], address: Address | None, batch: bool
    ) -> AbstractContextManager[Sending]:
        """Return a context for adding jobs, one for each of ``queues`` and ``headers``.

        Args:
            address: the address of the node.
            batch: whether the program adds several jobs by one call.
        """

    def creating(self, queue: Name, headers: Pairs) -> Pairs:
        """Note a job that will be added later. Returns the headers to add to its own."""

    def received(
        self,
        queues: Sequence[Name],
        jobs: Sequence[Received],
        address: Address | None,
        began: int,
        error: BaseException | None = None,
    ) -> None:
        """Note that the program received jobs, or an error, for a request made at ``began`` (ns
        since the epoch)."""

    def processing(self, job: Received, address: Address) -> Processing:
        """Note that this task got a job to process. The result is already activated."""

    def current(self) -> Processing | None:
        """Return the job that this task or thread is processing."""

    def carried(self, function: Callable[[], Awaitable[R]]) -> Callable[[], Awaitable[R]]:
        """Return a function that calls ``function`` elsewhere as part of the trace of this task."""

    def flush(self, seconds: float) -> None:
        """Send what was traced, before the process exits at once, for at most ``seconds``."""


class CannotTrace(Exception):
    """Tracing cannot be set up. The text says why, in one line."""


tracer: Tracer | None = None
"""The tracer, read at each operation; None: nobody traces."""


def use(new: Tracer | None) -> None:
    """Set ``tracer``."""
    global tracer
    tracer = new


def set_up() -> None:
    """Trace as the environment says, with what the extra ``otel`` installs.

    Raises:
        CannotTrace: it is not installed, or what the environment says cannot be done.
    """
    from importlib.metadata import entry_points

    found = [*entry_points(group="disque_trio.tracing")]
    if not found:
        from disque_trio.extras import how_to_install

        raise CannotTrace(f"OpenTelemetry is not installed: {how_to_install('otel')}")
    try:
        configure = found[0].load()
    except ImportError as error:
        raise CannotTrace(str(error)) from error
    configure()


_unseen: ContextVar[bool] = ContextVar("disque_unseen", default=False)


@contextmanager
def unseen() -> Iterator[None]:
    """Trace nothing that this task does within the block, for jobs that are internal."""
    token = _unseen.set(True)
    try:
        yield
    finally:
        _unseen.reset(token)


def seeing() -> Tracer | None:
    """Return ``tracer``; None inside of ``unseen``."""
    return None if tracer is None or _unseen.get() else tracer


def carried(function: Callable[[], Awaitable[R]]) -> Callable[[], Awaitable[R]]:
    """Return a function that calls ``function`` in another task or thread as part of the trace of
    this one."""
    return function if tracer is None else tracer.carried(function)


def current() -> Processing | None:
    """Return the job that this task or thread is processing, if it is traced."""
    return None if tracer is None else tracer.current()


async def send(
    tracer: Tracer,
    run: Callable[[list[list[Argument]]], Awaitable[list[Reply]]],
    commands: Sequence[list[Argument]],
    address: Address | None,
    *,
    batch: bool = False,
) -> list[Reply]:
    """Send ADDJOBs and report them to ``tracer``.

    If a node does not know headers, jobs with no headers of their own are sent again without those
    of the tracer.

    Args:
        run: sends commands and returns their replies, which may include errors.
        commands: commands made by ``requests.addjob``.
        address: the address of the node.
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
    """Convert an argument that is a name to str or bytes."""
    if isinstance(argument, str | bytes):
        return argument
    return str(argument) if isinstance(argument, int) else bytes(argument)


def headers_of(command: list[Argument]) -> Pairs:
    """Return the headers of an ADDJOB, which are its last arguments."""
    at = 4
    while at < len(command):
        if command[at] == "HEADERS":
            texts = [_name(text) for text in command[at + 2 :]]
            return list(zip(texts[::2], texts[1::2], strict=True))
        at += 1 if command[at] == "ASYNC" else 2
    return []


def with_headers(command: list[Argument], had: int, more: Pairs) -> list[Argument]:
    """Append the headers ``more`` to an ADDJOB that has ``had`` headers at its end."""
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
