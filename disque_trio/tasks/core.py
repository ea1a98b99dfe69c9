"""What tasks, handles and runners of an app share."""

import warnings
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from typing import Any, Generic, TypeVar, get_args

from disque_trio.client import Client, ConnectionLost
from disque_trio.respclient.foreign import in_async
from disque_trio.tasks.calling import Backend
from disque_trio.tasks.definition import Definition, Results
from disque_trio.tasks.errors import BadJob
from disque_trio.tasks.hooks import Hooks
from disque_trio.tasks.link import Link, OfLoop, OwnThread
from disque_trio.tasks.messages import CONTENT_TYPE, TASK
from disque_trio.tasks.retrying import of_job
from disque_trio.tasks.serializers import Serializer, Serializers

T = TypeVar("T")


class Core:
    """The tasks of an app, its serializers, and its way to the cluster.

    Args:
        thread: the client for callers that have none of their own.
        serializers: the serializers known from the start.
        key_for: seconds to keep the keys generated for jobs without one; None: generate none.
        backend: the event loop for ``async`` functions.
        elsewhere: connects to the node with this address.
        results: where results are kept.
        add_timeout: seconds to try to reach a node when adding.

    Attributes:
        tasks: the tasks, by name.
        hooks: what the program has called around them.
    """

    def __init__(
        self,
        thread: OwnThread,
        serializers: Serializers,
        key_for: float | None,
        backend: Backend,
        elsewhere: Callable[[str], AbstractAsyncContextManager[Client]],
        results: Results,
        add_timeout: float,
    ) -> None:
        self.tasks: dict[str, Definition] = {}
        self.hooks: Hooks = Hooks()
        self.serializers = serializers
        self.key_for = key_for
        self.backend: Backend = backend
        self.elsewhere = elsewhere
        if results not in get_args(Results):
            raise ValueError(f"results must be memory or store, not {results!r}")
        self.results: Results = results
        self.add_timeout = add_timeout
        self._thread = thread
        self._links: list[Link] = []

    def definition_of(self, headers: Mapping[str, bytes]) -> Definition | None:
        """Return the definition for a job with these headers; None: it has no task, or its options
        cannot be read."""
        definition = self.tasks.get(headers.get(TASK, b"").decode("utf-8", "replace"))
        if definition is None:
            return None
        try:
            return of_job(definition, headers)
        except BadJob:
            return None

    def queues_apart(self) -> set[str]:
        """Return the queues all of whose tasks run in processes of their own."""
        tasks = self.tasks.values()
        here = {task.queue for task in tasks if not task.process}
        return {task.queue for task in tasks if task.process} - here

    def serializer_of(self, definition: Definition, headers: Mapping[str, str]) -> Serializer:
        """Return the serializer for a job's arguments and its result. Raises BadJob."""
        if CONTENT_TYPE in headers:
            return self.serializers.of(headers[CONTENT_TYPE])
        return definition.serializer

    def stores(self, definition: Definition | None) -> bool:
        """Whether results of this task are stored; None: those of groups."""
        said = None if definition is None else definition.results
        return (said or self.results) == "store"

    @property
    def may_store(self) -> bool:
        """Whether results of any task are stored."""
        return self.results == "store" or any(map(self.stores, self.tasks.values()))

    @property
    def link(self) -> Link:
        """The way to the cluster: the client set last by ``using``, or else one in a thread."""
        for link in reversed(self._links):
            if not (isinstance(link, OfLoop) and link.inherited):
                return link
        return self._thread

    @contextmanager
    def using(self, link: Link) -> Iterator[None]:
        """Use ``link`` for everything within the block, in the whole process."""
        self._links.append(link)
        try:
            yield
        finally:
            self._links.remove(link)

    def close(self) -> None:
        """Close the client in the thread."""
        self._thread.close()


class Later(Generic[T]):
    """An operation with a client. In a thread, creating this object carries it out. In a task of
    Trio or asyncio, awaiting the object does.

    Args:
        core: provides the client.
        function: the operation. If an await was cancelled, it may be called again.
        what: describes the operation, for the warning if it was never awaited.
        around: contexts that were entered, and are left when it has been carried out.
    """

    def __init__(
        self,
        core: Core,
        function: Callable[[Client], Awaitable[T]],
        what: str,
        around: ExitStack | None = None,
    ) -> None:
        self._core = core
        self._function = function
        self._what = what
        self._around = ExitStack() if around is None else around
        self._values: list[T] = []
        self._begun = True
        if in_async():
            self._begun = False
        else:
            try:
                with self._around:
                    self._values.append(core.link.run_sync(function))
            except ConnectionLost as error:
                # Where it comes from says nothing to the program: it would hide the one line.
                raise error.with_traceback(None) from None

    @property
    def done(self) -> bool:
        """Whether the operation is done."""
        return bool(self._values)

    @property
    def value(self) -> T:
        """The result of the operation. Raises RuntimeError if it is not done yet."""
        if not self._values:
            raise RuntimeError(f"{self._what} was not awaited yet")
        return self._values[0]

    def __await__(self) -> Generator[Any, Any, T]:
        return self._do().__await__()

    async def _do(self) -> T:
        self._begun = True
        if not self._values:
            with self._around:
                value = await self._core.link.run(self._function)
                self._values[:] = [value]
        return self._values[0]

    def __del__(self) -> None:
        if not getattr(self, "_begun", True):
            text = f"{self._what} was never awaited"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)
